"""What appends and fetches cost when there are many topics, and the memory that topics take."""

import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import NamedTuple

from bench.audit import AuditFailure, check_folder, check_streams
from bench.batches import BYTES_200, ring_of_copies
from bench.callers import call_in_turn
from bench.curves import Curve
from bench.figures import Figure, Section
from bench.fresh import Opened, open_folder
from bench.ground import Ground, settle_disk
from bench.growth.flatness import FLAT, curve, slope_figure
from bench.growth.looped_broker import LoopedBroker
from bench.measure import Samples, take_turns
from bench.stream import Stream
from tailrace.model.errors import TailraceError
from tailrace.model.fetch import PartitionFetch
from tailrace.model.ids import PartitionId
from tailrace.model.record import RawBatch

_CALLERS = 64
_DISTINCT = 65_536


class _Costs(NamedTuple):
    """Microseconds of CPU for each."""

    append: float
    fetch: float


def run(ground: Ground) -> Section:
    scale = ground.scale.growth
    counts = scale.topics
    with ExitStack() as stack:
        crowds = {count: _made(ground, stack, count) for count in counts}
        ground.say("growth, topics: append and fetch")
        sides = {str(count): partial(_turn, crowd) for count, crowd in crowds.items()}
        found = take_turns(sides, scale.topic_calls, scale.rounds)
        for crowd in crowds.values():
            check_streams(crowd.looped.store, crowd.stream)
        folders = {count: crowd.looped.folder for count, crowd in crowds.items()}
        for crowd in crowds.values():
            crowd.leave.close()
        ground.say("growth, topics: memory")
        opened = {count: [_open(folders[count], count) for _ in range(scale.rounds)] for count in counts}
        check_folder(folders[counts[-1]])

    def of(name: str, unit: str, values: Callable[[int], Iterable[float]]) -> Curve:
        return curve(name, "topics", unit, {count: list(values(count)) for count in counts})

    appends = of("append, CPU", "µs", lambda count: (each.append for each in found[str(count)]))
    fetches = of("fetch, CPU", "µs", lambda count: (each.fetch for each in found[str(count)]))
    memory = of("memory", "MB", lambda count: (each.memory_bytes / 1e6 for each in opened[count]))
    opening = of("opening", "s", lambda count: (each.store_seconds + each.broker_seconds for each in opened[count]))
    few, many = opened[counts[0]], opened[counts[-1]]
    each_kilobytes = [
        (with_many.memory_bytes - with_few.memory_bytes) / 1e3 / (counts[-1] - counts[0])
        for with_few, with_many in zip(few, many, strict=True)
    ]
    return Section(
        title="Growth: topics",
        text=f"Batches of one record, {BYTES_200.name}, through the broker to all topics in turn, one partition each"
        f" (`relaxed`, {_CALLERS} callers), and each fetched by itself and compared. The cost is the CPU of all threads of the"
        " process, callers included. Memory is that of a new process which opens the folder and starts a broker on it. The"
        " default limit is 1,000 topics; here it is raised.",
        figures=[
            slope_figure(appends, FLAT),
            slope_figure(fetches, FLAT),
            Figure(name=f"memory for each of {counts[-1]:,} topics", ours=Samples(tuple(each_kilobytes)), unit="KB"),
        ],
        curves=[appends, fetches, memory, opening],
        remarks=[
            "Time to make a topic, one after the other, on average: "
            + ", ".join(f"{crowd.create_microseconds:,.0f} µs for {count:,}" for count, crowd in crowds.items())
            + "."
        ],
    )


class _Crowd(NamedTuple):
    looped: LoopedBroker
    names: list[str]
    stream: Stream
    create_microseconds: float
    """To make a topic, on average."""
    leave: ExitStack
    """Closes the broker, which must be done before its folder is opened again."""


def _made(ground: Ground, stack: ExitStack, count: int) -> _Crowd:
    ground.say(f"growth, topics: {count:,} are made")
    folder = stack.enter_context(ground.folder())
    leave = stack.enter_context(ExitStack())
    looped = leave.enter_context(LoopedBroker(folder / "data", topics=count))
    names = [f"topic.{number}" for number in range(count)]
    began = time.perf_counter()
    partitions = looped.run(_create(looped, names))
    each = (time.perf_counter() - began) / count * 1e6
    return _Crowd(looped, names, Stream(partitions, ring_of_copies(BYTES_200, _DISTINCT)), each, leave)


async def _create(looped: LoopedBroker, names: list[str]) -> list[PartitionId]:
    return [PartitionId((await looped.broker.topics.create(name, 1)).id, 0) for name in names]


def _turn(crowd: _Crowd, calls: int) -> _Costs:
    settle_disk()
    return crowd.looped.run(_append_and_fetch(crowd, calls))


async def _append_and_fetch(crowd: _Crowd, calls: int) -> _Costs:
    broker, stream = crowd.looped.broker, crowd.stream
    first = stream.appended
    batches = [
        RawBatch(crowd.names[number % len(crowd.names)], 0, changes.appends[0].batch)
        for number, changes in enumerate(stream.take(calls), first)
    ]
    fetches = []
    for number in range(first, first + calls):
        nth, place = number % len(crowd.names), number // len(crowd.names)
        fetches.append((nth, place, PartitionFetch(crowd.names[nth], 0, stream.offset_of(place), 1)))

    async def append(batch: RawBatch) -> None:
        (outcome,) = await broker.appender.append([batch])
        if isinstance(outcome, TailraceError):
            raise outcome

    async def fetch(wanted: tuple[int, int, PartitionFetch]) -> None:
        nth, place, question = wanted
        (answer,) = await broker.fetcher.fetch([question])
        numbers = [stream.ring.number_of(batch) for batch in answer.batches]
        if numbers != [stream.number_at(nth, place)]:
            raise AuditFailure(f"{question.topic} gave batches {numbers} at {place}, not {stream.number_at(nth, place)}")

    appended = await call_in_turn(append, batches, _CALLERS)
    fetched = await call_in_turn(fetch, fetches, _CALLERS)
    return _Costs(appended.cpu_seconds / calls * 1e6, fetched.cpu_seconds / calls * 1e6)


def _open(folder: Path, count: int) -> Opened:
    opened = open_folder(folder)
    if opened.partitions != count:
        raise AuditFailure(f"{count} topics were made, {opened.partitions} are there")
    return opened
