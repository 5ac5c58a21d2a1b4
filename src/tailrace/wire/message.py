"""The types and annotations that describe Kafka's messages, for the classes of `wire/messages/`.

A message class says for each field its type and the versions that have it. A field that a version does not have is skipped when
the message is written and has its default when it was read. So handlers see one class, whatever version the client speaks.

`message_codec.py` reads and writes messages by these descriptions.
"""

from enum import Enum
from types import NoneType, UnionType
from typing import Annotated, Any, NamedTuple, Union, get_args, get_origin, get_type_hints
from uuid import UUID

import msgspec

from tailrace.model.commit import Buffer

NO_UUID = UUID(int=0)


class KafkaMessage(msgspec.Struct, frozen=True, kw_only=True):
    """Base class of all messages and of the structs inside them."""


class FieldKind(Enum):
    """How a primitive is encoded."""

    BOOLEAN = "boolean"
    INT8 = "int8"
    INT16 = "int16"
    INT32 = "int32"
    INT64 = "int64"
    FLOAT64 = "float64"
    UUID = "uuid"
    STRING = "string"
    BYTES = "bytes"
    RECORDS = "records"


Boolean = Annotated[bool, FieldKind.BOOLEAN]
Int8 = Annotated[int, FieldKind.INT8]
Int16 = Annotated[int, FieldKind.INT16]
Int32 = Annotated[int, FieldKind.INT32]
Int64 = Annotated[int, FieldKind.INT64]
Float64 = Annotated[float, FieldKind.FLOAT64]
Uuid = Annotated[UUID, FieldKind.UUID]
String = Annotated[str, FieldKind.STRING]
Bytes = Annotated[bytes, FieldKind.BYTES]
Records = Annotated[Buffer, FieldKind.RECORDS]
"""Batches of records. Reading makes no copy, but a view of the source."""


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
    """The field is tagged, that is optional, and has this number."""

    number: int


class Api(NamedTuple):
    """A request and its response, and the versions for which they are described."""

    key: int
    name: str
    lowest: int
    highest: int
    flexible_since: int
    """The first version with compact lengths and tagged fields."""
    request: type[KafkaMessage]
    response: type[KafkaMessage]

    def is_flexible(self, version: int) -> bool:
        return version >= self.flexible_since


class MessageField(NamedTuple):
    """The description of a field, as its message class gives it."""

    name: str
    kind: FieldKind | type[KafkaMessage]
    is_array: bool
    since: int
    until: int
    nullable_since: int
    tag: int | None
    default: Any


_NEVER = 1 << 15


def versions_with(shape: type[KafkaMessage], name: str) -> range:
    """Return the versions in which the message has a field of this name."""
    for field in describe(shape):
        if field.name == name:
            return range(field.since, field.until + 1)
    return range(0)


def describe(shape: type[KafkaMessage]) -> tuple[MessageField, ...]:
    """Return the fields of a message class in their order on the wire."""
    hints = get_type_hints(shape, include_extras=True)
    defaults = {field.name: field.default for field in msgspec.structs.fields(shape)}
    return tuple(_describe_field(name, hint, defaults[name]) for name, hint in hints.items())


def _describe_field(name: str, hint: Any, default: Any) -> MessageField:
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
    return MessageField(
        name=name,
        kind=marks.get(FieldKind, inner),
        is_array=is_array,
        since=marks.get(Since, Since(0)).version,
        until=marks.get(Until, Until(_NEVER)).version,
        nullable_since=marks.get(NullableSince, NullableSince(_NEVER)).version,
        tag=marks[Tag].number if Tag in marks else None,
        default=default,
    )
