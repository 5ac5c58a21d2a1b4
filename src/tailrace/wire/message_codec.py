"""Reads and writes Kafka's messages: each class of `wire/messages/`, in every version.

`MessageCodec` puts together, once for each class and version, readers and writers of fields: primitives, arrays, structs that
may be null, and tagged fields. Each function whose name ends in `reader` or `writer` returns one for a field of a version.

Everything that comes from outside is checked before it costs memory: lengths and counts against the bytes that are left, and
all elements of one message against a bound. What does not fit raises `MalformedMessageError`.
"""

from collections.abc import Callable
from struct import Struct
from struct import error as StructError
from typing import Any, TypeVar
from uuid import UUID

from tailrace.model.commit import Buffer
from tailrace.model.errors import MalformedMessageError
from tailrace.wire.message import FieldKind, KafkaMessage, MessageField, describe
from tailrace.wire.varints import write_unsigned_varint

NO_LIMIT = 1 << 31

_FIXED = {
    FieldKind.BOOLEAN: Struct(">?"),
    FieldKind.INT8: Struct(">b"),
    FieldKind.INT16: Struct(">h"),
    FieldKind.INT32: Struct(">i"),
    FieldKind.INT64: Struct(">q"),
    FieldKind.FLOAT64: Struct(">d"),
}
_INT16 = _FIXED[FieldKind.INT16]
_INT32 = _FIXED[FieldKind.INT32]
_UUID_BYTES = 16
_MAX_VARINT_SHIFT = 28


class MessageSource:
    """The bytes of a message that is being read, and the position in them."""

    __slots__ = ("at", "data", "end", "items_left")

    def __init__(self, data: Buffer, at: int = 0, max_items: int = NO_LIMIT) -> None:
        self.data = data
        self.at = at
        self.end = len(data)
        self.items_left = max_items
        """How many more elements of arrays the message may have."""


ReadField = Callable[[MessageSource], Any]
WriteField = Callable[[bytearray, Any], None]

M = TypeVar("M", bound=KafkaMessage)


class MessageCodec:
    """Reads and writes messages. Readers and writers of a class and version are made once and kept."""

    def __init__(self) -> None:
        self._fields: dict[type[KafkaMessage], tuple[MessageField, ...]] = {}
        self._readers: dict[tuple[type[KafkaMessage], int, bool], ReadField] = {}
        self._writers: dict[tuple[type[KafkaMessage], int, bool], WriteField] = {}

    def read(self, shape: type[M], version: int, flexible: bool, source: MessageSource) -> M:
        try:
            message: M = self._reader(shape, version, flexible)(source)
        except (StructError, IndexError, UnicodeDecodeError) as error:
            raise MalformedMessageError(f"a {shape.__name__} of version {version} can't be read: {error}") from error
        return message

    def write(self, message: KafkaMessage, version: int, flexible: bool, out: bytearray) -> None:
        self._writer(type(message), version, flexible)(out, message)

    def _reader(self, shape: type[KafkaMessage], version: int, flexible: bool) -> ReadField:
        key = shape, version, flexible
        found = self._readers.get(key)
        if found is None:
            found = self._readers[key] = self._make_reader(shape, version, flexible)
        return found

    def _writer(self, shape: type[KafkaMessage], version: int, flexible: bool) -> WriteField:
        key = shape, version, flexible
        found = self._writers.get(key)
        if found is None:
            found = self._writers[key] = self._make_writer(shape, version, flexible)
        return found

    def _fields_of(self, shape: type[KafkaMessage], version: int) -> list[MessageField]:
        found = self._fields.get(shape)
        if found is None:
            found = self._fields[shape] = describe(shape)
        return [field for field in found if field.since <= version <= field.until]

    def _make_reader(self, shape: type[KafkaMessage], version: int, flexible: bool) -> ReadField:
        fields = self._fields_of(shape, version)
        plain = [(field.name, self._field_reader(field, version, flexible)) for field in fields if field.tag is None]
        if not flexible:
            return lambda source: shape(**{name: read(source) for name, read in plain})
        tagged = {
            field.tag: (field.name, self._field_reader(field, version, flexible)) for field in fields if field.tag is not None
        }

        def read_flexible(source: MessageSource) -> KafkaMessage:
            values = {name: read(source) for name, read in plain}
            if source.data[source.at]:
                values |= read_tags(source, tagged)
            else:
                source.at += 1
            return shape(**values)

        return read_flexible

    def _field_reader(self, field: MessageField, version: int, flexible: bool) -> ReadField:
        nullable = version >= field.nullable_since
        if isinstance(field.kind, FieldKind):
            read = primitive_reader(field.kind, flexible, nullable and not field.is_array)
        else:
            read = self._reader(field.kind, version, flexible)
            if nullable and not field.is_array:
                read = nullable_struct_reader(read)
        return array_reader(read, flexible, nullable) if field.is_array else read

    def _make_writer(self, shape: type[KafkaMessage], version: int, flexible: bool) -> WriteField:
        fields = self._fields_of(shape, version)
        plain = [(field.name, self._field_writer(field, version, flexible)) for field in fields if field.tag is None]
        tagged = sorted(
            (
                (field.tag, field.name, field.default, self._field_writer(field, version, flexible))
                for field in fields
                if field.tag is not None
            ),
            key=lambda entry: entry[0],
        )

        def write(out: bytearray, message: KafkaMessage) -> None:
            for name, write_field in plain:
                write_field(out, getattr(message, name))
            if flexible:
                if tagged:
                    write_tags(out, message, tagged)
                else:
                    out.append(0)

        return write

    def _field_writer(self, field: MessageField, version: int, flexible: bool) -> WriteField:
        nullable = version >= field.nullable_since
        if isinstance(field.kind, FieldKind):
            write = primitive_writer(field.kind, flexible, nullable and not field.is_array)
        else:
            write = self._writer(field.kind, version, flexible)
            if nullable and not field.is_array:
                write = nullable_struct_writer(write)
        return array_writer(write, flexible, nullable) if field.is_array else write


