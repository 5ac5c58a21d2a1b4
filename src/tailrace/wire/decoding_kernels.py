"""The loops of `wire/fast_arrow_decoding.py` that read record bytes, compiled by numba.

Importing this module takes about a second, and several the first time on a machine, when nothing is cached. So it is imported
only where records are decoded by the million. All loops run without the interpreter's lock. No loop trusts a length: a batch
that does not fit is rejected, and the caller asks the plain decoder, which says what is wrong.

All loops that call each other are in this file, because numba notices a change only in the file that a loop is in. A field is
a span: where its bytes begin and how many they are, with -1 for null. Loops go over slices from 0 on, because the compiler
turns these into wide loads and stores: twenty times as fast as an index that might be negative.
"""

# mypy: disable-error-code="no-untyped-call, no-untyped-def, untyped-decorator, misc"
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numba import boolean, int32, int64, types, uint8

from tailrace.wire.kernel_compiler import BYTE_POINTER, READONLY_BYTES, WRITABLE_BYTES, compiled, pointer_to

_LEAST_BODY = 6
_BAD = -1
_COMPARED_HEADERS = 64
_QUOTE, _BACKSLASH, _COMMA, _COLON = 34, 92, 44, 58
_OPEN, _CLOSE = 123, 125
_ESCAPES = np.zeros(32, np.uint8)
_ESCAPES[[8, 9, 10, 12, 13]] = list(b"btnfr")
_HEX = np.frombuffer(b"0123456789abcdef", np.uint8)

_bytes = READONLY_BYTES
_out = WRITABLE_BYTES
_longs = int64[::1]
_pointer = BYTE_POINTER


class DecodingKernels(NamedTuple):
    """The compiled loops."""

    scan: Callable[..., int]
    copy: Callable[..., None]
    are_text: Callable[..., bool]
    text_sizes: Callable[..., None]
    copy_text: Callable[..., None]
    find_header: Callable[..., None]
    list_headers: Callable[..., None]
    repeat_names: Callable[..., bool]
    json_sizes: Callable[..., None]
    write_json: Callable[..., None]


def load_decoding_kernels() -> DecodingKernels:
    return DecodingKernels(
        _scan, _copy, _are_text, _text_sizes, _copy_text, _find_header, _list_headers, _repeat_names, _json_sizes, _write_json
    )


@compiled(types.Tuple((int64, int64))(_pointer, int64, int64))
def _varint(data, at, end):
    """Return the number and where it ends, or `_BAD` as the end if there is no number of 64 bits."""
    if at >= end:
        return 0, _BAD
    byte = int64(data[at])
    at += 1
    number = byte & 0x7F
    shift = 7
    while byte >= 0x80:
        if at >= end or shift > 63:
            return 0, _BAD
        byte = int64(data[at])
        at += 1
        if shift == 63 and byte > 1:
            return 0, _BAD
        number |= (byte & 0x7F) << shift
        shift += 7
    return ((number >> 1) & 0x7FFFFFFFFFFFFFFF) ^ -(number & 1), at


@compiled(types.Tuple((int64, int64))(_pointer, int64, int64))
def _field(data, at, end):
    """Return the length of a field and where it begins, or `_BAD` as the beginning if it does not fit."""
    length, at = _varint(data, at, end)
    if at == _BAD or length < -1 or length > end - at:
        return 0, _BAD
    return length, at


@compiled(boolean(_pointer, int64, int64))
def _is_text(data, at, size):
    """Return whether the bytes are UTF-8."""
    seen = uint8(0)
    for place in range(size):
        seen |= data[at + place]
    if seen < 0x80:
        return True
    end = at + size
    while at < end:
        first = data[at]
        if first < 0x80:
            at += 1
            continue
        if first < 0xC2 or first > 0xF4:
            return False
        more = 1 if first < 0xE0 else 2 if first < 0xF0 else 3
        if at + more >= end:
            return False
        second = data[at + 1]
        least = 0xA0 if first == 0xE0 else 0x90 if first == 0xF0 else 0x80
        most = 0x9F if first == 0xED else 0x8F if first == 0xF4 else 0xBF
        if second < least or second > most:
            return False
        for place in range(at + 2, at + 1 + more):
            if data[place] & 0xC0 != 0x80:
                return False
        at += more + 1
    return True


