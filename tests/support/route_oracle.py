"""What a checked expression of a route means, written out in Python: what engines answer is compared with this.

A value is what Python has for it; `Failed` is raised where there is none. It shares nothing with the SQL but the names of the
operators.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation
from typing import Any, NamedTuple

from tailrace.model.table import ColumnType
from tailrace.sql.routes.check import CheckedRoute
from tailrace.sql.routes.expression import RouteCall, RouteColumn, RouteConstant, RouteExpression

Row = Mapping[str, Any]

_DECIMALS = Context(prec=200)
_RANGES = {"smallint": 1 << 15, "integer": 1 << 31, "bigint": 1 << 63}


class Images(NamedTuple):
    old: Row | None
    new: Row | None


class Expected(NamedTuple):
    matches: bool | None
    failed: bool
    keys: Sequence[Any]
    """Of use where it matches."""


class Failed(Exception):
    pass


def expected(route: CheckedRoute, images: Images) -> Expected:
    try:
        matches = True if route.where is None else evaluate(route.where, images)
        keys = [evaluate(key, images) for key in route.keys] if matches else []
    except Failed:
        return Expected(None, True, ())
    return Expected(matches, False, keys)


def evaluate(expression: RouteExpression, images: Images) -> Any:
    if isinstance(expression, RouteColumn):
        return _column(expression, images)
    if isinstance(expression, RouteConstant):
        return expression.value
    match expression.operator:
        case "and":
            return _connected(expression, images, settled=False)
        case "or":
            return _connected(expression, images, settled=True)
        case "case":
            return _case(expression, images)
        case "coalesce":
            return next((value for part in expression.operands if (value := evaluate(part, images)) is not None), None)
    values = [evaluate(part, images) for part in expression.operands]
    lenient = expression.operator.startswith("try_")
    name = expression.operator.removeprefix("try_")
    if name in _WITH_NULLS:
        return _WITH_NULLS[name](*values)
    if any(value is None for value in values):
        return None
    try:
        return _computed(name, values, expression)
    except Failed:
        if lenient:
            return None
        raise


def _column(column: RouteColumn, images: Images) -> Any:
    row = {"old": images.old, "new": images.new, "row": images.old if images.new is None else images.new}[column.image]
    return None if row is None else row[column.name]


def _connected(call: RouteCall, images: Images, settled: bool) -> bool | None:
    found: list[bool | None] = []
    failed = False
    for part in call.operands:
        try:
            found.append(evaluate(part, images))
        except Failed:
            failed = True
    if settled in found:
        return settled
    if failed:
        raise Failed
    return None if None in found else not settled


def _case(call: RouteCall, images: Images) -> Any:
    *branches, last = call.operands
    for condition, result in zip(branches[::2], branches[1::2], strict=True):
        if evaluate(condition, images) is True:
            return evaluate(result, images)
    return evaluate(last, images)


def _computed(name: str, values: list[Any], call: RouteCall) -> Any:
    if name in _CASTS:
        return _CASTS[name](values[0], call.type)
    if name in _BIGINT:
        return _whole(_BIGINT[name](*values), "bigint")
    return _PLAIN[name](*values)


def _whole(value: int, kind: str) -> int:
    if not -_RANGES[kind] <= value < _RANGES[kind]:
        raise Failed
    return value


def _in(value: Any, *others: Any) -> bool | None:
    if value is None:
        return None
    if any(other is not None and _rank(other) == _rank(value) for other in others):
        return True
    return None if None in others else False


def _rank(value: Any) -> Any:
    """What engines compare by: NaN equals itself and is above all numbers, text goes by its bytes."""
    if isinstance(value, float):
        return (1, 0.0) if math.isnan(value) else (0, value)
    return value.encode() if isinstance(value, str) else value


def _extreme(choose: Callable[..., Any]) -> Callable[..., Any]:
    def chosen(*values: Any) -> Any:
        present = [value for value in values if value is not None]
        return choose(present, key=_rank) if present else None

    return chosen


def _remainder(left: int, right: int) -> int:
    if right == 0:
        raise Failed
    return int(math.copysign(1, left)) * (abs(left) % abs(right))


def _divided(left: float, right: float) -> float:
    if right == 0:
        raise Failed
    return left / right


def _multiplied(left: Any, right: Any) -> Any:
    return _DECIMALS.multiply(left, right) if isinstance(left, Decimal) else left * right


def _like(value: str, pattern: str) -> bool:
    parts = []
    letters = iter(pattern)
    for letter in letters:
        if letter == "\\":
            parts.append(re.escape(next(letters)))
        else:
            parts.append({"%": ".*", "_": "."}.get(letter, re.escape(letter)))
    return re.fullmatch("".join(parts), value, re.DOTALL) is not None


_WITH_NULLS: dict[str, Callable[..., Any]] = {
    "same": lambda left, right: left is right if left is None or right is None else _rank(left) == _rank(right),
    "differs": lambda left, right: left is not right if left is None or right is None else _rank(left) != _rank(right),
    "is_null": lambda value: value is None,
    "is_true": lambda value: value is True,
    "is_false": lambda value: value is False,
    "in": _in,
    "greatest": _extreme(max),
    "least": _extreme(min),
    "nullif": lambda left, right: left if left is None or right is None or _rank(left) != _rank(right) else None,
}
_BIGINT: dict[str, Callable[..., int]] = {
    "add": lambda left, right: left + right,
    "subtract": lambda left, right: left - right,
    "multiply": lambda left, right: left * right,
    "negate": lambda value: -value,
    "absolute": abs,
    "remainder": _remainder,
}
_PLAIN: dict[str, Callable[..., Any]] = {
    "not": lambda value: not value,
    "eq": lambda left, right: _rank(left) == _rank(right),
    "ne": lambda left, right: _rank(left) != _rank(right),
    "lt": lambda left, right: _rank(left) < _rank(right),
    "le": lambda left, right: _rank(left) <= _rank(right),
    "gt": lambda left, right: _rank(left) > _rank(right),
    "ge": lambda left, right: _rank(left) >= _rank(right),
    "like": _like,
    "add_exact": lambda left, right: left + right,
    "subtract_exact": lambda left, right: left - right,
    "multiply_exact": _multiplied,
    "negate_exact": lambda value: -value,
    "absolute_exact": abs,
    "divide": _divided,
    "lower": str.lower,
    "upper": str.upper,
    "length": len,
    "trim": lambda text: text.strip(" "),
    "ltrim": lambda text: text.lstrip(" "),
    "rtrim": lambda text: text.rstrip(" "),
    "substring": lambda text, start, length: text[start - 1 : start - 1 + length],
    "concat": lambda left, right: left + right,
    "starts_with": str.startswith,
    "ends_with": str.endswith,
    "contains": lambda text, part: part in text,
    "array_contains": lambda items, item: item in [other for other in items if other is not None],
    "array_size": len,
    **{part: lambda moment, part=part: getattr(moment, part) for part in ("year", "month", "day", "hour", "minute")},
}


def _widen(value: Any, type_: ColumnType) -> Any:
    if type_.kind == "double":
        return float(value)
    if type_.kind == "decimal":
        return Decimal(value).quantize(Decimal(1).scaleb(-(type_.scale or 0)), context=_DECIMALS)
    if type_.kind == "timestamp":
        return datetime(value.year, value.month, value.day, tzinfo=UTC)
    return value.date() if type_.kind == "date" and isinstance(value, datetime) else value


def _narrow(value: Any, type_: ColumnType) -> Any:
    if type_.kind != "decimal":
        return _whole(value, type_.kind)
    assert type_.precision is not None
    try:
        rounded = Decimal(value).quantize(Decimal(1).scaleb(-(type_.scale or 0)), ROUND_HALF_UP, _DECIMALS)
    except InvalidOperation:
        raise Failed from None
    if abs(rounded) >= Decimal(10) ** (type_.precision - (type_.scale or 0)):
        raise Failed
    return rounded


def _read_decimal(text: str, type_: ColumnType) -> Decimal:
    assert type_.precision is not None
    scale = type_.scale or 0
    whole = max(1, type_.precision - scale)
    _require(rf"[+-]?[0-9]{{1,{whole}}}(\.[0-9]{{1,{max(1, scale)}}})?", text)
    return _narrow(Decimal(text), type_)


def _read_date(text: str, _: ColumnType) -> date:
    _require(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", text)
    return _or_failed(date.fromisoformat, text)


def _read_timestamp(text: str, _: ColumnType) -> datetime:
    # Newer versions of Python take 24:00:00 for the next midnight.
    _require(r"[0-9]{4}-[0-9]{2}-[0-9]{2}[ T]([01][0-9]|2[0-3]):[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?Z?", text)
    moment, point, fraction = text.removesuffix("Z").partition(".")
    return _or_failed(datetime.fromisoformat, moment + (point + fraction.ljust(6, "0") if point else "")).replace(tzinfo=UTC)


def _or_failed(read: Callable[[str], Any], text: str) -> Any:
    try:
        return read(text)
    except ValueError:
        raise Failed from None


def _require(pattern: str, text: str) -> None:
    if not re.fullmatch(pattern, text):
        raise Failed


def _read_whole(text: str, type_: ColumnType) -> int:
    _require("[+-]?[0-9]{1,40}", text)
    return _whole(int(text), type_.kind)


def _read_double(text: str, _: ColumnType) -> float:
    _require(r"[+-]?([0-9]{1,40}(\.[0-9]{1,40})?|\.[0-9]{1,40})([eE][+-]?[0-9]{1,2})?", text)
    return float(text)


def _read_uuid(text: str, _: ColumnType) -> str:
    _require("[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}", text)
    return text.lower()


def _read_boolean(text: str, _: ColumnType) -> bool:
    if text.lower() not in ("true", "false"):
        raise Failed
    return text.lower() == "true"


def _cut_double(value: float, type_: ColumnType) -> int:
    if not -9.2e18 <= value <= 9.2e18:
        raise Failed
    return _whole(int(value), type_.kind)


def _text_of(value: Any, _: ColumnType) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return format(value, "f") if isinstance(value, Decimal) else str(value)


_CASTS: dict[str, Callable[[Any, ColumnType], Any]] = {
    "widen": _widen,
    "narrow": _narrow,
    "text_of": _text_of,
    "uuid_as_text": lambda value, _: value,
    "decimal_as_double": lambda value, _: float(value),
    "boolean_as_bigint": lambda value, _: int(value),
    "whole_of_decimal": lambda value, type_: _whole(int(value), type_.kind),
    "whole_of_double": _cut_double,
    "whole_of_text": _read_whole,
    "decimal_of_text": _read_decimal,
    "double_of_text": _read_double,
    "date_of_text": _read_date,
    "timestamp_of_text": _read_timestamp,
    "uuid_of_text": _read_uuid,
    "boolean_of_text": _read_boolean,
}
