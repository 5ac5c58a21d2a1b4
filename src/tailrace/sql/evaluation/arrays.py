"""Arrays of one dimension, whose first index is 1."""

from collections.abc import Callable
from typing import Any

from tailrace.sql.analysis.tree import Call
from tailrace.sql.evaluation.comparisons import sort_key
from tailrace.sql.evaluation.functions import ByCall, Entry, EvaluationError, Function, TakesNulls, check_length
from tailrace.sql.evaluation.output_texts import printer

Items = list[Any]


def element_at(items: Items, index: int) -> Any:
    return items[index - 1] if 1 <= index <= len(items) else None


def slice_of(items: Items, lower: int, upper: int) -> Items:
    return items[max(lower, 1) - 1 : max(upper, 0)]


def _length(items: Items, dimension: int) -> int | None:
    return len(items) if dimension == 1 and items else None


def _append(items: Items | None, item: Any) -> Items:
    return [*(items or ()), item]


def _prepend(item: Any, items: Items | None) -> Items:
    return [item, *(items or ())]


def _concat(a: Items | None, b: Items | None) -> Items | None:
    if a is None or b is None:
        return b if a is None else a
    check_length(len(a) + len(b))
    return a + b


def _keyed(make: Callable[[Callable[[Any], Any]], Function], *, is_strict: bool = True) -> ByCall:
    """Return an entry that gets a function by whose results the items of the first array are compared; null is `None`."""

    def for_call(call: Call) -> Function:
        array = next(one.type for one in call.arguments if one.type.is_array)
        key = sort_key(array.element)
        return make(lambda item: None if item is None else (key(item),))

    return ByCall(for_call, is_strict=is_strict)


def _remove(key: Callable[[Any], Any]) -> Function:
    def remove(items: Items | None, item: Any) -> Items | None:
        wanted = key(item)
        return None if items is None else [one for one in items if key(one) != wanted]

    return remove


def _replace(key: Callable[[Any], Any]) -> Function:
    def replace(items: Items | None, old: Any, new: Any) -> Items | None:
        wanted = key(old)
        return None if items is None else [new if key(one) == wanted else one for one in items]

    return replace


def _position(key: Callable[[Any], Any]) -> Function:
    def position(items: Items | None, item: Any, start: int | None = 1) -> int | None:
        if items is None:
            return None
        if start is None:
            raise EvaluationError("22004", "initial position must not be null")
        wanted = key(item)
        for at, one in enumerate(items, 1):
            if at >= start and key(one) == wanted:
                return at
        return None

    return position


def _positions(key: Callable[[Any], Any]) -> Function:
    def positions(items: Items | None, item: Any) -> list[int] | None:
        wanted = key(item)
        return None if items is None else [at for at, one in enumerate(items, 1) if key(one) == wanted]

    return positions


def _contains(key: Callable[[Any], Any]) -> Function:
    # A null is not equal to anything here.
    def contains(items: Items, wanted: Items) -> bool:
        keys = [key(item) for item in items if item is not None]
        return all(item is not None and key(item) in keys for item in wanted)

    return contains


def _contained(key: Callable[[Any], Any]) -> Function:
    contains = _contains(key)
    return lambda wanted, items: contains(items, wanted)


def _overlap(key: Callable[[Any], Any]) -> Function:
    def overlap(a: Items, b: Items) -> bool:
        keys = [key(item) for item in a if item is not None]
        return any(item is not None and key(item) in keys for item in b)

    return overlap


def _sorted(key: Callable[[Any], Any]) -> Function:
    def sort(items: Items, descending: bool = False, nulls_first: bool | None = None) -> Items:
        nulls = [item for item in items if item is None]
        others = sorted((item for item in items if item is not None), key=key, reverse=descending)
        return nulls + others if (descending if nulls_first is None else nulls_first) else others + nulls

    return sort


def _trimmed(items: Items, count: int) -> Items:
    if not 0 <= count <= len(items):
        raise EvaluationError("2202E", f"number of elements to trim must be between 0 and {len(items)}")
    return items[: len(items) - count]


def _filled(item: Any, sizes: list[int | None] | None) -> Items | None:
    if sizes is None:
        raise EvaluationError("22004", "dimension array or low bound array cannot be null")
    if len(sizes) != 1:
        if not sizes:
            return []
        raise EvaluationError("0A000", "arrays of more than one dimension are not supported")
    (size,) = sizes
    if size is None:
        raise EvaluationError("22004", "dimension values cannot be null")
    if size < 0:
        raise EvaluationError("54000", "array size exceeds the maximum allowed (134217727)")
    check_length(size)
    return [item] * size


def _to_text(call: Call) -> Function:
    show = printer(call.arguments[0].type.element)

    def join(items: Items | None, delimiter: str | None, null: str | None = None) -> str | None:
        if items is None or delimiter is None:
            return None
        return delimiter.join(
            null or "" if item is None else show(item) for item in items if item is not None or null is not None
        )

    return join


def _from_text(text: str | None, delimiter: str | None, null: str | None = None) -> list[str | None] | None:
    if text is None:
        return None
    if delimiter is None:
        parts = list(text)
    elif not text:
        parts = []
    else:
        parts = text.split(delimiter) if delimiter else [text]
    return [None if part == null else part for part in parts]


ARRAYS: dict[str, Entry] = {
    "array_length(anyarray, int4)": _length,
    "cardinality(anyarray)": len,
    "array_upper(anyarray, int4)": _length,
    "array_lower(anyarray, int4)": lambda items, dimension: 1 if dimension == 1 and items else None,
    "array_ndims(anyarray)": lambda items: 1 if items else None,
    "array_dims(anyarray)": lambda items: f"[1:{len(items)}]" if items else None,
    "array_append(anycompatiblearray, anycompatible)": TakesNulls(_append),
    "array_prepend(anycompatible, anycompatiblearray)": TakesNulls(_prepend),
    "array_cat(anycompatiblearray, anycompatiblearray)": TakesNulls(_concat),
    "anycompatiblearray || anycompatible": TakesNulls(_append),
    "anycompatible || anycompatiblearray": TakesNulls(_prepend),
    "anycompatiblearray || anycompatiblearray": TakesNulls(_concat),
    "array_remove(anycompatiblearray, anycompatible)": _keyed(_remove, is_strict=False),
    "array_replace(anycompatiblearray, anycompatible, anycompatible)": _keyed(_replace, is_strict=False),
    "array_position(anycompatiblearray, anycompatible)": _keyed(_position, is_strict=False),
    "array_position(anycompatiblearray, anycompatible, int4)": _keyed(_position, is_strict=False),
    "array_positions(anycompatiblearray, anycompatible)": _keyed(_positions, is_strict=False),
    "anyarray @> anyarray": _keyed(_contains),
    "anyarray <@ anyarray": _keyed(_contained),
    "anyarray && anyarray": _keyed(_overlap),
    "array_sort(anyarray)": _keyed(_sorted),
    "array_sort(anyarray, bool)": _keyed(_sorted),
    "array_sort(anyarray, bool, bool)": _keyed(_sorted),
    "array_reverse(anyarray)": lambda items: items[::-1],
    "trim_array(anyarray, int4)": _trimmed,
    "array_fill(anyelement, int4[])": TakesNulls(_filled),
    "array_to_string(anyarray, text)": ByCall(_to_text, is_strict=False),
    "array_to_string(anyarray, text, text)": ByCall(_to_text, is_strict=False),
    "string_to_array(text, text)": TakesNulls(_from_text),
    "string_to_array(text, text, text)": TakesNulls(_from_text),
}
