"""Reading topics in Spark: the ranges of offsets that tasks read, and one task's reading of a range.

A task fetches stored batches in large responses and decodes them itself, to the columns of Spark's Kafka source and a few more.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from tailrace.model.errors import InvalidRequestError, OffsetOutOfRangeError, UnknownTopicError
from tailrace.model.fetch import CorruptBatch
from tailrace.model.limits import DEFAULT_LIMITS, MIB
from tailrace.pipeline.connection import ServerConnection
from tailrace.pipeline.errors import CorruptDataError, DataLossError
from tailrace.wire.arrow_decoding import ReadFields, decode_readable_to_arrow
from tailrace.wire.batch import BatchHeader
from tailrace.wire.batch_stream import PlacedBatch

_log = logging.getLogger(__name__)

_HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
_COLUMNS = {
    "key": ("BINARY", pa.binary(), "key_bytes"),
    "value": ("BINARY", pa.binary(), "value_bytes"),
    "topic": ("STRING", pa.string(), None),
    "partition": ("INT", pa.int32(), "partition"),
    "offset": ("BIGINT", pa.int64(), "offset"),
    "timestamp": ("TIMESTAMP", pa.timestamp("us", "UTC"), "timestamp"),
    "timestampType": ("INT", pa.int32(), None),
    "cursor": ("BIGINT", pa.int64(), "cursor"),
    "source_table": ("STRING", pa.string(), "source_table"),
    "op": ("STRING", pa.string(), "op"),
    "headers": ("ARRAY<STRUCT<key: STRING, value: BINARY>>", _HEADERS, "header_list"),
}
_TIMESTAMP_TYPE = 0
"""Create time, also for timestamps that the server has set."""

FETCH_BYTES = 8 * MIB
NO_UUIDS: Mapping[str, str] = {}

Offsets = Mapping[str, list[int]]
"""By topic, an offset for each partition."""


class OffsetRange(NamedTuple):
    """What one task reads: from `start` up to `end`, which is excluded."""

    topic: str
    partition: int
    start: int
    end: int
    topic_uuid: str | None = None
    """Identifies the topic, if it is known: one that is deleted and created again has another."""


def ranges_between(start: Offsets, end: Offsets, uuids: Mapping[str, str] = NO_UUIDS) -> Iterator[OffsetRange]:
    """Yield the ranges between two sets of offsets. Partitions that are not in `start` are read from 0.

    `uuids` are those of the topics, if known.
    """
    for topic, ends in sorted(end.items()):
        starts = start.get(topic, [])
        for number, last in enumerate(ends):
            first = starts[number] if number < len(starts) else 0
            if last > first:
                yield OffsetRange(topic, number, first, last, uuids.get(topic))


def limited(start: Offsets, end: Offsets, max_records: int) -> dict[str, list[int]]:
    """Return an end with at most so many records. Each partition gets a share in proportion to what is waiting there."""
    waiting = list(ranges_between(start, end))
    total = sum(each.end - each.start for each in waiting)
    if total <= max_records:
        return {topic: list(ends) for topic, ends in end.items()}
    found = {topic: list(ends) for topic, ends in end.items()}
    left = max_records
    for each in waiting:
        share = min(left, max(1, (each.end - each.start) * max_records // total))
        found[each.topic][each.partition] = each.start + share
        left -= share
    return found


def split(ranges: list[OffsetRange], min_tasks: int) -> list[OffsetRange]:
    """Split the longest ranges, in the same order, so that there are at least so many tasks if there are enough records."""
    total = sum(each.end - each.start for each in ranges)
    if len(ranges) >= min_tasks or not total:
        return ranges
    found = []
    for each in ranges:
        size = each.end - each.start
        pieces = min(size, max(1, round(size * min_tasks / total)))
        cuts = [each.start + size * piece // pieces for piece in range(pieces + 1)]
        found += [each._replace(start=low, end=high) for low, high in pairwise(cuts)]
    return found


def column_names(include_headers: bool) -> list[str]:
    return [name for name in _COLUMNS if include_headers or name != "headers"]


def spark_schema(include_headers: bool) -> str:
    return ", ".join(f"{name} {_COLUMNS[name][0]}" for name in column_names(include_headers))


class TopicColumns:
    """Decodes stored batches to these columns. Create it in the task that uses it: the compiled loops take a second to load."""

    def __init__(self, names: Sequence[str], *, skips_corrupt: bool = False) -> None:
        """With `skips_corrupt`, batches that can't be decoded are skipped with a warning; otherwise they are an error."""
        self._skips_corrupt = skips_corrupt
        self._names = names
        self._schema = pa.schema([(name, _COLUMNS[name][1]) for name in names])
        self._stored = [stored for name in names if (stored := _COLUMNS[name][2])]
        if "offset" not in self._stored:
            self._stored.append("offset")
        # Imported here, because Spark imports this module in many processes that decode nothing.
        from tailrace.wire.fast_arrow_decoding import load_compiled_fields

        self._read_fields: ReadFields = load_compiled_fields()

    def decode(
        self, topic: str, partition: int, stored: Sequence[PlacedBatch], start: int, end: int
    ) -> Iterator[pa.RecordBatch]:
        """Yield the records from `start` up to `end`, which is excluded."""

        def on_corrupt(head: BatchHeader, error: InvalidRequestError) -> None:
            last = head.end_offset - 1
            if last < start or head.base_offset >= end:
                return
            corrupt = CorruptBatch(topic, partition, head.base_offset, last, str(error))
            if not self._skips_corrupt:
                raise CorruptDataError(
                    f"offsets {head.base_offset} to {last} of {topic!r}, partition {partition}, can't be decoded: {error}. Set"
                    " corruptBatches to skip to continue without them"
                ) from error
            _log.warning("%s; the records are skipped", corrupt.error)

        decoded = decode_readable_to_arrow(
            stored,
            self._stored,
            partition=partition,
            limits=DEFAULT_LIMITS,
            read_fields=self._read_fields,
            on_corrupt=on_corrupt,
        )
        for batch in decoded:
            offsets = batch.column("offset")
            first, last = offsets[0].as_py(), offsets[-1].as_py()
            if first < start or last >= end:
                batch = batch.filter(pc.and_(pc.greater_equal(offsets, start), pc.less(offsets, end)))
            if batch.num_rows:
                yield self._shaped(topic, batch)

    def _shaped(self, topic: str, batch: pa.RecordBatch) -> pa.RecordBatch:
        columns = []
        for name in self._names:
            _, kind, stored = _COLUMNS[name]
            if name == "topic":
                columns.append(pa.repeat(topic, batch.num_rows))
            elif name == "timestampType":
                columns.append(pa.repeat(pa.scalar(_TIMESTAMP_TYPE, kind), batch.num_rows))
            elif name == "headers":
                columns.append(_renamed(batch.column(stored)))
            else:
                columns.append(batch.column(stored).cast(kind))
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)


