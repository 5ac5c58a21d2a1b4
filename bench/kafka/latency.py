"""Latency: from producer to consumer, until an ack, and among many connections."""

import statistics
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple, TypeVar

import msgspec

from bench.figures import Bar, Figure, Section, take_turns
from bench.kafka.comparison import ComparedServer, Comparison, check, client_alone, compare, samples
from bench.kafka.tasks import (
    CloseConnections,
    Consume,
    ConsumeSteadily,
    Delays,
    Load,
    OpenConnections,
    Produce,
    ProduceEverywhere,
    ProduceOneByOne,
    ProduceSteadily,
    Span,
)
from bench.peers.servers import MakePeer
from bench.worker_process import expect
from bench.workspace import Workspace, settle_disk
from tailrace.model.commit import Durability

T = TypeVar("T")

PER_SECOND = 1_000
_RECORD_BYTES = 1_000


class _Percentiles(NamedTuple):
    """In milliseconds."""

    p50: float
    p99: float
    p999: float


class _ManyConnections(NamedTuple):
    """Many connections at a time."""

    records_per_second: float
    memory_megabytes: float


def run_relaxed(workspace: Workspace, ours: MakePeer, other: MakePeer) -> Section:
    return Section(
        title="Beside Kafka: together and in turn, `relaxed`",
        text="Together: a consumer reads at the end of the topic while a producer sends as fast as it can; the time ends when"
        " the last record is read. Delay: from the call that sends a record to the call that returns it,"
        f" {PER_SECOND:,} records a second of 1 KB, no lingering. One at a time: each record is sent when the one before it is"
        " acknowledged (`acks=all`). Connections: that many producers, each with one record on its way.",
        figures=_figures(workspace, ours, other, "relaxed"),
    )


def run_synced(workspace: Workspace, ours: MakePeer, other: MakePeer) -> Section:
    return Section(
        title="Beside Kafka: together and in turn, `fsync`",
        text="The same where all that is acknowledged is on the disk: Kafka runs with `log.flush.interval.messages=1`.",
        figures=_figures(workspace, ours, other, "fsync"),
    )


def _figures(workspace: Workspace, make_ours: MakePeer, make_other: MakePeer, durability: Durability) -> list[Figure]:
    scale = workspace.scale.kafka
    is_synced = durability == "fsync"
    with compare(workspace, make_ours, make_other, durability) as both, client_alone(workspace, durability) as alone:
        peer = both.other.peer.name
        workspace.say(f"{durability}: producer and consumer together")
        rates = both.take_turns(_exchange, scale.records(_RECORD_BYTES), scale.rounds)
        workspace.say(f"{durability}: delay at {PER_SECOND:,} records a second")
        delays = both.take_turns(_delay, round(PER_SECOND * scale.steady_seconds), scale.rounds)
        workspace.say(f"{durability}: one record at a time")
        singles = both.take_turns(_one_by_one, scale.one_by_one, scale.rounds)
        workspace.say(f"{durability}: {scale.connections} connections")
        found_by_server = _many_connections(both, alone, scale.connections, scale.turns, scale.rounds)

    def figure(name: str, unit: str, sides: Sequence[Sequence[float]], bar: Bar | None = None) -> Figure:
        client = samples(sides[2]) if len(sides) > 2 else None
        return Figure(name=name, ours=samples(sides[0]), unit=unit, peer=peer, peers=samples(sides[1]), bar=bar, alone=client)

    return [
        figure("together, 1 KB", "MB/s", rates, Bar("at least", 1.0)),
        figure("delay, p50", "ms", _each(delays, lambda found: found.p50)),
        figure("delay, p99", "ms", _each(delays, lambda found: found.p99), Bar("at most", 1.0)),
        figure("delay, p999", "ms", _each(delays, lambda found: found.p999)),
        figure("one at a time, 1 KB", "records/s", singles, None if is_synced else Bar("at least", 1.0)),
        figure(
            f"{scale.connections} connections, 1 KB",
            "records/s",
            _each(found_by_server, lambda found: found.records_per_second),
            Bar("at least", 5.0 if is_synced else 1.0),
        ),
        figure(
            f"memory with {scale.connections} connections",
            "MB",
            _each(found_by_server[:2], lambda found: found.memory_megabytes),
        ),
    ]


def _exchange(compared: ComparedServer, records: int) -> float:
    settle_disk()
    load = compared.new_topic(Load(topic="together", records=records, record_bytes=_RECORD_BYTES))
    compared.receiver.ask(Consume(load))
    produced = expect(Span, compared.sender.ask(Produce(load)))
    consumed = expect(Span, compared.receiver.receive())
    return load.megabytes / (consumed.ended - produced.began)


def _delay(compared: ComparedServer, records: int) -> _Percentiles:
    load = compared.new_topic(Load(topic="delay", records=records, record_bytes=_RECORD_BYTES))
    compared.receiver.ask(ConsumeSteadily(load))
    compared.sender.ask(ProduceSteadily(load, PER_SECOND))
    delays = expect(Delays, compared.receiver.receive())
    marks = statistics.quantiles((seconds * 1_000 for seconds in delays.seconds), n=1_000, method="inclusive")
    return _Percentiles(marks[499], marks[989], marks[998])


def _one_by_one(compared: ComparedServer, records: int) -> float:
    load = compared.new_topic(Load(topic="one-by-one", records=records, record_bytes=_RECORD_BYTES))
    span = expect(Span, compared.sender.ask(ProduceOneByOne(load)))
    check(compared, load)
    return records / span.seconds


def _many_connections(
    both: Comparison, alone: ComparedServer | None, connections: int, turns: int, rounds: int
) -> Sequence[Sequence[_ManyConnections]]:
    """Return the delays of ours, of the other, and of a server that does nothing. Connections and topic stay between rounds."""
    empty = Load(topic="crowd", records=0, record_bytes=_RECORD_BYTES, senders=connections)
    compared_servers = (*both,) if alone is None else (*both, alone)
    loads = {compared: compared.new_topic(empty) for compared in compared_servers}
    for compared, load in loads.items():
        compared.sender.ask(OpenConnections(load))

    def send(compared: ComparedServer, turns: int) -> _ManyConnections:
        sent = loads[compared]
        load = msgspec.structs.replace(sent, records=turns * connections)
        span = expect(Span, compared.sender.ask(ProduceEverywhere(load)))
        loads[compared] = msgspec.structs.replace(sent, records=sent.records + load.records)
        return _ManyConnections(load.records / span.seconds, compared.memory_megabytes)

    found_by_server = take_turns({str(at): partial(send, each) for at, each in enumerate(compared_servers)}, turns, rounds)
    for compared, load in loads.items():
        compared.sender.ask(CloseConnections(load))
        if compared is not alone:
            check(compared, load)
    return list(found_by_server.values())


def _each(sides: Sequence[Sequence[T]], value: Callable[[T], float]) -> list[list[float]]:
    return [[value(found) for found in side] for side in sides]
