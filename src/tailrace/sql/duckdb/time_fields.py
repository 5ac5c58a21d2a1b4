"""The fields of dates, times and intervals: extract, date_part and date_trunc."""

from collections.abc import Sequence

from tailrace.sql.analysis.datetime_fields import field_of
from tailrace.sql.analysis.errors import INVALID_PARAMETER, UnsupportedError
from tailrace.sql.analysis.tree import Call, Constant, Expression
from tailrace.sql.duckdb.templates import Template

_DAY_US = 86_400_000_000
_CALENDAR = {
    "millennium": "millennium_of(year({0}))",
    "century": "century_of(year({0}))",
    "decade": "decade_of(year({0}))",
    "year": "shown_year(year({0}))",
    "isoyear": "shown_year(isoyear({0}))",
    "quarter": "quarter({0})",
    "month": "month({0})",
    "week": "week({0})",
    "day": "day({0})",
    "dow": "dayofweek({0})",
    "isodow": "isodow({0})",
    "doy": "dayofyear({0})",
}
_JULIAN_DAY = "julian_day({0})"
_US_OF_DAY = "micros_of_day({0})"
_CLOCK = {"hour": "hour({0})", "minute": "minute({0})", "microsecond": "date_part('microseconds', {0})"}
_INTERVAL = {
    "millennium": "(interval_months({0}) // 12000)",
    "century": "(interval_months({0}) // 1200)",
    "decade": "(interval_months({0}) // 120)",
    "year": "(interval_months({0}) // 12)",
    "quarter": "interval_quarter({0})",
    "month": "(interval_months({0}) % 12)",
    "week": "(interval_days({0}) // 7)",
    "day": "interval_days({0})",
    **_CLOCK,
}
_ZERO = "CASE WHEN {0} IS NOT NULL THEN 0 END"
_FIELDS: dict[str, dict[str, str]] = {
    "date": {**_CALENDAR, "julian": _JULIAN_DAY},
    "timestamp": {**_CALENDAR, **_CLOCK},
    "timestamptz": {**_CALENDAR, **_CLOCK, "timezone": _ZERO, "timezone_hour": _ZERO, "timezone_minute": _ZERO},
    "time": _CLOCK,
    "interval": _INTERVAL,
}
"""The fields that are whole numbers."""
_TRUNCATED = {
    "microsecond": "{0}",
    "millisecond": "date_trunc('milliseconds', {0})",
    **{
        unit: f"date_trunc('{unit}', {{0}})" for unit in ("second", "minute", "hour", "day", "week", "month", "quarter", "year")
    },
    "decade": "decade_start(year({0}))",
    "century": "century_start(year({0}))",
    "millennium": "millennium_start(year({0}))",
}
_WITHIN_DAY = frozenset(("microsecond", "millisecond", "second", "minute", "hour"))
_INTERVAL_STEPS = {"hour": 3_600_000_000, "minute": 60_000_000, "second": 1_000_000, "millisecond": 1_000, "microsecond": 1}
_INTERVAL_MONTHS = {"month": 1, "quarter": 3, "year": 12, "decade": 120, "century": 1200, "millennium": 12_000}


def _constant_field(argument: Expression) -> str:
    """Return the field that a call names, or the name as it is if there is no such field."""
    if not isinstance(argument, Constant):
        raise UnsupportedError("the field of a date or time must be a constant", argument.location)
    return field_of(str(argument.value)) or str(argument.value)


def _not_supported(unit: str, value: str, call: Call) -> str:
    """Write a call that fails for every value but null."""
    kind = call.arguments[1].type
    if field_of(unit) is None:
        code, message = INVALID_PARAMETER, f'unit "{unit}" not recognized for type {kind}'
    else:
        code, message = "0A000", f'unit "{unit}" not supported for type {kind}'
    quoted = message.replace("'", "''")
    return f"CASE WHEN {value} IS NOT NULL THEN fail('{code}', '{quoted}') END"


def _extract(arguments: Sequence[str], call: Call) -> str:
    """Write `extract`, whose result is a numeric with the digits that PostgreSQL gives the field."""
    kind = call.arguments[1].type
    if isinstance(call.arguments[0], Constant) and call.arguments[0].value is None:
        return "NULL"
    unit = _constant_field(call.arguments[0])
    value = arguments[1]
    digits = f"DECIMAL({call.type.precision}, {call.type.scale})"
    whole = _FIELDS[kind.name].get(unit)
    if whole is not None:
        return f"CAST({whole.format(value)} AS {digits})"
    has_clock = kind.name != "date"
    if unit in ("second", "millisecond") and has_clock:
        scale = 6 if unit == "second" else 3
        return f"CAST(CAST(date_part('microseconds', {value}) AS DECIMAL(18, 0)) * {10**-scale:.{scale}f} AS {digits})"
    if unit == "epoch":
        if kind.name == "date":
            return f"CAST(epoch_us(CAST({value} AS TIMESTAMP)) // 1000000 AS {digits})"
        return f"CAST({_epoch_micros(value, kind.name)} * 0.000001 AS {digits})"
    if unit == "julian" and kind.name in ("timestamp", "timestamptz"):
        part = f"numeric_div(CAST({_US_OF_DAY.format(value)} AS VARCHAR), '{_DAY_US}')"
        return f"numeric_add(CAST({_JULIAN_DAY.format(value)} AS VARCHAR), {part})"
    return _not_supported(unit, value, call)


