"""Captures one source: streams the changes of its database into the log, from where the log ends.

The slot is confirmed only up to what the log has. What can pass by itself is tried again with a growing pause; everything is
reported to the server every two seconds, so that `system.sources` shows the state, the error and what to do. A slot that is
gone or that has lost something is never created again: that would hide the gap.
"""

import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Sequence

import msgspec
import psycopg

from tailrace.api.sources import AttachResponse
from tailrace.capture.change_events import CommitInfo
from tailrace.capture.checks import require_capturable
from tailrace.capture.database import (
    Connection,
    Database,
    PublishedTables,
    Slot,
    SystemIdentity,
    find_slot,
    publish_tables,
    quoted,
    unpublished_tables,
)
from tailrace.capture.failures import CaptureError, SlotLostError, server_failure
from tailrace.capture.sender import TransactionSender
from tailrace.capture.server_api import SourceApi
from tailrace.capture.snapshot import SnapshotProgress, SourceSnapshotReader, define_tables
from tailrace.capture.stream import ReplicationStream
from tailrace.capture.tables import CapturedTables
from tailrace.capture.transactions import CapturedTransaction, TransactionAssembler
from tailrace.client.credentials import NO_CREDENTIALS, CredentialSource
from tailrace.model.backoff import Backoff
from tailrace.model.errors import SourceFencedError, TailraceError, UnknownSourceError
from tailrace.model.limits import MIB
from tailrace.model.source import Source, SourceReport, format_lsn, parse_lsn

_log = logging.getLogger("tailrace.capture")

_HEARTBEAT_SECONDS = 2.0
_FIRST_PAUSE_SECONDS = 0.5
_LONGEST_PAUSE_SECONDS = 30.0
_READ_MESSAGES = 2_000
_READ_SECONDS = 0.5
_ROOM_SECONDS = 1.0
_IDLE_BYTES = MIB
_IDLE_SECONDS = 20.0
"""Without changes of captured tables the position moves when the database has written so much, or after so long."""
_CATALOG_SECONDS = 10.0
_STABLE_SECONDS = 30.0


