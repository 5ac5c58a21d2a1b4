"""Reads what requests carry: JSON bodies, query parameters and pages of lists. Errors say what is allowed."""

import re
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Annotated, TypeVar

import msgspec
from msgspec import Meta, inspect

from tailrace.http.problems import RequestRefusedError
from tailrace.model.errors import InvalidRequestError, LimitExceededError
from tailrace.model.suggestions import did_you_mean

DEFAULT_PAGE = 100
MAX_PAGE = 1_000
PageSize = Annotated[int, Meta(ge=1, le=MAX_PAGE)]
"""The bounds are for the OpenAPI document; `page` enforces them."""

B = TypeVar("B", bound=msgspec.Struct)
T = TypeVar("T")

_WRONG_CHOICE = re.compile(r"Invalid enum value .* - at `\$(?P<path>[^`]*)`")
_UNKNOWN_FIELD = re.compile(r"Object contains unknown field `.*?`(?: - at `\$(?P<path>[^`]*)`)?")
_STEP = re.compile(r"\.(?P<field>\w+)|\[[^]]*\]")


def read_body(body: bytes, shape: type[B]) -> B:
    """Decode a JSON body, or raise an error that says what is wrong with it."""
    try:
        body.decode()
        return msgspec.json.decode(body, type=shape)
    except UnicodeDecodeError as error:
        raise InvalidRequestError(f"the body is not UTF-8: {error.reason} at byte {error.start}") from error
    except msgspec.ValidationError as error:
        raise InvalidRequestError(f"invalid body: {error}{allowed_values_hint(shape, error)}") from error
    except msgspec.DecodeError as error:
        what = f"the body is not JSON: {error}" if body else "the body is empty; send a JSON object"
        raise InvalidRequestError(what) from error
    except RecursionError as error:
        raise InvalidRequestError("the body is nested too deeply") from error


def allowed_values_hint(shape: type, error: msgspec.ValidationError) -> str:
    """Return what msgspec's error leaves out: allowed values, as in `; it can be 'earliest' or 'latest'`, or known fields, as
    in `; it can have name, value`. Return an empty string for other errors."""
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
    """Yield the types that are allowed at a path of the body."""
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
            yield "an integer"
        case inspect.StructType():
            yield f"an object with {_fields(kind)}"


def _fields(kind: inspect.StructType) -> str:
    return ", ".join(field.encode_name for field in kind.fields)


def check_query(path: str, given: Iterable[str], known: Collection[str]) -> None:
    """Raise `RequestRefusedError` for a parameter that the endpoint does not have: a misspelled one would be ignored."""
    for name in given:
        if name not in known:
            hint = did_you_mean(name, known) or ";"
            takes = ", ".join(known) or "none"
            raise RequestRefusedError(400, f"{path} has no query parameter {name[:40]!r}{hint} it takes {takes}")


def page(items: Iterable[T], name: Callable[[T], str], after: str, limit: int) -> tuple[list[T], str | None]:
    """Return `limit` items after the one named `after`, and the `after` of the next page, or `None` for the last page.

    Items are ordered by name; an empty `after` starts at the first.
    """
    if not 1 <= limit <= MAX_PAGE:
        raise LimitExceededError(f"limit is {limit}; it must be 1 to {MAX_PAGE}")
    found: list[T] = []
    for item in items:
        if after and name(item) <= after:
            continue
        if len(found) == limit:
            return found, name(found[-1])
        found.append(item)
    return found, None
