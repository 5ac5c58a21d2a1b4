"""Throughput of one client, producing and consuming, with records and batches of many sizes."""

import statistics
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import cycle
from typing import NamedTuple

from bench.figures import Bar, Figure, Section, take_turns
from bench.kafka.comparison import ComparedServer, Comparison, client_alone, compare, samples
from bench.kafka.tasks import Load, Produce, Span
from bench.peers.servers import MakePeer
from bench.worker_process import expect
from bench.workspace import Workspace, settle_disk
from tailrace.model.commit import Durability

_JUDGED_BYTES = (100, 1_000)
_PRODUCE_BARS: Mapping[Durability, Bar] = {"relaxed": Bar("at least", 1.0), "fsync": Bar("at least", 5.0)}
_CONSUME_BARS: Mapping[Durability, Bar] = {"relaxed": Bar("at least", 1.0)}


class Batching(NamedTuple):
    name: str
    settings: Mapping[str, str | int]
    synced_share: int = 2
    """With syncs only this fraction of the records is used, to limit the time."""


DEFAULT = Batching("default batches", {})
LARGE = Batching(
    "large batches",
    {"linger.ms": 50, "batch.num.messages": 100_000, "batch.size": 4_000_000, "message.max.bytes": 4_000_000},
)
_SMALL = Batching("16 KB batches", {"batch.size": 16_384}, synced_share=10)


class Case(NamedTuple):
    record_bytes: int
    batching: Batching
    partitions: int
    pause_seconds: float = 0.0

    @property
    def name(self) -> str:
        size = f"{self.record_bytes} B" if self.record_bytes < 1_000 else f"{self.record_bytes // 1_000} KB"
        return f"{size}, {self.batching.name}, {self.partitions} partition{'s' if self.partitions > 1 else ''}"

    def load(self, records: int) -> Load:
        return Load(
            topic="throughput",
            records=records,
            record_bytes=self.record_bytes,
            partitions=self.partitions,
            settings=self.batching.settings,
            pause_seconds=self.pause_seconds,
        )


_CASES = [
    *(
        Case(record_bytes, batching, partitions)
        for record_bytes in (100, 1_000, 10_000)
        for batching in (DEFAULT, LARGE)
        for partitions in (1, 12)
    ),
    *(Case(record_bytes, _SMALL, 1) for record_bytes in _JUDGED_BYTES),
]
_FEW_CASES = [case for case in _CASES if case.batching is not LARGE and (case.partitions == 1 or case.record_bytes == 1_000)]


class Speed(NamedTuple):
    produced: float
    """MB/s"""
    consumed: float
    produce_cpu: float
    """The server's CPU seconds for 1 GB."""
    consume_cpu: float


def run_relaxed(workspace: Workspace, ours: MakePeer, other: MakePeer) -> Section:
    figures, remarks = _measure(workspace, ours, other, "relaxed")
    return Section(
        title="Beside Kafka: produce and consume, `relaxed`",
        text="One producer sends records as fast as it can until the last of them is acknowledged (`acks=all`); then one"
        " consumer reads them all from the start, and others do so again, at both servers in turn; their median counts."
        " Producer and consumers are librdkafka in processes of their own, the servers are separate processes as well, and all"
        " share the machine's cores. Consumers are connected before the clock starts. Default batches are librdkafka's (5 ms,"
        " up to 10,000 records or 1 MB), large ones have 50 ms and 4 MB, and 16 KB is what Java's producer takes by default."
        " Kafka has the settings it comes with, so it leaves syncing to the operating system. The goal is 1.5 times its speed.",
        figures=figures,
        remarks=remarks,
    )


def run_synced(workspace: Workspace, ours: MakePeer, other: MakePeer) -> Section:
    figures, remarks = _measure(workspace, ours, other, "fsync")
    return Section(
        title="Beside Kafka: produce and consume, `fsync`",
        text="The same where all that is acknowledged is on the disk: Kafka runs with `log.flush.interval.messages=1`. Reading"
        " syncs nothing, so it has no bar here. In the same rounds the producer sends to a server that takes its requests from"
        " the socket, looks at nothing and answers at once: the client alone.",
        figures=figures,
        remarks=remarks,
    )


