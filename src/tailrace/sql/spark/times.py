"""Dates, timestamps and intervals, in UTC.

What is computed stays within the years 1 to 9999, or fails. Intervals are constants or differences of timestamps; they can be
compared, and constant ones can be added.
"""

import re
from collections.abc import Callable, Sequence

from tailrace.sql.analysis.errors import UnsupportedError
from tailrace.sql.analysis.interval_texts import Interval
from tailrace.sql.analysis.tree import Call, Constant, Expression
from tailrace.sql.spark.templates import Rendered, Template, constant_of, fails, spark_string, time_field, type_of

_DAY_MICROSECONDS = 86_400_000_000
_MAX_DAYS = 4_000_000
_MAX_MONTHS = 130_000
_FIRST_DAY, _LAST_DAY = "DATE '0001-01-01'", "DATE '9999-12-31'"
_FIRST_MOMENT, _LAST_MOMENT = "TIMESTAMP '0001-01-01 00:00:00Z'", "TIMESTAMP '9999-12-31 23:59:59.999999Z'"
_TRUNCATED = (
    "microseconds", "milliseconds", "second", "minute", "hour", "day", "week", "month", "quarter", "year",
)  # fmt: skip
_DAY_FIELDS = {
    "year": "year({0})",
    "quarter": "quarter({0})",
    "month": "month({0})",
    "week": "weekofyear({0})",
    "day": "day({0})",
    "dow": "(dayofweek({0}) - 1)",
    "isodow": "(weekday({0}) + 1)",
    "doy": "dayofyear({0})",
    "isoyear": "extract(YEAROFWEEK FROM {0})",
}
_CLOCK_FIELDS = {
    "hour": "hour({0})",
    "minute": "minute({0})",
    "second": "extract(SECOND FROM {0})",
    "milliseconds": "(extract(SECOND FROM {0}) * 1000)",
    "microseconds": "(extract(SECOND FROM {0}) * 1000000)",
    "epoch": "(CAST(unix_micros({0}) AS DECIMAL(18, 0)) * CAST('0.000001' AS DECIMAL(7, 6)))",
}


def microseconds_of(interval: Interval) -> int:
    """Return the length by which PostgreSQL compares intervals: a month has 30 days."""
    return (interval.months * 30 + interval.days) * _DAY_MICROSECONDS + interval.microseconds


def _extracted(arguments: Sequence[str], call: Call) -> Rendered:
    """Render `extract`, a numeric, and `date_part`, a double."""
    field, moment = call.arguments
    constant_of(field, "the field of a date or time")
    name = time_field(field) if isinstance(field, Constant) else ""
    fields = _DAY_FIELDS if moment.type.name == "date" else _DAY_FIELDS | _CLOCK_FIELDS
    if name not in fields:
        raise UnsupportedError(
            f"a route can't extract {name} from {moment.type}; it can extract {', '.join(fields)}", call.location
        )
    kind = "DOUBLE" if call.type.name == "float8" else type_of(call)
    return f"CAST({fields[name].format(arguments[1])} AS {kind})"


def _truncated(arguments: Sequence[str], call: Call) -> Rendered:
    field = call.arguments[0]
    constant_of(field, "the field of date_trunc")
    name = time_field(field) if isinstance(field, Constant) else ""
    if name not in _TRUNCATED:
        raise UnsupportedError(f"in a route date_trunc can truncate to {', '.join(_TRUNCATED)}, not to {name}", call.location)
    return f"date_trunc('{name.removesuffix('s').upper()}', {arguments[1]})"


def _moved(sign: int, *, interval_first: bool = False) -> Callable[[Sequence[str], Call], Rendered]:
    def render(arguments: Sequence[str], call: Call) -> Rendered:
        moment, interval = (1, 0) if interval_first else (0, 1)
        by = _interval(call.arguments[interval])
        text = arguments[moment]
        if call.arguments[moment].type.name == "date":
            text = f"CAST({text} AS TIMESTAMP)"
        for unit, amount in (("MONTH", by.months), ("DAY", by.days), ("MICROSECOND", by.microseconds)):
            text = f"timestampadd({unit}, {sign * amount}{'L' if unit == 'MICROSECOND' else ''}, {text})" if amount else text
        return fails(f"CASE WHEN {text} BETWEEN {_FIRST_MOMENT} AND {_LAST_MOMENT} THEN {text} END")

    return render


