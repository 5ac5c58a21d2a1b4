"""The work of the router: the routes that apply to changes which are not routed yet, and where those changes are.

A route is in force between two cursors, so it applies to a range of offsets of its table's change topic. The range follows from
the log and never changes; it is looked up once. Retention stops before changes that are not routed yet.
"""

import asyncio
from collections.abc import Iterable, Mapping
from typing import NamedTuple
from uuid import UUID

import msgspec

from tailrace.broker.commits import Committer
from tailrace.broker.isolation import StableOffsets
from tailrace.broker.pipelines.pipelines import Pipelines
from tailrace.broker.read_threads import ReadThreads
from tailrace.broker.reading.fetch import Fetcher
from tailrace.broker.reading.reader import cursor_at
from tailrace.broker.routes.routes import Routes
from tailrace.broker.topics.registry import LiveTopic
from tailrace.broker.topics.topics import Topics
from tailrace.model.errors import InvariantError
from tailrace.model.ids import Cursor, Offset, PartitionId, RouteId, TableId, TopicId
from tailrace.model.pipeline import NO_MARK, ROUTER, PipelineStatus, change_source, changes_of
from tailrace.model.route import Route
from tailrace.store.contract import Store
from tailrace.wire.batch import read_header

_BLOCKED_MS = 500


class PendingSource(NamedTuple):
    """A table with routes that still apply."""

    source: str
    """The name of its mark."""
    table: TableId
    changes: str
    """The topic that holds its changes, and its UUID: another table may have the name by the time it is read."""
    changes_uuid: UUID
    mark: Offset
    """The first change that is not routed yet."""
    end: Offset
    routes: int
    """How many routes apply between mark and end."""


