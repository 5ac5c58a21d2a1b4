"""Sends captured transactions to the server, in order, and knows how far the log has them.

A thread of its own takes all transactions that wait and sends them as one chunk: their events and the move of the source's
position are one frame of the log. A transaction that is too large for that is staged in parts and then written as a whole.
Transactions of one chunk stay in the order of their commits, also for readers of several tables: only those that follow each
other and change one and the same table share a record batch.

While a snapshot is read, transactions on its tables are held in a topic of their own (`held.py`), durable and confirmed, and
released behind the rows.
"""

import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from typing import Any, Generic, NamedTuple, TypeVar

from tailrace.capture.change_events import TRUNCATED, CommitInfo, RawChanges, RowEventEncoder, commit_headers
from tailrace.capture.database import matches
from tailrace.capture.failures import CaptureError
from tailrace.capture.held import MessageSplit, changed_tables, held_records, held_transactions
from tailrace.capture.pgoutput import ROW_TAGS, LogicalMessage, RelationMessage, decode, encode_truncate, relation_oid
from tailrace.capture.server_api import BODY_BYTES, SourceApi
from tailrace.capture.tables import CapturedTables
from tailrace.capture.transactions import CapturedTransaction, SpooledMessages
from tailrace.model.errors import InvalidTopicNameError, ReservedTopicError, TailraceError, UnknownTopicError
from tailrace.model.ids import TableId, TopicId
from tailrace.model.limits import KIB, MIB
from tailrace.model.names import topic_form
from tailrace.model.pipeline import NO_MARK, MarkMove
from tailrace.model.queue import dead_letter_topic
from tailrace.model.record import Record
from tailrace.model.source import HELD, HELD_PREFIX, POSITION, SourceSnapshot, SourceTable
from tailrace.model.table import CHANGES_PREFIX
from tailrace.wire.partitioner import partition_for_key
from tailrace.wire.records import encode_batch
from tailrace.wire.staged_chunks import StagedBatch, StagedChunk

_PENDING_BYTES = 16 * MIB
_CHUNK_BYTES = 2 * MIB
"""Bytes of the messages of one chunk. Its events are a few times as large."""
_BATCH_BYTES = MIB - KIB
_PREFIX = "tailrace:"
_RELATION, _TRUNCATE, _MESSAGE = map(ord, "RTM")
_ERROR_HEADER = "error"

T = TypeVar("T")


