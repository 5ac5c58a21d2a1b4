"""How far the snapshot of a route has come: the rows that were there before the route, told in the order of their keys."""

from typing import Any, Literal

import msgspec

from tailrace.model.ids import RouteId, TableId

SnapshotState = Literal["none", "running", "done"]


class Snapshot(msgspec.Struct, frozen=True, omit_defaults=True):
    route: RouteId
    table: TableId
    rows: int = 0
    """Rows that were told so far."""
    last_key: tuple[Any, ...] | None = None
    """The primary key of the last of them, as the table keeps it. Rows behind it are still to come; with `None`, all."""
    is_done: bool = False

    @property
    def state(self) -> SnapshotState:
        return "done" if self.is_done else "running"
