"""How many records are open: of one queue, and of all queues together."""

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from tailrace.model.errors import LateReceiptError, invariant
from tailrace.model.ids import Offset
from tailrace.model.queue import RecordState
from tailrace.model.record import Record


class OpenRecordCounter:
    def __init__(self, whole: "OpenRecordCounter | None" = None) -> None:
        self._whole = whole
        self.records = 0

    def count(self, more: int) -> None:
        """So many more are open; fewer, if it is negative."""
        self.records += more
        if self._whole is not None:
            self._whole.count(more)


UNKNOWN_KEY = b"\0unknown"
"""Stands for the key of a record that was not read since the start of the server. Compared by identity."""

_DECIDED = (RecordState.ACKNOWLEDGED, RecordState.ARCHIVED)


class OpenRecord:
    __slots__ = ("attempt", "deliveries", "due_ms", "key", "letter", "offset", "owner", "state", "token")

    def __init__(self, offset: Offset, deliveries: int = 0, key: bytes | None = UNKNOWN_KEY) -> None:
        self.offset = offset
        self.state = RecordState.AVAILABLE
        self.deliveries = deliveries
        self.key = key
        self.owner = ""
        self.attempt = ""
        """Which request of the owner took it."""
        self.token = 0
        """Part of the receipt: a new one for each delivery."""
        self.due_ms = 0
        """Acquired: when it comes back. Available: not before then."""
        self.letter: Record | None = None
        """Archived: what goes to the dead letters."""


class ShareState:
    def __init__(self, start: Offset) -> None:
        self.end = start
        self._open: dict[Offset, OpenRecord] = {}
        """By offset, in the order of offsets."""
        self._to_take: set[Offset] = set()
        """All that are available, and perhaps some that are not any more."""
        self.tally = OpenRecordCounter()
        """Counts the open records, here and elsewhere."""

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
        """Nobody gets the record again."""
        record = self._open.get(offset)
        return offset < self.end if record is None else record.state in _DECIDED

    def count_in(self, tally: OpenRecordCounter) -> None:
        """From now on these records are counted there."""
        self.tally.count(-len(self._open))
        self.tally = tally
        tally.count(len(self._open))

    def admit(self, records: Iterable[Record], end: Offset) -> None:
        """These records come next, up to `end`; what lies between them (markers, aborted transactions) is nobody's."""
        for record in records:
            invariant(record.offset >= self.end, f"offset {record.offset} was looked at before")
            self._add(OpenRecord(record.offset, 0, record.key))
            self.end = Offset(record.offset + 1)
        self.end = max(self.end, end)

    def candidates(self, now_ms: int, most: int, max_deliveries: int, *, order_by_key: bool) -> list[Offset]:
        """Records that can be handed out now. By key: only the first open one of each key, whatever state that is in."""
        found: list[Offset] = []
        for record in self._first_of_keys() if order_by_key else self._available():
            if len(found) == most:
                break
            is_available = record.state is RecordState.AVAILABLE and record.due_ms <= now_ms
            if is_available and record.deliveries < max_deliveries:
                found.append(record.offset)
        return found

    def _available(self) -> Iterator[OpenRecord]:
        for offset in sorted(self._to_take):
            record = self._open.get(offset)
            if record is not None and record.state is RecordState.AVAILABLE:
                yield record
            else:
                self._to_take.discard(offset)

    def _first_of_keys(self) -> Iterator[OpenRecord]:
        seen: set[bytes] = set()
        for record in self._open.values():
            if record.key is UNKNOWN_KEY:
                # It may have any key, so nothing after it can be handed out in order.
                return
            if record.key is None:
                yield record
            elif record.key not in seen:
                seen.add(record.key)
                yield record

    def without_key(self) -> list[Offset]:
        """Open records whose keys are not known yet."""
        return [record.offset for record in self._open.values() if record.key is UNKNOWN_KEY]

    def exhausted(self, max_deliveries: int, now_ms: int) -> list[Offset]:
        """Available records that must not be handed out again."""
        return [
            record.offset
            for record in self._open.values()
            if record.deliveries >= max_deliveries and record.state is RecordState.AVAILABLE and record.due_ms <= now_ms
        ]

    def acquire(self, offset: Offset, owner: str, attempt: str, token: int, due_ms: int) -> OpenRecord:
        record = self._open[offset]
        invariant(record.state is RecordState.AVAILABLE, f"offset {offset} is {record.state.name} and can't be handed out")
        self._to_take.discard(offset)
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

    def held(self, offset: Offset, token: int, now_ms: int) -> OpenRecord:
        """The record that a receipt stands for. Raises if the receipt does not count any more."""
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
                f"the visibility time-out of the record at offset {offset} has passed; the receipt does not count. Ask for more"
                " time with extend"
            )
        return record

    def release(self, record: OpenRecord, due_ms: int = 0) -> None:
        """Hand it out again, not before `due_ms`. Its receipt counts no more."""
        record.state = RecordState.AVAILABLE
        self._to_take.add(record.offset)
        record.letter = None
        record.owner = ""
        record.due_ms = due_ms

    def drop(self, offsets: Iterable[Offset]) -> None:
        """They are done, or gone."""
        before = len(self._open)
        for offset in offsets:
            self._open.pop(offset, None)
            self._to_take.discard(offset)
        self.tally.count(len(self._open) - before)

    def drop_below(self, offset: Offset) -> int:
        """Retention took these away. Those that a consumer has stay until it is done with them."""
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

    def decided(self) -> list[OpenRecord]:
        """Those that are done as soon as that is durable."""
        return [record for record in self._open.values() if record.state in _DECIDED]

    def _add(self, record: OpenRecord) -> None:
        self._open[record.offset] = record
        self._to_take.add(record.offset)
        self.tally.count(1)

    def encode(self) -> bytes:
        """As it will be when all that is decided is durable."""
        ranges: list[int] = []
        start = at = first = None
        count = 0
        for record in self._open.values():
            if record.state in _DECIDED:
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
    invariant(at <= end, f"the state of a queue has a record at {at - 1}, beyond its end {end}")
    state.end = Offset(end)
    return state


def _triples(numbers: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    invariant(len(numbers) % 3 == 0, "the state of a queue is cut off")
    each = iter(numbers)
    return zip(each, each, each, strict=True)
