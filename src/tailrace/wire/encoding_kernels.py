"""The loops of pipelines that write record bytes and choose partitions, compiled by numba.

As `wire/decoding_kernels.py`, this module is imported only where records are written by the million, holds all loops that call
each other, and takes fields as spans, with a size of -1 for null.
"""

# mypy: disable-error-code="no-untyped-call, no-untyped-def, untyped-decorator, misc"
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from numba import int32, int64, types, uint32, void

from tailrace.wire.kernel_compiler import READONLY_BYTES, WRITABLE_BYTES, compiled

_bytes = READONLY_BYTES
_out = WRITABLE_BYTES
_longs = int64[::1]


class EncodingKernels(NamedTuple):
    """The compiled loops that encode records."""

    cut: Callable[..., int]
    write: Callable[..., None]


def load_encoding_kernels() -> EncodingKernels:
    return EncodingKernels(_cut, _write)


@compiled(int64(int64))
def _varint_size(number):
    rest = (number << 1) ^ (number >> 63)
    size = 1
    rest = (rest >> 7) & 0x01FFFFFFFFFFFFFF
    while rest:
        size += 1
        rest >>= 7
    return size


@compiled(int64(_out, int64, int64))
def _write_varint(out, to, number):
    """Write a zigzag varint. Return where the next byte goes."""
    rest = (number << 1) ^ (number >> 63)
    more = (rest >> 7) & 0x01FFFFFFFFFFFFFF
    while more:
        out[to] = (rest & 0x7F) | 0x80
        to += 1
        rest = more
        more = rest >> 7
    out[to] = rest & 0x7F
    return to + 1


@compiled(int64(_longs, _longs, _longs, _longs, _longs, _longs, _longs, int64, int64, _longs, _longs, _longs))
def _cut(
    times, runs, key_size, value_size, header_ends, name_size, header_size, most_bytes, most_records, bodies, firsts, sizes
):
    """Group records into batches of one run, of at most so many bytes and records, and of at least one record.

    The size of each record's body and, for each batch, its first record and its bytes are filled in. Return how many batches.
    """
    batches = 0
    first = 0
    filled = 0
    for row in range(len(times)):
        fixed = 1 + _varint_size(key_size[row]) + max(key_size[row], 0)
        fixed += _varint_size(value_size[row]) + max(value_size[row], 0)
        fixed += _varint_size(header_ends[row + 1] - header_ends[row])
        for header in range(header_ends[row], header_ends[row + 1]):
            fixed += _varint_size(name_size[header]) + name_size[header]
            fixed += _varint_size(header_size[header]) + max(header_size[header], 0)
        body = fixed + _varint_size(times[row] - times[first]) + _varint_size(row - first)
        whole = body + _varint_size(body)
        if row == first or filled + whole > most_bytes or row - first >= most_records or runs[row] != runs[first]:
            if row != first:
                sizes[batches - 1] = filled
            first = row
            filled = 0
            firsts[batches] = row
            batches += 1
            body = fixed + 2
            whole = body + _varint_size(body)
        bodies[row] = body
        filled += whole
    if batches:
        sizes[batches - 1] = filled
    firsts[batches] = len(times)
    return batches


@compiled(int64(_bytes, int64, int64, _out, int64))
def _write_field(data, at, size, out, to):
    """Write a field with its length. Return where the next byte goes."""
    to = _write_varint(out, to, size)
    size = max(size, 0)
    field = data[at : at + size]
    room = out[to : to + size]
    for place in range(size):
        room[place] = field[place]
    return to + size


@compiled(
    types.void(
        int64, int64, _longs, _longs,
        _bytes, _longs, _longs, _bytes, _longs, _longs,
        _longs, _bytes, _longs, _longs, _bytes, _longs, _longs,
        _out, int64,
    )
)  # fmt: skip
def _write(
    first,
    stop,
    times,
    bodies,
    keys,
    key_at,
    key_size,
    values,
    value_at,
    value_size,
    header_ends,
    names,
    name_at,
    name_size,
    contents,
    content_at,
    content_size,
    out,
    to,
):
    """Write the records from `first` up to but without `stop` as the records of one batch."""
    for row in range(first, stop):
        to = _write_varint(out, to, bodies[row])
        out[to] = 0
        to = _write_varint(out, to + 1, times[row] - times[first])
        to = _write_varint(out, to, row - first)
        to = _write_field(keys, key_at[row], key_size[row], out, to)
        to = _write_field(values, value_at[row], value_size[row], out, to)
        to = _write_varint(out, to, header_ends[row + 1] - header_ends[row])
        for header in range(header_ends[row], header_ends[row + 1]):
            to = _write_field(names, name_at[header], name_size[header], out, to)
            to = _write_field(contents, content_at[header], content_size[header], out, to)


PartitionsOf = Callable[[pa.Array, int], npt.NDArray[np.int32]]


def load_fast_partitioner() -> PartitionsOf:
    """Return a function that chooses the partition of each key of a column, and -1 for a null.

    Fast path of `partitioner.partition_for_key`, used by pipelines. `tests/unit/wire/test_partitioner.py` holds both equal.
    """

    def partitions_of(keys: pa.Array, partitions: int) -> npt.NDArray[np.int32]:
        column = keys.cast(pa.large_binary())
        rows = len(column)
        found = np.full(rows, -1, np.int32)
        _, ends_buffer, data_buffer = column.buffers()
        if not rows or ends_buffer is None:
            return found
        ends = np.frombuffer(ends_buffer, np.int64)[column.offset : column.offset + rows + 1]
        data = np.frombuffer(data_buffer or b"", np.uint8)
        data.flags.writeable = False
        _choose(data, ends, partitions, found)
        if column.null_count:
            found[column.is_null().to_numpy(zero_copy_only=False)] = -1
        return found

    return partitions_of


@compiled(void(READONLY_BYTES, int64[::1], int64, int32[::1]))
def _choose(data, ends, partitions, found):
    multiplier = uint32(0x5BD1E995)
    for row in range(len(found)):
        start, stop = ends[row], ends[row + 1]
        length = stop - start
        mixed = uint32(0x9747B28C) ^ uint32(length)
        at = start
        while at + 4 <= stop:
            part = uint32(
                uint32(data[at])
                | (uint32(data[at + 1]) << uint32(8))
                | (uint32(data[at + 2]) << uint32(16))
                | (uint32(data[at + 3]) << uint32(24))
            )
            part = uint32(part * multiplier)
            part = uint32((part ^ (part >> uint32(24))) * multiplier)
            mixed = uint32(uint32(mixed * multiplier) ^ part)
            at += 4
        rest = stop - at
        if rest:
            if rest == 3:
                mixed = uint32(mixed ^ (uint32(data[at + 2]) << uint32(16)))
            if rest >= 2:
                mixed = uint32(mixed ^ (uint32(data[at + 1]) << uint32(8)))
            mixed = uint32((mixed ^ uint32(data[at])) * multiplier)
        mixed = uint32((mixed ^ (mixed >> uint32(13))) * multiplier)
        mixed = uint32(mixed ^ (mixed >> uint32(15)))
        found[row] = int32((int64(mixed) & 0x7FFFFFFF) % partitions)
