"""The values of each type: what may be written, how SQLite stores it, and what readers get.

| type | stored as | readers get |
|---|---|---|
| boolean | 0 or 1 | `bool` |
| smallint, integer, bigint | integer | `int` |
| double, real | real, never infinite | `float` |
| decimal(p, s) | text, with all `s` digits after the point | `Decimal` |
| decimal | text, with the digits that it was written with, or `NaN`, `Infinity` and `-Infinity` | `Decimal` |
| text | text | `str` |
| char | text, filled up with spaces | `str` |
| enum | text, one of its labels | `str` |
| bytes | blob | `bytes` |
| date, time, timestamp, uuid | text in one form | `date`, `time`, `datetime` in UTC, `UUID` |
| interval | text, as PostgreSQL prints it | `Interval` |
| json, list | JSON text without white space | what JSON holds |

Values of most types have one normal form, so equal values are equal bytes. The decimals `1.5` and `1.50` and the intervals
`1 mon` and `30 days` are equal by the collations of their columns (`collations`).
"""

import math
import re
from base64 import b64decode, b64encode
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, time
from decimal import ROUND_HALF_UP, Context, Decimal, DecimalException, DivisionByZero, InvalidOperation, Overflow
from typing import Any, NamedTuple
from uuid import UUID

import msgspec

from tailrace.model.errors import ConstraintError, SqlError
from tailrace.model.table import Column, ColumnType
from tailrace.sql.analysis.errors import OUT_OF_RANGE, AnalysisError
from tailrace.sql.analysis.input_texts import MAX_SCALE, MAX_WHOLE_DIGITS, nearest_float4, read_text
from tailrace.sql.analysis.interval_texts import MAX_INTERVAL_MICROSECONDS, Interval, interval_text, read_interval
from tailrace.sql.analysis.types import TIME
from tailrace.sql.functions.float_texts import shortest_float4

StoredValue = int | float | str | bytes | None
"""A value as SQLite stores it."""
StoredRow = Sequence[StoredValue]

NOT_NULL = "23502"
UNIQUE_VIOLATION = "23505"
TOO_LONG = "22001"
INVALID_TEXT = "22P02"
NOT_SUPPORTED = "0A000"
"""SQLSTATEs of values that a column can't store."""
_DECIMALS = Context(prec=2010, rounding=ROUND_HALF_UP, traps=[InvalidOperation, DivisionByZero, Overflow])
"""Rounds numbers to the digits of a column, of which there are far fewer."""
_MAX_DECIMAL_CHARACTERS = MAX_WHOLE_DIGITS + MAX_SCALE + 2

_SHOWN_CHARACTERS = 60
RANGES = {
    "smallint": (-(1 << 15), (1 << 15) - 1),
    "integer": (-(1 << 31), (1 << 31) - 1),
    "bigint": (-(1 << 63), (1 << 63) - 1),
}
_BOOLEANS = {
    **dict.fromkeys(("true", "t", "yes", "y", "on", "1"), 1),
    **dict.fromkeys(("false", "f", "no", "n", "off", "0"), 0),
}
_WHOLE = re.compile(r"[+-]?\d+")


class InvalidValueError(Exception):
    """The value is not valid for the type; the message says why."""

    def __init__(self, message: str, sqlstate: str = INVALID_TEXT) -> None:
        super().__init__(message)
        self.sqlstate = sqlstate


StoreValue = Callable[[object], StoredValue]
LoadValue = Callable[[StoredValue], object]


class ColumnCodec(NamedTuple):
    """Converts values of one type to their stored form and back. Nulls are not converted."""

    store: StoreValue
    load: LoadValue


def shown(value: object) -> str:
    """Return a value for a message, shortened if it is long."""
    text = repr(value) if isinstance(value, (str, bytes, int, float)) else repr(str(value))
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}..."


