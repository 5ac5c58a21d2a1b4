"""A route: which changes of a table go to a topic, and how they look there.

A route is in force for the changes between the record that added it and the one that dropped it, so what becomes of a change
follows from the log alone. What it does is written down in Spark's SQL when it is made, and stays so: a later version of the
server that would write it otherwise changes nothing for a route that is there.
"""

from typing import Any, Literal

import msgspec

from tailrace.model.ids import Cursor, RouteId, TableId, TopicId

Operation = Literal["insert", "update", "delete"]
ChangeKind = Literal["insert", "update", "delete", "read"]
"""What a change event can be: an operation, or a row that a snapshot has read."""
PayloadMode = Literal["key", "full", "diff"]
RouteAction = Literal["add", "drop"]

ROUTES_TOPIC = "_routes"
"""Every route that was added or dropped, in order: a route is in force from the cursor of its record on."""


class RouteSql(msgspec.Struct, frozen=True, kw_only=True):
    """What a route does, in Spark's SQL over the structs `old` and `new`, which hold the two images of a row.

    It holds in a session whose time zone is UTC, with or without ANSI mode.
    """

    row: str = ""
    """The type of `old` and `new`, for `from_json`."""
    condition: str = "TRUE"
    """True, false or null. Only true is a match; never true where `failure` is."""
    failure: str = "FALSE"
    """True where the route can't be evaluated for a change; otherwise false, never null."""
    key: str | None = None
    """The record key as text. `None` is the key of the change."""


class Route(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    id: RouteId
    topic: TopicId
    topic_name: str
    table: TableId
    table_name: str
    changes: TopicId
    """The topic that holds the changes of the table."""
    operations: tuple[Operation, ...]
    where: str | None = None
    """A condition in our SQL, checked when the route was made."""
    partition_by: tuple[str, ...] = ()
    """Expressions in our SQL; their values choose the partition."""
    payload: PayloadMode
    snapshot: bool = False
    """Whether the rows that were there before come first, as events `read`."""
    sql: RouteSql = RouteSql()
    since: Cursor = Cursor(-1)
    """In force for changes behind this cursor; -1 until it is committed."""
    until: Cursor | None = None
    """In force for changes before this cursor; `None` while it is."""


class RouteRecord(msgspec.Struct, frozen=True):
    """The value of a record of the topic of routes, as JSON. When it is in force is said by its place, not by its text."""

    action: RouteAction
    route: Route


SnapshotState = Literal["none", "running", "done"]


class RouteSnapshot(msgspec.Struct, frozen=True, omit_defaults=True):
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
