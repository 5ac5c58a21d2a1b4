"""Types of expressions: what may be compared and computed with what, and how one becomes the other.

Integers are computed as bigint, so that only what is over 64 bits fails. Decimals stay exact or are refused: engines round
them each in its own way. What is not in the tables here is refused, because it means different things in Spark and DuckDB.
"""

from collections.abc import Sequence

from tailrace.model.table import ColumnKind, ColumnType
from tailrace.sql.routes.expression import BIGINT, DOUBLE, TIMESTAMP

MOST_DIGITS = 38
PLAIN_SCALE = 6
"""Decimals with more digits behind the point are text with an exponent in Spark, by one of its settings."""

INTEGERS = frozenset({"smallint", "integer", "bigint"})
NUMBERS = INTEGERS | {"decimal", "double"}
ORDERED = NUMBERS | {"text", "date", "timestamp"}
COMPARED = ORDERED | {"boolean", "uuid", "bytes"}
CASTABLE = ORDERED | {"boolean", "uuid"}

_DIGITS: dict[ColumnKind, int] = {"smallint": 5, "integer": 10, "bigint": 19}

_CASTS: dict[tuple[ColumnKind, ColumnKind], str] = {
    ("text", "double"): "double_of_text",
    ("text", "decimal"): "decimal_of_text",
    ("text", "boolean"): "boolean_of_text",
    ("text", "date"): "date_of_text",
    ("text", "timestamp"): "timestamp_of_text",
    ("text", "uuid"): "uuid_of_text",
    ("uuid", "text"): "uuid_as_text",
    ("boolean", "text"): "text_of",
    ("boolean", "bigint"): "boolean_as_bigint",
    ("date", "text"): "text_of",
    ("date", "timestamp"): "widen",
    ("timestamp", "date"): "widen",
    ("decimal", "double"): "decimal_as_double",
    ("decimal", "decimal"): "narrow",
}


def decimal(whole: int, scale: int) -> ColumnType | None:
    """A decimal with so many digits before and behind the point, if there is one."""
    return ColumnType("decimal", precision=max(1, whole + scale), scale=scale) if whole + scale <= MOST_DIGITS else None


def digits_of(type_: ColumnType) -> tuple[int, int] | None:
    """Digits before and behind the point, of integers and decimals."""
    if type_.kind == "decimal":
        if type_.precision is None or type_.precision > MOST_DIGITS:
            return None
        return type_.precision - (type_.scale or 0), type_.scale or 0
    digits = _DIGITS.get(type_.kind)
    return None if digits is None else (digits, 0)


def common_type(types: Sequence[ColumnType]) -> ColumnType | None:
    """The type in which all of these can be compared. `None` if there is none."""
    kinds = {type_.kind for type_ in types}
    if kinds <= INTEGERS:
        return BIGINT
    if kinds <= NUMBERS:
        return DOUBLE if "double" in kinds else _common_decimal(types)
    if kinds == {"date", "timestamp"}:
        return TIMESTAMP
    return types[0] if len(set(types)) == 1 else None


def cast_operator(source: ColumnType, target: ColumnType) -> str | None:
    """The operator for a cast that the user asked for; `widen` where it can't fail. `None` if there is none."""
    from_, to = source.kind, target.kind
    if from_ in INTEGERS:
        if to in INTEGERS:
            return "widen" if _DIGITS[from_] <= _DIGITS[to] else "narrow"
        return {"double": "widen", "decimal": "narrow", "text": "text_of"}.get(to)
    if to in INTEGERS and from_ in ("text", "decimal", "double"):
        return f"whole_of_{from_}"
    if from_ == "decimal" and to == "text":
        return "text_of" if (source.scale or 0) <= PLAIN_SCALE else None
    return _CASTS.get((from_, to))


def _common_decimal(types: Sequence[ColumnType]) -> ColumnType | None:
    digits = [digits_of(type_) for type_ in types]
    known = [pair for pair in digits if pair is not None]
    if len(known) < len(digits):
        return None
    return decimal(max(whole for whole, _ in known), max(scale for _, scale in known))
