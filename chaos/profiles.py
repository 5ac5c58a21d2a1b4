"""Named mixes of workloads and faults: what `--profile` chooses from."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from chaos.workloads.cdc import Cdc
from chaos.workloads.groups import Groups
from chaos.workloads.mixed import Mixed
from chaos.workloads.queue import Queue
from chaos.workloads.queues import Queues
from chaos.workloads.retention import Retention
from chaos.workloads.tables import Tables
from chaos.workloads.transactions import Transactions
from chaos.workloads.workload import Workload


class Profile(NamedTuple):
    workloads: Sequence[type[Workload]]
    faults: Sequence[str]
    minutes: float = 2.0
    load: float = 1.0
    gap_seconds: float = 2.5
    """Between two faults, in the mean."""


PROCESS = ("kill", "pause", "stop", "killpoint")
DISK = ("power", "failed-sync", "slow-syncs", "full", "torn", "rot")
NETWORK = ("cut", "delay", "half-open", "refuse")
CLIENTS = ("hostile", "slow-client", "idle")
EVERYTHING = (*PROCESS, *DISK, *NETWORK, *CLIENTS, "clock")

PROFILES: Mapping[str, Profile] = {
    "queue": Profile((Queue,), EVERYTHING),
    "groups": Profile((Groups,), (*PROCESS, *NETWORK, "power", "slow-syncs", "clock")),
    "transactions": Profile((Transactions,), (*PROCESS, *DISK, *NETWORK, "clock")),
    "queues": Profile((Queues,), (*PROCESS, *NETWORK, "power", "failed-sync", "clock")),
    "retention": Profile((Retention,), (*PROCESS, *DISK, "cut", "clock", "slow-client")),
    "tables": Profile((Tables,), EVERYTHING),
    "mixed": Profile((Mixed,), EVERYTHING),
    "cdc": Profile(
        (Cdc,), ("driver", "kill", "pause", "power", "cut", "failed-sync", "killpoint", "half-open"), gap_seconds=6.0
    ),
    "short": Profile((Queue, Groups, Transactions, Queues, Retention, Tables, Mixed), EVERYTHING, load=0.4, gap_seconds=2.0),
}
