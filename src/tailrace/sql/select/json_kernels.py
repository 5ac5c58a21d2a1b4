"""The loops of `sql/select/json_fields.py` that read fields of JSON texts, compiled by numba.

They read a text strictly, as PostgreSQL does, and give up where they are not certain: then they mark the text as doubtful, and
the query asks the exact functions. Importing this module takes as long as importing `wire/decoding_kernels.py`.
"""

# ruff: noqa: SIM109
# mypy: disable-error-code="no-untyped-call, no-untyped-def, untyped-decorator, misc, import-untyped"
from collections.abc import Callable
from typing import NamedTuple

from llvmlite import ir
from numba import boolean, int64, types, uint8, uint64
from numba.core import cgutils
from numba.core.imputils import impl_ret_untracked

from tailrace.sql.select.json_fields import FieldCertainty
from tailrace.wire.kernel_compiler import BYTE_POINTER, LONG_POINTER, READONLY_BYTES, compiled, generated, pointer_to

_CERTAIN = int(FieldCertainty.CERTAIN)
_DOUBTFUL = int(FieldCertainty.DOUBTFUL)
_CERTAIN_IF_TEXT = int(FieldCertainty.CERTAIN_IF_TEXT)
_BAD = uint64(0)
_ONE = uint64(1)
_DEPTH = 60
_QUOTE, _BACKSLASH, _COMMA, _COLON = 34, 92, 44, 58
_OPEN, _CLOSE, _OPEN_LIST, _CLOSE_LIST = 123, 125, 91, 93
_MINUS, _POINT, _ZERO, _NINE = 45, 46, 48, 57
_TRUE, _FALSE, _NULL = 116, 102, 110
_MOST_DIGITS = 18
_BLOCK = 64
_WHOLE_BLOCK = uint64(_BLOCK)
_ESCAPE, _OTHERS = 1, 2
"""What may be in a string: an escape, bytes that are not ASCII."""

_bytes = BYTE_POINTER
_longs = int64[::1]


class JsonLoops(NamedTuple):
    find_fields: Callable[..., None]
    read_integers: Callable[..., None]


def load_json_loops() -> JsonLoops:
    return JsonLoops(_find_fields, _read_integers)


# Places are unsigned, because one that might be negative costs a test for each byte. Nothing ends at place 0, which means bad.


# What ends or interrupts a string is looked for in blocks of 64 bytes: a quote, a backslash, a control character, or a byte
# that is not ASCII. A block has a bit for each of its bytes, and holds for all strings that begin in it.


@generated
def _stops(_, data, at):
    """Return the bits of the block from `at` on, which must be within the data."""

    def generate(context, builder, signature, arguments):
        block = ir.VectorType(ir.IntType(8), _BLOCK)
        place = builder.bitcast(cgutils.pointer_add(builder, *arguments), block.as_pointer())
        found = builder.load(place, align=1)
        # Compared with a sign, bytes that are not ASCII are below all others.
        stops = builder.icmp_signed("<", found, ir.Constant(block, [32] * _BLOCK))
        for byte in (_QUOTE, _BACKSLASH):
            stops = builder.or_(stops, builder.icmp_signed("==", found, ir.Constant(block, [byte] * _BLOCK)))
        bits = builder.bitcast(stops, ir.IntType(_BLOCK))
        return impl_ret_untracked(context, builder, signature.return_type, bits)

    return uint64(data, at), generate


@generated
def _first_bit(_, bits):
    """Return the place of the lowest bit of a number that is not 0."""

    def generate(context, builder, signature, arguments):
        place = builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 1))
        return impl_ret_untracked(context, builder, signature.return_type, place)

    return uint64(bits), generate


@compiled(uint64(_bytes, uint64, uint64), is_inline=True)
def _skip_space(data, at, end):
    while at < end and (data[at] == 32 or data[at] == 10 or data[at] == 13 or data[at] == 9):
        at += _ONE
    return at