def read_unsigned_varint(source: MessageSource) -> int:
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


def _take(source: MessageSource, size: int) -> Buffer:
    at = source.at
    if size < 0 or size > source.end - at:
        raise MalformedMessageError(f"a field has {size} bytes, and {source.end - at} are left")
    source.at = at + size
    return source.data[at : at + size]


def _read_length(source: MessageSource, fixed: Struct) -> int:
    (length,) = fixed.unpack_from(source.data, source.at)
    source.at += fixed.size
    return int(length)


def primitive_reader(kind: FieldKind, flexible: bool, nullable: bool) -> ReadField:
    fixed = _FIXED.get(kind)
    if fixed is not None:
        size = fixed.size
        unpack_from = fixed.unpack_from

        def read_fixed(source: MessageSource) -> Any:
            (value,) = unpack_from(source.data, source.at)
            source.at += size
            return value

        return read_fixed
    if kind is FieldKind.UUID:
        return lambda source: UUID(bytes=bytes(_take(source, _UUID_BYTES)))
    length_field = _INT16 if kind is FieldKind.STRING else _INT32
    make = _MAKE[kind]

    def read_sized(source: MessageSource) -> Any:
        length = read_unsigned_varint(source) - 1 if flexible else _read_length(source, length_field)
        if length == -1:
            if nullable:
                return None
            raise MalformedMessageError("a field is null that must not be")
        return make(_take(source, length))

    return read_sized


def _decode(data: Buffer) -> str:
    return str(data, "utf-8")


def _view(data: Buffer) -> Buffer:
    return data


_MAKE: dict[FieldKind, Callable[[Buffer], Any]] = {
    FieldKind.STRING: _decode,
    FieldKind.BYTES: bytes,
    FieldKind.RECORDS: _view,
}


def primitive_writer(kind: FieldKind, flexible: bool, nullable: bool) -> WriteField:
    fixed = _FIXED.get(kind)
    if fixed is not None:
        pack = fixed.pack

        def write_fixed(out: bytearray, value: Any) -> None:
            out += pack(value)

        return write_fixed
    if kind is FieldKind.UUID:
        return lambda out, value: out.extend(value.bytes)
    length_field = _INT16 if kind is FieldKind.STRING else _INT32

    def write_sized(out: bytearray, value: Any) -> None:
        if value is None:
            if not nullable:
                raise ValueError("null in a field that can't be null in this version")
            out += b"\0" if flexible else length_field.pack(-1)
            return
        data = value.encode() if kind is FieldKind.STRING else value
        if flexible:
            write_unsigned_varint(out, len(data) + 1)
        else:
            out += length_field.pack(len(data))
        out += data

    return write_sized


def array_reader(read: ReadField, flexible: bool, nullable: bool) -> ReadField:
    def read_array(source: MessageSource) -> Any:
        count = read_unsigned_varint(source) - 1 if flexible else _read_length(source, _INT32)
        if count == -1 and nullable:
            return None
        # No element is shorter than a byte, so a count above the bytes left is an attempt to make the server allocate.
        if count < 0 or count > source.end - source.at:
            raise MalformedMessageError(f"an array counts {count} elements, and {source.end - source.at} bytes are left")
        source.items_left -= count
        if source.items_left < 0:
            raise MalformedMessageError("the message has more elements than request_items allows")
        return tuple([read(source) for _ in range(count)])

    return read_array


def array_writer(write: WriteField, flexible: bool, nullable: bool) -> WriteField:
    def write_array(out: bytearray, items: Any) -> None:
        if items is None:
            if not nullable:
                raise ValueError("null in an array that can't be null in this version")
            out += b"\0" if flexible else _INT32.pack(-1)
            return
        write_count(out, len(items), flexible)
        for item in items:
            write(out, item)

    return write_array


def nullable_struct_reader(read: ReadField) -> ReadField:
    def read_nullable(source: MessageSource) -> Any:
        (marker,) = _FIXED[FieldKind.INT8].unpack_from(source.data, source.at)
        source.at += 1
        return None if marker < 0 else read(source)

    return read_nullable


def nullable_struct_writer(write: WriteField) -> WriteField:
    def write_nullable(out: bytearray, value: Any) -> None:
        if value is None:
            out.append(0xFF)
        else:
            out.append(1)
            write(out, value)

    return write_nullable


def read_tags(source: MessageSource, known: dict[int, tuple[str, ReadField]]) -> dict[str, Any]:
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
                raise MalformedMessageError(f"the tagged field {tag} does not have the {size} bytes that it declares")
        source.at = end
    return values


def skip_tags(source: MessageSource) -> None:
    """Skip the tagged fields."""
    read_tags(source, {})


def write_count(out: bytearray, count: int, flexible: bool) -> None:
    """Write the number of elements of an array."""
    if flexible:
        write_unsigned_varint(out, count + 1)
    else:
        out += _INT32.pack(count)


def write_string(out: bytearray, text: str, flexible: bool) -> None:
    data = text.encode()
    if flexible:
        write_unsigned_varint(out, len(data) + 1)
    else:
        out += _INT16.pack(len(data))
    out += data


def write_tags(out: bytearray, message: KafkaMessage, tagged: list[tuple[int, str, Any, WriteField]]) -> None:
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