def _epoch_micros(value: str, kind: str) -> str:
    if kind != "interval":
        return f"CAST(epoch_us({value}) AS DECIMAL(20, 0))"
    seconds = f"CAST(interval_whole_seconds({value}) AS DECIMAL(28, 0))"
    return f"({seconds} * 1000000 + CAST(interval_micros({value}) AS DECIMAL(28, 0)))"


def _date_part(arguments: Sequence[str], call: Call) -> str:
    """Write `date_part`, whose result is a float."""
    kind = call.arguments[1].type.name
    if isinstance(call.arguments[0], Constant) and call.arguments[0].value is None:
        return "NULL::DOUBLE"
    unit = _constant_field(call.arguments[0])
    value = arguments[1]
    if kind == "date":
        kind, value = "timestamp", f"CAST({value} AS TIMESTAMP)"
    whole = _FIELDS[kind].get(unit)
    if whole is not None:
        return f"CAST({whole.format(value)} AS DOUBLE)"
    micros = f"date_part('microseconds', {value})"
    if unit == "second":
        return f"(CAST({micros} // 1000000 AS DOUBLE) + CAST({micros} % 1000000 AS DOUBLE) / 1000000.0::DOUBLE)"
    if unit == "millisecond":
        return f"(CAST({micros} // 1000000 AS DOUBLE) * 1000.0::DOUBLE + CAST({micros} % 1000000 AS DOUBLE) / 1000.0::DOUBLE)"
    if unit == "epoch" and kind == "interval":
        return f"interval_seconds({value})"
    if unit == "epoch":
        return f"(CAST(epoch_us({value}) AS DOUBLE) / 1000000.0::DOUBLE)"
    if unit == "julian" and kind in ("timestamp", "timestamptz"):
        of_day = _US_OF_DAY.format(value)
        seconds = f"(CAST({of_day} // 1000000 AS DOUBLE) + CAST({of_day} % 1000000 AS DOUBLE) / 1000000.0::DOUBLE)"
        return f"(CAST({_JULIAN_DAY.format(value)} AS DOUBLE) + {seconds} / 86400.0::DOUBLE)"
    return _not_supported(unit, value, call)


def _trunc(arguments: Sequence[str], call: Call) -> str:
    if isinstance(call.arguments[0], Constant) and call.arguments[0].value is None:
        return "NULL::TIMESTAMP"
    unit = _constant_field(call.arguments[0])
    value = arguments[1]
    template = _TRUNCATED.get(unit)
    if template is None:
        return _not_supported(unit, value, call)
    if len(arguments) == 2:
        return template.format(arguments[1])
    local = f"to_local({arguments[1]}, {arguments[2]})"
    if unit in _WITHIN_DAY:
        # Within a day the offset of the zone stays what it is.
        return f"({arguments[1]} - ({local} - {template.format(local)}))"
    return f"to_instant({template.format(local)}, {arguments[2]})"


def _trunc_interval(arguments: Sequence[str], call: Call) -> str:
    if isinstance(call.arguments[0], Constant) and call.arguments[0].value is None:
        return "NULL::INTERVAL"
    unit = _constant_field(call.arguments[0])
    value = arguments[1]
    if unit in _INTERVAL_MONTHS:
        step = _INTERVAL_MONTHS[unit]
        return f"interval_of(interval_months({value}) // {step} * {step}, 0, 0)"
    if unit == "day":
        return f"interval_of(interval_months({value}), interval_days({value}), 0)"
    if unit in _INTERVAL_STEPS:
        step = _INTERVAL_STEPS[unit]
        return f"interval_of(interval_months({value}), interval_days({value}), interval_micros({value}) // {step} * {step})"
    return _not_supported(unit, value, call)


_KINDS = ("date", "time", "timestamp", "timestamptz", "interval")
TIME_FIELDS: dict[str, Template] = {
    **{f"extract(text, {kind})": _extract for kind in _KINDS},
    **{f"date_part(text, {kind})": _date_part for kind in _KINDS},
    "date_trunc(text, timestamp)": _trunc,
    "date_trunc(text, timestamptz)": _trunc,
    "date_trunc(text, timestamptz, text)": _trunc,
    "date_trunc(text, interval)": _trunc_interval,
}
