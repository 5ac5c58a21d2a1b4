"""What an engine answered, in values that can be compared, and the verdict on two answers.

`POSTGRES_TYPES` is the only place that says which type of Tailrace stands for a type of PostgreSQL.
"""

import json
import math
from collections.abc import Sequence
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any, Literal, NamedTuple
from uuid import UUID

POSTGRES_TYPES = {
    "bool": "boolean",
    "int2": "smallint",
    "int4": "integer",
    "int8": "bigint",
    "float8": "double",
    "float4": "real",
    "numeric": "decimal",
    "text": "text",
    "varchar": "text",
    "bpchar": "text",
    "name": "text",
    "unknown": "text",
    "regtype": "text",
    "bytea": "bytes",
    "date": "date",
    "time": "time",
    "timestamp": "timestamp",
    "timestamptz": "timestamp",
    "interval": "interval",
    "uuid": "uuid",
    "json": "json",
    "jsonb": "json",
    "record": "record",
    "void": "void",
}
"""Tailrace's names of PostgreSQL's types. `timestamp` has a zone in Tailrace: UTC."""

_NUMBERS = ("smallint", "integer", "bigint", "decimal", "double", "real")

_NOT_SUPPORTED = "0A"
"""The class of every refusal, which may come before the error that PostgreSQL finds."""

Aspect = Literal["value", "type", "name", "order", "scale", "answered", "crash", "sqlstate"]
Outcome = Literal["equal", "refused", "both fail", "DIFFERENT"]


class AnswerColumn(NamedTuple):
    name: str
    type: str


class Answer(NamedTuple):
    columns: Sequence[AnswerColumn]
    rows: Sequence[Sequence[Any]]


class Failure(NamedTuple):
    sqlstate: str | None
    message: str
    is_crash: bool = False
    """Whether it is an exception that the engine did not mean to raise."""


class Verdict(NamedTuple):
    outcome: Outcome
    aspects: tuple[Aspect, ...] = ()
    expected: str = ""
    found: str = ""
    types: tuple[str, ...] = ()
    """The types that differ, as in `integer is bigint`."""

    def __str__(self) -> str:
        return f"{self.outcome} ({', '.join(self.aspects)})" if self.aspects else self.outcome


EQUAL = Verdict("equal")


def judged(expected: Answer | Failure, found: Answer | Failure, *, ordered: bool, names: bool) -> Verdict:
    """Return the verdict on what Tailrace found where PostgreSQL's answer is expected."""
    if isinstance(found, Failure):
        if found.is_crash:
            return Verdict("DIFFERENT", ("crash",), shown(expected), shown(found))
        if isinstance(expected, Answer):
            if found.sqlstate and not found.sqlstate.startswith(_NOT_SUPPORTED):
                return Verdict("DIFFERENT", ("sqlstate",), shown(expected), shown(found))
            return Verdict("refused", (), shown(expected), shown(found))
        has_other_class = (
            found.sqlstate and expected.sqlstate and found.sqlstate[:2] not in (expected.sqlstate[:2], _NOT_SUPPORTED)
        )
        if has_other_class:
            return Verdict("DIFFERENT", ("sqlstate",), shown(expected), shown(found))
        return Verdict("both fail", (), shown(expected), shown(found))
    if isinstance(expected, Failure):
        return Verdict("DIFFERENT", ("answered",), shown(expected), shown(found))
    aspects = _differences(expected, found, ordered=ordered, names=names)
    if not aspects:
        return EQUAL
    pairs = {(one.type, two.type) for one, two in zip(expected.columns, found.columns, strict=False) if one.type != two.type}
    types = tuple(f"{one} is {two}" for one, two in sorted(pairs))
    return Verdict("DIFFERENT", aspects, *_shown_pair(expected, found), types)


def worst(first: Verdict, second: Verdict) -> Verdict:
    """Return the verdict on a case that was asked twice."""
    order: Sequence[Outcome] = ("DIFFERENT", "refused", "equal", "both fail")
    return min(first, second, key=lambda verdict: order.index(verdict.outcome))


def _differences(expected: Answer, found: Answer, *, ordered: bool, names: bool) -> tuple[Aspect, ...]:
    if len(expected.columns) != len(found.columns) or len(expected.rows) != len(found.rows):
        return ("value",)
    aspects: set[Aspect] = set()
    if names and [column.name for column in expected.columns] != [column.name for column in found.columns]:
        aspects.add("name")
    types = [column.type for column in expected.columns]
    if types != [column.type for column in found.columns]:
        aspects.add("type")
    aspects |= _row_differences(expected, found, ordered=ordered)
    if "value" in aspects and ordered and not _row_differences(expected, found, ordered=False) & {"value"}:
        aspects = (aspects - {"value"}) | {"order"}
    return tuple(sorted(aspects))


