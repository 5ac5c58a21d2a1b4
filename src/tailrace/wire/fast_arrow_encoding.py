"""Fast path of `records.encode_batch` for Arrow columns: encodes them as record batches by compiled loops.

Pipelines use it, which write records by the hundred thousand; small writes are better off with `records.encode_batch`, which
loads nothing. The rows of each partition become as many batches as they need. A batch takes records up to `most_bytes` before
compression, and at least one; the broker rejects what is too large for its topic. `tests/property/test_arrow.py` holds the
bytes of both equal.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from tailrace.model.commit import Buffer
from tailrace.model.limits import MIB
from tailrace.wire.arrow_decoding import Int64Array, Uint8Array
from tailrace.wire.batch import HEADER_BYTES, write_header
from tailrace.wire.compression import Compression, compress

_NOTHING: Uint8Array = np.zeros(0, np.uint8)
_NO_SPANS: Int64Array = np.zeros(0, np.int64)


class RecordColumns(NamedTuple):
    """Records to be written. All columns have the same length. A column that is left out is null in every record."""

    timestamps: pa.Array
    """Milliseconds since 1970, as `int64` or `timestamp("ms")`."""
    values: pa.Array | None = None
    """Binary or string."""
    keys: pa.Array | None = None
    """Binary or string."""
    headers: pa.Array | None = None
    """Lists of structs of a name and a value, as `arrow_decoding.HEADER_LIST`."""


class EncodedBatch(NamedTuple):
    batch: Buffer
    records: int
    max_timestamp: int


EncodeColumns = Callable[..., Iterator[EncodedBatch]]


def load_encode_columns() -> EncodeColumns:
    """Load the compiled loops and return a function that encodes columns. Any thread may call it."""
    from tailrace.wire.encoding_kernels import load_encoding_kernels

    kernels = load_encoding_kernels()

    def encode(
        columns: RecordColumns,
        *,
        codec: int = Compression.NONE,
        most_bytes: int = MIB,
        most_records: int = 50_000,
        runs: Int64Array | None = None,
    ) -> Iterator[EncodedBatch]:
        """Encode the columns. `runs` has a number for each record; records with different numbers go to different batches."""
        times = _times(columns)
        rows = len(times)
        keys, values = _spans(columns.keys, rows), _spans(columns.values, rows)
        ends, names, contents = _headers(columns.headers, rows)
        bodies = np.empty(rows, np.int64)
        firsts, sizes = np.empty(rows + 1, np.int64), np.empty(rows, np.int64)
        batches = kernels.cut(
            times,
            np.zeros(rows, np.int64) if runs is None else runs,
            keys.sizes,
            values.sizes,
            ends,
            names.sizes,
            contents.sizes,
            most_bytes,
            most_records,
            bodies,
            firsts,
            sizes,
        )
        for number in range(batches):
            first, stop = int(firsts[number]), int(firsts[number + 1])
            # The records are written right behind the place of the head, so that an uncompressed batch is not copied again.
            whole = bytearray(HEADER_BYTES + int(sizes[number]))
            kernels.write(
                first,
                stop,
                times,
                bodies,
                *keys,
                *values,
                ends,
                *names,
                *contents,
                np.frombuffer(whole, np.uint8),
                HEADER_BYTES,
            )
            yield _batch(whole, codec, times[first:stop])

    return encode


class _Spans(NamedTuple):
    """The fields of a column: their bytes, where each field begins in them, and its size, which is -1 for a null."""

    data: Uint8Array
    places: Int64Array
    sizes: Int64Array


def _times(columns: RecordColumns) -> Int64Array:
    times = columns.timestamps
    if isinstance(times, pa.ChunkedArray):
        times = times.combine_chunks()
    found: Int64Array = np.array(times.cast(pa.int64()).to_numpy(zero_copy_only=False), np.int64)
    return found


def _spans(column: pa.Array | None, rows: int) -> _Spans:
    if column is None:
        return _Spans(_NOTHING, np.zeros(rows, np.int64), np.full(rows, -1, np.int64))
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if not pa.types.is_large_binary(column.type):
        column = column.cast(pa.large_binary())
    _, ends_buffer, data_buffer = column.buffers()
    if ends_buffer is None or not rows:
        return _Spans(_NOTHING, np.zeros(rows, np.int64), np.zeros(rows, np.int64))
    ends = np.frombuffer(ends_buffer, np.int64)[column.offset : column.offset + rows + 1]
    sizes = np.diff(ends)
    if column.null_count:
        sizes[column.is_null().to_numpy(zero_copy_only=False)] = -1
    data = _NOTHING if data_buffer is None else np.frombuffer(data_buffer, np.uint8)
    return _Spans(data, ends[:-1].copy(), sizes)


def _headers(column: pa.Array | None, rows: int) -> tuple[Int64Array, _Spans, _Spans]:
    """Return where the headers of each record begin among all headers, and the names and values of all headers."""
    none = _Spans(_NOTHING, _NO_SPANS, _NO_SPANS)
    if column is None:
        return np.zeros(rows + 1, np.int64), none, none
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    pairs = column.flatten()
    ends = np.zeros(rows + 1, np.int64)
    np.cumsum(column.value_lengths().fill_null(0).to_numpy(zero_copy_only=False), out=ends[1:])
    names, contents = pairs.flatten()
    return ends, _spans(names, len(pairs)), _spans(contents, len(pairs))


def _batch(whole: bytearray, codec: int, times: Int64Array) -> EncodedBatch:
    newest = int(times.max())
    if codec != Compression.NONE:
        whole[HEADER_BYTES:] = compress(codec, memoryview(whole)[HEADER_BYTES:].toreadonly())
    write_header(whole, len(times), int(times[0]), newest, attributes=codec)
    return EncodedBatch(whole, len(times), newest)
