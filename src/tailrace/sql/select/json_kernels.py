"""The loop of `sql/select/json_fields.py` that reads fields of JSON texts, compiled by numba.

It reads a text strictly, as PostgreSQL does, and gives up where it is not certain: then it marks the text as doubtful, and the
query asks the exact functions. Importing this module takes as long as importing `wire/decoding_kernels.py`.
"""

# ruff: noqa: SIM109
# mypy: disable-error-code="no-untyped-call, no-untyped-def, untyped-decorator, misc"
from collections.abc import Callable

from numba import boolean, int32, int64, types, uint8, uint64

from tailrace.wire.kernel_compiler import READONLY_BYTES, compiled

_BAD = uint64(0)
_ONE = uint64(1)
_DEPTH = 60
_QUOTE, _BACKSLASH, _COMMA, _COLON = 34, 92, 44, 58
_OPEN, _CLOSE, _OPEN_LIST, _CLOSE_LIST = 123, 125, 91, 93
_MINUS, _POINT, _ZERO, _NINE = 45, 46, 48, 57
_TRUE, _FALSE, _NULL = 116, 102, 110

_bytes = READONLY_BYTES
_ends = types.Array(int32, 1, "C", readonly=True)
_key_ends = types.Array(int64, 1, "C", readonly=True)
_table = int64[:, ::1]


def load_json_kernel() -> Callable[..., None]:
    """Return the loop that finds the fields of texts."""
    return _find_fields


# Places are unsigned, because one that might be negative costs a test for each byte. Nothing ends at place 0, which means bad.


@compiled(uint64(_bytes, uint64, uint64))
def _skip_space(data, at, end):
    while at < end and (data[at] == 32 or data[at] == 10 or data[at] == 13 or data[at] == 9):
        at += _ONE
    return at


@compiled(types.Tuple((uint64, boolean))(_bytes, uint64, uint64))
def _string_end(data, at, end):
    """Return where a string ends that begins behind its quote, with the quote, and whether it has an escape."""
    has_escape = False
    while at < end:
        byte = data[at]
        if byte != _QUOTE and byte != _BACKSLASH and byte >= 32:
            at += _ONE
            continue
        if byte == _QUOTE:
            return at + _ONE, has_escape
        at += _ONE
        if byte != _BACKSLASH or at >= end:
            return _BAD, has_escape
        has_escape = True
        byte = data[at]
        # A quote, a backslash, a slash, b, f, n, r or t; other escapes are doubtful.
        is_known = byte == _QUOTE or byte == _BACKSLASH or byte == 47 or byte == 98 or byte == 102
        if not (is_known or byte == 110 or byte == 114 or byte == 116):
            return _BAD, has_escape
        at += _ONE
    return _BAD, has_escape


@compiled(types.Tuple((uint64, boolean))(_bytes, uint64, uint64))
def _number_end(data, at, end):
    """Return where a number ends, and whether it is an integer that is written as PostgreSQL prints it."""
    is_negative = data[at] == _MINUS
    if is_negative:
        at += _ONE
    if at >= end or data[at] < _ZERO or data[at] > _NINE:
        return _BAD, False
    is_zero = data[at] == _ZERO
    at += _ONE
    if not is_zero:
        while at < end and _ZERO <= data[at] <= _NINE:
            at += _ONE
    if at < end and data[at] == _POINT:
        first = at + _ONE
        at = first
        while at < end and _ZERO <= data[at] <= _NINE:
            at += _ONE
        if at == first or (at < end and (data[at] == 101 or data[at] == 69)):
            return _BAD, False
        return at, False
    if at < end and (data[at] == 101 or data[at] == 69):
        return _BAD, False
    return at, not (is_zero and is_negative)


@compiled(uint64(_bytes, uint64, uint64))
def _word_end(data, at, end):
    """Return where `true`, `false` or `null` ends."""
    left = end - at
    two, three, four = at + uint64(2), at + uint64(3), at + uint64(4)
    if left >= uint64(4) and data[at] == _TRUE and data[at + _ONE] == 114 and data[two] == 117 and data[three] == 101:
        return four
    if left >= uint64(4) and data[at] == _NULL and data[at + _ONE] == 117 and data[two] == 108 and data[three] == 108:
        return four
    if left >= uint64(5) and data[at] == _FALSE and data[at + _ONE] == 97 and data[two] == 108 and data[three] == 115:
        return at + uint64(5) if data[four] == 101 else _BAD
    return _BAD


@compiled(uint64(_bytes, uint64, uint64))
def _value_after_key(data, at, end):
    """Return where the value of a member begins, which begins here with its key."""
    if at >= end or data[at] != _QUOTE:
        return _BAD
    at, _ = _string_end(data, at + _ONE, end)
    if at == _BAD:
        return _BAD
    at = _skip_space(data, at, end)
    if at >= end or data[at] != _COLON:
        return _BAD
    return _skip_space(data, at + _ONE, end)