@compiled(
    int64(
        _bytes, _longs, _longs, _longs, _longs, _longs, boolean[::1],
        _longs, _longs, _longs, _longs, _longs, _longs, _longs, _longs
    )
)  # fmt: skip
def _scan(
    data,
    starts,
    counts,
    last_deltas,
    base_times,
    append_times,
    has_append_time,
    times,
    deltas,
    key_at,
    key_size,
    value_at,
    value_size,
    headers_at,
    header_count,
):
    """Find the fields of all records of all batches. Return the first batch that is malformed, or -1.

    `starts` has one entry more than there are batches: where the last one ends.
    """
    start = pointer_to(data)
    row = 0
    for batch in range(len(counts)):
        at = starts[batch]
        stop = starts[batch + 1]
        # Compaction removes records, so that the offsets of the others rise with gaps.
        spare = last_deltas[batch] + 1 - counts[batch]
        previous = -1
        for index in range(counts[batch]):
            size, at = _varint(start, at, stop)
            if at == _BAD or size < _LEAST_BODY or size > stop - at:
                return batch
            end = at + size
            delta, at = _varint(start, at + 1, end)
            if at == _BAD:
                return batch
            if has_append_time[batch]:
                times[row] = append_times[batch]
            else:
                times[row] = base_times[batch] + delta
            time = base_times[batch] + delta
            if ((base_times[batch] ^ time) & (delta ^ time)) < 0:
                return batch
            number, at = _varint(start, at, end)
            if at == _BAD or number <= previous or number > index + spare:
                return batch
            previous = number
            deltas[row] = number
            length, at = _field(start, at, end)
            if at == _BAD:
                return batch
            key_at[row] = at
            key_size[row] = length
            at += max(length, 0)
            length, at = _field(start, at, end)
            if at == _BAD:
                return batch
            value_at[row] = at
            value_size[row] = length
            at += max(length, 0)
            headers, at = _varint(start, at, end)
            if at == _BAD or headers < 0 or headers > (end - at) // 2:
                return batch
            headers_at[row] = at
            header_count[row] = headers
            for _ in range(headers):
                length, at = _field(start, at, end)
                if at == _BAD or length < 0 or not _is_text(start, at, length):
                    return batch
                length, at = _field(start, at + length, end)
                if at == _BAD:
                    return batch
                at += max(length, 0)
            if at != end:
                return batch
            row += 1
        if at != stop:
            return batch
    return _BAD


@compiled(types.void(_bytes, _longs, _longs, int32[::1], _out))
def _copy(data, places, sizes, ends, out):
    """Copy the fields end to end. `ends` holds where each begins and, as its last entry, where all end."""
    for row in range(len(places)):
        size = max(sizes[row], 0)
        field = data[places[row] : places[row] + size]
        room = out[ends[row] : ends[row] + size]
        for place in range(size):
            room[place] = field[place]


@compiled(boolean(_bytes, _longs, _longs, boolean[::1]))
def _are_text(data, places, sizes, found):
    """Find which fields are UTF-8. Return whether all are."""
    start = pointer_to(data)
    everything = True
    for row in range(len(places)):
        found[row] = sizes[row] <= 0 or _is_text(start, places[row], sizes[row])
        everything &= found[row]
    return everything


@compiled(types.void(_longs, boolean[::1], _longs))
def _text_sizes(sizes, text, found):
    """Find the size of each field as text. Bytes that are not UTF-8 are shown as `\\x` and hexadecimal digits."""
    for row in range(len(sizes)):
        size = max(sizes[row], 0)
        found[row] = size if text[row] else 2 + 2 * size


@compiled(types.void(_bytes, _longs, _longs, boolean[::1], int32[::1], _out))
def _copy_text(data, places, sizes, text, ends, out):
    for row in range(len(places)):
        size = max(sizes[row], 0)
        field = data[places[row] : places[row] + size]
        room = out[ends[row] : ends[row + 1]]
        if text[row]:
            for place in range(size):
                room[place] = field[place]
        else:
            room[0] = _BACKSLASH
            room[1] = 120
            for place in range(size):
                room[2 + 2 * place] = _HEX[field[place] >> 4]
                room[3 + 2 * place] = _HEX[field[place] & 15]


@compiled(types.void(_bytes, _longs, _longs, _bytes, _longs, _longs))
def _find_header(data, headers_at, header_count, name, places, sizes):
    """Find the value of each record's first header of this name."""
    start = pointer_to(data)
    end = len(data)
    for row in range(len(headers_at)):
        at = headers_at[row]
        places[row] = 0
        sizes[row] = -1
        for _ in range(header_count[row]):
            length, at = _field(start, at, end)
            is_it = length == len(name)
            if is_it:
                for place in range(length):
                    if data[at + place] != name[place]:
                        is_it = False
                        break
            length, at = _field(start, at + length, end)
            if is_it:
                places[row] = at
                sizes[row] = length
                break
            at += max(length, 0)


