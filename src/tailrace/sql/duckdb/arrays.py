"""Arrays of one dimension, whose first index is 1."""

from collections.abc import Callable, Sequence

from tailrace.sql.analysis.errors import UnsupportedError
from tailrace.sql.analysis.tree import Call, Constant, Expression
from tailrace.sql.analysis.types import SqlType
from tailrace.sql.duckdb.keys import has_key, key_of
from tailrace.sql.duckdb.templates import RowFunction, Template, expanded, is_loose


def loose_items(text: str, sql_type: SqlType) -> str:
    """Return an array, or an item, with its numerics as texts. Functions of any array do not keep a fixed scale."""
    if sql_type.is_array:
        if sql_type.element.name == "numeric" and not is_loose(sql_type.element):
            return f"list_transform({text}, lambda digits: CAST(digits AS VARCHAR))"
    elif sql_type.name == "numeric" and not is_loose(sql_type):
        return f"CAST({text} AS VARCHAR)"
    return text


def _loose(sql_type: SqlType) -> SqlType:
    return sql_type.plain if sql_type.name.startswith("numeric") else sql_type


def _items(template: str) -> Callable[[Sequence[str], Call], str]:
    """Return a template for which the numerics of arrays and items are texts."""

    def render(arguments: Sequence[str], call: Call) -> str:
        return template.format(*_uniform(arguments, call.arguments))

    return render


def _keyed(template: str) -> Callable[[Sequence[str], Call], str]:
    """Return a template whose arguments are compared, by their keys where they have any."""

    def render(arguments: Sequence[str], call: Call) -> str:
        return template.format(*_keys(arguments, call.arguments))

    return render


def _both(template: str) -> Callable[[Sequence[str], Call], str]:
    """Return a template with the arguments as `{0}` and so on, and their keys as `{k0}` and so on."""

    def render(arguments: Sequence[str], call: Call) -> str:
        keys = {f"k{at}": key for at, key in enumerate(_keys(arguments, call.arguments))}
        return template.format(*_uniform(arguments, call.arguments), **keys)

    return render


def _uniform(arguments: Sequence[str], nodes: Sequence[Expression]) -> list[str]:
    return [loose_items(one, node.type) for one, node in zip(arguments, nodes, strict=True)]


def _keys(arguments: Sequence[str], nodes: Sequence[Expression]) -> list[str]:
    uniform = _uniform(arguments, nodes)
    return [key_of(one, _loose(node.type)) for one, node in zip(uniform, nodes, strict=True)]


def compared_arrays(operator: str) -> Callable[[Sequence[str], Call], str]:
    """Return the template of a comparison of arrays."""

    def render(arguments: Sequence[str], call: Call) -> str:
        types = {node.type for node in call.arguments}
        if len(types) > 1 or any(map(has_key, types)):
            arguments = _keys(arguments, call.arguments)
        return f"({arguments[0]} {operator} {arguments[1]})"

    return render


def _filled(arguments: Sequence[str], call: Call) -> str:
    sizes = call.arguments[1]
    if isinstance(sizes, Constant) and isinstance(sizes.value, list) and len(sizes.value) > 1:
        raise UnsupportedError("arrays of more than one dimension are not supported", call.location)
    return f"array_filled({loose_items(arguments[0], call.arguments[0].type)}, {arguments[1]})"


def _sorted(arguments: Sequence[str], call: Call) -> str:
    array = call.arguments[0].type
    if has_key(array):
        raise UnsupportedError("array_sort of these items is not supported; use array_agg with ORDER BY", call.location)
    descending = arguments[1] if len(arguments) > 1 else "false"
    nulls_first = arguments[2] if len(arguments) > 2 else descending
    return f"array_sorted({loose_items(arguments[0], array)}, {descending}, {nulls_first})"


def _unnested(arguments: Sequence[str], call: Call) -> str:
    return loose_items(arguments[0], call.arguments[0].type)


ARRAYS: dict[str, Template] = expanded(
    {
        "array_length(anyarray, int4)": "CASE WHEN {1} = 1 THEN CAST(nullif(len({0}), 0) AS INTEGER) END",
        "array_upper(anyarray, int4)": "CASE WHEN {1} = 1 THEN CAST(nullif(len({0}), 0) AS INTEGER) END",
        "array_lower(anyarray, int4)": "CASE WHEN {1} = 1 AND len({0}) > 0 THEN 1 END",
        "array_ndims(anyarray)": "CASE WHEN len({0}) > 0 THEN 1 END",
        "array_dims(anyarray)": "CASE WHEN len({0}) > 0 THEN '[1:' || len({0}) || ']' END",
        "cardinality(anyarray)": "CAST(len({0}) AS INTEGER)",
        "array_append(anycompatiblearray, anycompatible)": _items("list_append({0}, {1})"),
        "array_prepend(anycompatible, anycompatiblearray)": _items("list_prepend({0}, {1})"),
        "array_cat(anycompatiblearray, anycompatiblearray)": _items("array_joined({0}, {1})"),
        "anycompatiblearray || anycompatible": _items("list_append({0}, {1})"),
        "anycompatible || anycompatiblearray": _items("list_prepend({0}, {1})"),
        "anycompatiblearray || anycompatiblearray": _items("array_joined({0}, {1})"),
        "array_remove(anycompatiblearray, anycompatible)": _both("array_without({0}, {k0}, {k1})"),
        "array_replace(anycompatiblearray, anycompatible, anycompatible)": _both("array_replaced({0}, {k0}, {k1}, {2})"),
        "array_position(anycompatiblearray, anycompatible)": _keyed("array_place({0}, {1}, 1)"),
        "array_position(anycompatiblearray, anycompatible, int4)": _keyed("array_place({0}, {1}, {2})"),
        "array_positions(anycompatiblearray, anycompatible)": _keyed("array_places({0}, {1})"),
        "anyarray @> anyarray": _keyed("array_has_all({0}, {1})"),
        "anyarray <@ anyarray": _keyed("array_has_all({1}, {0})"),
        "anyarray && anyarray": _keyed("array_has_any({0}, {1})"),
        "arraycontains(anyarray, anyarray)": _keyed("array_has_all({0}, {1})"),
        "arraycontained(anyarray, anyarray)": _keyed("array_has_all({1}, {0})"),
        "arrayoverlap(anyarray, anyarray)": _keyed("array_has_any({0}, {1})"),
        "array_reverse(anyarray)": _items("list_reverse({0})"),
        "array_sort(anyarray)": _sorted,
        "array_sort(anyarray, bool)": _sorted,
        "array_sort(anyarray, bool, bool)": _sorted,
        "trim_array(anyarray, int4)": _items("array_trimmed({0}, {1})"),
        "array_fill(anyelement, int4[])": _filled,
    }
)

ARRAY_ROWS: dict[str, RowFunction] = {
    "unnest(anyarray)": RowFunction(_unnested),
    "generate_subscripts(anyarray, int4)": RowFunction("array_subscripts({0}, {1})"),
    "generate_subscripts(anyarray, int4, bool)": RowFunction(
        "CASE WHEN {2} THEN list_reverse(array_subscripts({0}, {1})) ELSE array_subscripts({0}, {1}) END"
    ),
}
