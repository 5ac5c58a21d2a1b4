"""Aggregates of numbers: sums, averages, bits, and statistics."""

from collections.abc import Callable

from tailrace.sql.analysis.errors import UnsupportedError
from tailrace.sql.analysis.types import digits_of
from tailrace.sql.duckdb.templates import AggregateCall, AggregateTemplate, is_loose

_SPREADS = ("stddev", "stddev_samp", "stddev_pop", "variance", "var_samp", "var_pop")
_REGRESSIONS = (
    "corr", "covar_pop", "covar_samp", "regr_avgx", "regr_avgy", "regr_intercept", "regr_r2", "regr_slope", "regr_sxx",
    "regr_sxy", "regr_syy",
)  # fmt: skip
_SQUARED_DIGITS = 14
"""Squares of decimals of so many digits can be added up without more than 38 digits."""
_WIDE_DIGITS = 19
"""DuckDB multiplies decimals of so many digits with 128 bits."""
_LARGE = "1e140"
"""Squares of doubles below this can be added up without an overflow."""


def _plain(name: str) -> AggregateTemplate:
    return lambda call: call(name)


def _listed(call: AggregateCall, cast: str = "{0}") -> str:
    """Return the list of all values. Equal numerics that are written otherwise are one value of DISTINCT."""
    if call.node.is_distinct and is_loose(call.node.arguments[0].type):
        return f"numeric_distinct({call.of_all('list', cast.format(call.arguments[0]))})"
    return call("list", cast.format(call.arguments[0]), ordered=True)


def _sum_of_integers(call: AggregateCall) -> str:
    return f"as_int8({call('sum')})"


def _sum_of_floats(call: AggregateCall) -> str:
    (value,) = call.arguments
    total = _added(call, value)
    return (
        f"CASE WHEN NOT isfinite({total}) AND {call('bool_and', f'isfinite({value})')}"
        f" THEN fail('22003', 'value out of range: overflow') ELSE {total} END"
    )


def _sum_of_numerics(call: AggregateCall) -> str:
    return f"numeric_sum({_listed(call)})" if is_loose(call.node.arguments[0].type) else call("sum")


def _average(call: AggregateCall) -> str:
    if is_loose(call.node.arguments[0].type):
        return f"numeric_avg({_listed(call)})"
    return f"numeric_div(CAST({call('sum')} AS VARCHAR), CAST({call('count')} AS VARCHAR))"


def _average_of_floats(call: AggregateCall) -> str:
    """Return the average. PostgreSQL also adds up the squares, and fails if they overflow."""
    value = f"CAST({call.arguments[0]} AS DOUBLE)"
    largest = call("max", f"CASE WHEN isfinite({value}) THEN abs({value}) END")
    return (
        f"CASE WHEN {largest} >= {_LARGE}::DOUBLE THEN fail('0A000', 'avg of numbers beyond {_LARGE} is not supported')"
        f" ELSE (0::DOUBLE + {_added(call, value)}) / {call('count')} END"
    )


def _added(call: AggregateCall, value: str) -> str:
    """Return the sum of doubles. DuckDB adds up frames of windows in parts, and lists one number after the other."""
    if call.is_short_frame:
        return f"list_sum({call('list', value)})"
    return call("sum", value, ordered=True)


def _spread(kind: str) -> AggregateTemplate:
    """Return a template for the variance and standard deviation of integers and numerics."""

    def render(call: AggregateCall) -> str:
        (value,) = call.arguments
        digits = digits_of(call.node.arguments[0].type)
        if call.node.is_distinct or digits is None or digits[0] > _SQUARED_DIGITS:
            as_text = "{0}" if is_loose(call.node.arguments[0].type) else "CAST({0} AS VARCHAR)"
            return f"numeric_spread({_listed(call, as_text)}, '{kind}')"
        number = f"CAST({value} AS DECIMAL({_WIDE_DIGITS}, {digits[1]}))"
        sums = [f"CAST({call('sum', text)} AS VARCHAR)" for text in (value, f"{number} * {number}")]
        return f"numeric_spread_of({call('count')}, {sums[0]}, {sums[1]}, '{kind}')"

    return render


