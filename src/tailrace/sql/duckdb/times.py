"""Dates, times and intervals."""

from collections.abc import Sequence

from tailrace.sql.analysis.errors import UnsupportedError
from tailrace.sql.analysis.interval_texts import FULL_RANGE, IntervalRange
from tailrace.sql.analysis.tree import Call, Constant
from tailrace.sql.duckdb.templates import AggregateTemplate, RowFunction, Template, expanded
from tailrace.sql.duckdb.time_fields import TIME_FIELDS
from tailrace.sql.functions.datetime_formats import DatetimeFormatError, strftime_of

_COMPARED = ("=", "<>", "<", "<=", ">", ">=")


def _constant(call: Call, at: int) -> int:
    argument = call.arguments[at]
    return int(str(argument.value)) if isinstance(argument, Constant) else 0


def _rounded_moment(arguments: Sequence[str], call: Call) -> str:
    step = 10 ** (6 - _constant(call, 1))
    return arguments[0] if step == 1 else f"make_timestamp(rounded_to_digits(epoch_us({arguments[0]}), {step}))"


def _rounded_time(arguments: Sequence[str], call: Call) -> str:
    step = 10 ** (6 - _constant(call, 1))
    return arguments[0] if step == 1 else f"time_of_clock(rounded_to_digits(epoch_us({arguments[0]}), {step}))"


def _restricted_interval(arguments: Sequence[str], call: Call) -> str:
    """Write the cast of an interval to some units, or to fewer digits of its seconds."""
    modifier = _constant(call, 1)
    units, digits = modifier >> 16, modifier & 0xFFFF
    value = arguments[0]
    months, days, micros = (f"interval_{part}({value})" for part in ("months", "days", "micros"))
    match IntervalRange(units).smallest if units != FULL_RANGE else "second":
        case "year":
            return f"interval_of({months} // 12 * 12, 0, 0)"
        case "month":
            return f"interval_of({months}, 0, 0)"
        case "day":
            return f"interval_of({months}, {days}, 0)"
        case "hour":
            return f"interval_of({months}, {days}, {micros} // 3600000000 * 3600000000)"
        case "minute":
            return f"interval_of({months}, {days}, {micros} // 60000000 * 60000000)"
    return value if digits >= 6 else f"interval_of({months}, {days}, rounded_to_digits({micros}, {10 ** (6 - digits)}))"


def _make_interval(arguments: Sequence[str], call: Call) -> str:
    given = [*arguments, *["0::INTEGER"] * (6 - len(arguments)), "0::DOUBLE"][:7]
    return f"interval_of_units({', '.join(given)})"


def _to_char(arguments: Sequence[str], call: Call) -> str:
    zone = "UTC" if call.arguments[0].type.name == "timestamptz" else ""
    slow = f"timestamp_chars(epoch_us({arguments[0]}), {arguments[1]}, '{zone}')"
    picture = call.arguments[1]
    if not isinstance(picture, Constant) or picture.value is None:
        return slow
    try:
        native = strftime_of(str(picture.value))
    except DatetimeFormatError as error:
        raise UnsupportedError(str(error).removeprefix("[0A000] "), picture.location) from None
    if native is None:
        return slow
    quoted = native.replace("'", "''")
    return f"CASE WHEN {arguments[0]} < TIMESTAMP '0001-01-01' THEN {slow} ELSE strftime({arguments[0]}, '{quoted}') END"


def _overlaps() -> dict[str, Template]:
    entries: dict[str, Template] = {}
    for kind in ("time", "timestamp", "timestamptz"):
        ends = {kind: "{{{0}}}", "interval": "({{{1}}} + {{{0}}})"}
        if kind == "time":
            ends["interval"] = "make_time_of(epoch_us({{{1}}}) + interval_micros({{{0}}}))"
        for first, first_text in ends.items():
            for second, second_text in ends.items():
                key = f"overlaps({kind}, {first}, {kind}, {second})"
                entries[key] = f"overlaps_of({{0}}, {first_text.format(1, 0)}, {{2}}, {second_text.format(3, 2)})"
    return entries


def _mixed_comparisons() -> dict[str, Template]:
    pairs = [(a, b) for a in ("date", "timestamp", "timestamptz") for b in ("date", "timestamp", "timestamptz")]
    return {f"{a} {operator} {b}": f"({{0}} {operator} {{1}})" for a, b in pairs for operator in _COMPARED}


