"""The registry of routes, and of their snapshots.

A route is a record of the topic `_routes`, which is created with the first of them. It is in force from the cursor of that
record to the cursor of the record that drops it. The registry is the settled copy of the topic, read at the start. Checks
include what is still in flight: a topic can't be deleted while a route to it is being added, nor the other way round. What a
route means is defined by `sql.routes` and the pipeline; here it is a value.

A snapshot starts in the commit that adds its route, advances in the commits that hold its rows, and is removed with its route.
`sql.tables`, which has the rows, advances it.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

import msgspec

from tailrace.broker import keys
from tailrace.broker.commits import Change, Committer, StillInFlight
from tailrace.broker.topics.registry import LiveTopic
from tailrace.broker.topics.topics import Topics
from tailrace.model.clock import Clock
from tailrace.model.commit import Append, Changes, CommitReceipt
from tailrace.model.errors import (
    CorruptionError,
    LimitExceededError,
    ReservedTopicError,
    RoutedError,
    RouteExistsError,
    TopicExistsError,
    UnknownRouteError,
    UnknownTableError,
    UnknownTopicError,
    invariant,
)
from tailrace.model.ids import Cursor, Offset, PartitionId, RouteId, TableId, TopicId
from tailrace.model.limits import MIB, Limits
from tailrace.model.names import is_reserved
from tailrace.model.record import Record
from tailrace.model.route import (
    ROUTES_TOPIC,
    Route,
    RouteAction,
    RouteBlock,
    RouteRecord,
    RouteSnapshot,
    RouteState,
    SnapshotState,
)
from tailrace.model.table import Table
from tailrace.store.contract import Store
from tailrace.wire.records import decode_batch, encode_batch

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(RouteSnapshot).decode

OnArrival = Callable[[LiveTopic, PartitionId, int, int], None]
"""Called with a topic, its partition, and the records and bytes that readers can see there from now on."""


class Routes:
    """The registry of all routes."""

    def __init__(
        self,
        store: Store,
        committer: Committer,
        topics: Topics,
        snapshots: "Snapshots",
        clock: Clock,
        limits: Limits,
        on_arrival: OnArrival,
    ) -> None:
        self._store = store
        self._committer = committer
        self._topics = topics
        self._snapshots = snapshots
        self._clock = clock
        self._limits = limits
        self._on_arrival = on_arrival
        self._in_force: dict[RouteId, Route] = {}
        self._dropped: dict[RouteId, Route] = {}
        self._adding: dict[RouteId, Route] = {}
        self._blocks: dict[TopicId, RouteBlock] = {}
        self._dropping: set[RouteId] = set()
        self._last_id = 0
        self.with_owner: Callable[[Route], Route] = lambda route: route
        """Returns a new route with its owner, or raises if that may not do what the route does. Set by `RouteOwners`."""

    def load(self) -> None:
        """Read the topic of routes from its start."""
        for _, value in self._store.range(keys.ROUTE_BLOCKS):
            block = msgspec.msgpack.decode(value, type=RouteBlock)
            self._blocks[block.changes] = block
        live = self._topics.find(ROUTES_TOPIC)
        if live is None:
            return
        partition = live.partition(0)
        offset, end = self._store.bounds(partition)
        if offset:
            raise CorruptionError(f"the first {offset} records of {ROUTES_TOPIC!r} are missing, and with them routes in force")
        while offset < end:
            batches, _, cursors = self._store.fetch(partition, offset, MIB)
            for batch, cursor in zip(batches, cursors, strict=True):
                for record in decode_batch(batch, self._limits, cursor=cursor):
                    self._apply(record)
                    offset = Offset(record.offset + 1)

    def __iter__(self) -> Iterator[Route]:
        """Iterate over the routes in force, in the order in which they were added."""
        return iter(tuple(self._in_force.values()))

    def __len__(self) -> int:
        return len(self._in_force)

    def of_table(self, table: Table) -> list[Route]:
        return [route for route in self._in_force.values() if route.table == table.id]

    def of_topic(self, topic_id: TopicId) -> list[Route]:
        return [route for route in self._in_force.values() if route.topic == topic_id]

    @property
    def history(self) -> list[Route]:
        """All routes in force and the newest `dropped_routes` dropped ones, ordered by their start."""
        return sorted((*self._dropped.values(), *self._in_force.values()), key=lambda route: route.since)

    def block_of(self, changes: TopicId) -> RouteBlock | None:
        """Return where routing of a table has stopped."""
        return self._blocks.get(changes)

    def is_broken(self, route: Route) -> bool:
        """Return whether a change of the table's schema has broken the route."""
        block = self._blocks.get(route.changes)
        return block is not None and route.id in block.routes

    def is_stopped(self, route: Route) -> bool:
        """Return whether the owner of the route lacks a right, so that the changes of the table wait."""
        block = self._blocks.get(route.changes)
        return block is not None and route.id in block.unauthorized

    def state_of(self, route: Route) -> RouteState:
        return "broken" if self.is_broken(route) else "stopped" if self.is_stopped(route) else "active"

    def breakage(self, route: Route) -> str | None:
        """Return why a route is broken or stopped, and what to do; `None` if it is active."""
        block = self._blocks.get(route.changes)
        if block is None:
            return None
        if route.id not in block.routes:
            return _stopped(route, block) if route.id in block.unauthorized else None
        return (
            f"{', '.join(block.reasons)}, and the changes of table {route.table_name!r} wait from offset {block.offset} on. Add"
            f" the route again with the columns of now (ALTER TOPIC {route.topic_name} ADD SOURCE ...), then drop this one"
            f" (ALTER TOPIC {route.topic_name} DROP ROUTE {route.id}): the new one begins there"
        )

    def blocking(self, table: Table, breaks: Callable[[Route], str | None]) -> RouteBlock | None:
        """Return the block that a change of a table's schema makes; `None` if it breaks no route.

        `breaks` returns why the change breaks a route, or `None`.
        """
        routes = [route for route in (*self._in_force.values(), *self._adding.values()) if route.table == table.id]
        broken = {route.id: reason for route in routes if (reason := breaks(route)) is not None}
        if not broken:
            return None
        there = self.latest_block(table.changes) or self.block_at_end(table.changes)
        return msgspec.structs.replace(
            there,
            routes=tuple(dict.fromkeys((*there.routes, *broken))),
            reasons=tuple(dict.fromkeys((*there.reasons, *broken.values()))),
        )

    def blocked(self, block: RouteBlock) -> None:
        """Note a block that was committed."""
        self._blocks[block.changes] = block

    def unblocked(self, changes: TopicId) -> None:
        """Note that the end of a block was committed."""
        self._blocks.pop(changes, None)

    @property
    def blocked_tables(self) -> set[TopicId]:
        """The topics of changes of the tables whose routing has stopped."""
        return set(self._blocks)

    def latest_block(self, changes: TopicId) -> RouteBlock | None:
        """Return where routing of a table will have stopped when all that is in flight is settled."""
        value = self._store.latest(keys.route_block_key(changes))
        return None if value is None else msgspec.msgpack.decode(value, type=RouteBlock)

    def block_at_end(self, changes: TopicId) -> RouteBlock:
        """Return a block behind the changes that are settled now."""
        end = self._store.bounds(PartitionId(changes, 0)).end
        return RouteBlock(changes=changes, offset=end, cursor=self._store.end_cursor())

    async def add(self, route: Route, check: Callable[[], None] = lambda: None) -> Route:
        """Put a route in force, with an id and a start. A duplicate of another route is rejected, and what `check` rejects.

        A route with a snapshot is added by `sql.tables`, while no change of the table is in flight. The principal of the
        request becomes its owner.
        """
        route = self.with_owner(route)
        await self._make_topic()
        placed = route
        append: Append
        at: Cursor | None = None

        def decide() -> Changes:
            nonlocal placed, append, at
            self._adding.pop(placed.id, None)
            if any(_meaning(one) == _meaning(route) for one in self._adding.values()):
                raise StillInFlight
            self.check_new(route)
            check()
            self._last_id += 1
            placed = msgspec.structs.replace(route, id=RouteId(self._last_id))
            append = self._append("add", placed)
            at = self._block_cursor(placed, "add")
            self._adding[placed.id] = placed
            puts = (self._snapshots.put(_snapshot_of(placed)),) if placed.snapshot else ()
            return Changes(appends=(append,), puts=puts)

        def settled(receipt: CommitReceipt | None) -> Route:
            added = msgspec.structs.replace(placed, since=_cursor_of(receipt) if at is None else at)
            del self._adding[placed.id]
            self._in_force[added.id] = added
            if added.snapshot:
                self._snapshots.settled(_snapshot_of(added))
            self._arrived(append)
            return added

        return await self._committer.submit(Change(decide, settled, lambda: self._forget_adding(placed)))

    async def drop(self, topic_name: str, table_name: str, route_id: RouteId | None = None) -> list[Route]:
        """Drop all routes from the table to the topic, in one commit, or the one with this id. The topic may be an alias."""
        self._topics.require("alter", topic_name)
        topic_id = self._topics.get(topic_name).topic.id
        name = table_name.lower()

        def chosen() -> list[Route]:
            routes = self.of_topic(topic_id)
            if route_id is not None:
                found = [route for route in routes if route.id == route_id]
                if not found:
                    raise UnknownRouteError(f"there is no route {route_id} to topic {topic_name!r}; SHOW ROUTES lists them")
                return found
            found = [route for route in routes if route.table_name.lower() == name]
            if not found:
                raise UnknownRouteError(f"there is no route from table {table_name!r} to topic {topic_name!r}")
            return found

        removal = RouteRemoval(self, chosen)
        return await self._committer.submit(Change(removal.decide, removal.settled, removal.failed))

    def removal_of(self, target: Table | TopicId) -> "RouteRemoval":
        """Return the removal of all routes from a table or to a topic, for the commit that drops the target (CASCADE)."""

        def chosen() -> list[Route]:
            topic_id = target.changes if isinstance(target, Table) else target
            if any(topic_id in (route.topic, route.changes) for route in self._adding.values()):
                raise StillInFlight
            return [route for route in self._in_force.values() if topic_id in (route.topic, route.changes)]

        return RouteRemoval(self, chosen)

    def check_droppable(self, topic_id: TopicId) -> None:
        """Raise an error if routes lead to this topic, or from the table whose changes it holds."""
        for route in (*self._in_force.values(), *self._adding.values()):
            if topic_id in (route.topic, route.changes):
                raise RoutedError(
                    f"there is a route from table {route.table_name!r} to topic {route.topic_name!r}: drop it first"
                    f" (ALTER TOPIC {route.topic_name} DROP SOURCE {route.table_name}), or drop with CASCADE"
                )

    def check_unused(self, table: Table, columns: Collection[str], *, is_key: bool = False) -> None:
        """Raise an error if routes from the table use one of these columns. With `is_key`, every route uses them: a column of
        the primary key is part of each record's key."""
        found = [route for route in (*self._in_force.values(), *self._adding.values()) if route.table == table.id]
        using = [route for route in found if is_key or not route.sql.columns.isdisjoint(columns)]
        if using:
            listed = ", ".join(f"{route.id} to topic {route.topic_name!r}" for route in using)
            first = using[0]
            raise RoutedError(
                f"{'route' if len(using) == 1 else 'routes'} {listed} {'uses' if len(using) == 1 else 'use'} column"
                f" {', '.join(map(repr, columns))} of table {table.name!r}: drop first what uses it"
                f" (ALTER TOPIC {first.topic_name} DROP SOURCE {table.name}), and add it again afterwards"
            )

    def floor(self, partition: PartitionId) -> Offset | None:
        """Return the offset where retention has to stop: nothing of `_routes` is removed. `None` for all other topics."""
        live = self._topics.find(ROUTES_TOPIC)
        return Offset(0) if live is not None and live.topic.id == partition.topic_id else None

    def check_new(self, route: Route) -> None:
        """Raise the error that `add` would raise for this route."""
        limits = self._limits
        if is_reserved(route.topic_name):
            raise ReservedTopicError(f"{route.topic_name!r} is reserved for the server; no route can lead to it")
        live = self._topics.by_id(route.topic)
        if live is None:
            raise UnknownTopicError(f"the topic {route.topic_name!r} was deleted")
        live.check_takes_records()
        if self._topics.by_id(route.changes) is None:
            raise UnknownTableError(f"the table {route.table_name!r} was dropped")
        there = [*self._in_force.values(), *self._adding.values()]
        _check_count(len(there), "routes", limits.routes, "routes")
        from_table = sum(one.table == route.table for one in there)
        _check_count(from_table, f"routes from table {route.table_name!r}", limits.routes_per_table, "routes_per_table")
        to_topic = sum(one.topic == route.topic for one in there)
        _check_count(to_topic, f"routes to topic {route.topic_name!r}", limits.routes_per_topic, "routes_per_topic")
        alike = (one for one in there if _meaning(one) == _meaning(route) and one.id not in self._dropping)
        same = next((one for one in alike if self.state_of(one) == "active"), None)
        if same is not None:
            raise RouteExistsError(
                f"route {same.id} from table {route.table_name!r} to topic {route.topic_name!r} is the same;"
                " each change would be published twice"
            )

    async def _make_topic(self) -> None:
        if self._topics.find(ROUTES_TOPIC) is None:
            try:
                await self._topics.create_reserved(ROUTES_TOPIC)
            except TopicExistsError:
                # Another route created it meanwhile.
                return

    def _append(self, action: RouteAction, route: Route) -> Append:
        live = self._topics.get(ROUTES_TOPIC)
        now = self._clock.now_ms()
        at = self._block_cursor(route, action)
        value = msgspec.json.encode(RouteRecord(action, _timeless(route), msgspec.UNSET if at is None else at))
        return Append(
            live.partition(0), encode_batch([Record(str(route.id).encode(), value, (), now)]), 1, now, oldest_timestamp=now
        )

    def _apply(self, record: Record) -> None:
        try:
            read = msgspec.json.decode(record.value or b"", type=RouteRecord)
        except msgspec.DecodeError as error:
            raise CorruptionError(f"offset {record.offset} of {ROUTES_TOPIC!r} is not a route: {error}") from error
        route = read.route
        self._last_id = max(self._last_id, route.id)
        if read.action == "add":
            since = record.cursor if read.at is msgspec.UNSET else read.at
            self._in_force[route.id] = msgspec.structs.replace(route, since=since)
            return
        there = self._in_force.get(route.id)
        invariant(there is not None, f"route {route.id} is dropped and was not in force")
        if there is not None:
            self._end(msgspec.structs.replace(there, until=record.cursor if read.at is msgspec.UNSET else read.at))

    def _block_cursor(self, route: Route, action: RouteAction) -> Cursor | None:
        """Return where a change of a blocked table's routes takes effect: a new one at the block, and a dropped one, too."""
        block = self._blocks.get(route.changes)
        if block is None:
            return None
        return Cursor(block.cursor - 1) if action == "add" else max(block.cursor, Cursor(route.since + 1))

    def _unblocked_without(self, dropped: Iterable[Route]) -> list[TopicId]:
        """Return the tables that are not blocked any more if these routes are dropped."""
        gone = {route.id for route in dropped}
        return [
            changes
            for changes in {route.changes for route in dropped}
            if changes in self._blocks
            and not any(
                route.changes == changes and route.id not in gone and self.state_of(route) != "active" for route in self
            )
        ]

    def _end(self, route: Route) -> None:
        del self._in_force[route.id]
        self._dropped[route.id] = route
        while len(self._dropped) > self._limits.dropped_routes:
            del self._dropped[next(iter(self._dropped))]

    def _forget_adding(self, route: Route) -> None:
        self._adding.pop(route.id, None)

    def _arrived(self, append: Append) -> None:
        self._on_arrival(self._topics.get(ROUTES_TOPIC), append.partition, append.records, len(append.batch))