def _interval(node: Expression) -> Interval:
    value = constant_of(node, "an interval that is added or subtracted")
    if not isinstance(value, Interval):
        raise UnsupportedError("in a route an interval that is added or subtracted must be a constant", node.location)
    if (
        abs(value.months) > _MAX_MONTHS
        or abs(value.days) > _MAX_DAYS
        or abs(value.microseconds) > _MAX_DAYS * _DAY_MICROSECONDS
    ):
        raise UnsupportedError("the interval is longer than 10,000 years", node.location)
    return value


def _days_added(sign: str) -> Callable[[Sequence[str], Call], Rendered]:
    def render(arguments: Sequence[str], call: Call) -> Rendered:
        days, count = arguments if call.arguments[0].type.name == "date" else reversed(arguments)
        moved = f"date_add({days}, {sign}{count})"
        return fails(
            f"CASE WHEN {count} BETWEEN -{_MAX_DAYS} AND {_MAX_DAYS} AND {moved} BETWEEN {_FIRST_DAY} AND {_LAST_DAY}"
            f" THEN {moved} END"
        )

    return render


_FORMAT_FIELDS = {"YYYY": "yyyy", "MM": "MM", "DD": "dd", "HH24": "HH", "MI": "mm", "SS": "ss"}
_FORMAT = re.compile(rf'({"|".join(_FORMAT_FIELDS)})|([-/ :.,_]+)|"([-/ :.,_A-Za-z]*)"', re.IGNORECASE)
_OTHER_FIELDS = ("DDD", "SSSS")
"""Fields that begin like two of the others."""


def _formatted(arguments: Sequence[str], call: Call) -> Rendered:
    """Render `to_char` with the fields that are numbers of a fixed width."""
    text = str(constant_of(call.arguments[1], "the format of to_char"))
    parts = list(_FORMAT.finditer(text))
    is_known = "".join(part[0] for part in parts) == text and not any(name in text.upper() for name in _OTHER_FIELDS)
    if not is_known or not text:
        raise UnsupportedError(
            f"in a route to_char can have the fields {', '.join(_FORMAT_FIELDS)}, signs and quoted letters", call.location
        )
    pattern = "".join(_FORMAT_FIELDS[part[1].upper()] if part[1] else f"'{part[2] or part[3]}'" for part in parts)
    return f"date_format({arguments[0]}, {spark_string(pattern)})"


def _in_utc(arguments: Sequence[str], call: Call) -> Rendered:
    zone = str(constant_of(call.arguments[0], "a time zone"))
    if zone.upper() not in ("UTC", "Z", "ETC/UTC", "GMT"):
        raise UnsupportedError("a route can only use the time zone UTC", call.arguments[0].location)
    return arguments[1]


TIMES: dict[str, Template] = {
    "date + int4": _days_added(""),
    "int4 + date": _days_added(""),
    "date - int4": _days_added("-"),
    "date - date": "datediff({0}, {1})",
    "make_date(int4, int4, int4)": fails(
        "CASE WHEN {0} BETWEEN 1 AND 9999 THEN try_cast(format_string('%04d-%02d-%02d', {0}, {1}, {2}) AS DATE) END"
    ),
    "isfinite(date)": "CASE WHEN {0} IS NOT NULL THEN TRUE END",
    "timezone(text, timestamptz)": _in_utc,
    "timezone(text, timestamp)": _in_utc,
    "extract(text, date)": _extracted,
    "date_part(text, date)": _extracted,
    "date + interval": _moved(1),
    "interval + date": _moved(1, interval_first=True),
    "date - interval": _moved(-1),
}
for _name in ("timestamp", "timestamptz"):
    TIMES |= {
        f"{_name} + interval": _moved(1),
        f"interval + {_name}": _moved(1, interval_first=True),
        f"{_name} - interval": _moved(-1),
        f"{_name} - {_name}": "(unix_micros({0}) - unix_micros({1}))",
        f"extract(text, {_name})": _extracted,
        f"isfinite({_name})": "CASE WHEN {0} IS NOT NULL THEN TRUE END",
        f"date_part(text, {_name})": _extracted,
        f"to_char({_name}, text)": _formatted,
        f"date_trunc(text, {_name})": _truncated,
    }