TIMES: dict[str, Template] = expanded(
    {
        **TIME_FIELDS,
        "to_char(timestamp, text)": _to_char,
        "to_char(timestamptz, text)": _to_char,
        "to_char(interval, text)": "interval_chars(interval_months({0}), interval_days({0}), interval_micros({0}), {1})",
        "to_date(text, text)": "CAST(make_timestamp(read_chars({0}, {1})) AS DATE)",
        "to_timestamp(text, text)": "make_timestamp(read_chars({0}, {1}))",
        **_overlaps(),
        **_mixed_comparisons(),
        "date + int4": "checked_date({0} + {1})",
        "int4 + date": "checked_date({1} + {0})",
        "date - int4": "checked_date({0} - {1})",
        "date - date": "CAST({0} - {1} AS INTEGER)",
        "date + interval": "checked_timestamp({0} + {1})",
        "interval + date": "checked_timestamp({1} + {0})",
        "date - interval": "checked_timestamp({0} - {1})",
        "date + time": "(CAST({0} AS TIMESTAMP) + to_microseconds(epoch_us({1})))",
        "time + date": "(CAST({1} AS TIMESTAMP) + to_microseconds(epoch_us({0})))",
        **{f"{kind} + interval": "checked_timestamp({0} + {1})" for kind in ("timestamp", "timestamptz")},
        **{f"interval + {kind}": "checked_timestamp({1} + {0})" for kind in ("timestamp", "timestamptz")},
        **{f"{kind} - interval": "checked_timestamp({0} - {1})" for kind in ("timestamp", "timestamptz")},
        **{f"{kind} - {kind}": "moment_difference({0}, {1})" for kind in ("timestamp", "timestamptz")},
        "date_add(timestamptz, interval)": "checked_timestamp({0} + {1})",
        "date_subtract(timestamptz, interval)": "checked_timestamp({0} - {1})",
        "time + interval": "make_time_of(epoch_us({0}) + interval_micros({1}))",
        "interval + time": "make_time_of(epoch_us({1}) + interval_micros({0}))",
        "time - interval": "make_time_of(epoch_us({0}) - interval_micros({1}))",
        "time - time": "to_microseconds(epoch_us({0}) - epoch_us({1}))",
        "interval + interval": "interval_add({0}, {1})",
        "interval - interval": "interval_sub({0}, {1})",
        "- interval": "interval_of(-interval_months({0}), -interval_days({0}), -interval_micros({0}))",
        "interval * float8": "interval_mul({0}, {1})",
        "float8 * interval": "interval_mul({1}, {0})",
        "interval / float8": "interval_div({0}, {1})",
        **{
            f"justify_{what}(interval)": f"interval_of_list(justified_{what}("
            "interval_months({0}), interval_days({0}), interval_micros({0})))"
            for what in ("hours", "days", "interval")
        },
        "age({moment}, {moment})": "age_of({0}, {1})",
        "isfinite({moment})": "CASE WHEN {0} IS NOT NULL THEN true END",
        "isfinite(interval)": "CASE WHEN {0} IS NOT NULL THEN true END",
        "timezone(text, timestamptz)": "to_local({1}, {0})",
        "timezone(text, timestamp)": "to_instant({1}, {0})",
        "timezone(interval, timestamptz)": "({1} + interval_of_zone({0}))",
        "timezone(interval, timestamp)": "({1} - interval_of_zone({0}))",
        "timezone(timestamptz)": "{0}",
        "timezone(timestamp)": "{0}",
        "date_bin(interval, timestamp, timestamp)": "date_bin_of({0}, {1}, {2})",
        "date_bin(interval, timestamptz, timestamptz)": "date_bin_of({0}, {1}, {2})",
        "make_date(int4, int4, int4)": "date_of({0}, {1}, {2})",
        "make_time(int4, int4, float8)": "time_of_clock(micros_of_clock({0}, {1}, {2}))",
        "make_timestamp(int4, int4, int4, int4, int4, float8)": "timestamp_of({0}, {1}, {2}, {3}, {4}, {5})",
        "make_timestamptz(int4, int4, int4, int4, int4, float8)": "timestamp_of({0}, {1}, {2}, {3}, {4}, {5})",
        "make_timestamptz(int4, int4, int4, int4, int4, float8, text)": (
            "to_instant(timestamp_of({0}, {1}, {2}, {3}, {4}, {5}), {6})"
        ),
        "make_interval(int4, int4, int4, int4, int4, int4, float8)": _make_interval,
        "to_timestamp(float8)": "instant_of_seconds({0})",
        "timestamp(timestamp, int4)": _rounded_moment,
        "timestamptz(timestamptz, int4)": _rounded_moment,
        "time(time, int4)": _rounded_time,
        "interval(interval, int4)": _restricted_interval,
        "timestamp(date, time)": "(CAST({0} AS TIMESTAMP) + to_microseconds(epoch_us({1})))",
        "timestamptz(date, time)": "(CAST({0} AS TIMESTAMP) + to_microseconds(epoch_us({1})))",
        "date({moment})": "CAST({0} AS DATE)",
    }
)

TIME_CASTS = {
    "date::timestamp": "CAST({0} AS TIMESTAMP)",
    "date::timestamptz": "CAST({0} AS TIMESTAMP)",
    "timestamp::timestamptz": "{0}",
    "timestamptz::timestamp": "{0}",
    "timestamp::date": "CAST({0} AS DATE)",
    "timestamptz::date": "CAST({0} AS DATE)",
    "timestamp::time": "CAST({0} AS TIME)",
    "timestamptz::time": "CAST({0} AS TIME)",
    "time::interval": "to_microseconds(epoch_us({0}))",
    "interval::time": "make_time_of(interval_micros({0}))",
    "text::date": "date_of_text({0})",
    "text::timestamp": "timestamp_of_text({0})",
    "text::timestamptz": "timestamptz_of_text({0})",
    "text::time": "time_of_text({0})",
    "text::interval": "interval_of_list(interval_of_text({0}))",
}

TIME_AGGREGATES: dict[str, AggregateTemplate] = {
    "sum(interval)": lambda call: "interval_of({}, {}, {})".format(
        *(call("sum", f"interval_{part}({call.arguments[0]})") for part in ("months", "days", "micros"))
    ),
    "avg(interval)": lambda call: "interval_scaled({}, {}, {})".format(
        *(
            f"(CAST({call('sum', f'interval_{part}({call.arguments[0]})')} AS DOUBLE) / nullif({call('count')}, 0))"
            for part in ("months", "days", "micros")
        )
    ),
}

TIME_ROWS: dict[str, RowFunction] = {
    **{
        f"generate_series({kind}, {kind}, interval)": RowFunction("moment_series({0}, {1}, {2})")
        for kind in ("timestamp", "timestamptz")
    },
}
