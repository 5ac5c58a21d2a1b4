"""The columns of a topic in Spark: those of Spark's Kafka source, and a few of our own."""

import logging
from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from tailrace.model.errors import InvalidRequestError
from tailrace.model.fetch import CorruptBatch
from tailrace.model.limits import DEFAULT_LIMITS
from tailrace.pipeline.errors import CorruptDataError
from tailrace.wire.arrow import ReadFields, decode_readable
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
        from tailrace.wire.compiled_fields import compiled_fields

        self._read_fields: ReadFields = compiled_fields()

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

        decoded = decode_readable(
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
