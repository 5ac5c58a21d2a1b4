"""Topics as relations: decoded while they are read, only the columns that the query names, only the batches it can want."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa

from tailrace.broker.scan import PartitionView, Range, TopicView
from tailrace.model.errors import CorruptBatchError, InvalidRequestError
from tailrace.model.ids import Offset
from tailrace.model.limits import Limits
from tailrace.model.record import NO_TIMESTAMP
from tailrace.sql.select.bounds import Bounds
from tailrace.wire.arrow import HEAD_COLUMNS, ReadFields, decode_batches
from tailrace.wire.batch import TIMESTAMP_TYPE_MASK, read_header
from tailrace.wire.batch_stream import PlacedBatch

TOPIC_COLUMNS: Mapping[str, pa.DataType] = {
    "partition": pa.int32(),
    "offset": pa.int64(),
    "cursor": pa.int64(),
    "timestamp": pa.timestamp("us"),
    "key": pa.string(),
    "value": pa.string(),
    "headers": pa.json_(),
    "source_table": pa.string(),
    "op": pa.string(),
    "payload_mode": pa.string(),
    "message_id": pa.string(),
}
"""What `SELECT *` shows."""

HIDDEN_COLUMNS: Mapping[str, pa.DataType] = {"key_bytes": pa.binary(), "value_bytes": pa.binary()}
"""What a query gets when it names them."""

_TIME = ("timestamp",)
_BY_TIME = HEAD_COLUMNS.union(_TIME)
_EARLIEST_MS = -62_135_596_800_000
_LATEST_MS = 253_402_300_799_999


class TopicRelation:
    def __init__(
        self,
        view: TopicView,
        columns: Sequence[str],
        bounds: Bounds,
        limits: Limits,
        read_fields: ReadFields,
    ) -> None:
        self._view = view
        self._columns = columns
        self._bounds = bounds
        self._limits = limits
        self._read_fields = read_fields
        types = {**TOPIC_COLUMNS, **HIDDEN_COLUMNS}
        self.schema = pa.schema([(name, types[name]) for name in columns])

    def batches(self) -> Iterator[pa.RecordBatch]:
        for partition in self._view.partitions:
            if self._bounds.partitions is None or partition.number in self._bounds.partitions:
                yield from self._partition(partition)

    def _partition(self, partition: PartitionView) -> Iterator[pa.RecordBatch]:
        wanted = self._range(partition)
        for placed in partition.batches(wanted):
            chosen = self._in_time(partition, [batch for batch in placed if self._can_match(batch)])
            if not chosen:
                continue
            # Where the partition starts within a batch, what lies before is not to be seen.
            hidden = max(0, wanted.start - read_header(chosen[0].batch).base_offset)
            for piece in self._decoded(partition, chosen, self._columns):
                shown = piece.slice(min(hidden, piece.num_rows))
                hidden -= piece.num_rows - shown.num_rows
                if shown.num_rows:
                    yield self._converted(shown)

    def _range(self, partition: PartitionView) -> Range:
        start, end = partition.bounds
        _, offsets, cursors, times = self._bounds
        if offsets.low is not None:
            start = max(start, Offset(offsets.low))
        if offsets.high is not None:
            end = min(end, Offset(offsets.high + 1))
        if times.low is not None and start < end:
            start = max(start, partition.offset_at_time(times.low))
        if cursors.low is not None and start < end:
            start = max(start, partition.offset_at_cursor(cursors.low))
        if cursors.high is not None and start < end:
            end = min(end, partition.offset_at_cursor(cursors.high + 1))
        return Range(start, end)

    def _can_match(self, placed: PlacedBatch) -> bool:
        """By what the head of a batch tells of its times: the newest, and whether it is that of all its records."""
        low, high = self._bounds.timestamps
        if low is None and high is None:
            return True
        head = read_header(placed.batch)
        newest = head.max_timestamp
        # A sender may leave the newest time out of the head, and still give its records times.
        return (low is None or newest >= low or newest < 0) and (
            high is None or newest <= high or not head.attributes & TIMESTAMP_TYPE_MASK
        )

    def _in_time(self, partition: PartitionView, placed: Sequence[PlacedBatch]) -> Sequence[PlacedBatch]:
        """Those that hold a record before the upper bound: of the others only the times are decoded."""
        high = self._bounds.timestamps.high
        if high is None or not placed or _BY_TIME.issuperset(self._columns):
            return placed
        pieces = [piece.column(0).view(pa.int64()).to_numpy() for piece in self._decoded(partition, placed, _TIME)]
        ends = np.cumsum([read_header(batch.batch).records for batch in placed])
        is_early = np.concatenate([[0], np.cumsum(np.concatenate(pieces) <= high)])
        found = np.diff(is_early[ends], prepend=0)
        return [batch for batch, early in zip(placed, found, strict=True) if early]

    def _decoded(
        self, partition: PartitionView, placed: Sequence[PlacedBatch], columns: Sequence[str]
    ) -> Iterator[pa.RecordBatch]:
        try:
            yield from decode_batches(
                placed, columns, partition=partition.number, limits=self._limits, read_fields=self._read_fields
            )
        except InvalidRequestError as error:
            first, last = read_header(placed[0].batch), read_header(placed[-1].batch)
            raise CorruptBatchError(
                f"offsets {first.base_offset} to {last.base_offset + last.records - 1} of {self._view.topic!r}, partition"
                f" {partition.number}, hold a batch that can't be decoded: {error}. Leave them out by WHERE"
            ) from error

    def _converted(self, decoded: pa.RecordBatch) -> pa.RecordBatch:
        arrays = [_converted(decoded.column(name), kind) for name, kind in zip(self._columns, self.schema.types, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


def _converted(column: pa.Array, kind: pa.DataType) -> pa.Array:
    if pa.types.is_timestamp(kind):
        return _timestamps(column)
    if column.type == kind:
        return column
    return pa.ExtensionArray.from_storage(kind, column)


def _timestamps(column: pa.Array) -> pa.Array:
    """In microseconds; null where a record has none, or one that no calendar shows."""
    millis = column.view(pa.int64()).to_numpy(zero_copy_only=False)
    unknown = (millis == NO_TIMESTAMP) | (millis < _EARLIEST_MS) | (millis > _LATEST_MS)
    if unknown.any():
        return pa.array(np.where(unknown, 0, millis) * 1000, pa.int64(), mask=unknown).view(pa.timestamp("us"))
    return pa.array(millis * 1000).view(pa.timestamp("us"))
