"""Snapshots: the rows that tables have at one point of the stream, as events before the changes that follow.

A snapshot is read while the stream runs. Transactions on its tables are held meanwhile (`sender.py`), durable in the log, so
the database need not keep them. The point is that of a temporary slot: what was committed before it is in the rows, what comes
behind it is in the stream. Rows of a table that is new in the log are read in chunks: by Spark's tasks where a pipeline runs,
which stage them to be published here, and else by the capture itself. A table that the log knows is compared with it
(`comparison.py`), and only the differences are written: that serves RESYNC and SNAPSHOT, and a snapshot whose session with the
database was lost on the way.
"""

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple
from uuid import uuid4

import psycopg

from tailrace.api.snapshots import ChunkView, OfferedChunk
from tailrace.capture.change_events import CommitInfo, RowEventEncoder
from tailrace.capture.comparison import LoggedRows, differences
from tailrace.capture.database import Connection, Database, matches, matching_tables
from tailrace.capture.failures import CaptureError, connection_failure
from tailrace.capture.sender import TransactionSender
from tailrace.capture.server_api import ChunkApi, SourceApi
from tailrace.capture.snapshot_chunks import (
    ChunkReader,
    PublishedTable,
    SnapshotConnection,
    StaleSnapshotError,
    begin_in_snapshot,
    divide,
    published_table,
)
from tailrace.capture.tables import CapturedTables
from tailrace.model.backoff import Backoff
from tailrace.model.fetch import StartEdge
from tailrace.model.ids import TableId
from tailrace.model.limits import KIB, MIB
from tailrace.model.names import topic_form
from tailrace.model.source import ALL_TABLES, Source, SourceSnapshot, SourceTable
from tailrace.model.table import CHANGES_PREFIX
from tailrace.wire.batch import read_header
from tailrace.wire.staged_chunks import StagedBatch

_log = logging.getLogger("tailrace.capture")

_POLL_SECONDS = 0.3
_FIRST_PAUSE_SECONDS = 0.2
_LONGEST_PAUSE_SECONDS = 10.0
_WAIT_SECONDS = 1.0
_RELEASE_SECONDS = 2.0
_BATCH_BYTES = MIB - KIB
_MAX_FAILURES = 5
_MAX_OFFERED = 1_000
_CLOCK = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint"


_Tables = dict[TableId, tuple[PublishedTable, SourceTable]]


class SnapshotProgress(NamedTuple):
    """Rows that were read so far, of how many, and the table that was read last."""

    rows: int
    total: int
    table: str


