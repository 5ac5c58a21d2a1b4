"""What a field of a body can be, for errors: msgspec says which value was wrong, and not which would be right."""

import re
from collections.abc import Iterator

import msgspec
from msgspec import inspect

_WRONG_CHOICE = re.compile(r"Invalid enum value .* - at `\$\.(\w+)")


def choices_of(shape: type, error: msgspec.ValidationError) -> str:
    """`; it can be 'earliest' or 'latest'` where the error is about such a field of the body itself, else nothing."""
    wrong = _WRONG_CHOICE.match(str(error))
    types = {field.encode_name: field.type for field in msgspec.structs.fields(shape)}
    if wrong is None or wrong[1] not in types:
        return ""
    choices = list(_choices(inspect.type_info(types[wrong[1]])))
    return f"; it can be {' or '.join(choices)}" if choices else ""


def _choices(kind: inspect.Type) -> Iterator[str]:
    match kind:
        case inspect.EnumType():
            yield from (repr(member.value) for member in kind.cls)
        case inspect.LiteralType():
            yield from map(repr, kind.values)
        case inspect.ListType():
            yield from _choices(kind.item_type)
        case inspect.UnionType():
            for one in kind.types:
                yield from _choices(one)
        case inspect.IntType():
            yield "a whole number"
        case inspect.StructType():
            yield "an object with " + ", ".join(field.encode_name for field in kind.fields)
        case inspect.Metadata():
            yield from _choices(kind.type)
