"""All kinds of faults by name, and what each needs of the machine."""

import random
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from chaos.faults import clients, clocks, disks, network, processes, spark
from chaos.stage import Stage


class Kind(NamedTuple):
    """`cause` does it and takes it back. A `lasting` one leaves the server running and may go on beside others."""

    cause: Callable[[Stage, random.Random], None]
    lasting: bool = False
    why_not: Callable[[Stage], str | None] = lambda stage: None


def _needs_mounts(stage: Stage) -> str | None:
    return stage.disk.why_plain


def _needs_shim(stage: Stage) -> str | None:
    return stage.shim.why_not


def _needs_pipeline(stage: Stage) -> str | None:
    return None if stage.pipeline.is_wanted else "no pipeline runs here"


KINDS: Mapping[str, Kind] = {
    "kill": Kind(processes.kill),
    "pause": Kind(processes.pause),
    "stop": Kind(processes.stop),
    "killpoint": Kind(processes.killpoint),
    "power": Kind(disks.power, why_not=_needs_mounts),
    "failed-sync": Kind(disks.failed_sync, why_not=_needs_shim),
    "slow-syncs": Kind(disks.slow_syncs, lasting=True, why_not=_needs_shim),
    "full": Kind(disks.full, why_not=_needs_mounts),
    "torn": Kind(disks.torn),
    "rot": Kind(disks.rot),
    "clock": Kind(clocks.jump, lasting=True, why_not=_needs_shim),
    "cut": Kind(network.cut, lasting=True),
    "delay": Kind(network.delay, lasting=True),
    "half-open": Kind(network.half_open, lasting=True),
    "refuse": Kind(network.refuse, lasting=True),
    "hostile": Kind(clients.hostile, lasting=True),
    "slow-client": Kind(clients.slow_client, lasting=True),
    "idle": Kind(clients.idle, lasting=True),
    "driver": Kind(spark.driver, lasting=True, why_not=_needs_pipeline),
}


def possible(stage: Stage, names: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """Those that can be caused here, and why the others can't."""
    reasons = {name: KINDS[name].why_not(stage) for name in names}
    return [name for name, reason in reasons.items() if reason is None], {k: v for k, v in reasons.items() if v is not None}
