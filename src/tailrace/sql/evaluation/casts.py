"""Casts between types."""

import math
from datetime import UTC, date, datetime, time
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation
from typing import Any

from tailrace.sql.analysis.errors import UnsupportedError
from tailrace.sql.analysis.input_texts import nearest_float4, read_text
from tailrace.sql.analysis.interval_texts import Interval
from tailrace.sql.analysis.json_documents import document_text, read_document
from tailrace.sql.analysis.types import FLOATS, INTEGERS, TEXTS, SqlType, digits_of
from tailrace.sql.evaluation.functions import EvaluationError, Function
from tailrace.sql.evaluation.output_texts import cast_printer
from tailrace.sql.functions.text_functions import name_of_text

RANGES = {"int2": (-(1 << 15), (1 << 15) - 1), "int4": (-(1 << 31), (1 << 31) - 1), "int8": (-(1 << 63), (1 << 63) - 1)}
_CONTEXT = Context(prec=2000, rounding=ROUND_HALF_UP, Emin=-999_999, Emax=999_999)
_DAY = 86_400_000_000


def cast_function(source: SqlType, target: SqlType, *, is_explicit: bool) -> Function | None:
    """Return a function that casts values of one type to another, or `None` if there is none. Nulls are not passed to it."""
    if source.is_array and target.is_array:
        inner = cast_function(source.element, target.element, is_explicit=is_explicit)
        return None if inner is None else lambda items: [None if item is None else inner(item) for item in items]
    if target.name in TEXTS:
        return _to_text(source, target, is_explicit)
    convert = _scalar_cast(source, target)
    if source.name == "jsonb" and target.name not in ("json", "jsonb") and convert is not None:
        # The null of JSON becomes the null of SQL.
        return lambda text: None if text == "null" else convert(text)
    return convert


def _scalar_cast(source: SqlType, target: SqlType) -> Function | None:
    if source.name in TEXTS:
        return _from_text(source, target)
    if target.name in INTEGERS:
        return _to_integer(source, target)
    if target.name == "numeric":
        return _to_numeric(source, target)
    if target.name in FLOATS:
        return _to_float(source, target)
    return _unchanged if source.name == target.name else _CASTS.get((source.name, target.name))


def _unchanged(value: Any) -> Any:
    return value


def _to_text(source: SqlType, target: SqlType, is_explicit: bool) -> Function:
    length = target.length
    if target.name == "bpchar" and source.name == "bpchar" and length is None:
        return _unchanged
    printed: Function = _unchanged if source.name in ("text", "varchar", "name") else cast_printer(source)
    if target.name == "name":
        return lambda value: name_of_text(printed(value))
    if length is None:
        return printed
    limit = length

    def fit(value: Any) -> str:
        text: str = printed(value)
        if len(text) > limit:
            if not is_explicit and text[limit:].strip(" "):
                raise EvaluationError("22001", f"value too long for type {target}({limit})")
            text = text[:limit]
        return text.ljust(limit) if target.name == "bpchar" else text

    return fit


def _from_text(source: SqlType, target: SqlType) -> Function:
    if target.name == "numeric" and digits_of(target) is not None:
        fit = numeric_fitter(target)
        return lambda text: fit(read_text(text, target.plain))
    if target.name == "regtype":
        raise UnsupportedError("a cast to regtype is not supported")
    return lambda text: read_text(text, target)


def _to_integer(source: SqlType, target: SqlType) -> Function | None:
    low, high = RANGES[target.name]

    def fit(value: int) -> int:
        if low <= value <= high:
            return value
        raise EvaluationError("22003", f"{target} out of range")

    if source.name in INTEGERS:
        return fit
    if source.name in FLOATS:
        return lambda value: fit(round(value)) if math.isfinite(value) else fit(high + 1)
    if source.name == "numeric":
        return lambda value: fit(_whole(value, target))
    if source.name == "bool" and target.name == "int4":
        return int
    if source.name == "bytea":
        return lambda value: _integer_of_bytes(value, target)
    if source.name == "jsonb":
        return lambda text: fit(int(_json_number(text, target).to_integral_value(rounding=ROUND_HALF_UP)))
    return None


def _integer_of_bytes(value: bytes, target: SqlType) -> int:
    size = _INTEGER_BYTES[target.name]
    if len(value) > size:
        raise EvaluationError("22003", f"{target} out of range")
    return int.from_bytes(value.rjust(size, b"\0"), signed=True)


def _whole(value: Decimal, target: SqlType) -> int:
    if not value.is_finite():
        what = "NaN" if value.is_nan() else "infinity"
        raise EvaluationError("0A000", f"cannot convert {what} to {target}")
    return int(value.to_integral_value(rounding=ROUND_HALF_UP))


