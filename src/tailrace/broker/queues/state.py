"""The state of one share: which records of a partition are done, and the delivery state of the others. No I/O, no clock.

Every record below `start` is done and no record from `end` on was read. In between, only **open** records are held: those
that are available (again), acquired by a consumer, or in a terminal state that is not durable yet. Memory and the stored form
therefore grow with the open records, not with the records that have passed.

The stored form is `start`, `end` and the open records as ranges of equal delivery counts. Owners, deadlines and receipts are
not stored: after a restart every open record is available and no earlier receipt counts. The delivery count is stored
when a record is acquired, so that a record which crashes every consumer still ends among the dead letters.
"""

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from tailrace.model.errors import LateReceiptError, invariant
from tailrace.model.ids import Offset
from tailrace.model.queue import RecordState
from tailrace.model.record import Record

UNKNOWN_KEY = b"\0unknown"
"""Stands for the key of a record that was not read since the start of the server. Compared by identity."""

_TERMINAL = (RecordState.ACKNOWLEDGED, RecordState.ARCHIVED)


class OpenRecordCounter:
    """Counts the open records of one queue and adds them to those of all queues."""

    def __init__(self, parent: "OpenRecordCounter | None" = None) -> None:
        self._parent = parent
        self.records = 0

    def add(self, records: int) -> None:
        """Count more open records, or fewer if the number is negative."""
        self.records += records
        if self._parent is not None:
            self._parent.add(records)


class OpenRecord:
    __slots__ = ("attempt", "deliveries", "due_ms", "key", "letter", "offset", "owner", "state", "token")

    def __init__(self, offset: Offset, deliveries: int = 0, key: bytes | None = UNKNOWN_KEY) -> None:
        self.offset = offset
        self.state = RecordState.AVAILABLE
        self.deliveries = deliveries
        self.key = key
        self.owner = ""
        self.attempt = ""
        """The request of the owner that acquired it."""
        self.token = 0
        """Part of the receipt: a new one for each delivery."""
        self.due_ms = 0
        """If acquired, when the delivery expires. If available, the earliest time of the next delivery."""
        self.letter: Record | None = None
        """If archived, the dead letter to append."""


