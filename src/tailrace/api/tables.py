"""Schemas of `GET /api/tables`, `GET /api/views` and of `/api/routes`."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from tailrace.model.route import Operation, PayloadMode, SnapshotState


class ColumnView(msgspec.Struct):
    name: str
    type: str
    nullable: bool
    default: str | None


class TableView(msgspec.Struct):
    name: str
    columns: list[ColumnView]
    primary_key: list[str]
    changes: str
    """The topic that holds every change of the table."""
    created_ms: int
    schema_version: int
    """1 for a new table, one more for each ALTER TABLE."""


class TablePage(msgspec.Struct):
    tables: list[TableView]
    next: str | None


class ViewColumnView(msgspec.Struct):
    name: str
    type: str


class ViewEntry(msgspec.Struct):
    name: str
    columns: list[ViewColumnView]
    query: str
    """As it was written."""
    created_ms: int


class ViewPage(msgspec.Struct):
    views: list[ViewEntry]
    next: str | None


CopyErrorPolicy = Literal["stop", "skip"]


class RejectedRowView(msgspec.Struct):
    row: int
    """Counted from 0."""
    column: str | None
    value: str | None
    reason: str
    sqlstate: str


class CopyRowsResponse(msgspec.Struct):
    rows: int
    """How many were inserted."""
    cursor: int | None
    """The cursor of the first one."""
    rejected: list[RejectedRowView]
    """Rows that were left out, with `on_error=skip`."""


class AddRouteBody(msgspec.Struct, forbid_unknown_fields=True):
    topic: str
    source_table: str
    operations: Annotated[list[Operation], Meta(min_length=1)]
    where: str | None = None
    """An SQL condition on the columns of the table, and on `OLD.x` and `NEW.x`."""
    partition_by: list[str] = []
    """SQL expressions whose values choose the partition."""
    payload_mode: PayloadMode = "key"
    snapshot: bool = False
    """Whether to send the existing rows first."""


class RouteView(msgspec.Struct):
    id: int
    topic_name: str
    source_table: str
    operations: list[Operation]
    where: str | None
    partition_by: list[str]
    payload_mode: PayloadMode
    since: int
    """The route applies to changes after this cursor."""
    snapshot: SnapshotState
    snapshot_rows: int
    """Rows that the snapshot has sent so far."""


class RoutePage(msgspec.Struct):
    routes: list[RouteView]
    next: int | None
