"""Fast path of `arrow_decoding.plain_fields`: the fields of records as Arrow columns, by compiled loops.

Queries use it once they have read many records, pipelines always. The fields are found once and then copied for each column;
no Python object is made for a record. A chunk that the loops reject goes to `plain_fields`, which either can read it or says
what is wrong. `tests/property/test_arrow.py` holds both equal.
"""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tailrace.model.errors import LimitExceededError
from tailrace.model.limits import Limits
from tailrace.wire.arrow_decoding import (
    HEADER_LIST,
    RECORD_COLUMNS,
    BatchChunk,
    Int64Array,
    RecordFields,
    RecordSpans,
    Uint8Array,
    plain_fields,
)
from tailrace.wire.batch import TIMESTAMP_TYPE_MASK
from tailrace.wire.decoding_kernels import DecodingKernels, load_decoding_kernels

_MOST_BYTES = (1 << 31) - 1


def load_compiled_fields() -> Callable[[BatchChunk, Limits], RecordFields]:
    """Load the compiled loops and return a function for `decode_to_arrow`. Any thread may call it."""
    kernels = load_decoding_kernels()

    def read(chunk: BatchChunk, limits: Limits) -> RecordFields:
        fields = CompiledRecordFields(chunk, limits, kernels)
        return fields if fields.is_right else plain_fields(chunk, limits)

    return read


class CompiledRecordFields:
    def __init__(self, chunk: BatchChunk, limits: Limits, kernels: DecodingKernels) -> None:
        self._chunk = chunk
        self._limits = limits
        self._kernels = kernels
        self._data = np.frombuffer(chunk.bodies[0] if len(chunk.bodies) == 1 else b"".join(chunk.bodies), np.uint8)
        self._data.flags.writeable = False
        heads = chunk.heads
        starts = np.zeros(len(heads) + 1, np.int64)
        np.cumsum([len(body) for body in chunk.bodies], out=starts[1:])
        counts = np.array([head.records for head in heads], np.int64)
        self._rows = rows = int(counts.sum())
        self._times = np.empty(rows, np.int64)
        self._deltas = np.empty(rows, np.int64)
        self._headers = np.empty(rows, np.int64), np.empty(rows, np.int64)
        self.spans = {
            name: RecordSpans(self._data, np.empty(rows, np.int64), np.empty(rows, np.int64)) for name in ("key", "value")
        }
        bad = kernels.scan(
            self._data,
            starts,
            counts,
            np.array([head.last_offset_delta for head in heads], np.int64),
            np.array([head.base_timestamp for head in heads], np.int64),
            np.array([head.max_timestamp for head in heads], np.int64),
            np.array([bool(head.attributes & TIMESTAMP_TYPE_MASK) for head in heads], np.bool_),
            self._times,
            self._deltas,
            *self.spans["key"][1:],
            *self.spans["value"][1:],
            *self._headers,
        )
        self.is_right = bad < 0
        """Whether the loops could read all records. If not, no other attribute may be used."""

    def deltas(self) -> Int64Array:
        return self._deltas

    def timestamps(self) -> pa.Array:
        return pa.array(self._times).view(RECORD_COLUMNS["timestamp"])

    def binary(self, field: str) -> pa.Array:
        return binary_array(self._kernels, *self.spans[field])

    def text(self, field: str) -> pa.Array:
        return self._text(*self.spans[field][1:])

    def header(self, name: str) -> pa.Array:
        places, sizes = np.empty(self._rows, np.int64), np.empty(self._rows, np.int64)
        self._kernels.find_header(self._data, *self._headers, np.frombuffer(name.encode(), np.uint8), places, sizes)
        return self._text(places, sizes)

    def header_json(self) -> pa.Array:
        spans = self._headers
        if self._kernels.repeat_names(self._data, *spans):
            return plain_fields(self._chunk, self._limits).header_json()
        sizes = np.empty(self._rows, np.int64)
        self._kernels.json_sizes(self._data, *spans, sizes)
        ends = _ends(sizes)
        out = np.empty(ends[-1], np.uint8)
        self._kernels.write_json(self._data, *spans, ends, out)
        return _array(pa.string(), ends, out, None)

    def header_list(self) -> pa.Array:
        headers_at, counts = self._headers
        total = int(counts.sum())
        name_at, name_size, value_at, value_size = (np.empty(total, np.int64) for _ in range(4))
        self._kernels.list_headers(self._data, headers_at, counts, name_at, name_size, value_at, value_size)
        names = self._binary(name_at, name_size).view(pa.string())
        pairs = pa.StructArray.from_arrays([names, self._binary(value_at, value_size)], fields=list(HEADER_LIST.value_type))
        return pa.ListArray.from_arrays(pa.array(_ends(counts)), pairs, HEADER_LIST)

    def _binary(self, places: Int64Array, sizes: Int64Array) -> pa.Array:
        return binary_array(self._kernels, self._data, places, sizes)

    def _text(self, places: Int64Array, sizes: Int64Array) -> pa.Array:
        is_text = np.empty(self._rows, np.bool_)
        if self._kernels.are_text(self._data, places, sizes, is_text):
            return self._binary(places, sizes).view(pa.string())
        shown = np.empty(self._rows, np.int64)
        self._kernels.text_sizes(sizes, is_text, shown)
        ends = _ends(shown)
        out = np.empty(ends[-1], np.uint8)
        self._kernels.copy_text(self._data, places, sizes, is_text, ends, out)
        return _array(pa.string(), ends, out, sizes)


def binary_array(kernels: DecodingKernels, data: Uint8Array, places: Int64Array, sizes: Int64Array) -> pa.Array:
    """Return these parts of the data as a column, with a null where the size is below 0."""
    ends = _ends(sizes)
    out = np.empty(ends[-1], np.uint8)
    kernels.copy(data, places, sizes, ends, out)
    return _array(pa.binary(), ends, out, sizes)


def _ends(sizes: Int64Array) -> npt.NDArray[np.int32]:
    """Return where each field begins if they lie end to end, and where the last one ends."""
    ends = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(np.maximum(sizes, 0), out=ends[1:])
    if ends[-1] > _MOST_BYTES:
        raise LimitExceededError(f"a column would have {ends[-1]} bytes, more than an Arrow array can hold ({_MOST_BYTES})")
    return ends.astype(np.int32)


def _array(kind: pa.DataType, ends: npt.NDArray[np.int32], out: Uint8Array, sizes: Int64Array | None) -> pa.Array:
    """Return an array of these bytes, with a null where the size is below 0."""
    valid = None
    if sizes is not None and len(sizes) and sizes.min() < 0:
        valid = pa.py_buffer(np.packbits(sizes >= 0, bitorder="little"))
    return pa.Array.from_buffers(kind, len(ends) - 1, [valid, pa.py_buffer(ends), pa.py_buffer(out)])