class SourceSnapshotReader:
    """Reads the snapshots of a source, one after another, in a thread of its own."""

    def __init__(
        self,
        api: SourceApi,
        database: Database,
        source: Source,
        tables: CapturedTables,
        sender: TransactionSender,
        *,
        running: SourceSnapshot | None,
        chunk_bytes: int,
        wanted: Callable[[], Sequence[str]],
        submitted_lsn: Callable[[], int],
        on_progress: Callable[[SnapshotProgress | None], None],
    ) -> None:
        """`wanted` returns the patterns of tables to read next, and `submitted_lsn` how far the sender got the stream."""
        self._api = api
        self._database = database
        self._source = source
        self._tables = tables
        self._sender = sender
        self._running = running
        self._chunk_bytes = chunk_bytes
        self._wanted = wanted
        self._submitted_lsn = submitted_lsn
        self._on_progress = on_progress
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tailrace-snapshot", daemon=True)
        self.error: Exception | None = None

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        backoff = Backoff(_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS)
        try:
            while not self._stopping.is_set():
                wanted = self._wanted()
                if self._running is None and not wanted:
                    self._stopping.wait(_POLL_SECONDS)
                    continue
                try:
                    self._read(wanted)
                    backoff.reset()
                except StaleSnapshotError as error:
                    # The stream goes on meanwhile.
                    _log.warning("%s. %s", error.message, error.advice)
                    self._stopping.wait(backoff.next_pause())
                except psycopg.Error as error:
                    raise connection_failure(error, "the snapshot could not be read") from error
        except Exception as error:  # noqa: BLE001  the capture's thread handles it
            if not self._stopping.is_set():
                self.error = error

    def _read(self, wanted: Sequence[str]) -> None:
        """Read one snapshot: the one that is running, or another one of what is wanted."""
        self._on_progress(SnapshotProgress(0, 0, ""))
        if self._running is None:
            self._running = self._begin(wanted)
        if not self._running.is_read:
            with SnapshotSession(self._database, self._source) as session:
                self._read_tables(session)
        self._release_all()
        self._running = None
        self._on_progress(None)

    def _begin(self, wanted: Sequence[str]) -> SourceSnapshot:
        """Begin a snapshot of the tables that are wanted, and hold their transactions from there on."""
        with self._database.connect() as connection:
            published = [
                one
                for one in self._published(connection)
                if any(matches(pattern, one.relation.schema, one.relation.name) for pattern in wanted)
            ]

        def begin() -> SourceSnapshot:
            # The stream may be behind, so a table that is known stays as it is.
            chosen = [self._tables.find(one.relation) or self._define(one) for one in published]
            holds_all = any(pattern in ALL_TABLES for pattern in wanted)
            begun = self._api.begin_snapshot([table.id for table in chosen], wanted, holds_all=holds_all)
            self._sender.hold(begun, chosen, patterns=wanted)
            return begun

        return self._sender.run(begin)

    def _published(self, connection: Connection) -> Iterator[PublishedTable]:
        for found in matching_tables(connection, self._source.tables):
            published = published_table(connection, self._source, found)
            if published is not None:
                yield published

    def _define(self, table: PublishedTable) -> SourceTable:
        """Have the server know a table as it is described here. Runs in the sender's thread."""
        self._tables.describe(table.relation)
        return self._tables.of_rows(table.relation.oid).table

    def _read_tables(self, session: "SnapshotSession") -> None:
        """Write the rows of all tables that are not done."""
        snapshot = self._snapshot
        unread = set(snapshot.tables) - snapshot.done.keys()
        if not unread.isdisjoint(snapshot.known):
            self._release_before(session.lsn)
        # Nobody sends changes of these tables now, so they are defined as the snapshot has them.
        todo: _Tables = {}
        for one in self._published(session.connection):
            table = self._sender.run(lambda one=one: self._tables.find(one.relation))  # type: ignore[misc]
            if table is not None and table.id in unread:
                todo[table.id] = one, self._sender.run(lambda one=one: self._define(one))  # type: ignore[misc]
        for dropped in unread - todo.keys():
            # It was dropped in the database, or taken out of the publication.
            self._finish(dropped, 0)
        # Of a table that was being read when an earlier session was lost, some rows are in the log.
        is_new = {table_id: self._end_offset(table) == 0 for table_id, (_, table) in todo.items()}
        rows = _RowCount(self._on_progress)
        self._read_chunks(session, {table_id: one for table_id, one in todo.items() if is_new[table_id]}, rows)
        for table_id, (one, table) in todo.items():
            if not is_new[table_id]:
                self._compare(session, one, table, rows)

    @property
    def _snapshot(self) -> SourceSnapshot:
        if self._running is None:
            raise CaptureError("no snapshot is being read", "It is tried again", state="retrying")
        return self._running

    def _end_offset(self, table: SourceTable) -> int:
        view = self._api.find_topic(_topic(table))
        return 0 if view is None else view.partitions[0]

    def _read_chunks(self, session: "SnapshotSession", new: _Tables, rows: "_RowCount") -> None:
        """Have the chunks of new tables read, and publish each when it is staged."""
        pending: list[OfferedChunk] = []
        for table_id, (one, _) in new.items():
            divided = divide(session.connection, one, self._chunk_bytes)
            pending += [OfferedChunk(table_id, query, oid) for query, oid in divided.queries]
            rows.total += divided.rows
        unread = Counter(chunk.table for chunk in pending)
        chunk_api = ChunkApi(self._api.url, self._stopping, self._api.login)
        try:
            while pending:
                offered, later = pending[:_MAX_OFFERED], pending[_MAX_OFFERED:]
                # Some are left if the server was started anew, which has forgotten what was offered and staged.
                pending = self._publish_offered(session, offered, chunk_api, new, unread, rows) + later
        finally:
            chunk_api.close()

    def _publish_offered(
        self,
        session: "SnapshotSession",
        chunks: list[OfferedChunk],
        chunk_api: ChunkApi,
        new: _Tables,
        unread: "Counter[TableId]",
        rows: "_RowCount",
    ) -> list[OfferedChunk]:
        """Publish chunks until all are read, or the server has forgotten them. Return those that are not published."""
        offer = uuid4().hex
        self._api.offer_chunks(offer, session.snapshot, session.at, chunks)
        left = dict(enumerate(chunks))
        published: list[int] = []

        def name_of(number: int) -> str:
            return new[chunks[number].table][0].found.full_name

        def append(chunk: ChunkView, batches: Iterable[StagedBatch]) -> None:
            def counted() -> Iterator[StagedBatch]:
                for staged in batches:
                    self._check(session)
                    yield staged
                    rows.add(read_header(staged.batch).records, name_of(chunk.number))

            self._api.append_rows(counted(), _mark(offer, chunk.number))
            note_published(chunk.number)

        def note_published(number: int) -> None:
            table_id = left.pop(number).table
            unread[table_id] -= 1
            if not unread[table_id]:
                self._finish(table_id, session.lsn)

        own_reader = ChunkReader(chunk_api, source=self._source.name, append=append)
        wait_seconds = 0.0
        failures = 0
        try:
            while left:
                self._check(session)
                progress = self._api.offer_progress(offer, published, wait_seconds)
                if not progress.is_offered:
                    break
                if progress.is_stale:
                    raise StaleSnapshotError(progress.error or "a table was altered while it was read")
                published = []
                for staged in progress.staged:
                    if staged.number in left:
                        if staged.parts:
                            self._api.write_rows(staged.stage, staged.parts, _mark(offer, staged.number))
                        rows.add(staged.rows, name_of(staged.number))
                        note_published(staged.number)
                    published.append(staged.number)
                wait_seconds = _WAIT_SECONDS if progress.is_read_by_spark else 0.0
                if not progress.staged and not progress.is_read_by_spark and not own_reader.read_next():
                    failures += 1
                    if progress.error is not None and failures > _MAX_FAILURES:
                        raise CaptureError(progress.error, "It is tried again", state="retrying")
                    self._stopping.wait(_POLL_SECONDS)
        finally:
            own_reader.close()
        return list(left.values())

    def _compare(self, session: "SnapshotSession", one: PublishedTable, table: SourceTable, rows: "_RowCount") -> None:
        """Write the differences between a table and its changes in the log, as one transaction."""
        encoder = RowEventEncoder(table, self._tables.change_bytes)
        topic = _topic(table)
        earliest = self._api.find_topic(topic, StartEdge.EARLIEST)
        start = 0 if earliest is None else earliest.partitions[0]
        end = self._end_offset(table)

        chunks = divide(session.connection, one, self._chunk_bytes)
        rows.total += chunks.rows

        def lines(connection: SnapshotConnection) -> Iterator[bytes]:
            for chunk in chunks.queries:
                for some in connection.read(session.snapshot, chunk):
                    self._check(session)
                    yield from some
                    rows.add(len(some), one.found.full_name)

        with SnapshotConnection(self._database) as reading, LoggedRows(encoder) as logged:
            logged.apply(record.value for record in self._api.records(topic, start, end) if record.value is not None)
            events = differences(logged, lines(reading), session.at)
            batches = (
                StagedBatch(table.table.changes, topic, 0, encoded.batch)
                for encoded in encoder.encode_events(events, _BATCH_BYTES, is_snapshot=True)
            )
            stage, parts = self._api.stage(self._source.name, batches)
        if parts:
            self._api.write_rows(stage, parts, stage)
        self._finish(table.id, session.lsn)

    def _finish(self, table: TableId, lsn: int) -> None:
        """Note that the rows of a table are in the log."""
        snapshot = self._running = self._api.finish_table(table, lsn)
        self._sender.run(lambda: self._sender.update_hold(snapshot))

    def _release_before(self, lsn: int) -> None:
        """Release what was committed before the snapshot, once all of that has come."""
        self._await_stream(lsn)
        while self._sender.run(lambda: self._release_some(lsn)):
            self._check(None)

    def _await_stream(self, lsn: int) -> None:
        """Wait until all that was committed before the LSN was submitted to the sender."""
        while self._submitted_lsn() < lsn:
            self._check(None)
            time.sleep(0.02)

    def _release_all(self) -> None:
        """Release everything, and end the snapshot. What the rows include must have come, so that it is left out."""
        self._await_stream(max(self._snapshot.done.values(), default=0))

        def release() -> bool:
            if self._release_some():
                return True
            self._api.end_snapshot()
            self._sender.stop_holding()
            return False

        while self._sender.run(release):
            self._check(None)

    def _release_some(self, before_lsn: int | None = None) -> bool:
        """Release for a while, so that less is held afterwards, however busy the database is. Return whether there is more."""
        deadline = time.monotonic() + _RELEASE_SECONDS
        while self._sender.release(before_lsn):
            if time.monotonic() > deadline or self._stopping.is_set():
                return True
        return False

    def _check(self, session: "SnapshotSession | None") -> None:
        """Raise if the capture is stopping, or the database has forgotten the snapshot."""
        if self._stopping.is_set():
            raise CaptureError("the snapshot was interrupted", "It continues by itself", state="retrying")
        if session is not None:
            session.check()


