"""Values on their way into SQLite: fitted to their column, one or many at a time, or as parameters that no column types.

What each type takes is in `values.py`.
"""

import math
from collections.abc import Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import msgspec

from tailrace.model.errors import ConstraintError, SqlError
from tailrace.model.table import Column, ColumnKind
from tailrace.sql.tables.values import RANGES, Stored, Unfit, codec_of, shown, timestamp_text


def stored(value: object, column: Column) -> Stored:
    """A value as the column keeps it."""
    kept = None
    if value is not None:
        try:
            kept = codec_of(column.type).store(value)
        except Unfit as why:
            raise SqlError(f"column {column.name!r} is {column.type} and can't hold {shown(value)}: {why}") from None
    if kept is None and not column.nullable:
        raise ConstraintError(f"column {column.name!r} can't be null")
    return kept


def stored_column(values: Sequence[Any], column: Column) -> Sequence[Stored]:
    """The same for many values at once, which are mostly of the right type already."""
    present = values
    if column.nullable and None in values:
        present = [value for value in values if value is not None]
    if _all_fit(present, column.type.kind):
        return values
    if column.type.kind == "double" and present is values:
        doubles = _doubles(values)
        if doubles is not None:
            return doubles
    return [stored(value, column) for value in values]


def bound(value: object) -> Stored:
    """A parameter as SQLite takes it where no column says what it should be."""
    match value:
        case None | int() | float() | str() | bytes():
            return int(value) if isinstance(value, bool) else value
        case Decimal():
            return format(value, "f")
        case datetime():
            return timestamp_text(value)
        case date() | UUID():
            return str(value)
        case list() | tuple() | dict():
            return msgspec.json.encode(value).decode()
    raise SqlError(f"a parameter can't be a {type(value).__name__}")


def _all_fit(values: Sequence[Any], kind: ColumnKind) -> bool:
    kinds = set(map(type, values))
    if kind == "text":
        return kinds == {str} and "\0" not in "".join(values)
    if kind == "double":
        return kinds == {float} and all(map(math.isfinite, values))
    if kind in RANGES and kinds == {int}:
        least, most = RANGES[kind]
        return bool(least <= min(values) and max(values) <= most)
    return False


def _doubles(values: Sequence[Any]) -> list[float] | None:
    """Numbers of any kind as doubles, if all of them can be."""
    if not set(map(type, values)) <= {int, float, Decimal}:
        return None
    try:
        doubles = list(map(float, values))
    except OverflowError:
        return None
    return doubles if all(map(math.isfinite, doubles)) else None