@compiled(types.Tuple((uint64, int64, uint64, uint64))(_bytes, uint64, uint64, uint64, uint64, uint64), is_inline=True)
def _string_end(data, at, end, last, block, stops):
    """Return where a string ends that begins behind its quote, with the quote, and what is in it: `_ESCAPE`, `_OTHERS`.

    `last` is the end of all data, up to which bytes may be read. `block` is where the block of `stops` begins; the block at
    the end of the string is returned. Any block before the string may be given.
    """
    content = 0
    while True:
        if at - block >= _WHOLE_BLOCK and at + _WHOLE_BLOCK <= last:
            block = at
            stops = _stops(data, at)
        if at - block < _WHOLE_BLOCK:
            left = stops >> (at - block)
            if left == uint64(0):
                at = block + _WHOLE_BLOCK
                if at >= end:
                    return _BAD, content, block, stops
                continue
            at += _first_bit(left)
        if at >= end:
            return _BAD, content, block, stops
        byte = data[at]
        at += _ONE
        if byte == _QUOTE:
            return at, content, block, stops
        if byte >= 128:
            content |= _OTHERS
        elif byte == _BACKSLASH:
            if at >= end:
                return _BAD, content, block, stops
            content |= _ESCAPE
            byte = data[at]
            # A quote, a backslash, a slash, b, f, n, r or t; other escapes are doubtful.
            is_known = byte == _QUOTE or byte == _BACKSLASH or byte == 47 or byte == 98 or byte == 102
            if not (is_known or byte == 110 or byte == 114 or byte == 116):
                return _BAD, content, block, stops
            at += _ONE
        elif byte < 32:
            return _BAD, content, block, stops


@compiled(types.Tuple((uint64, boolean))(_bytes, uint64, uint64), is_inline=True)
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


@compiled(types.Tuple((uint64, int64, uint64, uint64))(_bytes, uint64, uint64, uint64, uint64, uint64), is_inline=True)
def _value_after_key(data, at, end, last, block, stops):
    """Return where the value of a member begins, which begins here with its key, and the rest as `_string_end` does."""
    if at >= end or data[at] != _QUOTE:
        return _BAD, 0, block, stops
    at, content, block, stops = _string_end(data, at + _ONE, end, last, block, stops)
    if at == _BAD:
        return _BAD, content, block, stops
    at = _skip_space(data, at, end)
    if at >= end or data[at] != _COLON:
        return _BAD, content, block, stops
    return _skip_space(data, at + _ONE, end), content, block, stops


@compiled(types.Tuple((uint64, int64))(_bytes, uint64, uint64, uint64))
def _value_end(data, at, end, last):
    """Return where a value ends, with everything inside of it, and what is in its strings."""
    depth = 0
    objects = uint64(0)
    content = more = 0
    block, stops = at - _WHOLE_BLOCK, uint64(0)
    while True:
        if at >= end:
            return _BAD, content
        byte = data[at]
        if byte == _OPEN or byte == _OPEN_LIST:
            is_object = byte == _OPEN
            at = _skip_space(data, at + _ONE, end)
            if at >= end:
                return _BAD, content
            if data[at] == (_CLOSE if is_object else _CLOSE_LIST):
                at += _ONE
            else:
                if depth == _DEPTH:
                    return _BAD, content
                depth += 1
                objects = (objects << _ONE) | uint64(1 if is_object else 0)
                if is_object:
                    at, more, block, stops = _value_after_key(data, at, end, last, block, stops)
                    content |= more
                    if at == _BAD:
                        return _BAD, content
                continue
        elif byte == _QUOTE:
            at, more, block, stops = _string_end(data, at + _ONE, end, last, block, stops)
            content |= more
        elif byte == _MINUS or _ZERO <= byte <= _NINE:
            at, _ = _number_end(data, at, end)
        else:
            at = _word_end(data, at, end)
        if at == _BAD:
            return _BAD, content
        while depth > 0:
            at = _skip_space(data, at, end)
            if at >= end:
                return _BAD, content
            is_object = (objects & _ONE) == _ONE
            if data[at] == _COMMA:
                at = _skip_space(data, at + _ONE, end)
                if is_object:
                    at, more, block, stops = _value_after_key(data, at, end, last, block, stops)
                    content |= more
                    if at == _BAD:
                        return _BAD, content
                break
            if data[at] != (_CLOSE if is_object else _CLOSE_LIST):
                return _BAD, content
            at += _ONE
            objects >>= _ONE
            depth -= 1
        if depth == 0:
            return at, content


@compiled(int64(_bytes, uint64, uint64, _bytes, LONG_POINTER, int64), is_inline=True)
def _key_number(data, at, end, keys, key_ends, count):
    """Return which of the keys this is; -1 for none."""
    first = uint64(0)
    for number in range(count):
        last = uint64(key_ends[number])
        if last - first == end - at:
            place = uint64(0)
            while place < end - at and data[at + place] == keys[first + place]:
                place += _ONE
            if place == end - at:
                return number
        first = last
    return -1