class Routing:
    """Tells the router which changes to route, and retention which changes to keep."""

    def __init__(
        self,
        store: Store,
        committer: Committer,
        threads: ReadThreads,
        fetcher: Fetcher,
        topics: Topics,
        routes: Routes,
        pipelines: Pipelines,
        stable: StableOffsets,
    ) -> None:
        self._stable = stable
        self._store = store
        self._committer = committer
        self._threads = threads
        self._fetcher = fetcher
        self._topics = topics
        self._routes = routes
        self._pipelines = pipelines
        self._ranges: dict[tuple[RouteId, Cursor | None], _Range] = {}

    async def pending(self) -> list[Route]:
        """Return the routes that apply to changes after the marks, ordered by their start, including dropped ones.

        They include every route that applies to a change which could be read before this was called.
        """
        self._pipelines.require(ROUTER)
        await self._committer.settled()
        await self._look_up()
        return list(self._pending(self._pipelines.marks(ROUTER)))

    async def sources(self, epoch: int, beyond: Mapping[str, int], wait_ms: int) -> list[PendingSource]:
        """Return where the changes of pending routes are. Waits a while for changes beyond these offsets if there are none."""
        self._pipelines.require(ROUTER)
        await self._await_growth(beyond, wait_ms)
        await self._committer.settled()
        await self._look_up()
        marks = await self._begun(epoch)
        found: dict[TopicId, list[Route]] = {}
        for route in self._pending(marks):
            found.setdefault(route.changes, []).append(route)
        sources = []
        for changes, routes in sorted(found.items()):
            live = self._topics.by_id(changes)
            if live is not None:
                name = change_source(changes)
                end = self._end_of(changes)
                mark = Offset(marks[name])
                sources.append(PendingSource(name, routes[0].table, live.topic.name, live.topic.uuid, mark, end, len(routes)))
        return sources

    async def first_unrouted(self, epoch: int) -> Cursor:
        """Return a cursor at or before the first change that is not routed yet, of all tables."""
        end = self._store.end_cursor()
        firsts = [
            await self._threads.run(cursor_at, self._store, _partition_of(source), source.mark)
            for source in await self.sources(epoch, {}, 0)
            if source.mark < source.end
        ]
        return min([end, *firsts])

    def lag(self) -> int:
        """Return how many changes wait to be routed."""
        marks = self._pipelines.marks(ROUTER)
        waiting: dict[TopicId, int] = {}
        for route in self._pending(marks):
            first, stop = self._range(route)
            end = self._end_of(route.changes) if stop is None else stop
            left = end - marks.get(change_source(route.changes), first)
            waiting[route.changes] = max(waiting.get(route.changes, 0), left)
        return sum(waiting.values())

    def _end_of(self, changes: TopicId) -> Offset:
        """Return up to where the changes of a table may be routed now: transactions that are not whole yet are left out."""
        partition = PartitionId(changes, 0)
        end = self._stable.of(partition, self._store.bounds(partition))
        block = self._routes.block_of(changes)
        return end if block is None else min(end, block.offset)

    def pipeline_statuses(self) -> list[PipelineStatus]:
        """Return the status of every pipeline that the principal may describe; that of the router includes its lag."""
        return [
            msgspec.structs.replace(status, lag=self.lag()) if status.name == ROUTER else status
            for status in self._pipelines
            if self._pipelines.may_describe(status.name)
        ]

    def floor(self, partition: PartitionId) -> Offset | None:
        """Return the first change of a table that is not routed yet; retention stops there."""
        marks = self._pipelines.marks(ROUTER)
        firsts = [self._range(route).first for route in self._pending(marks) if route.changes == partition.topic_id]
        return Offset(marks.get(change_source(partition.topic_id), min(firsts))) if firsts else None

    def _pending(self, marks: Mapping[str, int]) -> Iterable[Route]:
        for route in self._routes.history:
            if self._topics.by_id(route.topic) is None or self._topics.by_id(route.changes) is None:
                continue
            first, stop = self._range(route)
            if stop is None or stop > max(first, marks.get(change_source(route.changes), first)):
                yield route

    async def _begun(self, epoch: int) -> dict[str, int]:
        """Return the marks, after moving each to the first change that a route applies to."""
        marks = self._pipelines.marks(ROUTER)
        starts: dict[str, int] = {}
        for route in self._pending(marks):
            name = change_source(route.changes)
            starts[name] = min(starts.get(name, self._range(route).first), self._range(route).first)
        if all(marks.get(name, NO_MARK) >= start for name, start in starts.items()):
            self._pipelines.check_epoch(ROUTER, epoch)
            return marks
        return await self._pipelines.skip(ROUTER, epoch, starts, [name for name in marks if self._live(name) is None])

    def _live(self, source: str) -> LiveTopic | None:
        """Return the topic of a source; `None` if it was deleted, or the name is not that of a source."""
        changes = changes_of(source)
        return None if changes is None else self._topics.by_id(changes)

    async def _await_growth(self, beyond: Mapping[str, int], wait_ms: int) -> None:
        waits = {}
        for name, at in beyond.items():
            live = self._live(name)
            block = None if live is None else self._routes.block_of(live.topic.id)
            if live is not None and (block is None or at < block.offset):
                waits[live.topic.name] = [at]
        if wait_ms and waits:
            await self._fetcher.await_growth(waits, wait_ms)
        elif wait_ms and beyond:
            # All tables are blocked, and there is nothing to wait for but somebody who mends that.
            await asyncio.sleep(min(wait_ms, _BLOCKED_MS) / 1000)

    async def _look_up(self) -> None:
        """Find the ranges that are not known yet, in a reader thread, because that may wait for the disk."""
        history = self._routes.history
        self._ranges = {key: self._ranges[key] for route in history if (key := _key(route)) in self._ranges}
        unknown = [route for route in history if _key(route) not in self._ranges]
        for route in unknown:
            if self._topics.by_id(route.changes) is not None:
                self._ranges[_key(route)] = await self._threads.run(self._range_of, route)

    def _range(self, route: Route) -> "_Range":
        found = self._ranges.get(_key(route))
        if found is None:
            found = self._ranges[_key(route)] = self._range_of(route)
        return found

    def _range_of(self, route: Route) -> "_Range":
        partition = PartitionId(route.changes, 0)
        stop = None if route.until is None else self._first_behind(partition, route.until)
        return _Range(self._first_behind(partition, route.since), stop)

    def _first_behind(self, partition: PartitionId, cursor: Cursor) -> Offset:
        """Return the first offset whose record is after the cursor, by binary search: cursors rise with offsets."""
        low, high = self._store.bounds(partition)
        while low < high:
            middle = Offset((low + high) // 2)
            fetched = self._store.fetch(partition, middle, 1)
            if not fetched.batches:
                break
            header = read_header(fetched.batches[0])
            first = fetched.cursors[0]
            if cursor < first:
                high = Offset(max(low, min(middle, header.base_offset)))
            elif cursor >= first + header.records - 1:
                low = Offset(header.base_offset + header.records)
            else:
                return Offset(header.base_offset + cursor - first + 1)
        return low


class _Range(NamedTuple):
    """The changes that a route applies to."""

    first: Offset
    stop: Offset | None


def _key(route: Route) -> tuple[RouteId, Cursor | None]:
    return route.id, route.until


def _partition_of(source: PendingSource) -> PartitionId:
    changes = changes_of(source.source)
    if changes is None:
        raise InvariantError(f"{source.source!r} is no source of the router")
    return PartitionId(changes, 0)
