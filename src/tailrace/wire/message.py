"""Kafka's messages as values: how a class of `wire/messages/` is read from bytes and written to them, for every version.

A message class says for each field its type and the versions that have it. A field that a version does not have is skipped when
it is written and has its default when it was read, so whoever handles a message sees one shape, whatever the client speaks.

Everything that comes from outside is checked before it costs memory: lengths and counts against the bytes that are left, all
elements of one message against a bound. What does not fit raises `MalformedMessageError`.
"""

from collections.abc import Callable, Mapping
from enum import Enum
from struct import Struct
from struct import error as StructError
from types import NoneType, UnionType
from typing import Annotated, Any, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints
from uuid import UUID

import msgspec

from tailrace.model.changes import Buffer
from tailrace.model.errors import MalformedMessageError

NO_UUID = UUID(int=0)
NO_LIMIT = 1 << 31


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """Base of all messages and of the structs inside them."""


M = TypeVar("M", bound=Message)


class Kind(Enum):
    """How a primitive stands on the wire."""

    BOOLEAN = "boolean"
    INT8 = "int8"
    INT16 = "int16"
    UINT16 = "uint16"
    INT32 = "int32"
    INT64 = "int64"
    FLOAT64 = "float64"
    UUID = "uuid"
    STRING = "string"
    BYTES = "bytes"
    RECORDS = "records"


Boolean = Annotated[bool, Kind.BOOLEAN]
Int8 = Annotated[int, Kind.INT8]
Int16 = Annotated[int, Kind.INT16]
Uint16 = Annotated[int, Kind.UINT16]
Int32 = Annotated[int, Kind.INT32]
Int64 = Annotated[int, Kind.INT64]
Float64 = Annotated[float, Kind.FLOAT64]
Uuid = Annotated[UUID, Kind.UUID]
String = Annotated[str, Kind.STRING]
Bytes = Annotated[bytes, Kind.BYTES]
Records = Annotated[Buffer, Kind.RECORDS]
"""Batches of records. They are not copied: what is read is a view of the source."""


class Since(NamedTuple):
    """The first version that has the field."""

    version: int


class Until(NamedTuple):
    """The last version that has the field."""

    version: int


class NullableSince(NamedTuple):
    """The first version in which the field may be null."""

    version: int


class Tag(NamedTuple):
    """The field is optional on the wire and goes by this number."""

    number: int


class Api(NamedTuple):
    """A request and its response, and the versions for which they are described."""

    key: int
    name: str
    lowest: int
    highest: int
    flexible_since: int
    """From this version on lengths are short and fields may be tagged."""
    request: type[Message]
    response: type[Message]

    def is_flexible(self, version: int) -> bool:
        return version >= self.flexible_since


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
Shortcut = Callable[[Source, int], Message | None]
"""Reads a message of a version faster, or leaves the source as it is and gives nothing."""


class Codec:
    """Reads and writes messages. What it needs for a class and version it makes once."""

    def __init__(self, shortcuts: Mapping[type[Message], Shortcut] | None = None) -> None:
        self._shortcuts = shortcuts or {}
        self._fields: dict[type[Message], tuple[_Field, ...]] = {}
        self._readers: dict[tuple[type[Message], int, bool], Read] = {}
        self._writers: dict[tuple[type[Message], int, bool], Write] = {}

    def read(self, shape: type[M], version: int, flexible: bool, source: Source) -> M:
        shortcut = self._shortcuts.get(shape)
        try:
            short: Any = shortcut(source, version) if shortcut is not None else None
            message: M = short if short is not None else self._reader(shape, version, flexible)(source)
        except (StructError, IndexError, UnicodeDecodeError) as error:
            raise MalformedMessageError(f"a {shape.__name__} of version {version} can't be read: {error}") from error
        return message

    def write(self, message: Message, version: int, flexible: bool, out: bytearray) -> None:
        self._writer(type(message), version, flexible)(out, message)

    def _reader(self, shape: type[Message], version: int, flexible: bool) -> Read:
        key = shape, version, flexible
        found = self._readers.get(key)
        if found is None:
            found = self._readers[key] = self._make_reader(shape, version, flexible)
        return found

    def _writer(self, shape: type[Message], version: int, flexible: bool) -> Write:
        key = shape, version, flexible
        found = self._writers.get(key)
        if found is None:
            found = self._writers[key] = self._make_writer(shape, version, flexible)
        return found

    def _fields_of(self, shape: type[Message], version: int) -> "list[_Field]":
        found = self._fields.get(shape)
        if found is None:
            found = self._fields[shape] = _describe(shape)
        return [field for field in found if field.since <= version <= field.until]

    def _make_reader(self, shape: type[Message], version: int, flexible: bool) -> Read:
        fields = self._fields_of(shape, version)
        plain = [(field.name, self._field_reader(field, version, flexible)) for field in fields if field.tag is None]
        if not flexible:
            return lambda source: shape(**{name: read(source) for name, read in plain})
        tagged = {
            field.tag: (field.name, self._field_reader(field, version, flexible)) for field in fields if field.tag is not None
        }

        def read_flexible(source: Source) -> Message:
            values = {name: read(source) for name, read in plain}
            if source.data[source.at]:
                values |= _read_tags(source, tagged)
            else:
                source.at += 1
            return shape(**values)

        return read_flexible

    def _field_reader(self, field: "_Field", version: int, flexible: bool) -> Read:
        nullable = version >= field.nullable_since
        if isinstance(field.kind, Kind):
            read = _primitive_reader(field.kind, flexible, nullable and not field.is_array)
        else:
            read = self._reader(field.kind, version, flexible)
            if nullable and not field.is_array:
                read = _nullable_struct_reader(read)
        return _array_reader(read, flexible, nullable) if field.is_array else read

    def _make_writer(self, shape: type[Message], version: int, flexible: bool) -> Write:
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

        def write(out: bytearray, message: Message) -> None:
            for name, write_field in plain:
                write_field(out, getattr(message, name))
            if flexible:
                if tagged:
                    _write_tags(out, message, tagged)
                else:
                    out.append(0)

        return write

    def _field_writer(self, field: "_Field", version: int, flexible: bool) -> Write:
        nullable = version >= field.nullable_since
        if isinstance(field.kind, Kind):
            write = _primitive_writer(field.kind, flexible, nullable and not field.is_array)
        else:
            write = self._writer(field.kind, version, flexible)
            if nullable and not field.is_array:
                write = _nullable_struct_writer(write)
        return _array_writer(write, flexible, nullable) if field.is_array else write