@compiled(int64(_bytes, uint64, uint64, uint64, _bytes, LONG_POINTER, int64, LONG_POINTER, LONG_POINTER, int64, int64))
def _find_in_text(data, at, end, last, keys, key_ends, count, places, sizes, row, rows):
    """Find the fields of one text, and return whether they are certain."""
    seen = uint64(0)
    content = more = 0
    block, stops = at - _WHOLE_BLOCK, uint64(0)
    at = _skip_space(data, at, end)
    if at >= end or data[at] != _OPEN:
        return _DOUBTFUL
    at = _skip_space(data, at + _ONE, end)
    if at < end and data[at] == _CLOSE:
        return _CERTAIN if _skip_space(data, at + _ONE, end) == end else _DOUBTFUL
    while True:
        if at >= end or data[at] != _QUOTE:
            return _DOUBTFUL
        key = at + _ONE
        at, more, block, stops = _string_end(data, key, end, last, block, stops)
        content |= more
        if at == _BAD or more & _ESCAPE:
            return _DOUBTFUL
        number = _key_number(data, key, at - _ONE, keys, key_ends, count)
        at = _skip_space(data, at, end)
        if at >= end or data[at] != _COLON:
            return _DOUBTFUL
        value = _skip_space(data, at + _ONE, end)
        if value >= end:
            return _DOUBTFUL
        byte = data[value]
        is_plain = True
        first = value
        if byte == _QUOTE:
            first = value + _ONE
            at, more, block, stops = _string_end(data, first, end, last, block, stops)
            content |= more
            is_plain = not more & _ESCAPE
        elif byte == _MINUS or _ZERO <= byte <= _NINE:
            at, is_plain = _number_end(data, value, end)
        elif byte == _OPEN or byte == _OPEN_LIST:
            at, more = _value_end(data, value, end, last)
            content |= more
            is_plain = False
        else:
            at = _word_end(data, value, end)
        if at == _BAD:
            return _DOUBTFUL
        if number >= 0:
            bit = _ONE << uint64(number)
            if (seen & bit) != uint64(0) or not is_plain:
                return _DOUBTFUL
            seen |= bit
            if byte != _NULL:
                places[number * rows + row] = int64(first)
                sizes[number * rows + row] = int64(at) - int64(first) - (1 if byte == _QUOTE else 0)
        at = _skip_space(data, at, end)
        if at >= end:
            return _DOUBTFUL
        if data[at] == _CLOSE:
            if _skip_space(data, at + _ONE, end) != end:
                return _DOUBTFUL
            return _CERTAIN_IF_TEXT if content & _OTHERS else _CERTAIN
        if data[at] != _COMMA:
            return _DOUBTFUL
        at = _skip_space(data, at + _ONE, end)


@compiled(types.void(READONLY_BYTES, _longs, _longs, READONLY_BYTES, _longs, _longs, _longs, uint8[::1]))
def _find_fields(data, text_at, text_size, keys, key_ends, places, sizes, certainty):
    """Find in each text where the fields of these keys are, with a size of -1 for null and for texts that are null or doubtful.

    The texts are parts of the data, not necessarily UTF-8. The places and sizes of a key are those of all texts, then come
    those of the next key.
    """
    places[:] = 0
    sizes[:] = -1
    start, last = pointer_to(data), uint64(len(data))
    key_start, first_end, count = pointer_to(keys), pointer_to(key_ends), len(key_ends)
    first_place, first_size, rows = pointer_to(places), pointer_to(sizes), len(text_at)
    for row in range(rows):
        found = _CERTAIN
        if text_size[row] >= 0:
            at = uint64(text_at[row])
            end = at + uint64(text_size[row])
            found = _find_in_text(
                start, at, end, last, key_start, first_end, count, first_place, first_size, row, rows
            )  # fmt: skip
        certainty[row] = found
        if found == _DOUBTFUL:
            for number in range(count):
                sizes[number * rows + row] = -1


@compiled(types.void(READONLY_BYTES, _longs, _longs, _longs, boolean[::1]))
def _read_integers(data, places, sizes, integers, are_known):
    """Read fields that are up to 18 digits, with or without a minus. Others are not known."""
    for row in range(len(places)):
        size = sizes[row]
        integers[row] = 0
        are_known[row] = False
        if size <= 0 or size > _MOST_DIGITS + 1:
            continue
        at = uint64(places[row])
        end = at + uint64(size)
        is_negative = data[at] == _MINUS
        if is_negative:
            at += _ONE
        if at == end or end - at > uint64(_MOST_DIGITS):
            continue
        number = int64(0)
        are_digits = True
        while at < end:
            digit = int64(data[at]) - _ZERO
            are_digits &= 0 <= digit <= 9
            number = number * 10 + digit
            at += _ONE
        if are_digits:
            integers[row] = -number if is_negative else number
            are_known[row] = True
