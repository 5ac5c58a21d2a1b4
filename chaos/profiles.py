"""Named mixes of workloads and faults: what `--profile` chooses from."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from chaos.workloads import (
    CdcWorkload,
    GroupsWorkload,
    MixedWorkload,
    PostgresWorkload,
    QueuesWorkload,
    QueueWorkload,
    RealtimeWorkload,
    RetentionWorkload,
    ShadowWorkload,
    TablesWorkload,
    TransactionsWorkload,
    Workload,
)


class Profile(NamedTuple):
    workloads: Sequence[type[Workload]]
    faults: Sequence[str]
    minutes: float = 2.0
    load: float = 1.0
    gap_seconds: float = 2.5
    """The mean time between two faults."""


PROCESS = ("kill", "pause", "stop", "killpoint")
DISK = ("power", "failed-sync", "slow-syncs", "full", "torn", "rot")
NETWORK = ("cut", "delay", "half-open", "refuse")
CLIENTS = ("hostile", "slow-client", "idle")
EVERYTHING = (*PROCESS, *DISK, *NETWORK, *CLIENTS, "clock")

PROFILES: Mapping[str, Profile] = {
    "queue": Profile((QueueWorkload,), EVERYTHING),
    "groups": Profile((GroupsWorkload,), (*PROCESS, *NETWORK, "power", "slow-syncs", "clock")),
    "transactions": Profile((TransactionsWorkload,), (*PROCESS, *DISK, *NETWORK, "clock")),
    "queues": Profile((QueuesWorkload,), (*PROCESS, *NETWORK, "power", "failed-sync", "clock")),
    "retention": Profile((RetentionWorkload,), (*PROCESS, *DISK, "cut", "clock", "slow-client")),
    "tables": Profile((TablesWorkload,), EVERYTHING),
    "mixed": Profile((MixedWorkload,), EVERYTHING),
    "cdc": Profile(
        (CdcWorkload,), ("driver", "kill", "pause", "power", "cut", "failed-sync", "killpoint", "half-open"), gap_seconds=6.0
    ),
    "realtime": Profile(
        (RealtimeWorkload,),
        ("driver", "java", "kill", "pause", "power", "cut", "failed-sync", "killpoint", "half-open"),
        gap_seconds=6.0,
    ),
    "postgres": Profile(
        (PostgresWorkload,),
        (
            *(
                "database",
                "database-cut",
                "capture",
                "driver",
                "java",
                "kill",
                "stop",
                "pause",
                "power",
                "failed-sync",
                "slow-syncs",
                "killpoint",
            ),
            *("full", "clock", "cut"),
        ),
        gap_seconds=3.0,
    ),
    "shadow": Profile(
        (ShadowWorkload,),
        (
            *(
                "copier",
                "kafka",
                "kafka-cut",
                "kill",
                "stop",
                "pause",
                "killpoint",
                "power",
                "failed-sync",
                "slow-syncs",
                "torn",
            ),
            *("full", "clock", "cut", "half-open"),
        ),
    ),
    "short": Profile(
        (QueueWorkload, GroupsWorkload, TransactionsWorkload, QueuesWorkload, RetentionWorkload, TablesWorkload, MixedWorkload),
        EVERYTHING,
        load=0.4,
        gap_seconds=2.0,
    ),
}
