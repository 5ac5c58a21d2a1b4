"""All kinds of faults by name, and what each needs of the machine."""

import random
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from chaos.faults import disks, network, processes
from chaos.testbed import Testbed


class FaultKind(NamedTuple):
    """`cause` injects the fault and reverts it. A `lasting` one leaves the server running and may overlap with others."""

    cause: Callable[[Testbed, random.Random], None]
    lasting: bool = False
    why_not: Callable[[Testbed], str | None] = lambda testbed: None


def _needs_mounts(testbed: Testbed) -> str | None:
    return testbed.disk.why_plain


def _needs_shim(testbed: Testbed) -> str | None:
    return testbed.shim.why_not


def _needs_pipeline(testbed: Testbed) -> str | None:
    return None if testbed.pipeline.is_wanted else "no pipeline runs here"


def _needs_database(testbed: Testbed) -> str | None:
    return None if testbed.database.is_wanted else "no database runs here"


def _needs_other_kafka(testbed: Testbed) -> str | None:
    return None if testbed.other_kafka.is_wanted else "no other Kafka runs here"


KINDS: Mapping[str, FaultKind] = {
    "kill": FaultKind(processes.kill),
    "pause": FaultKind(processes.pause),
    "stop": FaultKind(processes.stop),
    "killpoint": FaultKind(processes.killpoint),
    "power": FaultKind(disks.power, why_not=_needs_mounts),
    "failed-sync": FaultKind(disks.failed_sync, why_not=_needs_shim),
    "slow-syncs": FaultKind(disks.slow_syncs, lasting=True, why_not=_needs_shim),
    "full": FaultKind(disks.full, why_not=_needs_mounts),
    "torn": FaultKind(disks.torn),
    "rot": FaultKind(disks.rot),
    "clock": FaultKind(processes.jump, lasting=True, why_not=_needs_shim),
    "cut": FaultKind(network.cut, lasting=True),
    "delay": FaultKind(network.delay, lasting=True),
    "half-open": FaultKind(network.half_open, lasting=True),
    "refuse": FaultKind(network.refuse, lasting=True),
    "hostile": FaultKind(network.hostile, lasting=True),
    "slow-client": FaultKind(network.slow_client, lasting=True),
    "idle": FaultKind(network.idle, lasting=True),
    "driver": FaultKind(processes.driver, lasting=True, why_not=_needs_pipeline),
    "java": FaultKind(processes.java, lasting=True, why_not=_needs_pipeline),
    "database": FaultKind(processes.database, lasting=True, why_not=_needs_database),
    "database-cut": FaultKind(network.database_cut, lasting=True, why_not=_needs_database),
    "capture": FaultKind(processes.capture, lasting=True, why_not=_needs_database),
    "kafka": FaultKind(processes.other_kafka, lasting=True, why_not=_needs_other_kafka),
    "kafka-cut": FaultKind(network.copy_cut, lasting=True, why_not=_needs_other_kafka),
    "copier": FaultKind(processes.copier, lasting=True, why_not=_needs_other_kafka),
}


def possible(testbed: Testbed, names: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """Return the kinds that can be injected here, and why the others can't."""
    reasons = {name: KINDS[name].why_not(testbed) for name in names}
    return [name for name, reason in reasons.items() if reason is None], {k: v for k, v in reasons.items() if v is not None}
