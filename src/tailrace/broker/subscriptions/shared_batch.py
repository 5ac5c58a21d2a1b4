"""A batch of the log on its way to subscribers, decoded part by part and once for all of them."""

import asyncio
from collections.abc import Callable, Iterator
from enum import Enum

from tailrace.broker.reading.reader import Reader
from tailrace.model.commit import Buffer
from tailrace.model.consume import EventBatch
from tailrace.model.errors import InvalidRequestError, UnreadableBatchError
from tailrace.model.fetch import CorruptBatch
from tailrace.model.ids import Cursor, Offset, PartitionId
from tailrace.model.limits import KIB, Limits
from tailrace.wire.batch import read_header, with_base_offset
from tailrace.wire.payload_references import is_payload_reference
from tailrace.wire.records import decode_batch, decoded_bound

_PART_BYTES = 64 * KIB
_PART_RECORDS = 500
_COMPRESSION = 4
"""How many times larger a compressed batch is taken to be."""
_OVERHEAD_BYTES = 512
_RECORD_BYTES = 600
"""What a decoded record takes besides its key and its value; those are there twice, once as they are sent."""


class BatchVisibility(Enum):
    """What becomes of a batch."""

    SHOWN = 1
    HIDDEN = 2
    UNDECIDED = 3
    """Its transaction is open, or nobody has looked yet."""


class SharedBatch:
    __slots__ = (
        "_batch",
        "_part_records",
        "_parts",
        "base_offset",
        "cursor",
        "end",
        "fate",
        "header",
        "on_growth",
        "partition",
        "size",
    )

    def __init__(
        self, cursor: Cursor, partition: PartitionId, base_offset: Offset, records: int, batch: Buffer, *, copied: bool = False
    ) -> None:
        """`copied`: the bytes are somebody else's, who may have more of them in the same buffer."""
        if copied:
            batch = with_base_offset(bytearray(batch), base_offset)
        self.cursor = cursor
        self.end = Cursor(cursor + records)
        self.partition = partition
        self.base_offset = base_offset
        self.header = read_header(batch)
        self.fate = BatchVisibility.UNDECIDED
        self.size = len(batch) + _OVERHEAD_BYTES
        """Bytes of memory, about, with what has been decoded."""
        self.on_growth: Callable[[int], None] | None = None
        """Whoever keeps the batch is told when it takes more memory."""
        decoded_bytes = len(batch) * (_COMPRESSION if self.header.codec else 1)
        self._batch = batch
        self._part_records = max(1, min(_PART_RECORDS, _PART_BYTES * records // decoded_bytes))
        self._parts: dict[int, EventBatch | asyncio.Task[EventBatch]] = {}

    def parts_from(self, cursor: Cursor) -> Iterator[tuple[int, Cursor]]:
        """The numbers of the parts that hold records from the cursor on, each with the cursor after its last record."""
        step = self._part_records
        first = max(0, cursor - self.cursor) // step
        for number in range(first, (self.end - self.cursor + step - 1) // step):
            yield number, Cursor(min(self.end, self.cursor + (number + 1) * step))

    def bound(self, limits: Limits) -> int:
        """At most about so many bytes of memory are taken by decoding one part."""
        if is_payload_reference(self._batch):
            return len(self._batch) + _RECORD_BYTES + 2 * limits.payload_bytes
        return decoded_bound(self._batch, self.header, limits, self._part_records)

    def corrupt(self, topic: str, reason: BaseException | None) -> CorruptBatch:
        """What is told of it where it can't be decoded."""
        last = self.base_offset + self.header.records - 1
        return CorruptBatch(topic, self.partition.number, self.base_offset, last, str(reason))

    async def part(self, number: int, topic: str, reader: Reader, limits: Limits) -> EventBatch:
        found = self._parts.get(number)
        if found is None:
            if len(self._batch) <= _PART_BYTES and not self.header.codec and not is_payload_reference(self._batch):
                found = self._decode(number, topic, reader, limits)
                self._remember(number, found)
            else:
                found = asyncio.ensure_future(reader.threads.run(self._decode, number, topic, reader, limits))
                found.add_done_callback(lambda task: self._decoded(number, task))
                self._parts[number] = found
        if isinstance(found, EventBatch):
            return found
        # Others wait for it too, so it goes on if this one gives up.
        return await asyncio.shield(found)

    def _decode(self, number: int, topic: str, reader: Reader, limits: Limits) -> EventBatch:
        batch = reader.expansion.batch(self.partition, self._batch)
        first = number * self._part_records
        try:
            records = decode_batch(batch, limits, first=first, most=self._part_records, cursor=self.cursor)
        except InvalidRequestError as error:
            corrupt = self.corrupt(topic, error)
            raise UnreadableBatchError(
                f"{corrupt.error}; in the log, that is at cursor {self.end}", corrupt.last_offset + 1
            ) from error
        return EventBatch(topic, self.partition.number, records)

    def _decoded(self, number: int, task: "asyncio.Task[EventBatch]") -> None:
        if task.cancelled() or task.exception() is not None:
            self._parts.pop(number, None)
        else:
            self._remember(number, task.result())

    def _remember(self, number: int, part: EventBatch) -> None:
        self._parts[number] = part
        held = sum(_RECORD_BYTES + 2 * (len(record.key or b"") + len(record.value or b"")) for record in part.records)
        self.size += held
        if self.on_growth is not None:
            self.on_growth(held)