@compiled(types.void(_bytes, _longs, _longs, _longs, _longs, _longs, _longs))
def _list_headers(data, headers_at, header_count, name_at, name_size, value_at, value_size):
    """Find the spans of all headers of all records, in order."""
    start = pointer_to(data)
    end = len(data)
    header = 0
    for row in range(len(headers_at)):
        at = headers_at[row]
        for _ in range(header_count[row]):
            length, at = _field(start, at, end)
            name_at[header] = at
            name_size[header] = length
            length, at = _field(start, at + length, end)
            value_at[header] = at
            value_size[header] = length
            at += max(length, 0)
            header += 1


@compiled(boolean(_bytes, _longs, _longs))
def _repeat_names(data, headers_at, header_count):
    """Return whether a record has two headers of one name, or more headers than are compared."""
    start = pointer_to(data)
    end = len(data)
    places = np.empty(_COMPARED_HEADERS, np.int64)
    sizes = np.empty(_COMPARED_HEADERS, np.int64)
    for row in range(len(headers_at)):
        if header_count[row] > _COMPARED_HEADERS:
            return True
        at = headers_at[row]
        for header in range(header_count[row]):
            length, at = _field(start, at, end)
            for before in range(header):
                if sizes[before] == length:
                    same = True
                    for place in range(length):
                        if data[at + place] != data[places[before] + place]:
                            same = False
                            break
                    if same:
                        return True
            places[header] = at
            sizes[header] = length
            length, at = _field(start, at + length, end)
            at += max(length, 0)
    return False


@compiled(int64(_pointer, int64, int64))
def _json_size(data, at, size):
    """Return the size of a JSON string, with its quotes, that shows these bytes."""
    if not _is_text(data, at, size):
        return 5 + 2 * size
    total = 2 + size
    for place in range(at, at + size):
        byte = data[place]
        if byte in (_QUOTE, _BACKSLASH):
            total += 1
        elif byte < 32:
            total += 1 if _ESCAPES[byte] else 5
    return total


@compiled(int64(_pointer, int64, int64, _pointer, int64))
def _write_json_string(data, at, size, out, to):
    """Write a JSON string that shows these bytes. Return where the next byte goes."""
    out[to] = _QUOTE
    to += 1
    if not _is_text(data, at, size):
        out[to] = _BACKSLASH
        out[to + 1] = _BACKSLASH
        out[to + 2] = 120
        to += 3
        for place in range(at, at + size):
            out[to] = _HEX[data[place] >> 4]
            out[to + 1] = _HEX[data[place] & 15]
            to += 2
    else:
        for place in range(at, at + size):
            byte = data[place]
            if byte in (_QUOTE, _BACKSLASH):
                out[to] = _BACKSLASH
                out[to + 1] = byte
                to += 2
            elif byte >= 32:
                out[to] = byte
                to += 1
            elif _ESCAPES[byte]:
                out[to] = _BACKSLASH
                out[to + 1] = _ESCAPES[byte]
                to += 2
            else:
                out[to] = _BACKSLASH
                out[to + 1] = 117
                out[to + 2] = 48
                out[to + 3] = 48
                out[to + 4] = _HEX[byte >> 4]
                out[to + 5] = _HEX[byte & 15]
                to += 6
    out[to] = _QUOTE
    return to + 1


@compiled(types.void(_bytes, _longs, _longs, _longs))
def _json_sizes(data, headers_at, header_count, found):
    """Find the size of each record's headers as one JSON object."""
    start = pointer_to(data)
    end = len(data)
    for row in range(len(headers_at)):
        at = headers_at[row]
        size = 2 + max(header_count[row] - 1, 0)
        for _ in range(header_count[row]):
            length, at = _field(start, at, end)
            size += _json_size(start, at, length) + 1
            length, at = _field(start, at + length, end)
            size += 4 if length < 0 else _json_size(start, at, length)
            at += max(length, 0)
        found[row] = size


@compiled(types.void(_bytes, _longs, _longs, int32[::1], _out))
def _write_json(data, headers_at, header_count, ends, out):
    start = pointer_to(data)
    into = pointer_to(out)
    end = len(data)
    for row in range(len(headers_at)):
        at = headers_at[row]
        to = int64(ends[row])
        out[to] = _OPEN
        to += 1
        for header in range(header_count[row]):
            if header:
                out[to] = _COMMA
                to += 1
            length, at = _field(start, at, end)
            to = _write_json_string(start, at, length, into, to)
            out[to] = _COLON
            to += 1
            length, at = _field(start, at + length, end)
            if length < 0:
                out[to] = 110
                out[to + 1] = 117
                out[to + 2] = 108
                out[to + 3] = 108
                to += 4
            else:
                to = _write_json_string(start, at, length, into, to)
            at += max(length, 0)
        out[to] = _CLOSE
