"""Chunks of a snapshot: how a table is divided into them, and how one is read.

A chunk is a range of the pages of a table. All are read in one snapshot of the database, which the capture keeps open, so it
does not matter who reads which one when: the tasks of a pipeline do it side by side, and the capture one after another. Tasks
stage the rows, because they may die in the middle of a chunk; the capture appends its own to the log as they come.
"""

import os
import select
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import psycopg
from psycopg import pq, sql

from tailrace.api.snapshots import ChunkView, FailedChunkBody, StagedChunkBody
from tailrace.capture.change_events import CommitInfo, RowEventEncoder
from tailrace.capture.database import Connection, Database, FoundTable
from tailrace.capture.failures import CaptureError, connection_failure
from tailrace.capture.pgoutput import MessageColumn, RelationMessage
from tailrace.capture.server_api import ChunkApi
from tailrace.client.credentials import CredentialSource
from tailrace.model.errors import TailraceError
from tailrace.model.limits import KIB, MIB
from tailrace.model.names import topic_form
from tailrace.model.source import Source
from tailrace.model.table import CHANGES_PREFIX
from tailrace.wire.staged_chunks import StagedBatch

_PART_BYTES = MIB
_BATCH_BYTES = MIB - KIB
_LISTS_VERSION = 150000
"""The first version whose publications have lists of columns and conditions on rows."""
_LATER_SECONDS = 0.2
_MAX_ERROR = 500
_STALE = ("42703", "42P01", "42704", "22023")
"""What PostgreSQL says when a column, a table or a snapshot is not there any more."""
_COLUMNS = """
SELECT attname, atttypid::bigint, atttypmod,
       EXISTS (SELECT FROM pg_index i WHERE i.indrelid = attrelid AND i.indisprimary AND attnum = ANY (i.indkey))
FROM pg_attribute WHERE attrelid = %s::oid AND attnum > 0 AND NOT attisdropped AND attgenerated = '' ORDER BY attnum
"""
_DEFINITION = """
SELECT c.relname, c.relfilenode::bigint, a.attnum, a.attname, a.atttypid::bigint, a.atttypmod
FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
WHERE c.oid = %s::oid ORDER BY a.attnum
"""
_LEAVES = """
SELECT c.oid::bigint, c.oid::regclass::text, pg_relation_size(c.oid) / current_setting('block_size')::int,
       greatest(c.reltuples, 0)::bigint
FROM pg_partition_tree(%s::oid::regclass) t JOIN pg_class c ON c.oid = t.relid WHERE t.isleaf
"""
_SIZE = """
SELECT c.oid::bigint, c.oid::regclass::text, pg_relation_size(c.oid) / current_setting('block_size')::int,
       greatest(c.reltuples, 0)::bigint
FROM pg_class c WHERE c.oid = %s::oid
"""


class PublishedTable(NamedTuple):
    """A table with the columns and the rows that its publication has."""

    found: FoundTable
    relation: RelationMessage
    condition: str | None


class ChunkQuery(NamedTuple):
    query: str
    oid: int
    """The number of the table, or of the partition."""


class TableChunks(NamedTuple):
    queries: list[ChunkQuery]
    rows: int
    """How many rows the database estimates."""


def published_table(connection: Connection, source: Source, found: FoundTable) -> PublishedTable | None:
    """Return what is published of a table; `None` if nothing is."""
    columns = [MessageColumn(*row) for row in connection.execute(_COLUMNS, (found.oid,))]
    lists = "attnames::text[], rowfilter" if connection.info.server_version >= _LISTS_VERSION else "NULL::text[], NULL::text"
    row = connection.execute(
        f"SELECT {lists} FROM pg_publication_tables"  # noqa: S608
        " WHERE pubname = %s AND schemaname = %s AND tablename = %s".encode(),
        (source.publication, found.schema, found.name),
    ).fetchone()
    if row is None:
        return None
    names, condition = row
    if names is not None:
        columns = [column for column in columns if column.name in names]
    return PublishedTable(
        found, RelationMessage(found.oid, found.schema, found.name, found.identity, tuple(columns)), condition
    )