def codec_of(type_: ColumnType) -> ColumnCodec:
    match type_.kind:
        case "boolean":
            return ColumnCodec(_store_boolean, bool)
        case "smallint" | "integer" | "bigint":
            return _INTEGERS[type_.kind]
        case "double":
            return ColumnCodec(_store_double, _unchanged)
        case "decimal":
            return ColumnCodec(
                lambda value: store_decimal(value, type_.precision, type_.scale), lambda kept: Decimal(str(kept))
            )
        case "real":
            return ColumnCodec(store_real, shortest_float4)  # type: ignore[arg-type]
        case "text" if type_.length is None:
            return ColumnCodec(_store_text, _unchanged)
        case "text" | "char":
            return ColumnCodec(lambda value: fit_text(str(_store_text(value)), type_), _unchanged)
        case "enum":
            return ColumnCodec(lambda value: _store_label(value, type_), _unchanged)
        case "bytes":
            return ColumnCodec(_store_bytes, _unchanged)
        case "date":
            return ColumnCodec(store_date, lambda kept: date.fromisoformat(str(kept)))
        case "time":
            return ColumnCodec(store_time, lambda kept: time.fromisoformat(str(kept)))
        case "timestamp":
            return ColumnCodec(store_timestamp, lambda kept: datetime.fromisoformat(str(kept)))
        case "interval":
            return ColumnCodec(_store_interval, lambda kept: read_interval(str(kept)))
        case "uuid":
            return ColumnCodec(_store_uuid, lambda kept: UUID(str(kept)))
        case "json":
            return ColumnCodec(_store_json, lambda kept: msgspec.json.decode(str(kept)))
        case "list":
            return _list_codec(type_.element or ColumnType("text"))
    raise SqlError(f"a table can't have a column of the type {type_}", sqlstate="0A000")


def json_form(type_: ColumnType, kept: StoredValue) -> object:
    """Return a stored value as change events and lists write it in JSON."""
    if kept is None:
        return None
    match type_.kind:
        case "boolean":
            return bool(kept)
        case "json" | "list":
            return msgspec.Raw(str(kept).encode())
        case "bytes":
            return b64encode(kept).decode()  # type: ignore[arg-type]
        case "real":
            return shortest_float4(kept)  # type: ignore[arg-type]
    return kept


def _unchanged(kept: StoredValue) -> object:
    return kept


def _store_boolean(value: object) -> StoredValue:
    if isinstance(value, str):
        found = _BOOLEANS.get(value.strip().lower())
    else:
        found = int(value) if isinstance(value, int) and value in (0, 1) else None
    if found is None:
        raise InvalidValueError("a boolean must be true or false")
    return found


def _integer_codec(kind: str) -> ColumnCodec:
    least, most = RANGES[kind]

    def store(value: object) -> StoredValue:
        is_whole_text = isinstance(value, str) and len(value) < _SHOWN_CHARACTERS and _WHOLE.fullmatch(value.strip())
        if is_whole_text or (isinstance(value, (float, Decimal)) and math.isfinite(value) and value == int(value)):
            value = int(value)  # type: ignore[call-overload]
        if not isinstance(value, int) or isinstance(value, bool):
            raise InvalidValueError("it is not a whole number")
        if not least <= value <= most:
            raise InvalidValueError(f"it is not from {least} to {most}", OUT_OF_RANGE)
        return value

    return ColumnCodec(store, _unchanged)


_INTEGERS = {kind: _integer_codec(kind) for kind in RANGES}


def _store_double(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float, str, Decimal)):
        raise InvalidValueError("it is not a number")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    except ValueError:
        raise InvalidValueError("it is not a number") from None
    if not math.isfinite(number):
        is_written_in_digits = isinstance(value, int) or any(letter.isdigit() for letter in str(value))
        if is_written_in_digits:
            raise InvalidValueError("it is not a number in the range of a double", OUT_OF_RANGE)
        raise InvalidValueError("a double can't be infinite or NaN here", NOT_SUPPORTED)
    return number


def store_real(value: object) -> float:
    """Return a number as the nearest float of 32 bits, which a double holds exactly."""
    number = _store_double(value)
    rounded = nearest_float4(Decimal(value) if number and isinstance(value, str) else number)
    if math.isinf(rounded) or (number and not rounded):
        raise InvalidValueError(f"{shown(value)} is out of range for type real", OUT_OF_RANGE)
    return rounded


