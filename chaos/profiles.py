"""Named mixes of workloads and faults: what `--profile` chooses from."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from chaos.workloads.queue import Queue
from chaos.workloads.workload import Workload


class Profile(NamedTuple):
    workloads: Sequence[type[Workload]]
    faults: Sequence[str]
    minutes: float = 2.0
    load: float = 1.0
    gap_seconds: float = 4.0
    """Between two faults, in the mean."""


PROCESS = ("kill", "pause", "stop", "killpoint")
DISK = ("power", "failed-sync", "slow-syncs", "full", "torn", "rot")
NETWORK = ("cut", "delay", "half-open", "refuse")
CLIENTS = ("hostile", "slow-client", "idle")
EVERYTHING = (*PROCESS, *DISK, *NETWORK, *CLIENTS, "clock")

PROFILES: Mapping[str, Profile] = {
    "queue": Profile((Queue,), EVERYTHING),
}