def divide(connection: Connection, table: PublishedTable, chunk_bytes: int) -> TableChunks:
    """Return the queries that read the chunks of a table. Of a partitioned one, each partition has chunks of its own."""
    block = int((connection.execute("SELECT current_setting('block_size')").fetchone() or ("8192",))[0])
    most = max(1, chunk_bytes // block)
    oid = table.found.oid
    leaves = connection.execute(_LEAVES, (oid,)).fetchall() or connection.execute(_SIZE, (oid,)).fetchall()
    queries: list[ChunkQuery] = []
    for leaf, name, pages, _ in leaves:
        starts = range(0, max(1, pages), most)
        for start in starts:
            # Rows behind the pages of now are younger than the snapshot, but the last chunk costs nothing to leave open.
            bounds = [f"ctid >= '({start},0)'"] if start else []
            bounds += [f"ctid < '({start + most},0)'"] if start != starts[-1] else []
            queries.append(ChunkQuery(_copy_query(connection, table, name, bounds), leaf))
    return TableChunks(queries, sum(rows for *_, rows in leaves))


class StaleSnapshotError(CaptureError):
    """A table was altered so that a snapshot from before does not show it as it was. It must be read in another one."""

    def __init__(self, message: str) -> None:
        super().__init__(message, "It is read again in another snapshot, and compared with the log", state="retrying")


class SnapshotConnection:
    """Reads tables in an exported snapshot, and knows whether they still are what the snapshot shows.

    TRUNCATE and some forms of ALTER TABLE write the rows of a table anew, and a snapshot from before sees none of them. A
    column that was dropped and added again has no values. The catalog tells: that of the snapshot by the connection that reads,
    that of now by another one, once the reading transaction holds a lock on the table.
    """

    def __init__(self, database: Database) -> None:
        self._reading = psycopg.connect(database.conninfo())
        try:
            self._looking = psycopg.connect(database.conninfo(), autocommit=True)
        except BaseException:
            self._reading.close()
            raise

    def __enter__(self) -> "SnapshotConnection":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._reading.close()
        self._looking.close()

    def read(self, snapshot: str, chunk: ChunkQuery) -> Iterator[list[bytes]]:
        """Yield the rows of a chunk as lines of COPY's text format, some at a time. Raises before the first of them if they
        are not those of the snapshot."""
        begin_in_snapshot(self._reading, snapshot)
        of_snapshot = self._reading.execute(_DEFINITION, (chunk.oid,)).fetchall()
        with self._reading.cursor().copy(chunk.query.encode()):
            # COPY has locked the table, so it stays what it is now.
            if self._looking.execute(_DEFINITION, (chunk.oid,)).fetchall() != of_snapshot:
                name = of_snapshot[0][0] if of_snapshot else chunk.oid
                raise StaleSnapshotError(f"the table {name} was altered or truncated while it was read")
            yield from _copied_lines(self._reading.pgconn)
        # The lock on the table goes with the transaction, so nobody has to wait for the whole snapshot.
        self._reading.commit()


def _copied_lines(connection: "pq.abc.PGconn") -> Iterator[list[bytes]]:
    """Yield the lines of the COPY that a connection runs.

    libpq is asked directly: psycopg takes three times as long for a row, each of which is a message of its own.
    """
    lines: list[bytes] = []
    size = 0
    get, add = connection.get_copy_data, lines.append
    while True:
        length, data = get(1)
        if length > 0:
            add(bytes(data[:-1]))
            size += length
            if size > _PART_BYTES:
                yield lines
                lines, size = [], 0
                add = lines.append
        elif not length:
            select.select([connection.socket], [], [])
            connection.consume_input()
        else:
            break
    while (result := connection.get_result()) is not None:
        if result.status != pq.ExecStatus.COMMAND_OK:
            raise psycopg.errors.error_from_result(result)
    if lines:
        yield lines


def begin_in_snapshot(connection: Connection, snapshot: str) -> None:
    """Begin a transaction that sees what an exported snapshot shows."""
    connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
    connection.execute(sql.SQL("SET TRANSACTION SNAPSHOT {}").format(sql.Literal(snapshot)))
    # It may last for hours.
    connection.execute("SET LOCAL idle_in_transaction_session_timeout = 0; SET LOCAL statement_timeout = 0")


AppendRows = Callable[[ChunkView, Iterable[StagedBatch]], None]
"""Appends the rows of a chunk to the log. An error may come when some of them are there."""


class ChunkReader:
    """Claims chunks and reads them, until there are no more. Keeps one connection to each database."""

    def __init__(self, api: ChunkApi, *, source: str | None = None, append: AppendRows | None = None) -> None:
        """The capture of a source appends the rows; without `append` they are staged for it."""
        self._api = api
        self._source = source
        self._append = append
        self._worker = f"{'task' if append is None else 'capture'} {os.getpid()} on {socket.gethostname()}"
        self._open: tuple[str, SnapshotConnection] | None = None
        self.rows = 0
        self.error: str | None = None
        """Why the last chunk that failed did."""

    def close(self) -> None:
        if self._open is not None:
            self._open[1].close()
            self._open = None

    def read_next(self) -> bool:
        """Read a chunk. Return false if there is none."""
        claimed = self._api.claim(self._worker, self._source, is_spark=self._append is None)
        if claimed.chunk is None:
            if claimed.is_later:
                threading.Event().wait(_LATER_SECONDS)
            return claimed.is_later
        chunk = claimed.chunk
        rows = 0
        is_begun = False

        def batches() -> Iterator[StagedBatch]:
            nonlocal rows, is_begun
            encoder = RowEventEncoder(chunk.table, chunk.change_bytes)
            topic = CHANGES_PREFIX + topic_form(chunk.table.table.name)
            at = CommitInfo(0, chunk.lsn, chunk.time_us)
            for lines in self._connection(chunk).read(chunk.snapshot, ChunkQuery(chunk.query, chunk.oid)):
                rows += len(lines)
                for encoded in encoder.encode_rows(lines, at, _BATCH_BYTES):
                    is_begun = True
                    yield StagedBatch(chunk.table.table.changes, topic, 0, encoded.batch)

        stage, parts = "", 0
        try:
            if self._append is None:
                stage, parts = self._api.stage(chunk.source.name, batches())
            else:
                self._append(chunk, batches())
        except (psycopg.Error, CaptureError, TailraceError) as error:
            self.close()
            failure = error if not isinstance(error, psycopg.Error) else connection_failure(error, "a chunk could not be read")
            self.error = " ".join(str(failure).split())[:_MAX_ERROR]
            is_stale = isinstance(error, StaleSnapshotError) or getattr(error, "sqlstate", None) in _STALE
            # What is in the log already can't be read again. In another snapshot the table is compared with the log.
            is_stale |= self._append is not None and is_begun
            self._api.report_failed(FailedChunkBody(chunk.source.name, chunk.offer, chunk.number, self.error, is_stale))
            return False
        self._api.report_staged(StagedChunkBody(chunk.source.name, chunk.offer, chunk.number, stage, parts, rows))
        self.rows += rows
        return True

    def _connection(self, chunk: ChunkView) -> SnapshotConnection:
        if self._open is None or self._open[0] != chunk.offer:
            self.close()
            self._open = chunk.offer, SnapshotConnection(Database(chunk.source))
        return self._open[1]


class ChunksRead(NamedTuple):
    rows: int
    error: str | None
    """Why a chunk could not be read, which was the last one then."""


def read_chunks(url: str, login: CredentialSource, *, max_seconds: float) -> ChunksRead:
    """Read chunks of snapshots until there are no more, or for so long. This is what a task of a pipeline does."""
    api = ChunkApi(url, threading.Event(), login)
    reader = ChunkReader(api)
    deadline = time.monotonic() + max_seconds
    try:
        while reader.read_next() and time.monotonic() < deadline:
            pass
        return ChunksRead(reader.rows, reader.error)
    finally:
        reader.close()
        api.close()


def _copy_query(connection: Connection, table: PublishedTable, name: str, bounds: list[str]) -> str:
    columns = sql.SQL(", ").join(sql.Identifier(column.name) for column in table.relation.columns)
    conditions = [*bounds, *([f"({table.condition})"] if table.condition else [])]
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    return f"COPY (SELECT {columns.as_string(connection)} FROM ONLY {name}{where}) TO STDOUT"  # noqa: S608
