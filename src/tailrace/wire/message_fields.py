"""How the fields of Kafka's messages stand on the wire: primitives, arrays, structs that may be null, tagged fields.

Each function that ends in `reader` or `writer` makes one for a field of a version; `message_codec.py` puts them together.

Everything that comes from outside is checked before it costs memory: lengths and counts against the bytes that are left, all
elements of one message against a bound. What does not fit raises `MalformedMessageError`.
"""

from collections.abc import Callable
from struct import Struct
from typing import Any
from uuid import UUID

from tailrace.model.commit import Buffer
from tailrace.model.errors import MalformedMessageError
from tailrace.wire.message import Kind, Message

NO_LIMIT = 1 << 31

_FIXED = {
    Kind.BOOLEAN: Struct(">?"),
    Kind.INT8: Struct(">b"),
    Kind.INT16: Struct(">h"),
    Kind.INT32: Struct(">i"),
    Kind.INT64: Struct(">q"),
}
_INT16 = _FIXED[Kind.INT16]
_INT32 = _FIXED[Kind.INT32]
_UUID_BYTES = 16
_MAX_VARINT_SHIFT = 28


class Source:
    """Bytes that are being read."""

    __slots__ = ("at", "data", "end", "items_left")

    def __init__(self, data: Buffer, at: int = 0, max_items: int = NO_LIMIT) -> None:
        self.data = data
        self.at = at
        self.end = len(data)
        self.items_left = max_items
        """Elements of arrays that may still come."""


Read = Callable[[Source], Any]
Write = Callable[[bytearray, Any], None]


def read_unsigned_varint(source: Source) -> int:
    data = source.data
    at = source.at
    value = data[at]
    at += 1
    if value > 0x7F:
        value &= 0x7F
        shift = 7
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
            if shift > _MAX_VARINT_SHIFT:
                raise MalformedMessageError("a length has more than 5 bytes")
    source.at = at
    return value


def write_unsigned_varint(out: bytearray, value: int) -> None:
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def _take(source: Source, size: int) -> Buffer:
    at = source.at
    if size < 0 or size > source.end - at:
        raise MalformedMessageError(f"a field has {size} bytes, and {source.end - at} are left")
    source.at = at + size
    return source.data[at : at + size]


def _read_length(source: Source, fixed: Struct) -> int:
    (length,) = fixed.unpack_from(source.data, source.at)
    source.at += fixed.size
    return int(length)


def primitive_reader(kind: Kind, flexible: bool, nullable: bool) -> Read:
    fixed = _FIXED.get(kind)
    if fixed is not None:
        size = fixed.size
        unpack_from = fixed.unpack_from

        def read_fixed(source: Source) -> Any:
            (value,) = unpack_from(source.data, source.at)
            source.at += size
            return value

        return read_fixed
    if kind is Kind.UUID:
        return lambda source: UUID(bytes=bytes(_take(source, _UUID_BYTES)))
    length_field = _INT16 if kind is Kind.STRING else _INT32
    make = _MAKE[kind]

    def read_sized(source: Source) -> Any:
        length = read_unsigned_varint(source) - 1 if flexible else _read_length(source, length_field)
        if length == -1:
            if nullable:
                return None
            raise MalformedMessageError("a field is null that can't be")
        return make(_take(source, length))

    return read_sized


def _decode(data: Buffer) -> str:
    return str(data, "utf-8")


def _as_it_is(data: Buffer) -> Buffer:
    return data


_MAKE: dict[Kind, Callable[[Buffer], Any]] = {Kind.STRING: _decode, Kind.BYTES: bytes, Kind.RECORDS: _as_it_is}


def primitive_writer(kind: Kind, flexible: bool, nullable: bool) -> Write:
    fixed = _FIXED.get(kind)
    if fixed is not None:
        pack = fixed.pack

        def write_fixed(out: bytearray, value: Any) -> None:
            out += pack(value)

        return write_fixed
    if kind is Kind.UUID:
        return lambda out, value: out.extend(value.bytes)
    length_field = _INT16 if kind is Kind.STRING else _INT32

    def write_sized(out: bytearray, value: Any) -> None:
        if value is None:
            if not nullable:
                raise ValueError("null in a field that can't be null in this version")
            out += b"\0" if flexible else length_field.pack(-1)
            return
        data = value.encode() if kind is Kind.STRING else value
        if flexible:
            write_unsigned_varint(out, len(data) + 1)
        else:
            out += length_field.pack(len(data))
        out += data

    return write_sized


def array_reader(read: Read, flexible: bool, nullable: bool) -> Read:
    def read_array(source: Source) -> Any:
        count = read_unsigned_varint(source) - 1 if flexible else _read_length(source, _INT32)
        if count == -1 and nullable:
            return None
        # No element is shorter than a byte, so more elements than bytes can only be an attempt to make us allocate.
        if count < 0 or count > source.end - source.at:
            raise MalformedMessageError(f"an array counts {count} elements, and {source.end - source.at} bytes are left")
        source.items_left -= count
        if source.items_left < 0:
            raise MalformedMessageError("the message has more elements than request_items allows")
        return tuple([read(source) for _ in range(count)])

    return read_array


def array_writer(write: Write, flexible: bool, nullable: bool) -> Write:
    def write_array(out: bytearray, items: Any) -> None:
        if items is None:
            if not nullable:
                raise ValueError("null in an array that can't be null in this version")
            out += b"\0" if flexible else _INT32.pack(-1)
            return
        if flexible:
            write_unsigned_varint(out, len(items) + 1)
        else:
            out += _INT32.pack(len(items))
        for item in items:
            write(out, item)

    return write_array


def nullable_struct_reader(read: Read) -> Read:
    def read_nullable(source: Source) -> Any:
        (marker,) = _FIXED[Kind.INT8].unpack_from(source.data, source.at)
        source.at += 1
        return None if marker < 0 else read(source)

    return read_nullable


def nullable_struct_writer(write: Write) -> Write:
    def write_nullable(out: bytearray, value: Any) -> None:
        if value is None:
            out.append(0xFF)
        else:
            out.append(1)
            write(out, value)

    return write_nullable


def read_tags(source: Source, known: dict[int, tuple[str, Read]]) -> dict[str, Any]:
    values = {}
    for _ in range(read_unsigned_varint(source)):
        tag = read_unsigned_varint(source)
        size = read_unsigned_varint(source)
        if size > source.end - source.at:
            raise MalformedMessageError(f"a tagged field has {size} bytes, and {source.end - source.at} are left")
        end = source.at + size
        field = known.get(tag)
        if field is not None:
            values[field[0]] = field[1](source)
            if source.at != end:
                raise MalformedMessageError(f"the tagged field {tag} does not have the {size} bytes that it claims")
        source.at = end
    return values


def skip_tags(source: Source) -> None:
    """Tagged fields that are of no interest."""
    read_tags(source, {})


def write_tags(out: bytearray, message: Message, tagged: list[tuple[int, str, Any, Write]]) -> None:
    written = 0
    fields = bytearray()
    for tag, name, default, write in tagged:
        value = getattr(message, name)
        if value != default:
            written += 1
            content = bytearray()
            write(content, value)
            write_unsigned_varint(fields, tag)
            write_unsigned_varint(fields, len(content))
            fields += content
    write_unsigned_varint(out, written)
    out += fields