class TransactionSender:
    def __init__(self, api: SourceApi, tables: CapturedTables, source_name: str, position: int) -> None:
        self._api = api
        self._tables = tables
        self._source_name = source_name
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._waiting: list[CapturedTransaction] = []
        self._waiting_bytes = 0
        self._is_busy = False
        self._is_closed = False
        self._topics: dict[str, _OutboxTopic] = {}
        self._relations: dict[int, bytes] = {}
        """The last description of each table, as the database sent it."""
        self._hold: _Hold | None = None
        self._tasks: list[_SenderTask[Any]] = []
        self._unread: tuple[str, ...] = ()
        """Patterns of tables that the next snapshot reads."""
        self._known: set[TableId] = set()
        """Tables that have changes in the log."""
        self._thread = threading.Thread(target=self._run, name="tailrace-sender", daemon=True)
        self.position = position
        """The log has everything before it."""
        self.transactions = 0
        self.changes = 0
        self.error: Exception | None = None
        """Why nothing more is sent."""

    def start(self) -> None:
        self._thread.start()

    def submit(self, transaction: CapturedTransaction) -> None:
        """Let a transaction be sent, after all before it. Call `await_room` before the next."""
        with self._changed:
            self._waiting.append(transaction)
            self._waiting_bytes += transaction.size
            self._changed.notify_all()

    @property
    def is_idle(self) -> bool:
        with self._lock:
            return not self._waiting and not self._is_busy

    def await_room(self, seconds: float) -> bool:
        """Return whether little enough waits to be sent, at the latest after this time."""
        with self._changed:
            return self._changed.wait_for(lambda: self._waiting_bytes < _PENDING_BYTES or self.error is not None, seconds)

    def run(self, function: Callable[[], T]) -> T:
        """Run a function in the sender's thread, between two requests, and return what it returns."""
        task = _SenderTask(function)
        with self._changed:
            if self._is_closed or self.error is not None:
                raise _stopping()
            self._tasks.append(task)
            self._changed.notify_all()
        return task.result()

    def leave_out(self, patterns: Iterable[str], known: Iterable[TableId] = ()) -> None:
        """Leave out changes of tables that match and have none in the log, until they are held: the snapshot that is to be read
        has them in its rows. `known` are the tables that have changes in the log."""
        self._unread = tuple(dict.fromkeys((*self._unread, *patterns)))
        self._known |= set(known)

    def hold(
        self, snapshot: SourceSnapshot, tables: Iterable[SourceTable], released: int = 0, *, patterns: Collection[str] = ()
    ) -> None:
        """Hold transactions on the tables of a snapshot from now on. Runs in the sender's thread, or before it starts.

        `patterns` are those of `leave_out` that it reads.
        """
        self._unread = tuple(pattern for pattern in self._unread if pattern not in patterns)
        # What is released of them counts, whatever the next snapshot reads.
        self._known |= set(snapshot.tables)
        topic = HELD_PREFIX + topic_form(self._source_name)
        self._hold = _Hold(snapshot, topic, tables, released, self._relations)

    def update_hold(self, snapshot: SourceSnapshot) -> None:
        """Take what is known of the snapshot now. Runs in the sender's thread."""
        if self._hold is not None:
            self._hold.snapshot = snapshot

    def release(self, before_lsn: int | None = None) -> bool:
        """Release some of the transactions that are held, up to the first that was committed at the LSN or later. Return
        whether there may be more. Runs in the sender's thread."""
        hold = self._hold
        if hold is None:
            return False
        view = self._api.find_topic(hold.topic)
        end = 0 if view is None else view.partitions[0]
        chunk = _Chunk()
        is_more = False
        # What is released is not held again, and its descriptions of tables are older than those of the stream.
        relations = self._relations
        self._hold, self._relations = None, {}
        try:
            for transaction, next_offset in held_transactions(self._api.records(hold.topic, hold.released, end)):
                at = transaction.at
                if before_lsn is not None and at.commit_lsn >= before_lsn:
                    break
                messages = hold.without_rows_read(transaction.messages, at.commit_lsn)
                if isinstance(transaction.messages, SpooledMessages):
                    self._flush(chunk, hold.move())
                    chunk = _Chunk()
                    hold.released = next_offset
                    self._api.write_large(self._encoded(at, messages), hold.move())
                    transaction.messages.close()
                else:
                    chunk.add(self._pieces(messages, at), transaction)
                    hold.released = next_offset
                is_more = chunk.size > _CHUNK_BYTES
                if is_more:
                    break
            self._flush(chunk, hold.move())
        finally:
            self._hold, self._relations = hold, relations
        return is_more

    def stop_holding(self) -> None:
        """Send transactions as they come again. Runs in the sender's thread, when all that was held is released."""
        self._hold = None

    def close(self) -> None:
        """Stop after the request that is being sent."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        try:
            while True:
                with self._changed:
                    self._changed.wait_for(lambda: self._waiting or self._tasks or self._is_closed)
                    if self._is_closed:
                        return
                    taken, self._waiting = self._waiting, []
                    tasks, self._tasks = self._tasks, []
                    self._is_busy = True
                self._send(taken)
                for task in tasks:
                    task.run()
                with self._changed:
                    self._is_busy = False
                    self._waiting_bytes -= sum(transaction.size for transaction in taken)
                    self._changed.notify_all()
        except Exception as error:  # noqa: BLE001
            with self._changed:
                self.error = error
                self._changed.notify_all()
        finally:
            for task in self._tasks:
                task.cancel()

    def _send(self, transactions: Sequence[CapturedTransaction]) -> None:
        chunk = _Chunk()
        for transaction in transactions:
            if isinstance(transaction.messages, SpooledMessages):
                self._flush_captured(chunk)
                chunk = _Chunk()
                self._send_large(transaction, transaction.messages)
                continue
            if self._hold is None:
                messages: Iterable[bytes] = transaction.messages
            else:
                chunk.held += held_records(transaction, self._hold.split.held(transaction.messages))
                messages = self._hold.split.rest(transaction.messages)
            chunk.add(self._pieces(messages, transaction.at), transaction)
            if chunk.size > _CHUNK_BYTES:
                self._flush_captured(chunk)
                chunk = _Chunk()
        self._flush_captured(chunk)

    def _flush_captured(self, chunk: "_Chunk") -> None:
        """Append transactions with the move of the position behind them."""
        if chunk.end_lsn > self.position:
            self._flush(chunk, MarkMove(POSITION, self.position, chunk.end_lsn))
            self.transactions += chunk.transactions
            self.position = chunk.end_lsn

    def _flush(self, chunk: "_Chunk", move: MarkMove) -> None:
        if not chunk.end_lsn:
            return
        batches = self._batches(chunk)
        if sum(len(staged.batch) for staged in batches) > BODY_BYTES:
            self._api.write_large(batches, move)
        else:
            try:
                self._api.append(StagedChunk([move], batches))
            except UnknownTopicError:
                # A topic of messages was dropped since. It is created again, as one that never was there would be.
                self._topics.clear()
                self._api.append(StagedChunk([move], self._batches(chunk)))
        self.changes += sum(piece.count for piece in chunk.pieces)

    def _batches(self, chunk: "_Chunk") -> list[StagedBatch]:
        batches = [batch for piece in chunk.pieces for batch in piece.batches(self._topic_of)]
        if chunk.held and self._hold is not None:
            batches += self._hold.batches(chunk.held)
        return batches

    def _send_large(self, transaction: CapturedTransaction, messages: SpooledMessages) -> None:
        if transaction.end_lsn <= self.position:
            messages.close()
            return
        move = MarkMove(POSITION, self.position, transaction.end_lsn)
        if self._hold is None:
            self._api.write_large(self._encoded(transaction.at, messages), move)
        else:
            split = self._hold.split
            rest = self._encoded(transaction.at, split.rest(messages))
            held = self._hold.batches(held_records(transaction, split.held(messages)))
            self._api.write_large(chain(rest, held), move)
        self.transactions += 1
        self.position = transaction.end_lsn
        messages.close()

    def _encoded(self, at: CommitInfo, messages: Iterable[bytes]) -> Iterator[StagedBatch]:
        """Yield the batches of a large transaction. A part of it is in memory."""
        part: list[bytes] = []
        size = 0
        for message in messages:
            part.append(message)
            size += len(message)
            if size > _CHUNK_BYTES:
                yield from self._encoded_part(part, at)
                part, size = [], 0
        yield from self._encoded_part(part, at)

    def _encoded_part(self, messages: Sequence[bytes], at: CommitInfo) -> Iterator[StagedBatch]:
        for piece in self._pieces(messages, at):
            self.changes += piece.count
            yield from piece.batches(self._topic_of)

    def _pieces(self, messages: Iterable[bytes], at: CommitInfo) -> "list[_Piece]":
        """Return the changes of a transaction by table, in the order in which it first changed them."""
        pieces: dict[object, _Piece] = {}
        last_table = b""
        add: Callable[[bytes], None] | None = None
        for message in messages:
            tag = message[0]
            if tag in ROW_TAGS:
                # Most changes are of the same table as the one before.
                if message[1:5] != last_table:
                    changes = self._changes_of(pieces, relation_oid(message), at)
                    last_table = message[1:5]
                    add = None if changes is None else changes.messages.append
                if add is not None:
                    add(message)
                continue
            last_table = b""
            if tag == _RELATION:
                relation = decode(message)
                if isinstance(relation, RelationMessage):
                    self._relations[relation.oid] = message
                    self._tables.describe(relation)
            elif tag == _MESSAGE:
                self._add_outbox(pieces, message, at)
            else:
                for oid in changed_tables(message):
                    changes = self._changes_of(pieces, oid, at)
                    if changes is not None:
                        changes.messages.append(message)
        return list(pieces.values())

    def _changes_of(self, pieces: "dict[object, _Piece]", oid: int, at: CommitInfo) -> RawChanges | None:
        """Return where the changes of a table are collected; `None` if they are left out."""
        current = self._tables.of_rows(oid)
        if self._unread and self._is_left_out(current.table):
            return None
        piece = pieces.get(current.encoder)
        if not isinstance(piece, _TablePiece):
            table = current.table.table
            name = CHANGES_PREFIX + topic_form(table.name)
            piece = pieces[current.encoder] = _TablePiece(current.encoder, table.changes, name, RawChanges(at))
        if current.was_created_again:
            piece.changes.messages.append(TRUNCATED)
        return piece.changes

    def _is_left_out(self, table: SourceTable) -> bool:
        if table.id in self._known:
            return False
        return any(matches(pattern, table.schema, table.relation) for pattern in self._unread)

    def _add_outbox(self, pieces: "dict[object, _Piece]", message: bytes, at: CommitInfo) -> None:
        found = decode(message)
        if not isinstance(found, LogicalMessage) or not found.is_transactional or not found.prefix.startswith(_PREFIX):
            return
        topic, _, key = found.prefix.removeprefix(_PREFIX).partition(":")
        headers = (("source", self._source_name.encode()), *commit_headers(at))
        record = Record(key.encode() if key else None, found.content, headers, at.commit_time_us // 1000)
        piece = pieces.get(topic)
        if not isinstance(piece, _OutboxPiece):
            piece = pieces[topic] = _OutboxPiece(topic, [])
        piece.records.append(record)

    def _topic_of(self, name: str) -> "_OutboxTopic":
        """Return the topic of messages, which is created if it does not exist. Under a name that no topic can have, it is that
        of the source's dead letters."""
        known = self._topics.get(name)
        if known is None:
            known = self._topics[name] = self._find_or_create(name)
        return known

    def _find_or_create(self, name: str) -> "_OutboxTopic":
        error = ""
        try:
            view = self._api.find_topic(name)
            if view is None:
                self._api.create_topic(name)
                view = self._api.find_topic(name)
            if view is not None and view.topic.startswith("_"):
                raise ReservedTopicError(f"{name!r} is reserved for the server")
        except (InvalidTopicNameError, ReservedTopicError) as failure:
            error = str(failure)
            letters = dead_letter_topic(self._source_name)
            view = self._api.find_topic(letters)
            if view is None:
                self._api.create_topic(letters)
                view = self._api.find_topic(letters)
        if view is None:
            raise TailraceError(f"the topic {name!r} is dropped all the time")
        return _OutboxTopic(TopicId(view.topic_id), view.topic, len(view.partitions), error)


