"""Schemas of the snapshots of sources: between the server, captures and the tasks of pipelines, which are of one version."""

from collections.abc import Sequence

import msgspec

from tailrace.model.ids import TableId
from tailrace.model.source import Source, SourceTable


class SnapshotWorkView(msgspec.Struct):
    """What a pipeline can do for snapshots."""

    pending: int
    """Chunks that nobody reads yet."""


class ClaimChunkBody(msgspec.Struct, forbid_unknown_fields=True):
    worker: str
    """Describes the process for people."""
    source: str | None = None
    """Only chunks of this source."""
    is_spark: bool = False


class ChunkView(msgspec.Struct):
    """A part of a table, and all that is needed to read it."""

    source: Source
    table: SourceTable
    offer: str
    number: int
    query: str
    """The COPY that returns its rows."""
    oid: int
    """The number of the table, or of the partition, in the database."""
    snapshot: str
    """The name under which the database exports the snapshot to read it in."""
    lsn: int
    time_us: int
    change_bytes: int


class ClaimChunkResponse(msgspec.Struct):
    chunk: ChunkView | None = None
    is_later: bool = False
    """Whether it is worth while to ask again in a moment."""


class StagedChunkBody(msgspec.Struct, forbid_unknown_fields=True):
    source: str
    offer: str
    number: int
    stage: str
    parts: int
    rows: int


class FailedChunkBody(msgspec.Struct, forbid_unknown_fields=True):
    source: str
    offer: str
    number: int
    error: str
    is_stale: bool = False
    """Whether the database can't show the table as the snapshot has it any more, so that another one must be read."""


class BeginSnapshotBody(msgspec.Struct, forbid_unknown_fields=True):
    epoch: int
    tables: list[TableId]
    wanted: list[str]
    """The patterns that it satisfies."""
    holds_all: bool = False


class WantSnapshotBody(msgspec.Struct, forbid_unknown_fields=True):
    epoch: int
    wanted: list[str]


class FinishTableBody(msgspec.Struct, forbid_unknown_fields=True):
    epoch: int
    table: TableId
    lsn: int


class SnapshotBody(msgspec.Struct, forbid_unknown_fields=True):
    epoch: int


class OfferedChunk(msgspec.Struct, forbid_unknown_fields=True):
    table: TableId
    query: str
    oid: int


class OfferChunksBody(msgspec.Struct, forbid_unknown_fields=True):
    epoch: int
    offer: str
    snapshot: str
    lsn: int
    time_us: int
    chunks: list[OfferedChunk]


class OfferProgressBody(msgspec.Struct, forbid_unknown_fields=True):
    epoch: int
    offer: str
    published: list[int]
    wait_ms: int


class StagedRowsView(msgspec.Struct):
    number: int
    stage: str
    parts: int
    rows: int


class OfferProgressView(msgspec.Struct):
    staged: Sequence[StagedRowsView]
    is_read_by_spark: bool
    error: str | None = None
    """Why the last chunk that failed did."""
    is_stale: bool = False
    """Whether a chunk can't be read in this snapshot any more."""
    is_offered: bool = True
    """False if the server was started again since the chunks were offered."""