def _renamed(headers: pa.ListArray) -> pa.ListArray:
    """Rename the fields of headers to those of Spark's Kafka source."""
    names, values = headers.flatten().flatten()
    ends = pc.cumulative_sum(pc.list_value_length(headers).fill_null(0))
    places = pa.concat_arrays([pa.array([0], pa.int32()), ends.cast(pa.int32())])
    pairs = pa.StructArray.from_arrays([names, values], fields=list(_HEADERS.value_type))
    return pa.ListArray.from_arrays(places, pairs).cast(_HEADERS)


def read_range(
    connection: ServerConnection,
    wanted: OffsetRange,
    names: Sequence[str],
    *,
    fail_on_data_loss: bool,
    skips_corrupt: bool = False,
) -> Iterator[pa.RecordBatch]:
    columns = TopicColumns(names, skips_corrupt=skips_corrupt)
    at = wanted.start
    while at < wanted.end:
        try:
            fetched = connection.batches(wanted.topic, wanted.partition, at, FETCH_BYTES, topic_uuid=wanted.topic_uuid)
        except (OffsetOutOfRangeError, UnknownTopicError) as error:
            at = _after_loss(connection, wanted, at, error, fail_on_data_loss)
            continue
        following = fetched.head.next_offset
        if following <= at:
            raise DataLossError(f"{wanted.topic!r}, partition {wanted.partition}, ends at {at}, before {wanted.end}")
        yield from columns.decode(wanted.topic, wanted.partition, fetched.batches, at, wanted.end)
        at = following


def _after_loss(
    connection: ServerConnection, wanted: OffsetRange, at: int, error: OffsetOutOfRangeError | UnknownTopicError, fail: bool
) -> int:
    """Return the offset to continue at after records were lost."""
    if fail:
        raise DataLossError(
            f"{wanted.topic!r}, partition {wanted.partition}: records from {at} to {wanted.end} can't be read: {error}. They"
            " were removed by retention, or the topic was deleted. Set failOnDataLoss to false to continue without them"
        ) from error
    if not isinstance(error, OffsetOutOfRangeError):
        return wanted.end
    start = connection.offsets([wanted.topic], at="earliest").offsets[wanted.topic][wanted.partition]
    return wanted.end if start <= at else start
