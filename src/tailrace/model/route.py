"""Routes: which changes of a table go to a topic and in what form, and the snapshots that come first.

A route applies to the changes between the record that added it and the one that dropped it, so what becomes of a change depends
on the log only. A route is compiled to Spark's SQL when it is created, and that text is stored: a later version of the server
that would compile it differently does not change existing routes. `dialect` says what its expressions meant then.
"""

import re
from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from tailrace.model.ids import Cursor, Offset, RouteId, TableId, TopicId
from tailrace.model.table import ColumnType

Operation = Literal["insert", "update", "delete"]
ChangeKind = Literal["insert", "update", "delete", "read", "truncate"]
"""The kind of a change event: an operation, `read` for a row of a snapshot, or `truncate` for the removal of all rows."""
PayloadMode = Literal["key", "full", "diff"]
RouteAction = Literal["add", "drop"]

ROUTES_TOPIC = "_routes"
"""The topic of every route that was added or dropped, in order. A route applies from the cursor of its record on."""


DIALECT = 2
"""The dialect of new routes: PostgreSQL's. In dialect 1 whole numbers had 64 bits and `/` gave a double."""


_CELL = re.compile(r"'(?:\\.|[^'\\])*'|\b(?:old|new)\.`((?:[^`]|``)*)`|`(?:[^`]|``)*`", re.DOTALL)
"""A string, a column of `old` or `new`, or another name in Spark's SQL."""


class RouteInPython(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The expressions of a route for Python, which decides on a change where Spark's SQL can't."""

    columns: Mapping[str, ColumnType] = {}
    """The columns that the expressions use, as they were when the route was created."""
    where: str | None = None
    """The condition, just as it was written."""
    partition_by: tuple[str, ...] = ()
    conjuncts: tuple[int, ...] = ()
    """The parts of the condition, joined by AND, that Spark's SQL leaves out, counted from 0 in the order of the text."""
    has_own_keys: bool = False
    """Whether Spark's SQL leaves out the partition expressions."""


class RouteSql(msgspec.Struct, frozen=True, kw_only=True):
    """A route compiled to Spark's SQL over the structs `old` and `new`, which hold the two images of a row.

    It is valid in a session whose time zone is UTC, with or without ANSI mode.
    """

    row: str = ""
    """The type of `old` and `new`, for `from_json`."""
    condition: str = "TRUE"
    """True, false or null. Only true is a match. It is never true if `failure` is true."""
    failure: str = "FALSE"
    """True if the route can't be evaluated for a change, else false. It is never null."""
    key: str | None = None
    """The record key as text. `None` uses the key of the change, unless Python makes the keys."""
    python: RouteInPython | None = None
    """If it is given, Python evaluates the whole route where `failure` is true, and what is left out where `condition` is."""

    @property
    def has_key(self) -> bool:
        """Return whether the route defines the keys of its records."""
        return self.key is not None or (self.python is not None and self.python.has_own_keys)

    @property
    def columns(self) -> frozenset[str]:
        """The columns of the table that the expressions use."""
        texts = (self.condition, self.failure, self.key or "")
        by_spark = (found[1].replace("``", "`") for text in texts for found in _CELL.finditer(text) if found[1] is not None)
        return frozenset((*by_spark, *(self.python.columns if self.python is not None else ())))


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
    """A condition in SQL, checked when the route was created."""
    partition_by: tuple[str, ...] = ()
    """Expressions in SQL whose values choose the partition."""
    payload: PayloadMode
    snapshot: bool = False
    """Whether the rows that existed before come first, as events `read`."""
    dialect: int = 1
    """The dialect of its expressions. It is not written for dialect 1, which had no number."""
    sql: RouteSql = RouteSql()
    owner: str = ""
    """The name of the user who made it, with whose rights it runs. Empty for one that was made without authentication, which
    runs with those of the server."""
    since: Cursor = Cursor(-1)
    """The route applies to changes after this cursor; -1 until it is committed."""
    until: Cursor | None = None
    """The route applies to changes before this cursor; `None` until it is dropped."""

    @property
    def uses_old_rows(self) -> bool:
        """Whether it needs more of the row before a change than its key."""
        texts = (self.where or "", *self.partition_by)
        takes_old = {"update", "delete"}.intersection(self.operations)
        return bool(takes_old) and (
            (self.payload == "diff" and "update" in self.operations)
            or "delete" in self.operations
            or any(re.search(r"\bold\s*\.", text, re.IGNORECASE) for text in texts)
        )


class RouteRecord(msgspec.Struct, frozen=True):
    """The JSON value of a record of the topic of routes. The record's cursor says from when on it applies."""

    action: RouteAction
    route: Route
    at: Cursor | msgspec.UnsetType = msgspec.UNSET
    """Where it takes effect, if that is not the record's own cursor: where the routes of the table are blocked."""


class RouteBlock(msgspec.Struct, frozen=True, kw_only=True):
    """Routing of a table has stopped, because its schema was changed in a way that breaks routes, or because the owner of a
    route may not do any more what the route does.

    Routes that are added or dropped meanwhile take effect at the block, so that nothing is routed by such a route and nothing
    is left out. It ends when the last such route is dropped, or its owner has the right again.
    """

    changes: TopicId
    offset: Offset
    """The first change that is not routed, and where it may stand in the log: at this cursor or after it."""
    cursor: Cursor
    routes: tuple[RouteId, ...] = ()
    """The routes that are broken."""
    reasons: tuple[str, ...] = ()
    """What was changed."""
    unauthorized: tuple[RouteId, ...] = ()
    """The routes whose owners lack a right."""


RouteState = Literal["active", "broken", "stopped"]
"""`broken`: by a change of its table's schema; `stopped`: its owner lacks a right."""
SnapshotState = Literal["none", "running", "done"]


class RouteSnapshot(msgspec.Struct, frozen=True, omit_defaults=True):
    """The progress of a route's snapshot, which publishes the existing rows in the order of their keys."""

    route: RouteId
    table: TableId
    rows: int = 0
    """Rows that were published so far."""
    last_key: tuple[Any, ...] | None = None
    """The primary key of the last published row, as the table stores it. Rows after it are still to come; all if `None`."""
    is_done: bool = False

    @property
    def state(self) -> SnapshotState:
        return "done" if self.is_done else "running"
