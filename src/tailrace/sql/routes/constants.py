"""Constants of a route: their types, and how they adapt to the values that they are compared with.

`'2026-01-31'` next to a date is that day, `1.5` next to a double is a double. A constant that can't adapt is rejected when the
route is added, not when the first row arrives.
"""

import re
from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Context, Decimal, Inexact
from uuid import UUID as UniqueId

from tailrace.model.table import ColumnType
from tailrace.sql.routes.expression import (
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE,
    INTEGERS,
    MAX_DIGITS,
    TEXT,
    TIMESTAMP,
    UUID,
    RouteConstant,
    RouteExpression,
    common_type,
    decimal,
    digits_of,
)

_MAX_BIGINT = (1 << 63) - 1
_EXACT = Context(prec=2 * MAX_DIGITS, traps=[Inexact])
_ISO_DATE = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_ISO_TIMESTAMP = re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d{1,6})?(Z|[+-]\d\d:\d\d)?", re.ASCII)
_HEX_UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")

_WRITTEN_AS_TEXT = ("date", "timestamp", "uuid")

TRUE = RouteConstant(True, BOOLEAN)
FALSE = RouteConstant(False, BOOLEAN)


def number(text: str) -> RouteConstant | None:
    """Return the constant of a written number, or `None` if it has too many digits."""
    if "e" in text.lower():
        value = float(text)
        return RouteConstant(value, DOUBLE) if abs(value) != float("inf") else None
    exact = Decimal(text)
    return _whole(exact) if "." not in text else _decimal(exact)


def text(value: str) -> RouteConstant:
    return RouteConstant(value, TEXT)


def null(type_: ColumnType) -> RouteConstant:
    return RouteConstant(None, type_)


def negated(constant: RouteConstant) -> RouteConstant | None:
    """Return the negative of a number, or `None` if the constant is not a number."""
    value = constant.value
    if isinstance(value, bool) or not isinstance(value, (int, float, Decimal)):
        return None
    # The smallest bigint without its sign does not fit a bigint, and the other way round.
    return _whole(-Decimal(value)) if abs(value) == _MAX_BIGINT + 1 else RouteConstant(-value, constant.type)


def adapted(constant: RouteConstant, target: ColumnType) -> RouteConstant | None:
    """Return the constant in another type, or `None` if it has no value there."""
    value = constant.value
    if value is None or constant.type == target:
        return RouteConstant(value, target)
    if isinstance(value, str):
        return _read(value, target)
    if isinstance(value, date):
        return _midnight(value) if target.kind == "timestamp" and not isinstance(value, datetime) else None
    if isinstance(value, bool):
        return None
    if target.kind == "double":
        return RouteConstant(float(value), DOUBLE)
    if target.kind in INTEGERS:
        return RouteConstant(value, BIGINT) if isinstance(value, int) else None
    digits = digits_of(target)
    if target.kind != "decimal" or digits is None or isinstance(value, float):
        return None
    whole, scale = _digits(Decimal(value))
    if whole > digits[0] or scale > digits[1]:
        return None
    return RouteConstant(Decimal(value).quantize(Decimal(1).scaleb(-digits[1]), context=_EXACT), target)


def type_beside(nodes: Sequence[RouteExpression]) -> ColumnType | None:
    """Return the type in which all of these can be compared; constants adapt to the others."""
    present = [node for node in nodes if not isinstance(node, RouteConstant) or node.value is not None]
    texts = [node for node in present if isinstance(node, RouteConstant) and node.type.kind == "text"]
    others = [node for node in present if node not in texts]
    if others and all(is_read(node.type) for node in others):
        present = others
    has_decimals = any(node.type.kind == "decimal" for node in present)
    types = [narrowest(node) if has_decimals and isinstance(node, RouteConstant) else node.type for node in present]
    return common_type(types) if types else None


def narrowest(constant: RouteConstant) -> ColumnType:
    """Return the decimal with just the digits of an integer, because a bigint beside a decimal would need too many digits."""
    value = constant.value
    if isinstance(value, int) and not isinstance(value, bool):
        return decimal(*_digits(Decimal(value))) or constant.type
    return constant.type


def _whole(value: Decimal) -> RouteConstant | None:
    return RouteConstant(int(value), BIGINT) if -_MAX_BIGINT - 1 <= value <= _MAX_BIGINT else _decimal(value)


def _decimal(value: Decimal) -> RouteConstant | None:
    type_ = decimal(*_digits(value))
    return None if type_ is None else RouteConstant(value, type_)


def is_read(target: ColumnType) -> bool:
    """Return whether constants of this type are written as strings."""
    return target.kind in _WRITTEN_AS_TEXT


def _read(value: str, target: ColumnType) -> RouteConstant | None:
    try:
        if target.kind == "date" and _ISO_DATE.fullmatch(value):
            return RouteConstant(date.fromisoformat(value), DATE)
        if target.kind == "timestamp" and _ISO_DATE.fullmatch(value):
            return RouteConstant(datetime.fromisoformat(value).replace(tzinfo=UTC), TIMESTAMP)
        if target.kind == "timestamp" and _ISO_TIMESTAMP.fullmatch(value):
            at = datetime.fromisoformat(value)
            return RouteConstant(at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC), TIMESTAMP)
        if target.kind == "uuid" and _HEX_UUID.fullmatch(value):
            return RouteConstant(str(UniqueId(value)), UUID)
    except (ValueError, OverflowError):
        return None
    return None


def _midnight(day: date) -> RouteConstant:
    return RouteConstant(datetime(day.year, day.month, day.day, tzinfo=UTC), TIMESTAMP)


def _digits(value: Decimal) -> tuple[int, int]:
    """Return the digits before and after the decimal point, as written."""
    _, digits, exponent = value.as_tuple()
    scale = max(0, -int(exponent))
    return max(1, len(digits) + int(exponent)), scale
