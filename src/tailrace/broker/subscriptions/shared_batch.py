"""A batch of the log for subscribers, decoded in parts and once for all of them."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from enum import Enum

from tailrace.broker.reading.reader import Reader
from tailrace.model.commit import Buffer
from tailrace.model.consume import EventBatch
from tailrace.model.errors import InvalidRequestError, UnreadableBatchError
from tailrace.model.fetch import CorruptBatch
from tailrace.model.ids import Cursor, Offset, PartitionId
from tailrace.model.limits import KIB, Limits
from tailrace.wire.batch import read_header, with_base_offset
from tailrace.wire.batch_split import Slices, split_records
from tailrace.wire.payload_references import is_payload_reference
from tailrace.wire.records import decode_batch, decoded_bound

_PART_BYTES = 64 * KIB
_PART_RECORDS = 500
_COMPRESSION_RATIO = 4
"""The assumed compression ratio of a batch."""
_OVERHEAD_BYTES = 512
_RECORD_BYTES = 600
"""The memory of a decoded record besides its key and value, which are held twice: decoded and as they are sent."""


class BatchVisibility(Enum):
    """Whether subscribers may see a batch."""

    VISIBLE = 1
    HIDDEN = 2
    UNDECIDED = 3
    """Its transaction is open, or was not looked at yet."""


class SharedBatch:
    __slots__ = (
        "_batch",
        "_part_records",
        "_parts",
        "_split_bytes",
        "_splits",
        "base_offset",
        "cursor",
        "end",
        "header",
        "on_growth",
        "partition",
        "size",
        "visibility",
    )

    def __init__(
        self, cursor: Cursor, partition: PartitionId, base_offset: Offset, records: int, batch: Buffer, *, copied: bool = False
    ) -> None:
        """With `copied` the bytes are copied, because they belong to a buffer that holds more."""
        if copied:
            batch = with_base_offset(bytearray(batch), base_offset)
        self.cursor = cursor
        self.end = Cursor(cursor + records)
        self.partition = partition
        self.base_offset = base_offset
        self.header = read_header(batch)
        self.visibility = BatchVisibility.UNDECIDED
        self.size = len(batch) + _OVERHEAD_BYTES
        """Approximate bytes of memory, including the decoded parts."""
        self.on_growth: Callable[[int], None] | None = None
        """Called with the bytes when the batch takes more memory."""
        decoded_bytes = len(batch) * (_COMPRESSION_RATIO if self.header.codec else 1)
        self._batch = batch
        self._part_records = max(1, min(_PART_RECORDS, _PART_BYTES * records // decoded_bytes))
        self._split_bytes = 0
        """Bytes of a split that are not counted yet."""
        self._splits: dict[int, Sequence[Slices]] = {}
        self._parts: dict[int, EventBatch | asyncio.Task[EventBatch]] = {}

    @property
    def data(self) -> Buffer:
        """The stored bytes."""
        return self._batch

    def split(self, data: Buffer, partitions: int, keyless: int, limits: Limits) -> Sequence[Slices]:
        """Return the records by partition, split once for all who read the same number of partitions.

        `data` is the batch with its payload. May be called from any thread.
        """
        found = self._splits.get(partitions)
        if found is None:
            found = split_records(data, limits, partitions, keyless)
            size = sum(len(record) for part in found for _, record in part)
            if data is self._batch and not self._splits and size <= _COMPRESSION_RATIO * len(data):
                self._split_bytes = size
                self._splits[partitions] = found
        return found

    def count_split(self) -> None:
        """Count the memory of a split. Called on the event loop."""
        grown, self._split_bytes = self._split_bytes, 0
        self.size += grown
        if grown and self.on_growth is not None:
            self.on_growth(grown)

    def parts_from(self, cursor: Cursor) -> Iterator[tuple[int, Cursor]]:
        """Yield the numbers of the parts with records from the cursor on, each with the cursor after its last record."""
        step = self._part_records
        first = max(0, cursor - self.cursor) // step
        for number in range(first, (self.end - self.cursor + step - 1) // step):
            yield number, Cursor(min(self.end, self.cursor + (number + 1) * step))

    def bound(self, limits: Limits) -> int:
        """Return an upper bound of the memory that decoding one part takes."""
        if is_payload_reference(self._batch):
            return len(self._batch) + _RECORD_BYTES + 2 * limits.payload_bytes
        return decoded_bound(self._batch, self.header, limits, self._part_records)

    def corrupt(self, topic: str, reason: BaseException | None) -> CorruptBatch:
        """Describe the batch as one that can't be decoded."""
        last = self.base_offset + self.header.last_offset_delta
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
        # Shielded, because other subscribers wait for the same task.
        return await asyncio.shield(found)

    def _decode(self, number: int, topic: str, reader: Reader, limits: Limits) -> EventBatch:
        batch = reader.expansion.batch(self.partition, self._batch)
        first = number * self._part_records
        try:
            records = decode_batch(batch, limits, first=first, stop=first + self._part_records, cursor=self.cursor)
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