class _Hold:
    """The transactions that are held while a snapshot is read, and how far they were released."""

    def __init__(
        self,
        snapshot: SourceSnapshot,
        topic: str,
        tables: Iterable[SourceTable],
        released: int,
        relations: dict[int, bytes],
    ) -> None:
        self.snapshot = snapshot
        self.topic = topic
        self.released = released
        self._moved = released or NO_MARK
        self._ids = {(table.schema, table.relation): table.id for table in tables}
        self._table = lru_cache(maxsize=1024)(self._find_table)
        self.split = MessageSplit(relations, self._is_held, holds_all=snapshot.holds_all)

    def move(self) -> MarkMove:
        """Return the move of the mark to what was released."""
        before, self._moved = self._moved, self.released
        return MarkMove(HELD, before, self.released)

    def batches(self, records: Iterable[Record]) -> Iterator[StagedBatch]:
        """Yield batches for the topic of held transactions."""
        for batch in _encoded(records):
            yield StagedBatch(self.snapshot.held, self.topic, 0, batch)

    def without_rows_read(self, messages: Iterable[bytes], commit_lsn: int) -> Iterator[bytes]:
        """Yield the messages of a held transaction without changes that the rows of the snapshot include."""
        relations: dict[int, bytes] = {}
        for message in messages:
            if message[0] == _RELATION:
                relations[relation_oid(message)] = message
                yield message
            elif message[0] == _MESSAGE:
                yield message
            else:
                kept = [oid for oid in changed_tables(message) if not self._is_included(relations[oid], commit_lsn)]
                if kept:
                    yield encode_truncate(kept) if message[0] == _TRUNCATE else message

    def _is_held(self, relation: bytes) -> bool:
        return self.snapshot.holds_all or self._table(relation) in self.snapshot.tables

    def _is_included(self, relation: bytes, commit_lsn: int) -> bool:
        table = self._table(relation)
        return table is not None and self.snapshot.includes(table, commit_lsn)

    def _find_table(self, relation: bytes) -> TableId | None:
        """Return the table that the database has described in this way."""
        described = decode(relation)
        return self._ids.get((described.schema, described.name)) if isinstance(described, RelationMessage) else None


