"""What a body can be, for errors: msgspec says which value or field was wrong, and not which would be right."""

import re
from collections.abc import Iterator

import msgspec
from msgspec import inspect

_WRONG_CHOICE = re.compile(r"Invalid enum value .* - at `\$\.(\w+)")
_UNKNOWN_FIELD = re.compile(r"Object contains unknown field `.*?`(?: - at `\$(?P<path>[^`]*)`)?")
_STEP = re.compile(r"\.(?P<field>\w+)|\[[^]]*\]")


def choices_of(shape: type, error: msgspec.ValidationError) -> str:
    """`; it can be 'earliest' or 'latest'` where the error is about such a field of the body itself, and
    `; it can have name, value` where it is about a field that there is not; else nothing."""
    said = str(error)
    unknown = _UNKNOWN_FIELD.fullmatch(said)
    if unknown is not None:
        found = _fields_at(inspect.type_info(shape), unknown["path"] or "")
        return "".join(f"; it can have {', '.join(names)}" for names in found)
    wrong = _WRONG_CHOICE.match(said)
    types = {field.encode_name: field.type for field in msgspec.structs.fields(shape)}
    if wrong is None or wrong[1] not in types:
        return ""
    choices = list(_choices(inspect.type_info(types[wrong[1]])))
    return f"; it can be {' or '.join(choices)}" if choices else ""


def _fields_at(kind: inspect.Type, path: str) -> list[list[str]]:
    """The names of the fields of each object that there can be at this place."""
    match kind:
        case inspect.Metadata():
            return _fields_at(kind.type, path)
        case inspect.UnionType():
            return [names for one in kind.types for names in _fields_at(one, path)]
        case inspect.StructType() if not path:
            return [[field.encode_name for field in kind.fields]]
    step = _STEP.match(path)
    rest = path[step.end() :] if step is not None else ""
    match kind:
        case inspect.StructType() if step is not None:
            return [
                names for field in kind.fields if field.encode_name == step["field"] for names in _fields_at(field.type, rest)
            ]
        case inspect.ListType() | inspect.VarTupleType() | inspect.CollectionType() if step is not None:
            return _fields_at(kind.item_type, rest)
    return []


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
