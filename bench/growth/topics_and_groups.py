"""The cost of appends, fetches and commits, and the memory, as the number of topics or groups grows.

Each broker has its own event loop, so that several can be measured in turn in one process.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Self, TypeVar

import msgspec
import uvloop

from bench.audit import AuditFailure, check_folder, check_streams
from bench.batches import BYTES_200, Shape, Stream, ring_of_copies
from bench.figures import FLAT, Curve, Figure, Samples, Section, curve, slope_figure, take_turns
from bench.store.fresh_process import Opened, open_folder
from bench.workspace import Workspace, settle_disk
from bench.writers import Elapsed, call_in_turn
from tailrace.broker.broker import Broker
from tailrace.model.clock import SystemClock
from tailrace.model.errors import TailraceError
from tailrace.model.fetch import PartitionFetch
from tailrace.model.group import OffsetCommit
from tailrace.model.ids import Offset, PartitionId
from tailrace.model.limits import DEFAULT_LIMITS
from tailrace.model.record import RawBatch
from tailrace.store.embedded import EmbeddedStore

T = TypeVar("T")


class LoopedBroker:
    """A broker on a new folder, with `relaxed` durability and room for this many topics and groups."""

    def __init__(self, folder: Path, topics: int = 1, groups: int = 1) -> None:
        self.folder = folder
        limits = msgspec.structs.replace(
            DEFAULT_LIMITS, topics=max(topics, DEFAULT_LIMITS.topics), groups=max(groups, DEFAULT_LIMITS.groups)
        )
        self.store = EmbeddedStore.open(folder, durability="relaxed", limits=limits)
        self._runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)
        self.broker = Broker(self.store, SystemClock(), limits)

    def __enter__(self) -> Self:
        self.run(self.broker.start())
        return self

    def __exit__(self, *_: object) -> None:
        self.run(self.broker.close())
        self._runner.close()
        self.store.close()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(work)


_CALLERS = 64
_DISTINCT = 65_536


class _Costs(NamedTuple):
    """CPU time for each, in microseconds."""

    append: float
    fetch: float


def run_topics(workspace: Workspace) -> Section:
    scale = workspace.scale.growth
    counts = scale.topics
    with ExitStack() as stack:
        by_count = {count: _made(workspace, stack, count) for count in counts}
        workspace.say("growth, topics: append and fetch")
        sides = {str(count): partial(_topic_turn, populated) for count, populated in by_count.items()}
        found = take_turns(sides, scale.topic_calls, scale.rounds)
        for populated in by_count.values():
            check_streams(populated.looped.store, populated.stream)
        folders = {count: populated.looped.folder for count, populated in by_count.items()}
        for populated in by_count.values():
            populated.leave.close()
        workspace.say("growth, topics: memory")
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
            + ", ".join(f"{populated.create_microseconds:,.0f} µs for {count:,}" for count, populated in by_count.items())
            + "."
        ],
    )


class _ManyTopics(NamedTuple):
    looped: LoopedBroker
    names: list[str]
    stream: Stream
    create_microseconds: float
    """The average time to create a topic."""
    leave: ExitStack
    """Close the broker, so that its folder can be opened again."""


def _made(workspace: Workspace, stack: ExitStack, count: int) -> _ManyTopics:
    workspace.say(f"growth, topics: {count:,} are made")
    folder = stack.enter_context(workspace.folder())
    leave = stack.enter_context(ExitStack())
    looped = leave.enter_context(LoopedBroker(folder / "data", topics=count))
    names = [f"topic.{number}" for number in range(count)]
    began = time.perf_counter()
    partitions = looped.run(_create(looped, names))
    each = (time.perf_counter() - began) / count * 1e6
    return _ManyTopics(looped, names, Stream(partitions, ring_of_copies(BYTES_200, _DISTINCT)), each, leave)


async def _create(looped: LoopedBroker, names: list[str]) -> list[PartitionId]:
    return [PartitionId((await looped.broker.topics.create(name, 1)).id, 0) for name in names]


def _topic_turn(populated: _ManyTopics, calls: int) -> _Costs:
    settle_disk()
    return populated.looped.run(_append_and_fetch(populated, calls))


async def _append_and_fetch(populated: _ManyTopics, calls: int) -> _Costs:
    broker, stream = populated.looped.broker, populated.stream
    first = stream.appended
    batches = [
        RawBatch(populated.names[number % len(populated.names)], 0, changes.appends[0].batch)
        for number, changes in enumerate(stream.take(calls), first)
    ]
    fetches = []
    for number in range(first, first + calls):
        nth, place = number % len(populated.names), number // len(populated.names)
        fetches.append((nth, place, PartitionFetch(populated.names[nth], 0, stream.offset_of(place), 1)))

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


_TOPIC = "read.by_all"
_FILLING = Shape("filling", 1_000, 16)


def run_groups(workspace: Workspace) -> Section:
    scale = workspace.scale.growth
    with ExitStack() as stack:
        by_count = {}
        for count in scale.groups:
            looped = stack.enter_context(LoopedBroker(stack.enter_context(workspace.folder()) / "data", groups=count))
            looped.run(_fill_groups(looped, scale.commits * (scale.rounds + 1)))
            by_count[count] = _Groups(looped, [f"group-{number}" for number in range(count)])
        workspace.say("growth, groups")
        sides = {str(count): partial(_group_turn, groups) for count, groups in by_count.items()}
        found = take_turns(sides, scale.commits, scale.rounds)
        for groups in by_count.values():
            groups.check()
    share = 1e6 / scale.commits
    seconds = {count: [each.seconds * share for each in found[str(count)]] for count in by_count}
    cpu_seconds = {count: [each.cpu_seconds * share for each in found[str(count)]] for count in by_count}
    times = curve("commit", "groups", "µs", seconds)
    costs = curve("commit, CPU", "groups", "µs", cpu_seconds)
    return Section(
        title="Growth: groups",
        text=f"{scale.commits:,} commits of one offset each, by all groups in turn, through the broker (`relaxed`, {_CALLERS}"
        " callers): the time for each, and the CPU of all threads of the process, callers included. Afterwards every group is"
        " asked where it has come to.",
        figures=[slope_figure(times), slope_figure(costs, FLAT)],
        curves=[times, costs],
    )


class _Groups:
    """Commit rising offsets, one group after the other."""

    def __init__(self, looped: LoopedBroker, names: list[str]) -> None:
        self.looped = looped
        self._names = names
        self._commits = 0

    async def commit(self, commits: int) -> Elapsed:
        offsets = self.looped.broker.offsets
        numbers = range(self._commits, self._commits + commits)
        self._commits += commits
        work = [
            (self._names[number % len(self._names)], [OffsetCommit(_TOPIC, 0, Offset(number // len(self._names)))])
            for number in numbers
        ]

        async def commit(wanted: tuple[str, list[OffsetCommit]]) -> None:
            await offsets.commit(*wanted)

        return await call_in_turn(commit, work, _CALLERS)

    def check(self) -> None:
        for nth, name in enumerate(self._names):
            turns = (self._commits - nth + len(self._names) - 1) // len(self._names)
            found = self.looped.broker.offsets.committed(name, _TOPIC, 0)
            if (found.offset if found else -1) != turns - 1:
                raise AuditFailure(f"{name} committed {turns - 1}, and {found} is there")


async def _fill_groups(looped: LoopedBroker, records: int) -> None:
    """Fill a partition, because no group may commit beyond its end."""
    await looped.broker.topics.create(_TOPIC, 1)
    for batch in ring_of_copies(_FILLING, -(-records // _FILLING.records)).batches:
        (outcome,) = await looped.broker.appender.append([RawBatch(_TOPIC, 0, batch)])
        if isinstance(outcome, TailraceError):
            raise outcome


def _group_turn(groups: _Groups, commits: int) -> Elapsed:
    settle_disk()
    return groups.looped.run(groups.commit(commits))
