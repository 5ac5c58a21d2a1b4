"""Schemas of `/api/sources`. Those that captures use are not part of the OpenAPI document: both are of the same version."""

from collections.abc import Sequence

import msgspec

from tailrace.model.ids import TableId
from tailrace.model.source import Source, SourceReport, SourceSnapshot, SourceTable


class SourceTableView(msgspec.Struct):
    name: str
    changes: str
    """The topic that holds every change of the table."""
    replica_identity: str
    """What PostgreSQL logs of old rows."""
    schema_version: int
    primary_key: list[str]


class SourceView(msgspec.Struct):
    name: str
    url: str
    state: str
    error: str | None
    advice: str | None
    """What to do about the error."""
    position: str | None
    """The LSN behind the last transaction in the log."""
    retained_bytes: int | None
    """Bytes of the write-ahead log that the database keeps for the slot."""
    tables: list[SourceTableView]


class AttachBody(msgspec.Struct, forbid_unknown_fields=True):
    owner: str
    """Describes the process for people: host, process, command."""


class AttachResponse(msgspec.Struct):
    """What a capture has to know to begin."""

    source: Source
    epoch: int
    position: int | None
    tables: Sequence[SourceTable]
    empty: Sequence[TableId]
    """Those of the tables that have no changes in the log yet."""
    change_bytes: int
    """The limit of one change."""
    snapshot: SourceSnapshot | None
    """The snapshot that is being read."""
    released: int
    """The offset up to which the transactions that it holds were released."""
    snapshot_chunk_bytes: int


class BeginSourceBody(msgspec.Struct, forbid_unknown_fields=True):
    epoch: int
    position: int
    system_id: str
    timeline: int


class DefineTableBody(msgspec.Struct, forbid_unknown_fields=True):
    epoch: int
    table: SourceTable
    """Without the ids that the server gives it."""


class ReportSourceBody(msgspec.Struct, forbid_unknown_fields=True):
    epoch: int
    owner: str
    report: SourceReport


class ReportSourceResponse(msgspec.Struct):
    wanted: Sequence[str]
    """Patterns of the tables whose rows are to be read."""
    resync: bool
    """Whether the slot is to be created anew."""


class WriteLargeBody(msgspec.Struct, forbid_unknown_fields=True):
    """A transaction that was staged because it is larger than a frame, or rows of a snapshot."""

    epoch: int
    stages: list[tuple[str, int]]
    mark: str
    """The mark that it moves."""
    before: int
    after: int
    is_snapshot: bool = False
