"""Reads columns of Arrow as values for the columns of a table, and names each value that does not fit.

A column of texts is read as PostgreSQL reads the fields of COPY: by the input function of the type (`analysis/input_texts`).
A column of another type must be of the same family as that of the table: numbers for numbers, dates for dates. Whole columns
are converted by Arrow where that means the same; a value at a time where it does not, or where one of them is refused.
"""

import math
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, NamedTuple
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc

from tailrace.model.errors import SqlError
from tailrace.model.table import Column, ColumnKind, ColumnType
from tailrace.sql.analysis.errors import OUT_OF_RANGE, AnalysisError
from tailrace.sql.analysis.input_texts import read_text
from tailrace.sql.analysis.types import of_column
from tailrace.sql.tables.values import InvalidValueError, store_decimal, stored

_INTEGERS: dict[ColumnKind, Any] = {"smallint": pa.int16(), "integer": pa.int32(), "bigint": pa.int64()}
_NUMBERS = frozenset((*_INTEGERS, "double"))
_ZONE = r"(Z|\+00(:?00)?)$"
_TIMES: dict[ColumnKind, str] = {
    "date": r"^[1-9]\d{3}-\d\d-\d\d$",
    "timestamp": rf"^[1-9]\d{{3}}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d{{1,6}})?({_ZONE[:-1]})?$",
}
_PLAIN_TYPES = (
    pa.types.is_null,
    pa.types.is_boolean,
    pa.types.is_integer,
    pa.types.is_floating,
    pa.types.is_decimal,
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_binary,
    pa.types.is_large_binary,
    pa.types.is_fixed_size_binary,
    pa.types.is_date,
    pa.types.is_timestamp,
    pa.types.is_time,
)
_SHOWN_CHARACTERS = 200
_INVALID_VALUE = "22000"
_NOT_NULL = "23502"


class InvalidValue(NamedTuple):
    """A value that its column can't hold."""

    row: int
    """Counted from 0."""
    column: str
    value: str | None
    """The text of the value, shortened if it is long; `None` for a null."""
    reason: str
    sqlstate: str


class ColumnValues(NamedTuple):
    values: Sequence[Any]
    invalid: Sequence[InvalidValue] = ()


def is_plain(kind: Any) -> bool:
    """Return whether values of this type take as many bytes as they are long.

    Dictionaries and views do not: a few bytes of them can stand for any number of large values.
    """
    types = pa.types
    if types.is_list(kind) or types.is_struct(kind):
        return all(is_plain(kind.field(number).type) for number in range(kind.num_fields))
    return any(accepts(kind) for accepts in _PLAIN_TYPES)


def item_count(array: Any) -> int:
    """Return how many values are inside of the lists and structs of an array."""
    types = pa.types
    if isinstance(array, pa.ChunkedArray):
        return sum(item_count(chunk) for chunk in array.chunks)
    if types.is_list(array.type):
        return len(array.values) + item_count(array.values)
    if types.is_struct(array.type):
        return sum(len(array) + item_count(array.field(number)) for number in range(array.type.num_fields))
    return 0


def read_column(array: Any, column: Column, table: str) -> ColumnValues:
    """Return the values of an array of Arrow for a column. Raises `SqlError` if none of that type can be stored there."""
    array = _plain(array)
    if pa.types.is_null(array.type):
        found = ColumnValues([None] * len(array))
    elif pa.types.is_string(array.type):
        found = _read_texts(array, column)
    else:
        found = ColumnValues(*_read_typed(array, column))
    if column.nullable or not array.null_count:
        return found
    reason = f'null value in column "{column.name}" of relation "{table}" violates not-null constraint'
    nulls = [
        InvalidValue(row, column.name, None, reason, _NOT_NULL)
        for row, is_null in enumerate(array.is_null().to_pylist())
        if is_null
    ]
    return ColumnValues(found.values, [*found.invalid, *nulls])


def find_invalid(values: Sequence[Any], column: Column) -> list[InvalidValue]:
    """Return the values that a table refuses for a column, after it has refused one of many."""
    invalid = []
    for row, value in enumerate(values):
        try:
            stored(value, column)
        except SqlError as error:
            invalid.append(_invalid(row, column, value, str(error), _INVALID_VALUE))
    return invalid


