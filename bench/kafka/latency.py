"""Where somebody waits: for a record to come through, for an acknowledgement, for a turn among many connections."""

import statistics
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple, TypeVar

import msgspec

from bench.figures import Bar, Figure, Section, take_turns
from bench.kafka.comparison import ComparedServer, Comparison, check, client_alone, compare, said, samples
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
from bench.workspace import Workspace, settle_disk
from tailrace.model.commit import Durability

T = TypeVar("T")

PER_SECOND = 1_000
_RECORD_BYTES = 1_000


class _Percentiles(NamedTuple):
    """Milliseconds."""

    p50: float
    p99: float
    p999: float


class _ManyConnections(NamedTuple):
    """Many connections at a time."""

    records_per_second: float
    memory_megabytes: float


def run_relaxed(ground: Workspace, ours: MakePeer, other: MakePeer) -> Section:
    return Section(
        title="Beside Kafka: together and in turn, `relaxed`",
        text="Together: a consumer reads at the end of the topic while a producer sends as fast as it can; the time ends when"
        " the last record is read. Delay: from the call that sends a record to the call that returns it,"
        f" {PER_SECOND:,} records a second of 1 KB, no lingering. One at a time: each record is sent when the one before it is"
        " acknowledged (`acks=all`). Connections: that many producers, each with one record on its way.",
        figures=_figures(ground, ours, other, "relaxed"),
    )


def run_synced(ground: Workspace, ours: MakePeer, other: MakePeer) -> Section:
    return Section(
        title="Beside Kafka: together and in turn, `fsync`",
        text="The same where all that is acknowledged is on the disk: Kafka runs with `log.flush.interval.messages=1`.",
        figures=_figures(ground, ours, other, "fsync"),
    )


def _figures(ground: Workspace, make_ours: MakePeer, make_other: MakePeer, durability: Durability) -> list[Figure]:
    scale = ground.scale.kafka
    is_synced = durability == "fsync"
    with compare(ground, make_ours, make_other, durability) as both, client_alone(ground, durability) as alone:
        peer = both.other.peer.name
        ground.say(f"{durability}: producer and consumer together")
        rates = both.take_turns(_exchange, scale.records(_RECORD_BYTES), scale.rounds)
        ground.say(f"{durability}: delay at {PER_SECOND:,} records a second")
        delays = both.take_turns(_delay, round(PER_SECOND * scale.steady_seconds), scale.rounds)
        ground.say(f"{durability}: one record at a time")
        singles = both.take_turns(_one_by_one, scale.one_by_one, scale.rounds)
        ground.say(f"{durability}: {scale.connections} connections")
        crowds = _crowds(both, alone, scale.connections, scale.turns, scale.rounds)

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
            _each(crowds, lambda found: found.records_per_second),
            Bar("at least", 5.0 if is_synced else 1.0),
        ),
        figure(f"memory with {scale.connections} connections", "MB", _each(crowds[:2], lambda found: found.memory_megabytes)),
    ]


def _exchange(contender: ComparedServer, records: int) -> float:
    settle_disk()
    load = contender.new_topic(Load(topic="together", records=records, record_bytes=_RECORD_BYTES))
    contender.receiver.ask(Consume(load))
    produced = said(Span, contender.sender.ask(Produce(load)))
    consumed = said(Span, contender.receiver.hear())
    return load.megabytes / (consumed.ended - produced.began)


def _delay(contender: ComparedServer, records: int) -> _Percentiles:
    load = contender.new_topic(Load(topic="delay", records=records, record_bytes=_RECORD_BYTES))
    contender.receiver.ask(ConsumeSteadily(load))
    contender.sender.ask(ProduceSteadily(load, PER_SECOND))
    delays = said(Delays, contender.receiver.hear())
    marks = statistics.quantiles((seconds * 1_000 for seconds in delays.seconds), n=1_000, method="inclusive")
    return _Percentiles(marks[499], marks[989], marks[998])


def _one_by_one(contender: ComparedServer, records: int) -> float:
    load = contender.new_topic(Load(topic="one-by-one", records=records, record_bytes=_RECORD_BYTES))
    span = said(Span, contender.sender.ask(ProduceOneByOne(load)))
    check(contender, load)
    return records / span.seconds


def _crowds(
    both: Comparison, alone: ComparedServer | None, connections: int, turns: int, rounds: int
) -> Sequence[Sequence[_ManyConnections]]:
    """Ours, the other's, and those that nobody keeps. The connections stay open from round to round, and so does the topic."""
    empty = Load(topic="crowd", records=0, record_bytes=_RECORD_BYTES, senders=connections)
    contenders = (*both,) if alone is None else (*both, alone)
    loads = {contender: contender.new_topic(empty) for contender in contenders}
    for contender, load in loads.items():
        contender.sender.ask(OpenConnections(load))

    def send(contender: ComparedServer, turns: int) -> _ManyConnections:
        sent = loads[contender]
        load = msgspec.structs.replace(sent, records=turns * connections)
        span = said(Span, contender.sender.ask(ProduceEverywhere(load)))
        loads[contender] = msgspec.structs.replace(sent, records=sent.records + load.records)
        return _ManyConnections(load.records / span.seconds, contender.memory_megabytes)

    crowds = take_turns({str(at): partial(send, each) for at, each in enumerate(contenders)}, turns, rounds)
    for contender, load in loads.items():
        contender.sender.ask(CloseConnections(load))
        if contender is not alone:
            check(contender, load)
    return list(crowds.values())


def _each(sides: Sequence[Sequence[T]], value: Callable[[T], float]) -> list[list[float]]:
    return [[value(found) for found in side] for side in sides]
