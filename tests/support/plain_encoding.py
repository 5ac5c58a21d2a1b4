"""Arrow columns to record batches one Python object at a time: what `compiled_encode` has to give byte for byte."""

from collections.abc import Iterator, Sequence

import pyarrow as pa

from tailrace.model.limits import MIB
from tailrace.model.record import Record
from tailrace.wire.compression import Compression
from tailrace.wire.fast_arrow_encoding import EncodedBatch, RecordColumns
from tailrace.wire.records import encode_batch
from tailrace.wire.varints import encode_varint


def encode_plain(
    columns: RecordColumns, *, codec: int = Compression.NONE, most_bytes: int = MIB, most_records: int = 50_000
) -> Iterator[EncodedBatch]:
    batch: list[Record] = []
    filled = 0
    for record in _records(columns):
        size = _encoded_size(record, len(batch), record.timestamp - batch[0].timestamp if batch else 0)
        if batch and (filled + size > most_bytes or len(batch) >= most_records):
            yield _batch(batch, codec)
            batch, filled = [], 0
            size = _encoded_size(record, 0, 0)
        batch.append(record)
        filled += size
    if batch:
        yield _batch(batch, codec)


def _batch(records: Sequence[Record], codec: int) -> EncodedBatch:
    return EncodedBatch(encode_batch(records, codec=codec), len(records), max(record.timestamp for record in records))


def _encoded_size(record: Record, number: int, timestamp_delta: int) -> int:
    """Bytes that a record takes as the one of that number in its batch, so much later than the first."""
    body = 1 + len(encode_varint(timestamp_delta)) + len(encode_varint(number)) + len(encode_varint(len(record.headers)))
    body += _field_size(record.key) + _field_size(record.value)
    body += sum(_field_size(name.encode()) + _field_size(value) for name, value in record.headers)
    return len(encode_varint(body)) + body


def _field_size(field: bytes | None) -> int:
    return 1 if field is None else len(encode_varint(len(field))) + len(field)


def _records(columns: RecordColumns) -> Iterator[Record]:
    times = columns.timestamps.cast(pa.int64()).to_pylist()
    keys, values = (
        [None] * len(times) if column is None else column.cast(pa.large_binary()).to_pylist()
        for column in (columns.keys, columns.values)
    )
    headers = [()] * len(times) if columns.headers is None else columns.headers.to_pylist()
    for time, key, value, pairs in zip(times, keys, values, headers, strict=True):
        yield Record(key, value, [tuple(pair.values()) for pair in pairs or ()], time)
