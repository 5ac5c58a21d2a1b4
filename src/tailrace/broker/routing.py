"""What a pipeline has to route: the routes that count for changes which it has not come to yet."""

from typing import NamedTuple

from tailrace.broker.pipelines import Pipelines
from tailrace.broker.reader import Reader
from tailrace.broker.routes import Routes
from tailrace.broker.topics import Topics
from tailrace.model.ids import Cursor, Offset, Partition
from tailrace.model.route import Route
from tailrace.store.contract import Store
from tailrace.wire.batch import read_header


class PendingRoute(NamedTuple):
    route: Route
    source: str
    """The name of the mark of the changes that it takes."""
    start: Offset
    """The first change that it counts for."""


class Routing:
    def __init__(self, store: Store, reader: Reader, topics: Topics, routes: Routes, pipelines: Pipelines) -> None:
        self._store = store
        self._reader = reader
        self._topics = topics
        self._routes = routes
        self._pipelines = pipelines

    async def of(self, pipeline: str) -> list[PendingRoute]:
        """By their beginning. Dropped routes are among them as long as there may be changes from before."""
        marks = self._pipelines.marks(pipeline)
        found = []
        for route in self._routes.history:
            if self._topics.by_id(route.topic) is None or self._topics.by_id(route.changes) is None:
                continue
            changes = Partition(route.changes, 0)
            source = f"{route.changes}/{changes.number}"
            mark = marks.get(source)
            if route.until is not None and mark is not None and mark >= await self._first_behind(changes, route.until):
                continue
            # Where the pipeline has a mark, it has begun already and needs no start.
            start = Offset(mark) if mark is not None else await self._first_behind(changes, route.since)
            found.append(PendingRoute(route, source, start))
        return found

    async def _first_behind(self, partition: Partition, cursor: Cursor) -> Offset:
        return await self._reader.in_thread(self._search, partition, cursor)

    def _search(self, partition: Partition, cursor: Cursor) -> Offset:
        """The first offset whose record stands behind the cursor, by halving: cursors rise with offsets."""
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
