"""Checked expressions of routes and their types, with nothing left that engines would have to guess.

`check` creates an expression from the text of the user, `compile` turns it into SQL. Casts are explicit, constants have the
type that they are compared with, and each operator is in `engines.OPERATORS`.

Integers are computed as bigint, so only results over 64 bits fail. Decimals stay exact or are rejected, because each engine
rounds them in its own way. A combination of types that is not in the tables here means different things in Spark and DuckDB,
and is rejected.
"""

from collections.abc import Iterator, Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Literal, NamedTuple

from sqlglot import exp

from tailrace.model.table import ColumnKind, ColumnType
from tailrace.sql.routes.errors import sql_error

Image = Literal["old", "new", "row"]
"""`row` is the row that an operation leaves, or for a delete the row that it removes."""

TRY = "try_"
"""The prefix of an operator that returns null where it would fail."""

ConstantValue = bool | int | float | str | Decimal | date | datetime | None


BOOLEAN = ColumnType("boolean")
BIGINT = ColumnType("bigint")
DOUBLE = ColumnType("double")
TEXT = ColumnType("text")
DATE = ColumnType("date")
TIMESTAMP = ColumnType("timestamp")
UUID = ColumnType("uuid")
MAX_DIGITS = 38
PLAIN_SCALE = 6
"""Spark writes decimals with more digits after the decimal point with an exponent, depending on a setting."""
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
_KINDS: dict[exp.DType, ColumnKind] = {
    exp.DType.BOOLEAN: "boolean",
    exp.DType.SMALLINT: "smallint",
    exp.DType.INT: "integer",
    exp.DType.BIGINT: "bigint",
    exp.DType.DOUBLE: "double",
    exp.DType.DECIMAL: "decimal",
    exp.DType.TEXT: "text",
    exp.DType.VARCHAR: "text",
    exp.DType.DATE: "date",
    exp.DType.TIMESTAMP: "timestamp",
    exp.DType.TIMESTAMPTZ: "timestamp",
    exp.DType.UUID: "uuid",
}


class RouteColumn(NamedTuple):
    name: str
    image: Image
    type: ColumnType


class RouteConstant(NamedTuple):
    value: ConstantValue
    type: ColumnType


class RouteCall(NamedTuple):
    """An operator or function. The operands of `case` are conditions and results in turn, then the result of ELSE."""

    operator: str
    operands: "tuple[RouteExpression, ...]"
    type: ColumnType


RouteExpression = RouteColumn | RouteConstant | RouteCall


def columns_of(expression: RouteExpression) -> Iterator[RouteColumn]:
    """Return the columns that an expression uses, each as often as it does."""
    if isinstance(expression, RouteColumn):
        yield expression
    elif isinstance(expression, RouteCall):
        for operand in expression.operands:
            yield from columns_of(operand)


def decimal(whole: int, scale: int) -> ColumnType | None:
    """Return the decimal with so many digits before and after the decimal point, or `None` if those are too many."""
    return ColumnType("decimal", precision=max(1, whole + scale), scale=scale) if whole + scale <= MAX_DIGITS else None


def digits_of(type_: ColumnType) -> tuple[int, int] | None:
    """Return the digits before and after the decimal point, for integers and decimals."""
    if type_.kind == "decimal":
        if type_.precision is None or type_.precision > MAX_DIGITS:
            return None
        return type_.precision - (type_.scale or 0), type_.scale or 0
    digits = _DIGITS.get(type_.kind)
    return None if digits is None else (digits, 0)


def common_type(types: Sequence[ColumnType]) -> ColumnType | None:
    """Return the type in which all of these can be compared, or `None`."""
    kinds = {type_.kind for type_ in types}
    if kinds <= INTEGERS:
        return BIGINT
    if kinds <= NUMBERS:
        return DOUBLE if "double" in kinds else _common_decimal(types)
    if kinds == {"date", "timestamp"}:
        return TIMESTAMP
    return types[0] if len(set(types)) == 1 else None


def cast_operator(source: ColumnType, target: ColumnType) -> str | None:
    """Return the operator for an explicit cast, `widen` if it can't fail, or `None` if the cast is not possible."""
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


def written_type(cast: exp.Cast) -> ColumnType:
    to = cast.to
    kind = _KINDS.get(to.this)
    parameters = [int(part.name) for part in to.expressions if part.name.isdigit()]
    if kind is None or len(parameters) != len(to.expressions) or (parameters and kind != "decimal"):
        raise sql_error(cast, f"a route can't cast to {to.sql(dialect='postgres').lower()}")
    if kind != "decimal":
        return ColumnType(kind)
    if not parameters:
        raise sql_error(cast, "the decimal has no precision; write it like decimal(12, 2)")
    precision, scale = parameters[0], parameters[1] if len(parameters) > 1 else 0
    if not 1 <= precision <= MAX_DIGITS or not 0 <= scale <= precision:
        raise sql_error(
            cast, f"the decimal must have 1 to {MAX_DIGITS} digits, and not more than those after the decimal point"
        )
    return ColumnType("decimal", precision=precision, scale=scale)