def store_decimal(value: object, precision: int | None, scale: int | None) -> str:
    """Return a number as text: rounded to a scale, or with the digits that it has if no precision is given."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str, Decimal)):
        raise InvalidValueError("it is not a number")
    if isinstance(value, str) and len(value) > _MAX_DECIMAL_CHARACTERS:
        raise InvalidValueError("value overflows numeric format", OUT_OF_RANGE)
    try:
        number = Decimal(repr(value)) if isinstance(value, float) else Decimal(value)
        if not number.is_finite():
            if precision is not None:
                raise InvalidValueError("a decimal with a precision can't be infinite or NaN here", NOT_SUPPORTED)
            return "NaN" if number.is_nan() else format(number, "f")
        if number.adjusted() >= MAX_WHOLE_DIGITS or -int(number.as_tuple().exponent) > MAX_SCALE:
            raise InvalidValueError("value overflows numeric format", OUT_OF_RANGE)
        if precision is not None:
            if number and number.adjusted() > precision - (scale or 0):
                raise InvalidValueError("numeric field overflow", OUT_OF_RANGE)
            number = number.quantize(Decimal(1).scaleb(-(scale or 0)), context=_DECIMALS)
            if number and number.adjusted() >= precision - (scale or 0):
                raise InvalidValueError("numeric field overflow", OUT_OF_RANGE)
    except (DecimalException, ValueError):
        raise InvalidValueError("it is not a decimal number") from None
    return format(number or abs(number), "f")


def _store_text(value: object) -> StoredValue:
    if not isinstance(value, str):
        raise InvalidValueError("it is not text; put it in quotes or cast it to text")
    if "\0" in value:
        raise InvalidValueError("text can't have the character 0")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise InvalidValueError("it is not valid Unicode") from None
    return value


def fit_text(text: str, type_: ColumnType) -> str:
    """Return a text as a varchar(n) or char(n) holds it. Spaces beyond its length are cut off, anything else is refused."""
    length = type_.length or len(text)
    if len(text) > length:
        if text[length:].strip(" "):
            name = "character varying" if type_.kind == "text" else "character"
            raise InvalidValueError(f"value too long for type {name}({length})", TOO_LONG)
        text = text[:length]
    return text.ljust(length) if type_.kind == "char" else text


def _store_label(value: object, type_: ColumnType) -> StoredValue:
    if not isinstance(value, str) or value not in type_.labels:
        raise InvalidValueError(
            f"invalid input value for enum {type_.name}: {shown(value)}; use {', '.join(type_.labels[:20])}"
        )
    return value


def _store_bytes(value: object) -> StoredValue:
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    if isinstance(value, str) and value.startswith("\\x"):
        try:
            return bytes.fromhex(value[2:])
        except ValueError:
            raise InvalidValueError("\\x must be followed by pairs of hexadecimal digits") from None
    raise InvalidValueError("write bytes as '\\x0aff' or as decode('Cv8=', 'base64')")


def store_date(value: object) -> str:
    if isinstance(value, datetime):
        value = value.astimezone(UTC).date() if value.tzinfo else value.date()
    if isinstance(value, date):
        return value.isoformat()
    try:
        return date.fromisoformat(value.strip()).isoformat()  # type: ignore[attr-defined]
    except (ValueError, AttributeError):
        raise InvalidValueError("write a date as '2026-01-31'") from None


def store_time(value: object) -> str:
    """Return a time of day with all six digits of its fraction, so that texts are ordered as times are."""
    if isinstance(value, str):
        try:
            value = read_text(value, TIME)
        except AnalysisError as error:
            raise InvalidValueError(error.message, error.sqlstate) from None
    if not isinstance(value, time) or value.tzinfo is not None:
        raise InvalidValueError("write a time as '13:45:00.5'")
    return value.isoformat(timespec="microseconds")


def _store_interval(value: object) -> StoredValue:
    try:
        found = read_interval(value) if isinstance(value, str) else value
    except AnalysisError as error:
        raise InvalidValueError(error.message, error.sqlstate) from None
    if not isinstance(found, Interval):
        raise InvalidValueError("write an interval as '1 day 02:30:00'")
    if abs(found.microseconds) > MAX_INTERVAL_MICROSECONDS:
        raise InvalidValueError("an interval of more than 292 years in hours is not supported", NOT_SUPPORTED)
    return interval_text(found)


def store_timestamp(value: object) -> str:
    try:
        if isinstance(value, str):
            value = datetime.fromisoformat(value.strip())
        if isinstance(value, date) and not isinstance(value, datetime):
            value = datetime(value.year, value.month, value.day, tzinfo=UTC)
        return timestamp_text(value)  # type: ignore[arg-type]
    except (ValueError, AttributeError, OverflowError):
        raise InvalidValueError(
            "write a timestamp as '2026-01-31 13:45:00.5', with an offset such as '+02:00' if it is not UTC"
        ) from None


def timestamp_text(timestamp: datetime) -> str:
    if timestamp.tzinfo is not None:
        timestamp = timestamp.astimezone(UTC)
    return timestamp.replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"


def _store_uuid(value: object) -> StoredValue:
    try:
        return str(value if isinstance(value, UUID) else UUID(value))  # type: ignore[arg-type]
    except (ValueError, AttributeError, TypeError):
        raise InvalidValueError("write a UUID as 'f81d4fae-7dec-41d0-a765-00a0c91e6bf6'") from None


def _store_json(value: object) -> StoredValue:
    """Store JSON as written, without white space. A JSON null becomes a null: a change event could not tell them apart."""
    try:
        text = msgspec.json.format(value, indent=-1) if isinstance(value, str) else msgspec.json.encode(value).decode()
        msgspec.json.decode(text)
    except (msgspec.MsgspecError, RecursionError, TypeError, ValueError) as error:
        raise InvalidValueError(f"it is not JSON: {error}") from None
    return None if text == "null" else text


def _list_codec(element: ColumnType) -> ColumnCodec:
    inner = codec_of(element)

    def store(value: object) -> StoredValue:
        if isinstance(value, str):
            try:
                value = msgspec.json.decode(value)
            except (msgspec.MsgspecError, RecursionError):
                value = None
        if not isinstance(value, (list, tuple)):
            raise InvalidValueError("write a list as ARRAY[1, 2] or as the JSON text '[1, 2]'")
        kept = [None if item is None else json_form(element, inner.store(_from_json(element, item))) for item in value]
        return msgspec.json.encode(kept).decode()

    def load(kept: StoredValue) -> object:
        return [None if item is None else inner.load(_kept_again(element, item)) for item in msgspec.json.decode(str(kept))]

    return ColumnCodec(store, load)


def _from_json(element: ColumnType, item: object) -> object:
    """Return an item of a list in JSON text, where bytes are base64, as in change events, and JSON is not a string."""
    if element.kind == "bytes" and isinstance(item, str) and not item.startswith("\\x"):
        try:
            return b64decode(item, validate=True)
        except ValueError:
            raise InvalidValueError(f"{shown(item)} is not base64") from None
    if element.kind in ("json", "list") and not isinstance(item, (list, tuple)):
        return msgspec.json.encode(item).decode()
    return item


def _kept_again(element: ColumnType, item: object) -> StoredValue:
    match element.kind:
        case "bytes":
            return b64decode(str(item))
        case "json" | "list":
            return msgspec.json.encode(item).decode()
    return item  # type: ignore[return-value]


def stored(value: object, column: Column) -> StoredValue:
    """Return a value in the stored form of a column."""
    kept = None
    if value is not None:
        try:
            kept = codec_of(column.type).store(value)
        except InvalidValueError as why:
            raise SqlError(
                f"column {column.name!r} is {column.type} and can't store {shown(value)}: {why}", sqlstate=why.sqlstate
            ) from None
    if kept is None and not column.nullable:
        raise ConstraintError(f"column {column.name!r} can't be null", sqlstate=NOT_NULL)
    return kept


def all_fit(values: Sequence[Any], type_: ColumnType) -> bool:
    """Return whether values are in the stored form of a type as they are."""
    kinds, kind = set(map(type, values)), type_.kind
    if kind == "text":
        is_short = type_.length is None or max(map(len, values), default=0) <= type_.length
        return kinds == {str} and is_short and "\0" not in "".join(values)
    if kind == "double":
        return kinds == {float} and all(map(math.isfinite, values))
    if kind in RANGES and kinds == {int}:
        least, most = RANGES[kind]
        return bool(least <= min(values) and max(values) <= most)
    return False


def doubles_of(values: Sequence[Any]) -> list[float] | None:
    """Return numbers of any kind as doubles, or `None` if one of them can't be converted."""
    if not set(map(type, values)) <= {int, float, Decimal}:
        return None
    try:
        doubles = list(map(float, values))
    except OverflowError:
        return None
    # A number that is too small for a double is refused, so zeros are looked at one by one.
    return (
        doubles if all(map(math.isfinite, doubles)) and (0.0 not in doubles or Decimal not in set(map(type, values))) else None
    )