class Capture:
    """Captures a source until `stopping` is set, or until another process does."""

    def __init__(
        self,
        name: str,
        url: str,
        stopping: threading.Event,
        *,
        login: CredentialSource = NO_CREDENTIALS,
        on_state: Callable[[SourceReport], None] = lambda _: None,
    ) -> None:
        self._stopping = stopping
        self._on_state = on_state
        self._api = SourceApi(url, name, f"process {os.getpid()} on {socket.gethostname()}", stopping, login)
        self._report = SourceReport()
        self._report_lock = threading.Lock()
        self._fenced: TailraceError | None = None
        self._wanted: Sequence[str] = ()
        """Patterns of the tables whose rows are to be read."""
        self._must_resync = False
        """Whether somebody has asked for a new slot since the stream began."""
        self._submitted_lsn = 0
        self._sender: TransactionSender | None = None
        self._reporting = threading.Event()

    def run(self) -> None:
        """Capture. Raises `SourceFencedError` if another process does it, and `UnknownSourceError` if the source is dropped."""
        attached = self._api.attach()
        heartbeat = threading.Thread(target=self._send_reports, name="tailrace-heartbeat", daemon=True)
        heartbeat.start()
        backoff = Backoff(_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS)
        try:
            while not self._stopping.is_set():
                began = time.monotonic()
                try:
                    self._capture(attached)
                except CaptureError as error:
                    self._set_report(state=error.state, error=error.message, advice=error.advice)
                    _log.warning("%s. %s", error.message, error.advice)
                except (SourceFencedError, UnknownSourceError):
                    raise
                except TailraceError as error:
                    failure = server_failure(error)
                    self._set_report(state=failure.state, error=failure.message, advice=failure.advice)
                    _log.warning("%s", failure.message)
                if self._fenced is not None:
                    raise self._fenced
                if time.monotonic() - began > _STABLE_SECONDS:
                    backoff.reset()
                if not self._stopping.wait(backoff.next_pause()):
                    # What the log has by now is asked for anew: requests whose answers were lost may have taken effect.
                    attached = self._api.attach()
        finally:
            self._stopping.set()
            self._reporting.set()
            heartbeat.join()
            self._api.close()

    def _capture(self, attached: AttachResponse) -> None:
        source = attached.source
        self._wanted = source.wanted
        self._sender = None
        database = Database(source)
        with database.connect() as connection:
            require_capturable(connection)
            self._publish_tables(connection, source, is_new=attached.position is None)
            slot = find_slot(connection, source.slot)
            version = connection.info.server_version
        replicating = database.replication_connection()
        try:
            identity = database.identify(replicating)
            tables = CapturedTables(self._api, database, source, attached.tables, attached.change_bytes)
            position = attached.position
            if position is None or source.resync:
                position = self._create_slot(database, source, slot, version)
                define_tables(database, source, tables)
                source = self._api.begin(position, identity.system_id, identity.timeline)
                self._wanted = source.wanted
            else:
                self._check_identity(database, replicating, source, identity, position)
                _check_slot(source, slot, position)
            stream = ReplicationStream(database, replicating, source, position)
            stream.start(position)
        except BaseException:
            replicating.finish()
            raise
        sender = TransactionSender(self._api, tables, source.name, position)
        if attached.snapshot is not None:
            sender.hold(attached.snapshot, attached.tables, attached.released)
        sender.leave_out(self._wanted, {table.id for table in attached.tables}.difference(attached.empty))
        self._sender = sender
        snapshots = SourceSnapshotReader(
            self._api,
            database,
            source,
            tables,
            sender,
            running=attached.snapshot,
            chunk_bytes=attached.snapshot_chunk_bytes,
            wanted=lambda: self._wanted,
            submitted_lsn=lambda: self._submitted_lsn,
            on_progress=self._report_snapshot,
        )
        try:
            self._stream(database, source, stream, sender, snapshots)
        finally:
            sender.close()
            snapshots.close()
            stream.confirm(sender.position)
            stream.close()

    def _publish_tables(self, connection: Connection, source: Source, *, is_new: bool = False) -> PublishedTables:
        """Add tables to the publication that match and are new. Their rows are read if the source has a snapshot."""
        found = unpublished_tables(connection, source)
        if found.missing and source.snapshot == "initial" and not is_new:
            # Noted before it is published, so that a process which ends in between does not forget it.
            names = [table.full_name for table in found.missing]
            self._api.want_snapshot(names)
            self._wanted = (*self._wanted, *names)
            if self._sender is not None:
                self._sender.leave_out(names)
        return publish_tables(connection, source, found)

    def _create_slot(self, database: Database, source: Source, slot: Slot | None, version: int) -> int:
        """Create the slot, and return where the stream begins."""
        if slot is not None:
            # A process that ended before it used its slot has left it, or it is to be created anew. Nobody else knows its name.
            with database.connect() as connection:
                connection.execute("SELECT pg_drop_replication_slot(%s)", (source.slot,))
        creating = database.replication_connection()
        try:
            return database.create_slot(creating, version)
        finally:
            creating.finish()

    def _report_snapshot(self, progress: SnapshotProgress | None) -> None:
        if progress is None:
            # The server has forgotten what was wanted; the next report says what is wanted now.
            self._wanted = ()
            self._set_report(state="streaming", snapshot_table=None)
        else:
            self._set_report(
                state="snapshot",
                snapshot_rows=progress.rows,
                snapshot_total=progress.total,
                snapshot_table=progress.table or None,
            )

    def _check_identity(
        self, database: Database, replicating: "psycopg.pq.abc.PGconn", source: Source, identity: SystemIdentity, position: int
    ) -> None:
        if identity.system_id != source.system_id:
            raise SlotLostError(
                f"the database at {database.shown_address} is another one than the source was created from (its system"
                f" identifier is {identity.system_id}, not {source.system_id})"
            )
        if identity.wal_end < position:
            raise SlotLostError(
                f"the write-ahead log of the database ends at {format_lsn(identity.wal_end)}, and the log has its changes up to"
                f" {format_lsn(position)}: it was restored from an older backup"
            )
        if source.timeline is None or identity.timeline == source.timeline:
            return
        left_at = database.switch_point(replicating, source.timeline, identity.timeline)
        if left_at is None or left_at < position:
            raise SlotLostError(
                f"the database is on timeline {identity.timeline}, which left timeline {source.timeline} at"
                f" {'an unknown point' if left_at is None else format_lsn(left_at)}; the log has its changes up to"
                f" {format_lsn(position)}, so some of them never happened in this database"
            )
        _log.warning("the database has moved from timeline %s to %s", source.timeline, identity.timeline)
        self._api.begin(position, identity.system_id, identity.timeline)

    def _stream(
        self,
        database: Database,
        source: Source,
        stream: ReplicationStream,
        sender: TransactionSender,
        snapshots: SourceSnapshotReader,
    ) -> None:
        sender.start()
        assembler = TransactionAssembler()
        watch = threading.Thread(target=self._watch, args=(database, source), name="tailrace-catalog", daemon=True)
        self._must_resync = False
        self._set_report(state="streaming", error=None, advice=None)
        self._is_streaming = threading.Event()
        watch.start()
        snapshots.start()
        moved_at = time.monotonic()
        seen = sender.position
        try:
            while not self._stopping.is_set():
                messages = stream.read(_READ_MESSAGES, _READ_SECONDS if sender.is_idle else 0.002)
                for message in messages:
                    transaction = assembler.add(message)
                    if transaction is not None:
                        sender.submit(transaction)
                while not sender.await_room(_ROOM_SECONDS):
                    # The database must hear from us even while the server is slow.
                    stream.read(0, 0.0)
                    if self._stopping.is_set():
                        return
                self._submitted_lsn = stream.received_lsn
                error = sender.error or snapshots.error
                if error is not None:
                    raise error
                if self._must_resync:
                    raise CaptureError("a new slot was asked for", "It is created now", state="retrying")
                stream.confirm(sender.position)
                now = time.monotonic()
                if sender.position != seen:
                    seen, moved_at = sender.position, now
                behind = stream.received_lsn - sender.position
                is_due = behind > _IDLE_BYTES or (behind > 0 and now - moved_at > _IDLE_SECONDS)
                if is_due and not messages and assembler.is_between and sender.is_idle:
                    sender.submit(CapturedTransaction(CommitInfo(0, 0, 0), stream.received_lsn, [], 0))
                    moved_at = now
                self._update_report(received_lsn=stream.received_lsn, transactions=sender.transactions, changes=sender.changes)
        finally:
            self._is_streaming.set()
            assembler.close()
            watch.join()

    def _watch(self, database: Database, source: Source) -> None:
        """Add new tables to the publication, and learn how much WAL the slot holds."""
        pause = 0.0
        while not self._is_streaming.wait(pause):
            pause = _CATALOG_SECONDS
            try:
                with database.connect() as connection:
                    tables, foreign = self._publish_tables(connection, source)
                    slot = find_slot(connection, source.slot)
                    row = connection.execute("SELECT pg_current_wal_lsn()::text").fetchone()
            except CaptureError as error:
                self._update_report(notes=(error.message,))
                continue
            notes = [f"{table.full_name} is not captured: the user of the source does not own it" for table in foreign]
            notes += [f"{table.full_name} has no primary key" for table in tables if not table.has_key]
            if slot is not None and slot.wal_status in ("unreserved", "lost"):
                notes.insert(0, f"the slot is about to lose WAL (wal_status is {slot.wal_status})")
            self._update_report(
                database_lsn=parse_lsn(row[0] if row else "0/0"),
                retained_bytes=None if slot is None else slot.retained_bytes,
                notes=tuple(notes),
            )

    def _set_report(self, **fields: object) -> None:
        self._update_report(**fields)
        self._on_state(self._report)
        self._reporting.set()

    def _update_report(self, **fields: object) -> None:
        with self._report_lock:
            self._report = msgspec.structs.replace(self._report, **fields)

    def _send_reports(self) -> None:
        """Send a report every two seconds, and at once when the state changes."""
        while True:
            try:
                told = self._api.report(self._report)
                self._wanted, self._must_resync = told.wanted, told.resync
            except (SourceFencedError, UnknownSourceError) as error:
                self._fenced = error
                self._stopping.set()
            except TailraceError as error:
                _log.debug("the report was not sent: %s", error)
            if self._stopping.is_set():
                return
            self._reporting.wait(_HEARTBEAT_SECONDS)
            self._reporting.clear()


