"""Aggregates and window functions."""

from tailrace.sql.analysis.errors import UnsupportedError
from tailrace.sql.analysis.tree import Constant, Parameter
from tailrace.sql.duckdb.arrays import loose_items
from tailrace.sql.duckdb.json import JSON_AGGREGATES
from tailrace.sql.duckdb.keys import has_key, key_of
from tailrace.sql.duckdb.statistics import STATISTICS
from tailrace.sql.duckdb.templates import AggregateCall, AggregateTemplate

_ORDERED = (
    "int2", "int4", "int8", "float4", "float8", "text", "bytea", "date", "time", "timestamp", "timestamptz",
    "interval",
)  # fmt: skip


def _count(call: AggregateCall) -> str:
    kind = call.node.arguments[0].type
    if call.node.is_distinct and has_key(kind):
        return call.of_keys("count", key_of(call.arguments[0], kind))
    return call("count")


def _window(name: str, cast: str = "{0}") -> AggregateTemplate:
    return lambda call: cast.format(call(name))


def _string_agg(call: AggregateCall) -> str:
    """Join texts. The delimiter before a text is the one of its row."""
    value, delimiter = call.arguments
    is_bytes = call.node.arguments[0].type.name == "bytea"
    value, delimiter = (f"hex({value})", f"hex({delimiter})") if is_bytes else (value, delimiter)
    delimiter = f"coalesce({delimiter}, '')"
    # PostgreSQL sorts to find what is distinct.
    sorted_by = [value] if call.node.is_distinct and not call.node.order else []
    if isinstance(call.node.arguments[1], Constant | Parameter):
        joined = call("string_agg", value, delimiter, ordered=True, sorted_by=sorted_by)
    else:
        pair = f"CASE WHEN {value} IS NOT NULL THEN {{'v': {value}, 'd': {delimiter}}} END"
        joined = f"joined_pairs(present_items({call('list', pair, ordered=True, sorted_by=sorted_by and [pair])}))"
    return f"unhex({joined})" if is_bytes else joined


def _listed(call: AggregateCall) -> str:
    """Collect values. Those that must differ come in their order."""
    kind = call.node.arguments[0].type
    if kind.is_array:
        raise UnsupportedError("arrays of more than one dimension are not supported", call.node.location)
    if call.node.is_distinct and has_key(kind):
        raise UnsupportedError(f"array_agg(DISTINCT) of {kind} is not supported; use a subquery", call.node.location)
    listed = call("list", ordered=True)
    if call.node.is_distinct and not call.node.order:
        listed = f"list_sort({listed}, 'ASC', 'NULLS LAST')"
    return loose_items(listed, kind.array)


def _array_extreme(name: str) -> AggregateTemplate:
    """Return a template for min and max of arrays, which are compared by their keys where they have any."""

    def render(call: AggregateCall) -> str:
        kind = call.node.arguments[0].type
        value = call.arguments[0]
        found = call.of_all(f"arg_{name}", value, key_of(value, kind)) if has_key(kind) else call(name)
        return loose_items(found, kind)

    return render


AGGREGATES: dict[str, AggregateTemplate] = {
    **JSON_AGGREGATES,
    "array_agg(anynonarray)": _listed,
    "array_agg(anyarray)": _listed,
    **STATISTICS,
    **{f"{name}({kind})": _window(name) for name in ("min", "max") for kind in _ORDERED},
    "min(bpchar)": lambda call: call.of_all("arg_min", call.arguments[0], key_of(call.arguments[0], call.node.type)),
    "max(bpchar)": lambda call: call.of_all("arg_max", call.arguments[0], key_of(call.arguments[0], call.node.type)),
    "min(anyenum)": lambda call: call.of_all("arg_min", call.arguments[0], key_of(call.arguments[0], call.node.type)),
    "max(anyenum)": lambda call: call.of_all("arg_max", call.arguments[0], key_of(call.arguments[0], call.node.type)),
    "min(anyarray)": _array_extreme("min"),
    "max(anyarray)": _array_extreme("max"),
    "any_value(anyelement)": _window("any_value"),
    "bool_and(bool)": _window("bool_and"),
    "every(bool)": _window("bool_and"),
    "bool_or(bool)": _window("bool_or"),
    "string_agg(text, text)": _string_agg,
    "string_agg(bytea, bytea)": _string_agg,
    "rank()": _window("rank"),
    "dense_rank()": _window("dense_rank"),
    "percent_rank()": _window("percent_rank"),
    "cume_dist()": _window("cume_dist"),
    "ntile(int4)": _window("ntile", "CAST({0} AS INTEGER)"),
    "lag(anyelement)": _window("lag"),
    "lag(anyelement, int4)": _window("lag"),
    "lag(anycompatible, int4, anycompatible)": _window("lag"),
    "lead(anyelement)": _window("lead"),
    "lead(anyelement, int4)": _window("lead"),
    "lead(anycompatible, int4, anycompatible)": _window("lead"),
    "first_value(anyelement)": _window("first_value"),
    "last_value(anyelement)": _window("last_value"),
    "nth_value(anyelement, int4)": _window("nth_value"),
    "count()": lambda call: call("count", "*"),
    "count(any)": _count,
    "row_number()": lambda call: call("row_number"),
}
