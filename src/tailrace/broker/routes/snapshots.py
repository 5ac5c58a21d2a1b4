"""The snapshots of routes: which run, and how far each has come.

A snapshot begins in the commit that puts its route in force, moves on in the commits that hold its rows, and goes with its
route. This is the settled copy of what the store has of them. What moves them on is `sql.tables`, the only one who has rows.
"""

from collections.abc import Iterable, Mapping

import msgspec

from tailrace.broker import keys
from tailrace.model.ids import RouteId, TableId
from tailrace.model.route import Route, RouteSnapshot, SnapshotState
from tailrace.store.contract import Store

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(RouteSnapshot).decode


class Snapshots:
    """Changed on the event loop only. `find` and `running` may be asked by any thread: what they look at never changes."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._by_route: Mapping[RouteId, RouteSnapshot] = {}
        self._running: Mapping[TableId, tuple[RouteSnapshot, ...]] = {}
        self.rows = 0
        """Rows told since the start of the server."""

    def load(self) -> None:
        self._replace(
            {snapshot.route: snapshot for snapshot in (_decode(value) for _, value in self._store.range(keys.SNAPSHOTS))}
        )

    def find(self, route: RouteId) -> RouteSnapshot | None:
        return self._by_route.get(route)

    @property
    def running(self) -> Mapping[TableId, tuple[RouteSnapshot, ...]]:
        """Those that are not done, by table."""
        return self._running

    def progress(self, route: Route) -> tuple[SnapshotState, int]:
        """The state of a route's snapshot and the rows that it has told."""
        found = self._by_route.get(route.id)
        return ("none", 0) if found is None else (found.state, found.rows)

    def is_gone(self, route: RouteId) -> bool | None:
        """Whether the route was dropped; `None` while that is on its way and may still fail."""
        key = keys.snapshot_key(route)
        if self._store.latest(key) is not None:
            return False
        return True if self._store.get(key) is None else None

    def put(self, snapshot: RouteSnapshot) -> tuple[bytes, bytes]:
        """What a commit has to say about it."""
        return keys.snapshot_key(snapshot.route), _encode(snapshot)

    def settled(self, snapshot: RouteSnapshot) -> None:
        before = self._by_route.get(snapshot.route)
        self.rows += snapshot.rows - (0 if before is None else before.rows)
        self._replace({**self._by_route, snapshot.route: snapshot})

    def removals(self, routes: Iterable[Route]) -> list[tuple[bytes, None]]:
        """What a commit has to say that ends these routes."""
        return [(keys.snapshot_key(route.id), None) for route in routes if route.snapshot]

    def removed(self, routes: Iterable[Route]) -> None:
        gone = {route.id for route in routes}
        self._replace({route: snapshot for route, snapshot in self._by_route.items() if route not in gone})

    def _replace(self, by_route: Mapping[RouteId, RouteSnapshot]) -> None:
        running: dict[TableId, tuple[RouteSnapshot, ...]] = {}
        for snapshot in by_route.values():
            if not snapshot.is_done:
                running[snapshot.table] = (*running.get(snapshot.table, ()), snapshot)
        self._by_route, self._running = by_route, running