def _check_slot(source: Source, slot: Slot | None, position: int) -> None:
    """Raise if the slot does not have everything behind the position."""
    if slot is None:
        raise SlotLostError(f"the slot {source.slot!r} does not exist in the database any more")
    if slot.wal_status == "lost" or slot.invalidation is not None:
        raise SlotLostError(
            f"the database has invalidated the slot {source.slot!r} ({slot.invalidation or 'its WAL was removed'});"
            " max_slot_wal_keep_size bounds what it keeps"
        )
    if slot.confirmed_lsn is not None and slot.confirmed_lsn > position:
        raise SlotLostError(
            f"the slot {source.slot!r} was confirmed up to {format_lsn(slot.confirmed_lsn)}, and the log has changes up to"
            f" {format_lsn(position)} only: another program has used the slot, or this log was restored from an older copy"
        )


def release_source(source: Source) -> None:
    """Drop the slot and the publication of a source in its database."""
    with Database(source).connect() as connection:
        slot = find_slot(connection, source.slot)
        if slot is not None and slot.active_pid is not None:
            connection.execute("SELECT pg_terminate_backend(%s, 5000)", (slot.active_pid,))
        if slot is not None:
            connection.execute("SELECT pg_drop_replication_slot(%s)", (source.slot,))
        if source.owns_publication:
            connection.execute(f"DROP PUBLICATION IF EXISTS {quoted(source.publication)}".encode())
