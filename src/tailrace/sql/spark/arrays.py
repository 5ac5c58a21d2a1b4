"""Arrays of one dimension."""

from collections.abc import Sequence

from tailrace.sql.analysis.errors import UnsupportedError
from tailrace.sql.analysis.tree import Call, Constant
from tailrace.sql.spark.templates import Rendered, SparkTemplate, Template, constant_of, type_of


def _strict(text: str) -> str:
    """Return a test of two arrays that is null where one of them is."""
    return f"CASE WHEN {{0}} IS NOT NULL AND {{1}} IS NOT NULL THEN coalesce({text}, FALSE) END"


def _contains(whole: str, part: str) -> str:
    return _strict(f"forall({part}, item -> coalesce(array_contains({whole}, item), FALSE))")


def _length(arguments: Sequence[str], call: Call) -> Rendered:
    if constant_of(call.arguments[1], "the dimension of array_length") != 1:
        return "CAST(NULL AS INT)"
    return f"nullif(array_size({arguments[0]}), 0)"


def _position(arguments: Sequence[str], call: Call) -> Rendered:
    wanted = call.arguments[1]
    if not isinstance(wanted, Constant) or wanted.value is None:
        raise UnsupportedError("in a route array_position can only find constants", call.location)
    return f"nullif(CAST(array_position({arguments[0]}, {arguments[1]}) AS INT), 0)"


def _joined(arguments: Sequence[str], call: Call) -> Rendered:
    if call.arguments[0].type.element.name not in ("text", "int2", "int4", "int8", "uuid"):
        raise UnsupportedError("in a route array_to_string can only join texts and whole numbers", call.location)
    return f"array_join(CAST({arguments[0]} AS ARRAY<STRING>), {arguments[1]})"


def _with_item(arguments: Sequence[str], call: Call) -> Rendered:
    (items, item) = arguments if call.arguments[0].type.is_array else reversed(arguments)
    kind = type_of(call)
    parts = [f"coalesce({items}, CAST(array() AS {kind}))", f"CAST(array({item}) AS {kind})"]
    if not call.arguments[0].type.is_array:
        parts.reverse()
    return SparkTemplate(f"concat({', '.join(parts)})", is_strict=False)


def _removed(arguments: Sequence[str], call: Call) -> Rendered:
    constant_of(call.arguments[1], "the item that array_remove removes")
    return f"array_remove({arguments[0]}, {arguments[1]})"


_BOTH = SparkTemplate(
    "CASE WHEN {0} IS NULL THEN {1} WHEN {1} IS NULL THEN {0} ELSE concat({0}, {1}) END",
    is_strict=False,
)
ARRAYS: dict[str, Template] = {
    "cardinality(anyarray)": "array_size({0})",
    "array_length(anyarray, int4)": _length,
    "array_upper(anyarray, int4)": _length,
    "array_position(anycompatiblearray, anycompatible)": _position,
    "array_to_string(anyarray, text)": _joined,
    "array_append(anycompatiblearray, anycompatible)": _with_item,
    "array_prepend(anycompatible, anycompatiblearray)": _with_item,
    "anycompatiblearray || anycompatible": _with_item,
    "anycompatible || anycompatiblearray": _with_item,
    "array_cat(anycompatiblearray, anycompatiblearray)": _BOTH,
    "anycompatiblearray || anycompatiblearray": _BOTH,
    "array_remove(anycompatiblearray, anycompatible)": _removed,
    "anyarray && anyarray": _strict("arrays_overlap({0}, {1})"),
    "anyarray @> anyarray": _contains("{0}", "{1}"),
    "anyarray <@ anyarray": _contains("{1}", "{0}"),
}