def _row_differences(expected: Answer, found: Answer, *, ordered: bool) -> set[Aspect]:
    aspects: set[Aspect] = set()
    wanted, given = expected.rows, found.rows
    if not ordered:
        wanted, given = sorted(wanted, key=_sort_key), sorted(given, key=_sort_key)
    for left, right in zip(wanted, given, strict=True):
        for column, other, one, two in zip(expected.columns, found.columns, left, right, strict=True):
            aspect = _value_difference(column.type, other.type, one, two)
            if aspect is not None:
                aspects.add(aspect)
    return aspects


def _value_difference(expected_type: str, found_type: str, expected: Any, found: Any) -> Aspect | None:
    if expected is None or found is None:
        return None if expected is found else "value"
    if expected_type in _NUMBERS and found_type in _NUMBERS:
        return _number_difference(expected, found)
    if isinstance(expected, list) and isinstance(found, list) and expected_type.endswith("[]"):
        inner = [
            _value_difference(expected_type.removesuffix("[]"), found_type.removesuffix("[]"), one, two)
            for one, two in zip(expected, found, strict=False)
        ]
        if len(expected) != len(found):
            return "value"
        return next((aspect for aspect in inner if aspect is not None), None)
    if expected_type == "json":
        return None if _json_equal(expected, found) else "value"
    return None if type(expected) is type(found) and expected == found else "value"


def _number_difference(expected: Any, found: Any) -> Aspect | None:
    """Numbers of two types are equal where the wider one is; two decimals must have the same digits behind the point."""
    if isinstance(expected, bool) or isinstance(found, bool) or not isinstance(found, int | float | Decimal):
        return "value"
    if isinstance(expected, float) or isinstance(found, float):
        return None if _float_text(float(expected)) == _float_text(float(found)) else "value"
    if expected != found and not (expected != expected and found != found):
        return "value"
    if isinstance(expected, Decimal) and isinstance(found, Decimal) and str(expected) != str(found):
        return "scale"
    return None


def _float_text(value: float) -> str:
    return "nan" if math.isnan(value) else repr(value)


def _json_equal(one: Any, two: Any) -> bool:
    if isinstance(one, dict) and isinstance(two, dict):
        return one.keys() == two.keys() and all(_json_equal(one[name], two[name]) for name in one)
    if isinstance(one, list) and isinstance(two, list):
        return len(one) == len(two) and all(map(_json_equal, one, two))
    if isinstance(one, bool) or isinstance(two, bool):
        return one is two
    return bool(one == two)


def _sort_key(row: Sequence[Any]) -> list[tuple[str, Any]]:
    return [_value_key(value) for value in row]


def _value_key(value: Any) -> tuple[str, Any]:
    if value is None:
        return "0", 0
    if isinstance(value, int | float | Decimal) and not isinstance(value, bool):
        return ("1", float(value)) if not math.isnan(value) else ("1n", 0)
    return "2", repr(value)


def comparable(value: Any) -> Any:
    """Return a value of Tailrace's or Spark's answer in the form in which PostgreSQL's are read."""
    match value:
        case datetime():
            if value.tzinfo is not None:
                value = value.astimezone(UTC).replace(tzinfo=None)
            text = value.isoformat(" ")
            return text.rstrip("0") if value.microsecond else text
        case time():
            return value.isoformat().rstrip("0") if value.microsecond else value.isoformat()
        case date() | UUID():
            return str(value)
        case memoryview() | bytearray():
            return bytes(value)
        case Decimal():
            return value if value.is_nan() or value.is_infinite() else Decimal(format(value, "f"))
        case list() | tuple():
            return [comparable(part) for part in value]
        case dict():
            return {name: comparable(part) for name, part in value.items()}
    return value


def shown(answer: Answer | Failure) -> str:
    if isinstance(answer, Failure):
        return f"{answer.sqlstate or 'error'}: {' '.join(answer.message.split())[:160]}"
    types = ", ".join(f"{column.name} {column.type}" for column in answer.columns)
    rows = "; ".join(", ".join(map(_shown_value, row)) for row in answer.rows[:4])
    return f"[{types}] {rows}{' …' if len(answer.rows) > 4 else ''}"[:240]


def _shown_pair(expected: Answer, found: Answer) -> tuple[str, str]:
    """Return both answers, from the first row in which they differ."""
    at = 0
    for at, (left, right) in enumerate(zip(expected.rows, found.rows, strict=False)):  # noqa: B007
        if list(map(_shown_value, left)) != list(map(_shown_value, right)):
            break
    else:
        at = 0
    return shown(Answer(expected.columns, expected.rows[at:])), shown(Answer(found.columns, found.rows[at:]))


def _shown_value(value: Any) -> str:
    if isinstance(value, dict | list):
        try:
            return json.dumps(value, ensure_ascii=False, default=str)
        except (TypeError, ValueError):
            return repr(value)
    if isinstance(value, str | bytes | bool) or value is None:
        return {None: "NULL", True: "true", False: "false"}.get(value, repr(value))  # type: ignore[arg-type]
    return str(value)