class _SenderTask(Generic[T]):
    """A function that the sender's thread runs for another one."""

    def __init__(self, function: Callable[[], T]) -> None:
        self._future: Future[T] = Future()
        self._function = function

    def run(self) -> None:
        try:
            self._future.set_result(self._function())
        except Exception as error:  # noqa: BLE001  the other thread handles it
            self._future.set_exception(error)

    def cancel(self) -> None:
        self._future.set_exception(_stopping())

    def result(self) -> T:
        return self._future.result()


def _stopping() -> CaptureError:
    return CaptureError("the capture is stopping", "It is started again", state="retrying")


class _OutboxTopic(NamedTuple):
    id: TopicId
    name: str
    partitions: int
    error: str
    """Why messages go to dead letters instead."""


@dataclass(slots=True)
class _TablePiece:
    """Changes of one table."""

    encoder: RowEventEncoder
    topic_id: TopicId
    topic: str
    changes: RawChanges

    @property
    def count(self) -> int:
        return len(self.changes)

    def batches(self, _: object) -> Iterator[StagedBatch]:
        for encoded in self.encoder.encode(self.changes, _BATCH_BYTES):
            yield StagedBatch(self.topic_id, self.topic, 0, encoded.batch)


@dataclass(slots=True)
class _OutboxPiece:
    """Messages for one topic."""

    topic: str
    records: list[Record]

    @property
    def count(self) -> int:
        return len(self.records)

    def batches(self, topic_of: "Callable[[str], _OutboxTopic]") -> Iterator[StagedBatch]:
        topic = topic_of(self.topic)
        by_partition: dict[int, list[Record]] = {}
        for record in self.records:
            if topic.error:
                headers = (*record.headers, ("topic", self.topic.encode()), (_ERROR_HEADER, topic.error.encode()))
                record = record._replace(headers=headers)
            partition = partition_for_key(record.key or b"", topic.partitions)
            by_partition.setdefault(partition, []).append(record)
        for partition, records in by_partition.items():
            for batch in _encoded(records):
                yield StagedBatch(topic.id, topic.name, partition, batch)