class ShareState:
    def __init__(self, start: Offset) -> None:
        self.end = start
        self._open: dict[Offset, OpenRecord] = {}
        """By offset, in the order of offsets."""
        self._maybe_available: set[Offset] = set()
        """The offsets of all available records, and perhaps of some that are no longer available."""
        self.counter = OpenRecordCounter()

    @property
    def start(self) -> Offset:
        return next(iter(self._open), self.end)

    def __len__(self) -> int:
        return len(self._open)

    def __iter__(self) -> Iterator[OpenRecord]:
        return iter(self._open.values())

    def get(self, offset: Offset) -> OpenRecord | None:
        return self._open.get(offset)

    def is_done(self, offset: Offset) -> bool:
        """Return whether the record is never delivered again."""
        record = self._open.get(offset)
        return offset < self.end if record is None else record.state in _TERMINAL

    def count_in(self, counter: OpenRecordCounter) -> None:
        """Count the open records with another counter from now on."""
        self.counter.add(-len(self._open))
        self.counter = counter
        counter.add(len(self._open))

    def admit(self, records: Iterable[Record], end: Offset) -> None:
        """Open the next records, up to `end`. Offsets between them hold control or aborted batches, which are not delivered."""
        for record in records:
            invariant(record.offset >= self.end, f"offset {record.offset} was admitted before")
            self._add(OpenRecord(record.offset, 0, record.key))
            self.end = Offset(record.offset + 1)
        self.end = max(self.end, end)

    def candidates(self, now_ms: int, most: int, max_deliveries: int, *, order_by_key: bool) -> list[Offset]:
        """Return records that can be delivered now. By key: at most the first open record of each key, whatever its state."""
        found: list[Offset] = []
        for record in self._first_of_keys() if order_by_key else self._available():
            if len(found) == most:
                break
            is_available = record.state is RecordState.AVAILABLE and record.due_ms <= now_ms
            if is_available and record.deliveries < max_deliveries:
                found.append(record.offset)
        return found

    def _available(self) -> Iterator[OpenRecord]:
        for offset in sorted(self._maybe_available):
            record = self._open.get(offset)
            if record is not None and record.state is RecordState.AVAILABLE:
                yield record
            else:
                self._maybe_available.discard(offset)

    def _first_of_keys(self) -> Iterator[OpenRecord]:
        seen: set[bytes] = set()
        for record in self._open.values():
            if record.key is UNKNOWN_KEY:
                # It may have any key, so nothing after it can be delivered in order.
                return
            if record.key is None:
                yield record
            elif record.key not in seen:
                seen.add(record.key)
                yield record

    def without_key(self) -> list[Offset]:
        """Return the open records whose keys are not known yet."""
        return [record.offset for record in self._open.values() if record.key is UNKNOWN_KEY]

    def exhausted(self, max_deliveries: int, now_ms: int) -> list[Offset]:
        """Return the available records that must not be delivered again."""
        return [
            record.offset
            for record in self._open.values()
            if record.deliveries >= max_deliveries and record.state is RecordState.AVAILABLE and record.due_ms <= now_ms
        ]

    def acquire(self, offset: Offset, owner: str, attempt: str, token: int, due_ms: int) -> OpenRecord:
        record = self._open[offset]
        invariant(record.state is RecordState.AVAILABLE, f"offset {offset} is {record.state.name} and can't be acquired")
        self._maybe_available.discard(offset)
        record.state = RecordState.ACQUIRED
        record.deliveries += 1
        record.owner = owner
        record.attempt = attempt
        record.token = token
        record.due_ms = due_ms
        return record

    def acquired_by(self, owner: str, attempt: str) -> list[OpenRecord]:
        return [
            record
            for record in self._open.values()
            if record.attempt == attempt and record.owner == owner and record.state is RecordState.ACQUIRED
        ]

    def acquired_with(self, token: int, offset: Offset, now_ms: int) -> OpenRecord:
        """Return the record that was acquired with the token of a receipt. Raises if the receipt no longer counts."""
        record = self._open.get(offset)
        if record is None or self.is_done(offset):
            raise LateReceiptError(f"the record at offset {offset} is done already; the receipt does not count")
        if record.token != token:
            raise LateReceiptError(
                f"the record at offset {offset} was handed out again since, or the server was restarted; the receipt does not"
                " count"
            )
        if record.state is not RecordState.ACQUIRED or record.due_ms <= now_ms:
            raise LateReceiptError(
                f"the visibility timeout of the record at offset {offset} has passed; the receipt does not count. Use extend"
                " to keep a record for longer"
            )
        return record

    def release(self, record: OpenRecord, due_ms: int = 0) -> None:
        """Make the record available again, not before `due_ms`. Its receipt no longer counts."""
        record.state = RecordState.AVAILABLE
        self._maybe_available.add(record.offset)
        record.letter = None
        record.owner = ""
        record.due_ms = due_ms

    def drop(self, offsets: Iterable[Offset]) -> None:
        """Remove records that are done, or that are no longer in the log."""
        before = len(self._open)
        for offset in offsets:
            self._open.pop(offset, None)
            self._maybe_available.discard(offset)
        self.counter.add(len(self._open) - before)

    def drop_below(self, offset: Offset) -> int:
        """Remove records that retention deleted and return how many. Acquired ones stay until their consumers are done."""
        gone = []
        for record in self._open.values():
            if record.offset >= offset:
                break
            if record.state is RecordState.AVAILABLE:
                gone.append(record.offset)
        self.drop(gone)
        skipped = max(0, offset - self.end)
        self.end = max(self.end, offset)
        return len(gone) + skipped

    def terminal(self) -> list[OpenRecord]:
        """Return the records that are acknowledged or archived; they are done as soon as that is durable."""
        return [record for record in self._open.values() if record.state in _TERMINAL]

    def _add(self, record: OpenRecord) -> None:
        self._open[record.offset] = record
        self._maybe_available.add(record.offset)
        self.counter.add(1)

    def encode(self) -> bytes:
        """Encode the state without the records that are in a terminal state."""
        ranges: list[int] = []
        start = at = first = None
        count = 0
        for record in self._open.values():
            if record.state in _TERMINAL:
                continue
            if first is not None and at is not None and record.offset == at and record.deliveries == count:
                at += 1
                continue
            if first is not None and at is not None:
                ranges += (at - first, count)
            if start is None:
                start = record.offset
            ranges.append(record.offset - (start if at is None else at))
            first, at, count = record.offset, record.offset + 1, record.deliveries
        if first is not None and at is not None:
            ranges += (at - first, count)
        return msgspec.msgpack.encode([self.end if start is None else start, self.end, *ranges])


def decode_state(value: bytes) -> ShareState:
    start, end, *ranges = msgspec.msgpack.decode(value, type=list[int])
    state = ShareState(Offset(start))
    at = start
    for gap, length, deliveries in _triples(ranges):
        at += gap
        for offset in range(at, at + length):
            state._add(OpenRecord(Offset(offset), deliveries))
        at += length
    invariant(at <= end, f"the stored state of a share has a record at offset {at - 1}, beyond its end {end}")
    state.end = Offset(end)
    return state


def _triples(numbers: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    invariant(len(numbers) % 3 == 0, "the stored state of a share is truncated")
    each = iter(numbers)
    return zip(each, each, each, strict=True)