class RouteRemoval:
    """Drops routes, in a commit of its own or as part of another one. It can be used once."""

    def __init__(self, routes: Routes, choose: Callable[[], list[Route]]) -> None:
        self._routes = routes
        self._choose = choose
        self._chosen: list[Route] = []
        self._appends: list[Append] = []
        self._ends: list[Cursor | None] = []
        self._unblocked: list[TopicId] = []

    def decide(self) -> Changes | None:
        dropping = self._routes._dropping
        dropping.difference_update(route.id for route in self._chosen)
        self._chosen = []
        chosen = self._choose()
        if not dropping.isdisjoint(route.id for route in chosen):
            raise StillInFlight
        self._chosen = chosen
        # One batch for each, because together they could be larger than readers expect.
        self._appends = [self._routes._append("drop", route) for route in chosen]
        self._ends = [self._routes._block_cursor(route, "drop") for route in chosen]
        self._unblocked = self._routes._unblocked_without(chosen)
        dropping.update(route.id for route in chosen)
        puts = (*self._routes._snapshots.removals(chosen), *((keys.route_block_key(one), None) for one in self._unblocked))
        return Changes(appends=self._appends, puts=puts) if chosen else None

    def settled(self, receipt: CommitReceipt | None) -> list[Route]:
        if not self._chosen:
            return []
        routes = self._routes
        first = _cursor_of(receipt)
        dropped = [
            msgspec.structs.replace(route, until=Cursor(first + number) if end is None else end)
            for number, (route, end) in enumerate(zip(self._chosen, self._ends, strict=True))
        ]
        for changes in self._unblocked:
            routes._blocks.pop(changes, None)
        for route in dropped:
            routes._dropping.discard(route.id)
            routes._end(route)
        routes._snapshots.removed(dropped)
        for append in self._appends:
            routes._arrived(append)
        return dropped

    def failed(self) -> None:
        self._routes._dropping.difference_update(route.id for route in self._chosen)