_Piece = _TablePiece | _OutboxPiece


class _Chunk:
    """Transactions that are sent together."""

    def __init__(self) -> None:
        self.pieces: list[_Piece] = []
        self.size = 0
        self.transactions = 0
        self.end_lsn = 0
        self.held: list[Record] = []

    def add(self, pieces: Sequence[_Piece], transaction: CapturedTransaction) -> None:
        last = self.pieces[-1] if self.pieces else None
        if len(pieces) == 1 and isinstance(last, _TablePiece) and isinstance(pieces[0], _TablePiece):
            (only,) = pieces
            if isinstance(only, _TablePiece) and only.encoder is last.encoder:
                last.changes.extend(only.changes)
                pieces = ()
        self.pieces += pieces
        self.size += transaction.size
        self.transactions += bool(transaction.at.xid)
        self.end_lsn = max(self.end_lsn, transaction.end_lsn)


def _encoded(records: Iterable[Record]) -> Iterator[bytearray]:
    """Yield batches of the records, each of bounded size."""
    part: list[Record] = []
    size = 0
    for record in records:
        if part and size + len(record.value or b"") > _BATCH_BYTES:
            yield encode_batch(part)
            part, size = [], 0
        part.append(record)
        size += len(record.value or b"")
    if part:
        yield encode_batch(part)
