"""What a body can be, for errors: msgspec says which value or field was wrong, and not which would be right."""

import re
from collections.abc import Iterator

import msgspec
from msgspec import inspect

_WRONG_CHOICE = re.compile(r"Invalid enum value .* - at `\$(?P<path>[^`]*)`")
_UNKNOWN_FIELD = re.compile(r"Object contains unknown field `.*?`(?: - at `\$(?P<path>[^`]*)`)?")
_STEP = re.compile(r"\.(?P<field>\w+)|\[[^]]*\]")


def choices_of(shape: type, error: msgspec.ValidationError) -> str:
    """`; it can be 'earliest' or 'latest'` where a value is none of some, `; it can have name, value` where a field is unknown,
    else nothing."""
    said = str(error)
    wrong = _WRONG_CHOICE.fullmatch(said)
    if wrong is not None:
        choices = [choice for kind in _kinds_at(inspect.type_info(shape), wrong["path"]) for choice in _choices(kind)]
        return f"; it can be {' or '.join(choices)}" if choices else ""
    unknown = _UNKNOWN_FIELD.fullmatch(said)
    if unknown is not None:
        kinds = _kinds_at(inspect.type_info(shape), unknown["path"] or "")
        return "".join(f"; it can have {_fields(kind)}" for kind in kinds if isinstance(kind, inspect.StructType))
    return ""


def _kinds_at(kind: inspect.Type, path: str) -> Iterator[inspect.Type]:
    """What can stand at this place of the body."""
    step = _STEP.match(path)
    match kind:
        case inspect.Metadata():
            yield from _kinds_at(kind.type, path)
        case inspect.UnionType():
            for one in kind.types:
                yield from _kinds_at(one, path)
        case _ if step is None:
            yield kind
        case inspect.StructType():
            for field in kind.fields:
                if field.encode_name == step["field"]:
                    yield from _kinds_at(field.type, path[step.end() :])
        case inspect.CollectionType():
            yield from _kinds_at(kind.item_type, path[step.end() :])


def _choices(kind: inspect.Type) -> Iterator[str]:
    match kind:
        case inspect.EnumType():
            yield from (repr(member.value) for member in kind.cls)
        case inspect.LiteralType():
            yield from map(repr, kind.values)
        case inspect.IntType():
            yield "a whole number"
        case inspect.StructType():
            yield f"an object with {_fields(kind)}"


def _fields(kind: inspect.StructType) -> str:
    return ", ".join(field.encode_name for field in kind.fields)