def _stopped(route: Route, block: RouteBlock) -> str:
    topic, table, owner = route.topic_name, route.table_name, route.owner
    return (
        f"{owner!r}, who made it, may no longer read table {table!r} or no longer publish to topic {topic!r}, and the changes"
        f" of the table wait from offset {block.offset} on. Have both granted again, or have somebody who may add the route"
        f" again (ALTER TOPIC {topic} ADD SOURCE ...) and drop this one (ALTER TOPIC {topic} DROP ROUTE {route.id}): the new"
        " one begins there"
    )


def _check_count(there: int, what: str, allowed: int, limit: str) -> None:
    if there >= allowed:
        raise LimitExceededError(f"there are {there} {what}, as many as {limit} allows; drop one first")


def _snapshot_of(route: Route) -> RouteSnapshot:
    return RouteSnapshot(route.id, route.table)


def _timeless(route: Route) -> Route:
    return msgspec.structs.replace(route, since=Cursor(-1), until=None)


def _meaning(route: Route) -> Iterable[object]:
    expressions = (route.dialect, route.where, route.partition_by)
    return (route.topic, route.table, frozenset(route.operations), expressions, route.payload)


def _cursor_of(receipt: CommitReceipt | None) -> Cursor:
    invariant(receipt is not None, "a change of routes was committed without a record")
    return receipt.cursor if receipt is not None else Cursor(-1)