def _to_numeric(source: SqlType, target: SqlType) -> Function | None:
    convert: Function
    if source.name in INTEGERS:
        convert = Decimal
    elif source.name in FLOATS:
        digits = 15 if source.name == "float8" else 6
        convert = lambda value: _float_as_numeric(value, digits)  # noqa: E731
    elif source.name == "jsonb":
        convert = lambda text: _json_number(text, target)  # noqa: E731
    elif source.name == "numeric":
        convert = _unchanged
    else:
        return None
    if target.precision is None:
        return convert
    fit = numeric_fitter(target)
    return lambda value: fit(convert(value))


def numeric_fitter(target: SqlType) -> Function:
    """Return a function that rounds numerics to the scale of a type, and fails if they have too many digits."""
    scale, precision = target.scale or 0, target.precision or 0
    unit = Decimal(1).scaleb(-scale)
    limit = Decimal(1).scaleb(precision - scale)

    def fit(value: Decimal) -> Decimal:
        if value.is_nan():
            return value
        try:
            rounded = value.quantize(unit, context=_CONTEXT)
        except InvalidOperation:
            rounded = limit
        if rounded.copy_abs() >= limit:
            raise EvaluationError("22003", "numeric field overflow")
        return rounded if rounded else rounded.copy_abs()

    return fit


def _float_as_numeric(value: float, digits: int) -> Decimal:
    if not math.isfinite(value):
        return Decimal(value)
    found = Decimal(f"{value:.{digits}g}")
    text = format(found, "f")
    return Decimal(text.rstrip("0").rstrip(".") or "0") if "." in text else Decimal(text)


def _to_float(source: SqlType, target: SqlType) -> Function | None:
    if source.name in INTEGERS or source.name in FLOATS:
        return as_real if target.name == "float4" else float
    if source.name == "numeric":
        return lambda value: _numeric_as_float(value, target)
    if source.name == "jsonb":
        return lambda text: _numeric_as_float(_json_number(text, target), target)
    return None


def _numeric_as_float(value: Decimal, target: SqlType) -> float:
    if not value.is_finite():
        return float(value)
    result = nearest_float4(value) if target.name == "float4" else float(value)
    if math.isinf(result) or (result == 0 and value):
        raise EvaluationError("22003", f'"{value:f}" is out of range for type {target}')
    return result


def as_real(value: float) -> float:
    """Return a number as a float4 holds it."""
    result = nearest_float4(value)
    if math.isinf(result) and not math.isinf(value):
        raise EvaluationError("22003", "value out of range: overflow")
    if result == 0 and value:
        raise EvaluationError("22003", "value out of range: underflow")
    return result


def _json_number(text: str, target: SqlType) -> Decimal:
    value = read_document(text)
    if isinstance(value, bool) or not isinstance(value, int | Decimal):
        raise _wrong_json(value, target)
    return Decimal(value)


def _wrong_json(value: Any, target: SqlType) -> EvaluationError:
    kinds = {str: "string", bool: "boolean", list: "array", dict: "object", type(None): "null"}
    kind = kinds.get(type(value), "numeric")
    return EvaluationError("22023", f"cannot cast jsonb {kind} to type {target.plain}")


def _json_as_boolean(text: str) -> bool:
    value = read_document(text)
    if not isinstance(value, bool):
        raise _wrong_json(value, SqlType("bool"))
    return value


def date_as_timestamp(value: date) -> datetime:
    return datetime(value.year, value.month, value.day)  # noqa: DTZ001


def microseconds_of(value: time) -> int:
    return ((value.hour * 60 + value.minute) * 60 + value.second) * 1_000_000 + value.microsecond


def time_of(microseconds: int) -> time:
    """Return the time of the day, counted from midnight in either direction."""
    seconds, micro = divmod(microseconds % _DAY, 1_000_000)
    return time(seconds // 3600, seconds // 60 % 60, seconds % 60, micro)


_INTEGER_BYTES = {"int2": 2, "int4": 4, "int8": 8}
_CASTS: dict[tuple[str, str], Function] = {
    **{(name, "bytea"): lambda value, size=size: value.to_bytes(size, signed=True) for name, size in _INTEGER_BYTES.items()},
    ("int4", "bool"): bool,
    ("jsonb", "bool"): _json_as_boolean,
    ("date", "timestamp"): date_as_timestamp,
    ("date", "timestamptz"): lambda value: date_as_timestamp(value).replace(tzinfo=UTC),
    ("timestamp", "date"): datetime.date,
    ("timestamptz", "date"): datetime.date,
    ("timestamp", "time"): datetime.time,
    ("timestamptz", "time"): datetime.time,
    ("timestamp", "timestamptz"): lambda value: value.replace(tzinfo=UTC),
    ("timestamptz", "timestamp"): lambda value: value.replace(tzinfo=None),
    ("time", "interval"): lambda value: Interval(0, 0, microseconds_of(value)),
    ("interval", "time"): lambda value: time_of(value.microseconds),
    ("json", "jsonb"): lambda text: document_text(read_document(text)),
    ("jsonb", "json"): lambda text: document_text(read_document(text)),
}