def _spread_of_floats(kind: str) -> AggregateTemplate:
    return lambda call: f"float_spread({_listed(call, 'CAST({0} AS DOUBLE)')}, '{kind}')"


def _regression(kind: str) -> AggregateTemplate:
    """Return a template for a statistic of two numbers. A pair with a null is passed over."""

    def render(call: AggregateCall) -> str:
        if call.node.is_distinct:
            raise UnsupportedError(f"DISTINCT in {kind} is not supported", call.node.location)
        y, x = call.arguments
        ys = call("list", f"CASE WHEN {x} IS NOT NULL THEN {y} END", ordered=True)
        xs = call("list", f"CASE WHEN {y} IS NOT NULL THEN {x} END", ordered=True)
        return f"float_regression({ys}, {xs}, '{kind}')"

    return render


def _pairs(call: AggregateCall) -> str:
    y, x = call.arguments
    if call.node.is_distinct:
        raise UnsupportedError("DISTINCT in regr_count is not supported", call.node.location)
    return call("count", f"CASE WHEN {x} IS NOT NULL THEN {y} END")


def _percentile(name: str) -> AggregateTemplate:
    """Return a template for `percentile_cont` and `percentile_disc`: of one fraction, or of each of an array."""

    def render(call: AggregateCall) -> str:
        items = f"list_filter({call.of_sorted('list')}, lambda item: item IS NOT NULL)"
        if not call.node.arguments[0].type.is_array:
            return f"{name}({items}, {call.arguments[0]})"
        return f"list_transform({call.arguments[0]}, lambda fraction: {name}({items}, fraction))"

    return render


def _mode(call: AggregateCall) -> str:
    if is_loose(call.node.type) or call.node.type.name in ("json", "jsonb"):
        raise UnsupportedError(f"mode of {call.node.type} is not supported", call.node.location)
    return call.of_sorted("mode")


def _extreme(name: str) -> Callable[[AggregateCall], str]:
    """Return a template for min and max of numerics; of equal ones the last is kept."""

    def render(call: AggregateCall) -> str:
        if not is_loose(call.node.arguments[0].type):
            return call(name)
        return f"numeric_{name}({call.of_all('list')})"

    return render


STATISTICS: dict[str, AggregateTemplate] = {
    "sum(int2)": _sum_of_integers,
    "sum(int4)": _sum_of_integers,
    "sum(int8)": lambda call: f"CAST({call('sum')} AS DECIMAL(38, 0))",
    "sum(numeric)": _sum_of_numerics,
    "sum(float4)": lambda call: f"CAST(float4_sum({_listed(call, 'CAST({0} AS DOUBLE)')}) AS FLOAT)",
    "sum(float8)": _sum_of_floats,
    **{f"avg({kind})": _average for kind in ("int2", "int4", "int8", "numeric")},
    "avg(float4)": _average_of_floats,
    "avg(float8)": _average_of_floats,
    "min(numeric)": _extreme("min"),
    "max(numeric)": _extreme("max"),
    **{f"{name}({kind})": _plain(name) for name in ("bit_and", "bit_or", "bit_xor") for kind in ("int2", "int4", "int8")},
    **{f"{name}({kind})": _spread(name) for name in _SPREADS for kind in ("int2", "int4", "int8", "numeric")},
    **{f"{name}({kind})": _spread_of_floats(name) for name in _SPREADS for kind in ("float4", "float8")},
    **{f"{name}(float8, float8)": _regression(name) for name in _REGRESSIONS},
    "regr_count(float8, float8)": _pairs,
    "percentile_cont(float8, float8)": _percentile("percentile_between"),
    "percentile_cont(float8[], float8)": _percentile("percentile_between"),
    "percentile_disc(float8, anyelement)": _percentile("percentile_at"),
    "percentile_disc(float8[], anyelement)": _percentile("percentile_at"),
    "mode(anyelement)": _mode,
}
