"""The time to start a server, and its memory before and after work."""

import time
from collections.abc import Callable
from typing import NamedTuple

from bench.figures import Bar, Figure, Section, take_turns
from bench.kafka.comparison import comparing, pass_through, samples
from bench.kafka.tasks import Load
from bench.peers.servers import MakePeer
from bench.workspace import Workspace

_RECORD_BYTES = 1_000
_PARTITIONS = 12


class _Footprint(NamedTuple):
    name: str
    start_seconds: float
    idle_megabytes: float
    used_megabytes: float
    rested_megabytes: float


def run(workspace: Workspace, ours: MakePeer, other: MakePeer) -> Section:
    scale = workspace.scale.kafka
    workspace.say("memory and start")
    found = take_turns(
        {
            "ours": lambda records: _footprint(workspace, ours, records),
            "other": lambda records: _footprint(workspace, other, records),
        },
        scale.records(_RECORD_BYTES),
        scale.starts,
    )
    starts = samples(each.start_seconds for each in found["ours"])

    def figure(name: str, unit: str, value: Callable[[_Footprint], float], bar: Bar | None = None) -> Figure:
        return Figure(
            name=name,
            ours=samples(map(value, found["ours"])),
            unit=unit,
            peer=found["other"][0].name,
            peers=samples(map(value, found["other"])),
            bar=bar,
        )

    return Section(
        title="Beside Kafka: start and memory",
        text="From the start of the process on an empty folder, which Kafka has formatted before, until a client that asks"
        " for the brokers gets an answer. Memory is what the process has resident, at once, after"
        f" {scale.records(_RECORD_BYTES):,} records of 1 KB in and out of {_PARTITIONS} partitions, and when it has rested.",
        figures=[
            Figure(name="ready", ours=starts, unit="s", bar=Bar("at most", 1.5)),
            figure("ready", "s", lambda each: each.start_seconds),
            figure("memory after the start", "MB", lambda each: each.idle_megabytes, Bar("at most", 0.25)),
            figure("memory after the load", "MB", lambda each: each.used_megabytes, Bar("at most", 0.25)),
            figure(f"memory {scale.rest_seconds:g} s later", "MB", lambda each: each.rested_megabytes),
        ],
    )


def _footprint(workspace: Workspace, make: MakePeer, records: int) -> _Footprint:
    with comparing(workspace, make, "relaxed") as compared:
        idle = compared.memory_megabytes
        load = Load(topic="load", records=records, record_bytes=_RECORD_BYTES, partitions=_PARTITIONS)
        pass_through(compared, load)
        used = compared.memory_megabytes
        time.sleep(workspace.scale.kafka.rest_seconds)
        return _Footprint(compared.peer.name, compared.start_seconds, idle, used, compared.memory_megabytes)