def _measure(
    workspace: Workspace, make_ours: MakePeer, make_other: MakePeer, durability: Durability
) -> tuple[list[Figure], list[str]]:
    scale = workspace.scale.kafka
    figures: list[Figure] = []
    remarks: list[str] = []
    with compare(workspace, make_ours, make_other, durability) as both, client_alone(workspace, durability) as alone:
        for case in _CASES if scale.has_every_shape else _FEW_CASES:
            workspace.say(f"{durability}: {case.name}")
            records = scale.records(case.record_bytes) // (case.batching.synced_share if durability == "fsync" else 1)
            reads = scale.reads if durability in _CONSUME_BARS else 1
            sides = {"both": partial(speeds, case, reads, both, cycle((False, True)))}
            if alone is not None:
                sides["alone"] = partial(_speed_of_sending, case, alone)
            found = take_turns(sides, records, scale.rounds)
            ours, others = zip(*found["both"], strict=True)
            sent_alone = [speed for (speed,) in found.get("alone", ())]
            is_judged = case.record_bytes in _JUDGED_BYTES
            figures += figures_of(
                case,
                both.other.peer.name,
                ours,
                others,
                _PRODUCE_BARS[durability] if is_judged else None,
                _CONSUME_BARS.get(durability) if is_judged else None,
                sent_alone,
            )
            remarks.append(f"{case.name}: {cpu_of(ours)}; {both.other.peer.name} {cpu_of(others)}.")
    return figures, ["CPU that the server uses for 1 GB in and for 1 GB out, Tailrace first:", *remarks]


def speeds(case: Case, reads: int, both: Comparison, other_first: Iterator[bool], records: int) -> tuple[Speed, ...]:
    """Return the speeds of ours and of the other. Which goes first changes from round to round."""
    load = case.load(records)
    gigabytes = load.megabytes / 1_000
    return tuple(
        Speed(
            load.megabytes / passed.produced.seconds,
            load.megabytes / statistics.median(span.seconds for span in passed.consumed),
            passed.produce_cpu_seconds / gigabytes,
            passed.consume_cpu_seconds / (reads * gigabytes),
        )
        for passed in both.pass_through(load, reads, other_first=next(other_first))
    )


def _speed_of_sending(case: Case, compared: ComparedServer, records: int) -> tuple[Speed, ...]:
    """Return the speed of a client at a server that keeps nothing."""
    settle_disk()
    load = compared.new_topic(case.load(records))
    return (Speed(load.megabytes / expect(Span, compared.sender.ask(Produce(load))).seconds, 0.0, 0.0, 0.0),)


def figures_of(
    case: Case,
    peer: str,
    ours: Sequence[Speed],
    others: Sequence[Speed],
    produce_bar: Bar | None,
    consume_bar: Bar | None,
    alone: Sequence[Speed] = (),
) -> Iterator[Figure]:
    yield Figure(
        name=f"produce {case.name}",
        ours=samples(each.produced for each in ours),
        unit="MB/s",
        peer=peer,
        peers=samples(each.produced for each in others),
        bar=produce_bar,
        alone=samples(each.produced for each in alone) if alone else None,
    )
    yield Figure(
        name=f"consume {case.name}",
        ours=samples(each.consumed for each in ours),
        unit="MB/s",
        peer=peer,
        peers=samples(each.consumed for each in others),
        bar=consume_bar,
    )


def cpu_of(speeds: Sequence[Speed]) -> str:
    produce = statistics.median(each.produce_cpu for each in speeds)
    consume = statistics.median(each.consume_cpu for each in speeds)
    return f"{produce:.1f} and {consume:.1f} s"
