"""Which offsets a batch reads, and how they are shared out to tasks. Pure arithmetic."""

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

Offsets = Mapping[str, list[int]]
"""By topic, an offset for each partition."""


NO_UUIDS: Mapping[str, str] = {}


class OffsetRange(NamedTuple):
    """What one task reads: from `start` up to but without `end`."""

    topic: str
    partition: int
    start: int
    end: int
    topic_uuid: str | None = None
    """Which topic of that name, if it is known."""


def ranges_between(start: Offsets, end: Offsets, uuids: Mapping[str, str] = NO_UUIDS) -> Iterator[OffsetRange]:
    """What lies between. Partitions that are not in `start` are read from 0. `uuids` are those of the topics, if known."""
    for topic, ends in sorted(end.items()):
        starts = start.get(topic, [])
        for number, upto in enumerate(ends):
            at = starts[number] if number < len(starts) else 0
            if upto > at:
                yield OffsetRange(topic, number, at, upto, uuids.get(topic))


def limited(start: Offsets, end: Offsets, most: int) -> dict[str, list[int]]:
    """An end with at most so many records, each partition in proportion to what waits there, and none forgotten."""
    waiting = list(ranges_between(start, end))
    total = sum(each.end - each.start for each in waiting)
    if total <= most:
        return {topic: list(ends) for topic, ends in end.items()}
    found = {topic: list(ends) for topic, ends in end.items()}
    left = most
    for each in waiting:
        share = min(left, max(1, (each.end - each.start) * most // total))
        found[each.topic][each.partition] = each.start + share
        left -= share
    return found


def split(ranges: list[OffsetRange], least_tasks: int) -> list[OffsetRange]:
    """At least so many tasks where there are records enough, by cutting the longest ranges; in the same order."""
    total = sum(each.end - each.start for each in ranges)
    if len(ranges) >= least_tasks or not total:
        return ranges
    found = []
    for each in ranges:
        size = each.end - each.start
        pieces = min(size, max(1, round(size * least_tasks / total)))
        cuts = [each.start + size * piece // pieces for piece in range(pieces + 1)]
        found += [each._replace(start=low, end=high) for low, high in pairwise(cuts)]
    return found


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
"""Create time. What the server stamps itself is not told apart here."""


def column_names(include_headers: bool) -> list[str]:
    return [name for name in _COLUMNS if include_headers or name != "headers"]


def spark_schema(include_headers: bool) -> str:
    return ", ".join(f"{name} {_COLUMNS[name][0]}" for name in column_names(include_headers))


class TopicColumns:
    """Decodes stored batches to these columns. Made in the task that uses it: loading the compiled loops takes a second."""

    def __init__(self, names: Sequence[str], *, skips_corrupt: bool = False) -> None:
        """`skips_corrupt`: leave out batches that can't be decoded, with a warning; else they are an error."""
        self._skips_corrupt = skips_corrupt
        self._names = names
        self._schema = pa.schema([(name, _COLUMNS[name][1]) for name in names])
        self._stored = [stored for name in names if (stored := _COLUMNS[name][2])]
        if "offset" not in self._stored:
            self._stored.append("offset")
        # Only here: Spark imports this module in many processes that decode nothing.
        from tailrace.wire.fast_arrow_decoding import load_compiled_fields

        self._read_fields: ReadFields = load_compiled_fields()

    def decode(
        self, topic: str, partition: int, stored: Sequence[PlacedBatch], start: int, end: int
    ) -> Iterator[pa.RecordBatch]:
        """The records from `start` up to but without `end`."""

        def on_corrupt(head: BatchHeader, error: InvalidRequestError) -> None:
            last = head.base_offset + head.records - 1
            if last < start or head.base_offset >= end:
                return
            corrupt = CorruptBatch(topic, partition, head.base_offset, last, str(error))
            if not self._skips_corrupt:
                raise CorruptDataError(
                    f"offsets {head.base_offset} to {last} of {topic!r}, partition {partition}, can't be decoded: {error}. Set"
                    " corruptBatches to skip to go on without them"
                ) from error
            _log.warning("%s: records are skipped", corrupt.error)

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
    """The same lists with the names that Spark's Kafka source has for their fields."""
    names, values = headers.flatten().flatten()
    ends = pc.cumulative_sum(pc.list_value_length(headers).fill_null(0))
    places = pa.concat_arrays([pa.array([0], pa.int32()), ends.cast(pa.int32())])
    pairs = pa.StructArray.from_arrays([names, values], fields=list(_HEADERS.value_type))
    return pa.ListArray.from_arrays(places, pairs).cast(_HEADERS)


FETCH_BYTES = 8 * MIB


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
    """Where to go on when what was to be read is gone."""
    if fail:
        raise DataLossError(
            f"{wanted.topic!r}, partition {wanted.partition}: records from {at} to {wanted.end} can't be read: {error}. They"
            " were removed by retention, or the topic was deleted. Set failOnDataLoss to false to go on without them"
        ) from error
    if not isinstance(error, OffsetOutOfRangeError):
        return wanted.end
    start = connection.offsets([wanted.topic], at="earliest").offsets[wanted.topic][wanted.partition]
    return wanted.end if start <= at else start