def _plain(array: Any) -> Any:
    """Return an array in one piece, with 32-bit offsets."""
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    if pa.types.is_large_string(array.type):
        return array.cast(pa.string())
    return array.cast(pa.binary()) if pa.types.is_large_binary(array.type) else array


def _read_texts(array: Any, column: Column) -> ColumnValues:
    kind = column.type.kind
    is_short = column.type.length is None or (pc.max(pc.utf8_length(array)).as_py() or 0) <= column.type.length
    if kind == "text" and is_short and not pc.any(pc.match_substring(array, "\0")).as_py():
        return ColumnValues(array.to_pylist())
    fast = _fast_read_numbers(array, kind) if kind in _NUMBERS else _fast_read_times(array, kind)
    if fast is not None:
        return ColumnValues(fast)
    wanted = of_column(column.type)
    check = _CHECKS.get(kind)
    encoded = array.dictionary_encode()
    read: list[Any] = []
    faults: dict[int, AnalysisError] = {}
    for place, text in enumerate(encoded.dictionary.to_pylist()):
        try:
            value = read_text(text, wanted)
            read.append(value if check is None else check(value, column.type))
        except AnalysisError as error:
            faults[place] = error
            read.append(None)
    places = encoded.indices.to_pylist()
    values = [None if place is None else read[place] for place in places]
    if not faults:
        return ColumnValues(values)
    texts = encoded.dictionary
    invalid = [
        _invalid(row, column, texts[place].as_py(), faults[place].message, faults[place].sqlstate)
        for row, place in enumerate(places)
        if place in faults
    ]
    return ColumnValues(values, invalid)


def _fast_read_numbers(array: Any, kind: ColumnKind) -> Sequence[Any] | None:
    """Fast path of `_read_texts`: numbers whose texts Arrow reads as PostgreSQL does.

    Triggered by columns of whole numbers and doubles in which every text is one; `None` leaves the column to the general path.
    Tests hold both equal (`tests/unit/sql/test_arrow_values.py`).
    """
    if pc.any(pc.match_substring(array, "x", ignore_case=True)).as_py():
        return None  # hexadecimal digits, of which Arrow takes the first for a sign
    try:
        numbers = array.cast(_INTEGERS.get(kind, pa.float64()))
    except pa.ArrowInvalid:
        return None
    if kind == "double" and not pc.all(pc.is_finite(numbers)).as_py() and numbers.null_count < len(numbers):
        return None
    return _numbers(numbers)


def _fast_read_times(array: Any, kind: ColumnKind) -> Sequence[Any] | None:
    """Fast path of `_read_texts` for dates and timestamps, as `_fast_read_numbers` is for numbers.

    Triggered by columns in which all texts are written like `2026-01-31` or `2026-01-31 13:45:00.5`, in UTC or without a zone.
    """
    if kind not in _TIMES or not pc.all(pc.match_substring_regex(array, _TIMES[kind])).as_py():
        return None
    try:
        if kind == "date":
            return array.cast(pa.date32()).to_pylist()  # type: ignore[no-any-return]
        plain = pc.replace_substring_regex(array, _ZONE, "")
        return plain.cast(pa.timestamp("us")).to_pylist()  # type: ignore[no-any-return]
    except pa.ArrowInvalid:
        return None


def _numbers(array: Any) -> Sequence[Any]:
    values: Sequence[Any] = array.to_pylist() if array.null_count else array.to_numpy().tolist()
    return values


def _checked_double(value: Any, kind: ColumnType) -> Any:
    if not math.isfinite(value):
        raise AnalysisError(OUT_OF_RANGE, f"a double can't be infinite or NaN here: {value}")
    return value


def _checked_decimal(value: Decimal, kind: ColumnType) -> Decimal:
    try:
        store_decimal(value, kind.precision, kind.scale)
    except InvalidValueError as error:
        digits = "" if kind.precision is None else f": precision {kind.precision}, scale {kind.scale or 0}"
        raise AnalysisError(error.sqlstate, f"{error}{digits}") from None
    return value