@compiled(uint64(_bytes, uint64, uint64))
def _value_end(data, at, end):
    """Return where a value ends, with everything inside of it."""
    depth = 0
    objects = uint64(0)
    while True:
        if at >= end:
            return _BAD
        byte = data[at]
        if byte == _OPEN or byte == _OPEN_LIST:
            is_object = byte == _OPEN
            at = _skip_space(data, at + _ONE, end)
            if at >= end:
                return _BAD
            if data[at] == (_CLOSE if is_object else _CLOSE_LIST):
                at += _ONE
            else:
                if depth == _DEPTH:
                    return _BAD
                depth += 1
                objects = (objects << _ONE) | uint64(1 if is_object else 0)
                if is_object:
                    at = _value_after_key(data, at, end)
                    if at == _BAD:
                        return _BAD
                continue
        elif byte == _QUOTE:
            at, _ = _string_end(data, at + _ONE, end)
        elif byte == _MINUS or _ZERO <= byte <= _NINE:
            at, _ = _number_end(data, at, end)
        else:
            at = _word_end(data, at, end)
        if at == _BAD:
            return _BAD
        while depth > 0:
            at = _skip_space(data, at, end)
            if at >= end:
                return _BAD
            is_object = (objects & _ONE) == _ONE
            if data[at] == _COMMA:
                at = _skip_space(data, at + _ONE, end)
                if is_object:
                    at = _value_after_key(data, at, end)
                    if at == _BAD:
                        return _BAD
                break
            if data[at] != (_CLOSE if is_object else _CLOSE_LIST):
                return _BAD
            at += _ONE
            objects >>= _ONE
            depth -= 1
        if depth == 0:
            return at


@compiled(int64(_bytes, uint64, uint64, _bytes, _key_ends))
def _key_number(data, at, end, keys, key_ends):
    """Return which of the keys this is; -1 for none."""
    first = uint64(0)
    for number in range(len(key_ends)):
        last = uint64(key_ends[number])
        if last - first == end - at:
            place = uint64(0)
            while place < end - at and data[at + place] == keys[first + place]:
                place += _ONE
            if place == end - at:
                return number
        first = last
    return -1


@compiled(boolean(_bytes, uint64, uint64, _bytes, _key_ends, _table, _table, int64))
def _find_in_text(data, at, end, keys, key_ends, places, sizes, row):
    """Find the fields of one text, and return whether that is certain."""
    seen = uint64(0)
    at = _skip_space(data, at, end)
    if at >= end or data[at] != _OPEN:
        return False
    at = _skip_space(data, at + _ONE, end)
    if at < end and data[at] == _CLOSE:
        return _skip_space(data, at + _ONE, end) == end
    while True:
        if at >= end or data[at] != _QUOTE:
            return False
        key = at + _ONE
        at, has_escape = _string_end(data, key, end)
        if at == _BAD or has_escape:
            return False
        number = _key_number(data, key, at - _ONE, keys, key_ends)
        at = _skip_space(data, at, end)
        if at >= end or data[at] != _COLON:
            return False
        value = _skip_space(data, at + _ONE, end)
        if value >= end:
            return False
        byte = data[value]
        has_escape = False
        is_plain = True
        first = value
        if byte == _QUOTE:
            first = value + _ONE
            at, has_escape = _string_end(data, first, end)
        elif byte == _MINUS or _ZERO <= byte <= _NINE:
            at, is_plain = _number_end(data, value, end)
        elif byte == _OPEN or byte == _OPEN_LIST:
            at = _value_end(data, value, end)
            is_plain = False
        else:
            at = _word_end(data, value, end)
        if at == _BAD:
            return False
        if number >= 0:
            bit = _ONE << uint64(number)
            if (seen & bit) != uint64(0) or has_escape or not is_plain:
                return False
            seen |= bit
            if byte != _NULL:
                places[number, row] = int64(first)
                sizes[number, row] = int64(at) - int64(first) - (1 if byte == _QUOTE else 0)
        at = _skip_space(data, at, end)
        if at >= end:
            return False
        if data[at] == _CLOSE:
            return _skip_space(data, at + _ONE, end) == end
        if data[at] != _COMMA:
            return False
        at = _skip_space(data, at + _ONE, end)


@compiled(types.void(_bytes, _ends, _bytes, _key_ends, _table, _table, uint8[::1]))
def _find_fields(data, ends, keys, key_ends, places, sizes, doubtful):
    """Find in each text where the fields of these keys are, with a size of -1 for null. Mark texts that are doubtful."""
    for row in range(len(ends) - 1):
        for number in range(len(key_ends)):
            places[number, row] = 0
            sizes[number, row] = -1
        is_certain = _find_in_text(data, uint64(ends[row]), uint64(ends[row + 1]), keys, key_ends, places, sizes, row)
        doubtful[row] = 0 if is_certain else 1
        if not is_certain:
            for number in range(len(key_ends)):
                sizes[number, row] = -1