class SnapshotSession:
    """Keeps a snapshot of the database open that shows exactly what was committed before an LSN of the stream."""

    def __init__(self, database: Database, source: Source) -> None:
        self.connection = psycopg.connect(database.conninfo())
        try:
            # By the clock of the database, and before the point, so that no change behind it seems to be older.
            ((now_us,),) = self.connection.execute(_CLOCK).fetchall()
            self.connection.commit()
            creating = database.replication_connection()
            try:
                self.lsn, exported = database.create_temporary_slot(creating, f"{source.slot[:50]}_snapshot")
                begin_in_snapshot(self.connection, exported)
            finally:
                # The slot goes with its connection, so the database keeps no write-ahead log for it.
                creating.finish()
            ((self.snapshot,),) = self.connection.execute("SELECT pg_export_snapshot()").fetchall()
        except BaseException:
            self.connection.close()
            raise
        self.at = CommitInfo(0, self.lsn, now_us)

    def __enter__(self) -> "SnapshotSession":
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(psycopg.Error):
            self.connection.close()

    def check(self) -> None:
        """Raise if the connection is lost, and the snapshot with it."""
        if self.connection.closed or self.connection.broken:
            raise CaptureError(
                "the connection that keeps the snapshot open was lost",
                "It is read again in another snapshot, and what the log has already is compared",
                state="retrying",
            )


class _RowCount:
    def __init__(self, on_progress: Callable[[SnapshotProgress], None]) -> None:
        self._on_progress = on_progress
        self._rows = 0
        self.total = 0

    def add(self, rows: int, table: str) -> None:
        self._rows += rows
        self._on_progress(SnapshotProgress(self._rows, max(self.total, self._rows), table))


def _mark(offer: str, number: int) -> str:
    """Return the mark of a chunk, which has each of its parts published once."""
    return f"{offer}/{number}"


def _topic(table: SourceTable) -> str:
    return CHANGES_PREFIX + topic_form(table.table.name)


def define_tables(database: Database, source: Source, tables: CapturedTables) -> None:
    """Have the tables of a source defined before their first change, so that routes can be added."""
    with database.connect() as connection:
        for found in matching_tables(connection, source.tables):
            published = published_table(connection, source, found)
            if published is not None:
                tables.describe(published.relation)
                tables.of_rows(found.oid)
