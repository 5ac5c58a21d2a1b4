"""Which types of a column ALTER TABLE may replace by which, and how the stored values change with it.

Only changes that no value can fail, and that lose nothing, are made. Each is a function of one stored value, so the same rows
come out of a rebuild from events that are older than the change.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from tailrace.model.table import ColumnType

_WHOLE = ("smallint", "integer", "bigint")
_DIGITS = {"smallint": 5, "integer": 10, "bigint": 19}


class TypeChange(NamedTuple):
    """How stored values become those of the new type. Nulls stay null."""

    sql: str
    """In SQL of SQLite, with `{0}` for the value."""
    convert: Callable[[Any], Any] | None = None
    """The same in Python; `None` if nothing changes."""


UNCHANGED = TypeChange("{0}")
_AS_TEXT = TypeChange("CAST({0} AS TEXT)", str)


def type_change(old: ColumnType, new: ColumnType) -> TypeChange | None:
    """Return how values of the old type become values of the new one, or `None` if that could fail or lose something."""
    if old == new:
        return UNCHANGED
    match old.kind, new.kind:
        case (("smallint" | "integer" | "bigint"), ("smallint" | "integer" | "bigint")):
            return UNCHANGED if _WHOLE.index(old.kind) <= _WHOLE.index(new.kind) else None
        case (("smallint" | "integer" | "bigint" | "decimal"), "decimal"):
            return _to_decimal(old, new)
        case (("smallint" | "integer"), "double"):
            return TypeChange("CAST({0} AS REAL)", float)
        case "smallint", "real":
            return TypeChange("CAST({0} AS REAL)", float)
        case "real", "double":
            return UNCHANGED
        case (("smallint" | "integer" | "bigint"), "text") if new.length is None:
            return _AS_TEXT
        case (("decimal" | "uuid" | "date" | "enum" | "interval"), "text") if new.length is None:
            return UNCHANGED
        case "boolean", "text" if new.length is None:
            return TypeChange("CASE {0} WHEN 0 THEN 'false' WHEN 1 THEN 'true' END", lambda kept: "true" if kept else "false")
        case "text", "text":
            return UNCHANGED if _is_longer(old, new) else None
        case "char", "text" if _is_longer(old, new):
            # To PostgreSQL the spaces at the end of a char are no part of the value.
            return TypeChange("rtrim({0}, ' ')", lambda kept: kept.rstrip(" "))
        case "char", "char" if _is_longer(old, new):
            spaces = " " * (new.length or 0)
            return TypeChange(f"substr({{0}} || '{spaces}', 1, {len(spaces)})", lambda kept: kept.ljust(len(spaces)))
    return None


def _to_decimal(old: ColumnType, new: ColumnType) -> TypeChange | None:
    is_whole = old.kind != "decimal"
    if new.precision is None:
        # A numeric without digits in its declaration keeps those that its values have.
        return _AS_TEXT if is_whole else UNCHANGED
    precision, scale = (_DIGITS[old.kind], 0) if is_whole else (old.precision, old.scale or 0)
    new_scale = new.scale or 0
    if precision is None or new_scale < scale or new.precision - new_scale < precision - scale or scale < 0:
        # A negative scale rounds before the point.
        return None
    zeros = "0" * (new_scale - scale)
    tail = f".{zeros}" if zeros and not scale else zeros
    return TypeChange(f"CAST({{0}} AS TEXT) || '{tail}'", lambda kept: f"{kept}{tail}")


def _is_longer(old: ColumnType, new: ColumnType) -> bool:
    return new.length is None or (old.length is not None and old.length <= new.length)
