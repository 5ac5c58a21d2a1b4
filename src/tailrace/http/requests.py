"""What a body can be, for errors: msgspec says which value or field was wrong, and not which would be right."""

import re
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Annotated, TypeVar

import msgspec
from msgspec import Meta, inspect

from tailrace.http.problems import RequestRefusedError
from tailrace.model.errors import InvalidRequestError, LimitExceededError
from tailrace.model.suggestions import did_you_mean

_WRONG_CHOICE = re.compile(r"Invalid enum value .* - at `\$(?P<path>[^`]*)`")
_UNKNOWN_FIELD = re.compile(r"Object contains unknown field `.*?`(?: - at `\$(?P<path>[^`]*)`)?")
_STEP = re.compile(r"\.(?P<field>\w+)|\[[^]]*\]")


def allowed_values_hint(shape: type, error: msgspec.ValidationError) -> str:
    """`; it can be 'earliest' or 'latest'` where a value is none of some, `; it can have name, value` where a field is unknown,
    else nothing."""
    said = str(error)
    wrong = _WRONG_CHOICE.fullmatch(said)
    if wrong is not None:
        choices = [choice for kind in _kinds_at(inspect.type_info(shape), wrong["path"]) for choice in _allowed_values(kind)]
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


def _allowed_values(kind: inspect.Type) -> Iterator[str]:
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


def refuse_unknown(path: str, given: Iterable[str], known: Collection[str]) -> None:
    """Raises `RequestRefusedError` with the one that was probably meant, and with those that there are."""
    for name in given:
        if name not in known:
            hint = did_you_mean(name, known) or ";"
            takes = ", ".join(known) or "none"
            raise RequestRefusedError(400, f"{path} has no query parameter {name[:40]!r}{hint} it takes {takes}")


DEFAULT_PAGE = 100
LARGEST_PAGE = 1_000
PageSize = Annotated[int, Meta(ge=1, le=LARGEST_PAGE)]
"""The bounds are for the document; `page` holds callers to them."""

T = TypeVar("T")


def page(items: Iterable[T], name: Callable[[T], str], after: str, limit: int) -> tuple[list[T], str | None]:
    """The page, and what to ask for as `after` to get the next one; `None` after the last. Items come
    ordered by name; an empty `after` is before them all."""
    if not 1 <= limit <= LARGEST_PAGE:
        raise LimitExceededError(f"{limit} items were asked for; a page has 1 to {LARGEST_PAGE}")
    found: list[T] = []
    for item in items:
        if after and name(item) <= after:
            continue
        if len(found) == limit:
            return found, name(found[-1])
        found.append(item)
    return found, None


_Body = TypeVar("_Body", bound=msgspec.Struct)


def read_body(body: bytes, shape: type[_Body]) -> _Body:
    try:
        body.decode()
        return msgspec.json.decode(body, type=shape)
    except UnicodeDecodeError as error:
        raise InvalidRequestError(f"the body is not UTF-8: {error.reason} at byte {error.start}") from error
    except msgspec.ValidationError as error:
        raise InvalidRequestError(f"the body does not fit: {error}{allowed_values_hint(shape, error)}") from error
    except msgspec.DecodeError as error:
        raise InvalidRequestError(f"the body is not JSON: {error}") from error
    except RecursionError as error:
        raise InvalidRequestError("the body is nested too deeply") from error