class _Field(NamedTuple):
    name: str
    kind: Kind | type[Message]
    is_array: bool
    since: int
    until: int
    nullable_since: int
    tag: int | None
    default: Any


_NEVER = 1 << 15


def versions_with(shape: type[Message], name: str) -> range:
    """The versions in which the message has a field of this name."""
    for field in _describe(shape):
        if field.name == name:
            return range(field.since, field.until + 1)
    return range(0)


def _describe(shape: type[Message]) -> tuple[_Field, ...]:
    hints = get_type_hints(shape, include_extras=True)
    defaults = {field.name: field.default for field in msgspec.structs.fields(shape)}
    return tuple(_describe_field(name, hint, defaults[name]) for name, hint in hints.items())


def _describe_field(name: str, hint: Any, default: Any) -> _Field:
    marks: dict[type, Any] = {}

    def unwrap(hint: Any) -> Any:
        if get_origin(hint) is Annotated:
            inner, *extras = get_args(hint)
            marks.update((type(extra), extra) for extra in extras)
            return unwrap(inner)
        if get_origin(hint) in (Union, UnionType):
            return unwrap(next(part for part in get_args(hint) if part is not NoneType))
        return hint

    inner = unwrap(hint)
    is_array = get_origin(inner) is tuple
    if is_array:
        inner = unwrap(get_args(inner)[0])
    return _Field(
        name=name,
        kind=marks.get(Kind, inner),
        is_array=is_array,
        since=marks.get(Since, Since(0)).version,
        until=marks.get(Until, Until(_NEVER)).version,
        nullable_since=marks.get(NullableSince, NullableSince(_NEVER)).version,
        tag=marks[Tag].number if Tag in marks else None,
        default=default,
    )


_FIXED = {
    Kind.BOOLEAN: Struct(">?"),
    Kind.INT8: Struct(">b"),
    Kind.INT16: Struct(">h"),
    Kind.UINT16: Struct(">H"),
    Kind.INT32: Struct(">i"),
    Kind.INT64: Struct(">q"),
    Kind.FLOAT64: Struct(">d"),
}
_INT16 = _FIXED[Kind.INT16]
_INT32 = _FIXED[Kind.INT32]
_UUID_BYTES = 16
_MAX_VARINT_SHIFT = 28


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


def _primitive_reader(kind: Kind, flexible: bool, nullable: bool) -> Read:
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


def _primitive_writer(kind: Kind, flexible: bool, nullable: bool) -> Write:
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


def _array_reader(read: Read, flexible: bool, nullable: bool) -> Read:
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


def _array_writer(write: Write, flexible: bool, nullable: bool) -> Write:
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


def _nullable_struct_reader(read: Read) -> Read:
    def read_nullable(source: Source) -> Any:
        (marker,) = _FIXED[Kind.INT8].unpack_from(source.data, source.at)
        source.at += 1
        return None if marker < 0 else read(source)

    return read_nullable


def _nullable_struct_writer(write: Write) -> Write:
    def write_nullable(out: bytearray, value: Any) -> None:
        if value is None:
            out.append(0xFF)
        else:
            out.append(1)
            write(out, value)

    return write_nullable


def _read_tags(source: Source, known: dict[int, tuple[str, Read]]) -> dict[str, Any]:
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
    _read_tags(source, {})


def _write_tags(out: bytearray, message: Message, tagged: list[tuple[int, str, Any, Write]]) -> None:
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
