"""Decodes stored record batches to Arrow columns.

A reader names the columns that it wants, and only those are decoded. Columns that the head of a batch tells (`partition`,
`offset`, `cursor`) need no decompression, unless compaction has removed records of the batch. For the others the caller chooses
how the fields of records are found: by `plain_fields`, one Python object at a time, or by the compiled loops of
`wire/fast_arrow_decoding.py`, which take seconds to load. The results are equal.

Keys and values come in two forms. `key` and `value` are text; bytes that are not UTF-8 are shown as `\\x` and hexadecimal
digits. `key_bytes` and `value_bytes` are the bytes. Headers come as a JSON object, or as a list of names and values.

Callers leave out the batches that a reader must not see: markers and aborted transactions.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tailrace.model.commit import Buffer
from tailrace.model.errors import InvalidRequestError
from tailrace.model.limits import MIB, Limits
from tailrace.model.record import Headers, Record
from tailrace.model.text import text_or_hex
from tailrace.wire.batch import BatchHeader, read_header
from tailrace.wire.batch_stream import PlacedBatch
from tailrace.wire.records import decode_batch, decompressed_records

Int64Array = npt.NDArray[np.int64]
Uint8Array = npt.NDArray[np.uint8]

HEADER_LIST = pa.list_(pa.struct([pa.field("name", pa.string(), nullable=False), pa.field("value", pa.binary())]))

RECORD_COLUMNS: Mapping[str, pa.DataType] = {
    "partition": pa.int32(),
    "offset": pa.int64(),
    "cursor": pa.int64(),
    "timestamp": pa.timestamp("ms", "UTC"),
    "key": pa.string(),
    "value": pa.string(),
    "headers": pa.string(),
    "source_table": pa.string(),
    "op": pa.string(),
    "payload_mode": pa.string(),
    "message_id": pa.string(),
    "key_bytes": pa.binary(),
    "value_bytes": pa.binary(),
    "header_list": HEADER_LIST,
}

HEAD_COLUMNS = frozenset(("partition", "offset", "cursor"))
"""The columns that the head of a batch tells."""

_CHUNK_BYTES = 8 * MIB


class RecordSpans(NamedTuple):
    """Where the keys or values of records are: the bytes of a chunk, the place of each, and its size, -1 for null."""

    data: Uint8Array
    places: Int64Array
    sizes: Int64Array


class RecordFields(Protocol):
    """The fields of the records of one chunk, as columns. `field` is `key` or `value`."""

    @property
    def spans(self) -> Mapping[str, RecordSpans]:
        """The spans of each field. Empty if they were not looked for."""
        ...

    def deltas(self) -> Int64Array:
        """Return how far the offset of each record is above the base offset of its batch."""
        ...

    def timestamps(self) -> pa.Array: ...
    def binary(self, field: str) -> pa.Array: ...
    def text(self, field: str) -> pa.Array: ...
    def header(self, name: str) -> pa.Array: ...
    def header_json(self) -> pa.Array: ...
    def header_list(self) -> pa.Array: ...


class BatchChunk(NamedTuple):
    """Batches that are decoded together."""

    stored: Sequence[PlacedBatch]
    heads: Sequence[BatchHeader]
    bodies: Sequence[Buffer]
    """The decompressed records of each batch. Empty if no column needs them."""

    @property
    def is_sparse(self) -> bool:
        return any(head.is_sparse for head in self.heads)


ReadFields = Callable[[BatchChunk, Limits], RecordFields]


class DerivedColumns(Protocol):
    """Columns that are computed from the fields of records while these are decoded."""

    @property
    def schema(self) -> Sequence[tuple[str, pa.DataType]]: ...
    def columns(self, fields: RecordFields, rows: int) -> Sequence[pa.Array]: ...


def decode_to_arrow(
    stored: Sequence[PlacedBatch],
    columns: Sequence[str],
    *,
    partition: int,
    limits: Limits,
    read_fields: ReadFields,
    derived: DerivedColumns | None = None,
) -> Iterator[pa.RecordBatch]:
    """Decode all records of these batches, whose checksums were checked before, a few MiB at a time.

    `read_fields` is `plain_fields`, or what `load_compiled_fields` returns. The derived columns come after the others.
    """
    with_bodies = derived is not None or not HEAD_COLUMNS.issuperset(columns)
    needs_places = not {"offset", "cursor"}.isdisjoint(columns)
    with_bodies = with_bodies or (needs_places and any(read_header(each.batch).is_sparse for each in stored))
    types = [(name, RECORD_COLUMNS.get(name, pa.string())) for name in columns]
    schema = pa.schema(types if derived is None else [*types, *derived.schema])

    def decoded(chunk: BatchChunk) -> pa.RecordBatch:
        counts = np.array([head.records for head in chunk.heads], np.int64)
        fields = read_fields(chunk, limits) if with_bodies else None
        arrays = [_column(name, chunk, counts, partition, fields) for name in columns]
        if derived is not None and fields is not None:
            arrays += derived.columns(fields, int(counts.sum()))
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    # `map` instead of a loop, whose variables would keep a decoded chunk in memory until the next one is decoded.
    return map(decoded, _chunks(stored, limits, with_bodies))


def decode_readable_to_arrow(
    stored: Sequence[PlacedBatch],
    columns: Sequence[str],
    *,
    partition: int,
    limits: Limits,
    read_fields: ReadFields,
    on_corrupt: Callable[[BatchHeader, InvalidRequestError], None],
    derived: DerivedColumns | None = None,
) -> Iterator[pa.RecordBatch]:
    """Decode as `decode_to_arrow` does. For a batch that can't be decoded `on_corrupt` is called; if it returns, the batch is
    left out.
    """
    rows = 0
    decode = partial(
        decode_to_arrow, columns=columns, partition=partition, limits=limits, read_fields=read_fields, derived=derived
    )

    def counted(decoded: pa.RecordBatch) -> pa.RecordBatch:
        nonlocal rows
        rows += decoded.num_rows
        return decoded

    try:
        yield from map(counted, decode(stored))
    except InvalidRequestError:
        for each in stored:
            head = read_header(each.batch)
            if rows > 0:
                rows -= head.records
                continue
            try:
                (decoded,) = decode([each])
            except InvalidRequestError as error:
                on_corrupt(head, error)
            else:
                yield decoded


def _chunks(stored: Sequence[PlacedBatch], limits: Limits, with_bodies: bool) -> Iterator[BatchChunk]:
    """Group batches by decompressed size, so that well compressed ones do not fill the memory."""
    heads: list[BatchHeader] = []
    bodies: list[Buffer] = []
    size = first = 0

    def cut(end: int) -> BatchChunk:
        nonlocal heads, bodies, size, first
        chunk = BatchChunk(stored[first:end], heads, bodies)
        heads, bodies, size, first = [], [], 0, end
        return chunk

    for number, (_, batch) in enumerate(stored):
        head = read_header(batch)
        if with_bodies:
            body = decompressed_records(batch, head, limits)
            if size and size + len(body) > 2 * _CHUNK_BYTES:
                yield cut(number)
            bodies.append(body)
            size += len(body)
            del body
        heads.append(head)
        if size >= _CHUNK_BYTES:
            yield cut(number + 1)
    if heads:
        yield cut(len(stored))


def _column(name: str, chunk: BatchChunk, counts: Int64Array, partition: int, fields: RecordFields | None) -> pa.Array:
    if name == "partition":
        return pa.array(np.full(int(counts.sum()), partition, np.int32))
    if name in ("offset", "cursor"):
        firsts = [head.base_offset for head in chunk.heads] if name == "offset" else [each.cursor for each in chunk.stored]
        if fields is not None and chunk.is_sparse:
            return pa.array(np.repeat(np.array(firsts, np.int64), counts) + fields.deltas())
        return pa.array(_counted_from(firsts, counts))
    if fields is None:
        raise ValueError(f"column {name!r} needs the records of a batch")
    if name == "timestamp":
        return fields.timestamps()
    if name in ("key", "value"):
        return fields.text(name)
    if name in ("key_bytes", "value_bytes"):
        return fields.binary(name.removesuffix("_bytes"))
    if name == "headers":
        return fields.header_json()
    return fields.header_list() if name == "header_list" else fields.header(name)


def _counted_from(firsts: Sequence[int], counts: Int64Array) -> Int64Array:
    """Return consecutive numbers for the records of each batch, beginning with the first number of the batch."""
    ends = np.cumsum(counts)
    numbers: Int64Array = np.arange(ends[-1], dtype=np.int64)
    numbers += np.repeat(np.array(firsts, np.int64) - (ends - counts), counts)
    return numbers


def plain_fields(chunk: BatchChunk, limits: Limits) -> "PlainRecordFields":
    return PlainRecordFields([decode_batch(stored.batch, limits) for stored in chunk.stored], chunk.heads)


class PlainRecordFields:
    spans: Mapping[str, RecordSpans] = MappingProxyType({})

    def __init__(self, records: Sequence[Sequence[Record]], heads: Sequence[BatchHeader]) -> None:
        """Takes the records of each batch, and the heads of the batches."""
        self._by_batch = records
        self._records = [record for each in records for record in each]
        self._heads = heads

    def deltas(self) -> Int64Array:
        found = zip(self._by_batch, self._heads, strict=True)
        return np.array([record.offset - head.base_offset for records, head in found for record in records], np.int64)

    def timestamps(self) -> pa.Array:
        return pa.array([record.timestamp for record in self._records], RECORD_COLUMNS["timestamp"])

    def binary(self, field: str) -> pa.Array:
        return pa.array([getattr(record, field) for record in self._records], pa.binary())

    def text(self, field: str) -> pa.Array:
        return pa.array([text_or_hex(getattr(record, field)) for record in self._records], pa.string())

    def header(self, name: str) -> pa.Array:
        return pa.array([text_or_hex(_first(name, record.headers)) for record in self._records], pa.string())

    def header_json(self) -> pa.Array:
        return pa.array([_json(record.headers) for record in self._records], pa.string())

    def header_list(self) -> pa.Array:
        lists = [[{"name": name, "value": value} for name, value in record.headers] for record in self._records]
        return pa.array(lists, HEADER_LIST)


def _first(name: str, headers: Headers) -> bytes | None:
    return next((value for other, value in headers if other == name), None)


def _json(headers: Headers) -> str:
    """Return headers as a JSON object. A name that comes more than once has a list of its values."""
    found: dict[str, list[str | None]] = {}
    for name, value in headers:
        found.setdefault(name, []).append(text_or_hex(value))
    shown = {name: values if len(values) > 1 else values[0] for name, values in found.items()}
    return json.dumps(shown, ensure_ascii=False, separators=(",", ":"))
