"""Reads Kafka's messages from bytes and writes them, for every version: one class of `wire/messages/` for each.

What a class and version needs is put together once, from the parts in `message_fields.py`.
"""

from struct import error as StructError
from typing import TypeVar

from tailrace.model.errors import MalformedMessageError
from tailrace.wire.message import Field, Kind, Message, describe
from tailrace.wire.message_fields import (
    Read,
    Source,
    Write,
    array_reader,
    array_writer,
    nullable_struct_reader,
    nullable_struct_writer,
    primitive_reader,
    primitive_writer,
    read_tags,
    write_tags,
)

M = TypeVar("M", bound=Message)


class Codec:
    """Reads and writes messages. What it needs for a class and version it makes once."""

    def __init__(self) -> None:
        self._fields: dict[type[Message], tuple[Field, ...]] = {}
        self._readers: dict[tuple[type[Message], int, bool], Read] = {}
        self._writers: dict[tuple[type[Message], int, bool], Write] = {}

    def read(self, shape: type[M], version: int, flexible: bool, source: Source) -> M:
        try:
            message: M = self._reader(shape, version, flexible)(source)
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

    def _fields_of(self, shape: type[Message], version: int) -> list[Field]:
        found = self._fields.get(shape)
        if found is None:
            found = self._fields[shape] = describe(shape)
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
                values |= read_tags(source, tagged)
            else:
                source.at += 1
            return shape(**values)

        return read_flexible

    def _field_reader(self, field: Field, version: int, flexible: bool) -> Read:
        nullable = version >= field.nullable_since
        if isinstance(field.kind, Kind):
            read = primitive_reader(field.kind, flexible, nullable and not field.is_array)
        else:
            read = self._reader(field.kind, version, flexible)
            if nullable and not field.is_array:
                read = nullable_struct_reader(read)
        return array_reader(read, flexible, nullable) if field.is_array else read

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
                    write_tags(out, message, tagged)
                else:
                    out.append(0)

        return write

    def _field_writer(self, field: Field, version: int, flexible: bool) -> Write:
        nullable = version >= field.nullable_since
        if isinstance(field.kind, Kind):
            write = primitive_writer(field.kind, flexible, nullable and not field.is_array)
        else:
            write = self._writer(field.kind, version, flexible)
            if nullable and not field.is_array:
                write = nullable_struct_writer(write)
        return array_writer(write, flexible, nullable) if field.is_array else write
