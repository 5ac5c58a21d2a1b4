"""Fast path of `routing.read_change` for columns: finds the rows `old` and `new` of change events by compiled loops.

Pipelines use it, which read change events by the million. An event's value is an object with the members `op`, `key`, `old`,
`new`, `ts`, `tx`, in this order. The rows are not parsed here: they pass through the pipeline as bytes, and a column of them is
parsed where it is needed. The new row, the longest part of most events, is not even scanned, because what follows it is known.
`tests/unit/wire/test_fast_change_rows.py` holds the rows equal to those that JSON decoding finds.
"""

# mypy: disable-error-code="no-untyped-call, no-untyped-def, untyped-decorator, misc"
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numba import int64

from tailrace.model.errors import CorruptBatchError
from tailrace.wire.decoding_kernels import load_decoding_kernels
from tailrace.wire.fast_arrow_decoding import binary_array
from tailrace.wire.kernel_compiler import READONLY_BYTES, compiled

_QUOTE, _BACKSLASH, _COLON, _COMMA = 34, 92, 58, 44
_OPEN_OBJECT, _CLOSE_OBJECT, _OPEN_LIST, _CLOSE_LIST = 123, 125, 91, 93
_SMALL_O, _SMALL_N, _SMALL_L, _SMALL_T, _SMALL_X, _SMALL_S = 111, 110, 108, 116, 120, 115
_ZERO, _NINE = 48, 57


class RowImages(NamedTuple):
    """The rows before and after the change as JSON, null if there is none."""

    old: pa.Array
    new: pa.Array


def load_row_images() -> Callable[[pa.Array], RowImages]:
    """Return a function that finds the rows in a column of change events."""
    kernels = load_decoding_kernels()

    def row_images(values: pa.Array) -> RowImages:
        rows = len(values)
        _, ends_buffer, data_buffer = values.buffers()
        data = np.frombuffer(data_buffer or b"", np.uint8)
        data.flags.writeable = False
        ends = np.frombuffer(ends_buffer, np.int32)[values.offset : values.offset + rows + 1].astype(np.int64)
        spans = [np.empty(rows, np.int64) for _ in range(4)]
        bad = _images(data, ends, *spans)
        if bad >= 0:
            raise CorruptBatchError(f"the value {values[bad].as_py()[:100]!r} is not a change event")
        old_at, old_size, new_at, new_size = spans
        return RowImages(binary_array(kernels, data, old_at, old_size), binary_array(kernels, data, new_at, new_size))

    return row_images


@compiled(int64(READONLY_BYTES, int64, int64, int64))
def _back_over(data, at, name, second):
    """Return where a member `,"..":` with this name of two letters begins if it ends at `at`, else -1."""
    first = at - 6
    if (
        data[first] == _COMMA
        and data[first + 1] == _QUOTE
        and data[first + 2] == name
        and data[first + 3] == second
        and data[first + 4] == _QUOTE
        and data[first + 5] == _COLON
    ):
        return first
    return -1


@compiled(int64(READONLY_BYTES, int64, int64))
def _row_end(data, first, stop):
    """Return the end of the row that begins at `first` if `,"ts":1,"tx":"2"}` follows it, else -1."""
    least = first + 14
    at = stop - 2
    if at < least or data[at] != _QUOTE:
        return -1
    at -= 1
    while at > least and data[at] != _QUOTE:
        if data[at] == _BACKSLASH:
            return -1
        at -= 1
    if at <= least or data[at] != _QUOTE:
        return -1
    at = _back_over(data, at, _SMALL_T, _SMALL_X)
    if at <= least:
        return -1
    while at > least and _ZERO <= data[at - 1] <= _NINE:
        at -= 1
    at = _back_over(data, at, _SMALL_T, _SMALL_S)
    return at if at > first and data[at - 1] == _CLOSE_OBJECT else -1


@compiled(int64(READONLY_BYTES, int64[::1], int64[::1], int64[::1], int64[::1], int64[::1]))
def _images(data, ends, old_at, old_size, new_at, new_size):
    """Find the two members in every event. Return the first value that is not an event, or -1."""
    for row in range(len(ends) - 1):
        at, stop = ends[row], ends[row + 1]
        old_at[row] = old_size[row] = new_at[row] = new_size[row] = -1
        if stop - at < 2 or data[at] != _OPEN_OBJECT or data[stop - 1] != _CLOSE_OBJECT:
            return row
        at += 1
        while at < stop - 1:
            if data[at] != _QUOTE:
                return row
            name = at + 1
            at = name
            while at < stop and data[at] != _QUOTE:
                at += 1
            length = at - name
            at += 1
            if at >= stop or data[at] != _COLON:
                return row
            at += 1
            first = at
            is_new = length == 3 and data[name] == _SMALL_N and first < stop and data[first] == _OPEN_OBJECT
            if is_new:
                end = _row_end(data, first, stop)
                if end >= 0:
                    new_at[row] = first
                    new_size[row] = end - first
                    break
            depth = 0
            while at < stop:
                byte = data[at]
                if byte == _QUOTE:
                    at += 1
                    while at < stop and data[at] != _QUOTE:
                        at += 2 if data[at] == _BACKSLASH else 1
                elif byte in (_OPEN_OBJECT, _OPEN_LIST):
                    depth += 1
                elif byte in (_CLOSE_OBJECT, _CLOSE_LIST):
                    if depth == 0:
                        break
                    depth -= 1
                elif byte == _COMMA and depth == 0:
                    break
                at += 1
            if at >= stop:
                return row
            if is_new:
                new_at[row] = first
                new_size[row] = at - first
            elif length == 3 and data[name] == _SMALL_O and data[name + 1] == _SMALL_L and data[first] == _OPEN_OBJECT:
                old_at[row] = first
                old_size[row] = at - first
            at += 1
    return -1
