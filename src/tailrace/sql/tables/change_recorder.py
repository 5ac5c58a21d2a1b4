"""Collects the change events of a group of transactions while their statements run.

Plans tell it the images of each row that they change. Events are encoded at once, so only what goes into the log is kept in
memory. An update that changes the key is a delete and an insert.

While the snapshot of a route runs, a change of a row that it has not reached yet is marked as not for this route: the row will
be read later, in its state at that time.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import apsw

from tailrace.broker.tables.change_log import ChangeBatch
from tailrace.model.errors import LimitExceededError
from tailrace.model.ids import RouteId, TableId
from tailrace.model.limits import MIB, Limits
from tailrace.model.route import ChangeKind, Operation, RouteSnapshot
from tailrace.model.table import Column, Table
from tailrace.sql.tables.change_events import TableEvents
from tailrace.sql.tables.collations import COLLATIONS, register_collations
from tailrace.sql.tables.values import StoredRow, StoredValue
from tailrace.wire.records import fast_encode_batch

_RECORD_OVERHEAD_BYTES = 16
_FRAME_RESERVE_BYTES = MIB


EncodedEvent = tuple[bytes | None, bytes, bytes]
"""Key, value and encoded headers. Only the removal of all rows has no key."""


class _Event(NamedTuple):
    of: TableEvents
    record: EncodedEvent


class RecorderSavepoint(NamedTuple):
    """A state of the recorder that `back_to` restores."""

    events: int
    size: int


class ChangeRecorder:
    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._max_bytes = limits.frame_bytes - _FRAME_RESERVE_BYTES
        self._events: list[_Event] = []
        self._headers: dict[tuple[str, Operation, str], bytes] = {}
        self._order = KeyOrder()
        self._snapshots: Mapping[TableId, Sequence[RouteSnapshot]] = {}
        self._tx = ""
        self._ts = 0
        self.size = 0

    def __len__(self) -> int:
        return len(self._events)

    def begin(self, ts: int, snapshots: Mapping[TableId, Sequence[RouteSnapshot]]) -> None:
        """Start a group. `snapshots` are the running ones, by table; none of them progresses while the group runs."""
        self._events = []
        self._ts = ts
        self._snapshots = snapshots
        self.size = 0

    def transaction(self, tx: str) -> RecorderSavepoint:
        """Start a transaction within the group."""
        self._tx = tx
        self._headers = {}
        return RecorderSavepoint(len(self._events), self.size)

    def back_to(self, mark: RecorderSavepoint) -> None:
        del self._events[mark.events :]
        self.size = mark.size

    def changed(self, of: TableEvents, old: StoredRow | None, new: StoredRow | None) -> None:
        """Record the change of a row from one image to another; `None` is no row."""
        if old is None or new is None:
            self._add(of, "delete" if new is None else "insert", old, new)
        elif tuple(of.key_of(old)) == tuple(of.key_of(new)):
            self._add(of, "update", old, new)
        else:
            self._add(of, "delete", old, None)
            self._add(of, "insert", None, new)

    def inserted(self, of: TableEvents, rows: Sequence[StoredRow]) -> None:
        """Record rows that are known to be inserted as they are."""
        if of.table.id not in self._snapshots:
            self._add_rows(of, "insert", rows, self._headers_of(of, "insert"))
            return
        for row in rows:
            self._add_rows(of, "insert", (row,), self._headers_of(of, "insert", self._skipped(of, row)))

    def truncated(self, of: TableEvents) -> None:
        """Record that all rows of a table are removed."""
        value, headers = of.encode_truncate(self._ts, self._tx), of.headers("truncate", self._tx)
        self._count(len(value) + len(headers) + _RECORD_OVERHEAD_BYTES)
        self._events.append(_Event(of, (None, value, headers)))

    def read(self, of: TableEvents, rows: Sequence[StoredRow], route: RouteId | None) -> None:
        """Record rows that a snapshot has read for its route, or that a checkpoint has read."""
        self._add_rows(of, "read", rows, of.headers("read", self._tx, only_route=route))

    def close(self) -> None:
        self._order.close()

    def changed_keys(self, table: TableId) -> Sequence[tuple[StoredValue, ...]] | None:
        """Return the keys of the rows of a table that the group changes, or `None` if they can't be told."""
        events = [event for event in self._events if event.of.table.id == table]
        if not events:
            return ()
        keys = [event.record[0] for event in events if event.record[0] is not None]
        # Without a key all rows are removed.
        return events[0].of.decode_keys(keys) if len(keys) == len(events) else None

    def batches(self) -> list[ChangeBatch]:
        """Return the events in order, in as few batches as possible."""
        return [
            ChangeBatch(of.table, fast_encode_batch(records, self._ts), len(records), self._ts) for of, records in self._runs()
        ]

    def _runs(self) -> Iterator[tuple[TableEvents, list[EncodedEvent]]]:
        """Yield runs of consecutive events of one table, up to the size of a batch."""
        limits = self._limits
        run: list[EncodedEvent] = []
        last: TableEvents | None = None
        size = 0
        for of, record in self._events:
            grown = size + len(record[0] or b"") + len(record[1]) + len(record[2]) + _RECORD_OVERHEAD_BYTES
            if last is not None and (of is not last or grown > limits.batch_bytes or len(run) == limits.batch_records):
                yield last, run
                run = []
                grown -= size
            run.append(record)
            last = of
            size = grown
        if last is not None:
            yield last, run

    def _add_rows(self, of: TableEvents, op: ChangeKind, rows: Sequence[StoredRow], headers: bytes) -> None:
        fixed = len(headers) + _RECORD_OVERHEAD_BYTES
        add = self._events.append
        for key, value in of.encode_rows(op, rows, self._ts, self._tx):
            self.size += len(key) + len(value) + fixed
            if self.size > self._max_bytes:
                raise self._too_much()
            add(_Event(of, (key, value, headers)))

    def _add(self, of: TableEvents, op: Operation, old: StoredRow | None, new: StoredRow | None) -> None:
        key, value = of.encode(op, old, new, self._ts, self._tx)
        headers = self._headers_of(of, op, self._skipped(of, new if new is not None else old))
        self._count(len(key) + len(value) + len(headers) + _RECORD_OVERHEAD_BYTES)
        self._events.append(_Event(of, (key, value, headers)))

    def _count(self, size: int) -> None:
        self.size += size
        if self.size > self._max_bytes:
            raise self._too_much()

    def _headers_of(self, of: TableEvents, op: Operation, skip_routes: str = "") -> bytes:
        headers = self._headers.get((of.table.name, op, skip_routes))
        if headers is None:
            headers = of.headers(op, self._tx, skip_routes=skip_routes)
            self._headers[of.table.name, op, skip_routes] = headers
        return headers

    def _skipped(self, of: TableEvents, row: StoredRow | None) -> str:
        """Return the routes whose snapshots have not reached this row yet."""
        running = self._snapshots.get(of.table.id)
        if running is None or row is None:
            return ""
        key = tuple(of.key_of(row))
        waiting = [
            f"{snapshot.route},"
            for snapshot in running
            if snapshot.last_key is None or self._order.is_behind(of.table, key, snapshot.last_key)
        ]
        return "," + "".join(waiting) if waiting else ""

    def _too_much(self) -> LimitExceededError:
        return LimitExceededError(
            f"the changes of the transaction take more than {self._max_bytes} bytes, the most that a commit can hold"
            " (frame_bytes); change fewer rows at a time"
        )


class KeyOrder:
    """Compares primary keys in the order in which a table stores its rows. Used by one thread.

    SQLite compares them, on a connection of its own: a hook that runs inside a statement must not use that statement's
    connection.
    """

    def __init__(self) -> None:
        self._connection = apsw.Connection(":memory:")
        register_collations(self._connection)

    def is_behind(self, table: Table, key: tuple[StoredValue, ...], other: tuple[StoredValue, ...]) -> bool:
        ((answer,),) = self._connection.execute(_comparison(table), key + other)
        return bool(answer)

    def close(self) -> None:
        self._connection.close()


def _comparison(table: Table) -> str:
    key = [_place(table.column(name)) for name in table.primary_key]
    return f"SELECT ({', '.join(key)}) > ({', '.join('?' * len(key))})"


def _place(column: Column | None) -> str:
    collation = COLLATIONS.get(column.type.kind) if column is not None else None
    return "?" if collation is None else f"? COLLATE {collation}"