class Snapshots:
    """The snapshots of routes. Changed on the event loop only; `find` and `running` may be called from any thread."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._by_route: Mapping[RouteId, RouteSnapshot] = {}
        self._running: Mapping[TableId, tuple[RouteSnapshot, ...]] = {}
        self.rows = 0
        """Rows written by snapshots since the start of the server."""

    def load(self) -> None:
        self._replace(
            {snapshot.route: snapshot for snapshot in (_decode(value) for _, value in self._store.range(keys.SNAPSHOTS))}
        )

    def find(self, route: RouteId) -> RouteSnapshot | None:
        return self._by_route.get(route)

    @property
    def running(self) -> Mapping[TableId, tuple[RouteSnapshot, ...]]:
        """The unfinished snapshots, by table. The mapping is replaced, never changed, so any thread may read it."""
        return self._running

    def progress(self, route: Route) -> tuple[SnapshotState, int]:
        """Return the state of a route's snapshot and how many rows it has written."""
        found = self._by_route.get(route.id)
        return ("none", 0) if found is None else (found.state, found.rows)

    def is_gone(self, route: RouteId) -> bool | None:
        """Return whether the route was dropped; `None` while that is in flight and may still fail."""
        key = keys.snapshot_key(route)
        if self._store.latest(key) is not None:
            return False
        return True if self._store.get(key) is None else None

    def put(self, snapshot: RouteSnapshot) -> tuple[bytes, bytes]:
        """Return the change of state that stores the snapshot."""
        return keys.snapshot_key(snapshot.route), _encode(snapshot)

    def settled(self, snapshot: RouteSnapshot) -> None:
        before = self._by_route.get(snapshot.route)
        self.rows += snapshot.rows - (0 if before is None else before.rows)
        self._replace({**self._by_route, snapshot.route: snapshot})

    def removals(self, routes: Iterable[Route]) -> list[tuple[bytes, None]]:
        """Return the changes of state that remove the snapshots of these routes."""
        return [(keys.snapshot_key(route.id), None) for route in routes if route.snapshot]

    def removed(self, routes: Iterable[Route]) -> None:
        removed = {route.id for route in routes}
        self._replace({route: snapshot for route, snapshot in self._by_route.items() if route not in removed})

    def _replace(self, by_route: Mapping[RouteId, RouteSnapshot]) -> None:
        running: dict[TableId, tuple[RouteSnapshot, ...]] = {}
        for snapshot in by_route.values():
            if not snapshot.is_done:
                running[snapshot.table] = (*running.get(snapshot.table, ()), snapshot)
        self._by_route, self._running = by_route, running