_CHECKS: dict[ColumnKind, Callable[[Any, ColumnType], Any]] = {
    "double": _checked_double,
    "real": _checked_double,
    "decimal": _checked_decimal,
}


def _read_typed(array: Any, column: Column) -> tuple[Sequence[Any], Sequence[InvalidValue]]:
    if not fits(array.type, column.type):
        raise SqlError(
            f"column {column.name!r} is {column.type} and can't store values of Arrow's {array.type}; cast them first"
        )
    kind = column.type.kind
    if kind in _INTEGERS:
        try:
            return _numbers(array.cast(_INTEGERS[kind])), ()
        except pa.ArrowInvalid:
            return _one_by_one(array, column)
    if kind == "timestamp" and not pa.types.is_list(array.type):
        try:
            array = array.cast(pa.timestamp("us", array.type.tz if pa.types.is_timestamp(array.type) else None))
        except pa.ArrowInvalid:
            return _one_by_one(array, column)
    if kind in ("bytes", "boolean"):
        return array.to_pylist(), ()
    if kind == "double" and pa.types.is_floating(array.type):
        return _one_by_one(array, column) if not pc.all(pc.is_finite(array)).as_py() else (array.to_pylist(), ())
    return _one_by_one(array, column)


def _one_by_one(array: Any, column: Column) -> tuple[Sequence[Any], Sequence[InvalidValue]]:
    values: list[Any] = []
    invalid = []
    for row, scalar in enumerate(array):
        try:
            value = _python_value(scalar, column.type)
            stored(value, Column(column.name, column.type))
        except (SqlError, ValueError, OverflowError, TypeError) as error:
            invalid.append(_invalid(row, column, scalar, str(error), _INVALID_VALUE))
            value = None
        values.append(value)
    return values, invalid


def _python_value(scalar: Any, kind: ColumnType) -> Any:
    if not scalar.is_valid:
        return None
    if pa.types.is_timestamp(scalar.type):
        moment = scalar.cast(pa.timestamp("us", "UTC")).as_py() if scalar.type.tz else scalar.cast(pa.timestamp("us")).as_py()
        return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    value = scalar.as_py()
    if kind.kind == "uuid" and isinstance(value, bytes):
        return UUID(bytes=value)
    if kind.kind == "list" and isinstance(value, list):
        element = kind.element or ColumnType("text")
        return [_element(item, element) for item in value]
    return value


def _element(item: Any, kind: ColumnType) -> Any:
    if kind.kind == "timestamp" and isinstance(item, datetime) and item.tzinfo is None:
        return item.replace(tzinfo=UTC)
    if kind.kind == "uuid" and isinstance(item, bytes):
        return UUID(bytes=item)
    return item


def fits(found: Any, wanted: ColumnType) -> bool:
    """Return whether values of an Arrow type can be stored in a column."""
    types = pa.types
    match wanted.kind:
        case "boolean":
            return bool(types.is_boolean(found))
        case "smallint" | "integer" | "bigint":
            return bool(types.is_integer(found))
        case "double" | "real" | "decimal":
            return bool(types.is_integer(found) or types.is_floating(found) or types.is_decimal(found))
        case "bytes":
            return bool(types.is_binary(found) or types.is_fixed_size_binary(found) or types.is_large_binary(found))
        case "date":
            return bool(types.is_date(found))
        case "time":
            return bool(types.is_time(found))
        case "timestamp":
            return bool(types.is_timestamp(found) or types.is_date(found))
        case "uuid":
            return bool(types.is_string(found)) or found == pa.binary(16)
        case "json":
            return bool(types.is_struct(found) or types.is_list(found) or types.is_string(found))
        case "list":
            return bool(types.is_list(found)) and (
                types.is_null(found.value_type) or fits(found.value_type, wanted.element or ColumnType("text"))
            )
        case _:
            return bool(types.is_string(found) or types.is_large_string(found))


def _invalid(row: int, column: Column, value: object, reason: str, sqlstate: str) -> InvalidValue:
    text = None if value is None else str(value)
    if text is not None and len(text) > _SHOWN_CHARACTERS:
        text = f"{text[:_SHOWN_CHARACTERS]}..."
    return InvalidValue(row, column.name, text, reason, sqlstate)
