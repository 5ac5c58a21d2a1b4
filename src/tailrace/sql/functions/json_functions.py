"""PostgreSQL's functions and operators of jsonb, on texts of JSON.

They read any text that jsonb accepts and return texts as PostgreSQL prints them. A step of a path is a text whose first
character says what it is: `.key` of an object, `#index` of an array, `/either` as the elements of `#>`.
"""

from collections.abc import Callable, Sequence
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any

from tailrace.sql.analysis.json_documents import (
    JsonError,
    document_text,
    index_of,
    number_text,
    ordered_keys,
    quoted_string,
    read_document,
    too_deep,
)
from tailrace.sql.functions import json_changes, json_raw

_ROUNDING = Context(prec=140_000, rounding=ROUND_HALF_UP)
_INVALID = "22023"
_EXPONENT_BIAS = 1 << 20


def canonical(text: str) -> str:
    """Return a text of JSON as PostgreSQL's jsonb prints it. Raises `JsonError` if it is none."""
    return document_text(read_document(text))


def record_json(text: str) -> str | None:
    """Return the text of a record as jsonb, or `None` if it is no JSON."""
    try:
        return canonical(text)
    except JsonError:
        return None


# Paths


def at_path(text: str, steps: Sequence[str | None]) -> str | None:
    """Return the value at a path."""
    found, value = _found(read_document(text), steps)
    return document_text(value) if found else None


def text_at_path(text: str, steps: Sequence[str | None]) -> str | None:
    """Return the value at a path as a text: that of a string is the string itself, that of null is `None`."""
    found, value = _found(read_document(text), steps)
    if not found or value is None:
        return None
    return value if isinstance(value, str) else document_text(value)


def of_records(function: Callable[..., str | None]) -> Callable[..., str | None]:
    """Return the function with `None` for texts that are no JSON."""

    def run(text: str, *arguments: Any) -> str | None:
        try:
            return function(text, *arguments)
        except JsonError:
            return None

    return run


def _found(document: Any, steps: Sequence[str | None]) -> tuple[bool, Any]:
    for step in steps:
        if step is None:
            return False, None
        kind, name = step[0], step[1:]
        if kind == "#" and not isinstance(document, dict | list):
            # A scalar alone is kept like an array of one.
            if int(name) not in (0, -1):
                return False, None
        elif isinstance(document, dict) and kind != "#":
            if name not in document:
                return False, None
            document = document[name]
        elif isinstance(document, list) and kind != ".":
            index = int(name) if kind == "#" else index_of(name)
            if index is None or not -len(document) <= index < len(document):
                return False, None
            document = document[index]
        else:
            return False, None
    return True, document


# Tests


def contains(whole: str, part: str) -> bool:
    """Return whether one document contains another: `@>`."""
    one, other = read_document(whole), read_document(part)
    if isinstance(one, list) and not isinstance(other, dict | list):
        return any(_same(item, other) for item in one)
    try:
        return _contains(one, other)
    except RecursionError:
        raise too_deep() from None


def _contains(whole: Any, part: Any) -> bool:
    if isinstance(whole, dict) and isinstance(part, dict):
        return all(key in whole and _contains(whole[key], value) for key, value in part.items())
    if isinstance(whole, list) and isinstance(part, list):
        return all(any(_contains(item, wanted) for item in whole) for wanted in part)
    return _same(whole, part)


def _same(one: Any, other: Any) -> bool:
    """Return whether two scalars are equal."""
    if isinstance(one, dict | list) or isinstance(other, dict | list):
        return False
    return isinstance(one, bool) == isinstance(other, bool) and bool(one == other)


def exists(text: str, key: str) -> bool:
    return key in _keys(text)


def exists_any(text: str, keys: Sequence[str | None]) -> bool:
    mine = _keys(text)
    return any(key in mine for key in keys if key is not None)


def exists_all(text: str, keys: Sequence[str | None]) -> bool:
    mine = _keys(text)
    return all(key in mine for key in keys if key is not None)


def _keys(text: str) -> set[str]:
    """Return the keys of an object, the strings in an array or a string alone."""
    document = read_document(text)
    if isinstance(document, dict):
        return set(document)
    items = document if isinstance(document, list) else [document]
    return {item for item in items if isinstance(item, str)}


# Forms


def pretty(text: str) -> str:
    def lines(document: Any, indent: str) -> str:
        inner = indent + "    "
        if isinstance(document, dict):
            items = [f"{inner}{quoted_string(key)}: {lines(document[key], inner)}" for key in ordered_keys(document)]
            return "{\n" + ",\n".join(items) + ("\n" if items else "") + indent + "}"
        if isinstance(document, list):
            items = [inner + lines(item, inner) for item in document]
            return "[\n" + ",\n".join(items) + ("\n" if items else "") + indent + "]"
        return document_text(document)

    try:
        return lines(read_document(text), "")
    except RecursionError:
        raise too_deep() from None


def float_json(value: float) -> str:
    """Return a double as a number of jsonb, or as a string where JSON has no such number."""
    if value != value or value in (float("inf"), float("-inf")):
        return '"NaN"' if value != value else '"Infinity"' if value > 0 else '"-Infinity"'
    text = number_text(Decimal(repr(value)))
    return text.removesuffix(".0")


def number_of(text: str, type_name: str) -> str | None:
    """Return a JSON number as PostgreSQL's numeric, for a cast to this type. JSON's null is `None`."""
    document = read_document(text)
    if document is None:
        return None
    if isinstance(document, bool) or not isinstance(document, int | Decimal):
        raise _cannot_cast(document, type_name)
    return number_text(document)


def integer_of(text: str, type_name: str, bits: int) -> str | None:
    """Return a JSON number as the nearest integer of so many bits."""
    number = number_of(text, type_name)
    if number is None:
        return None
    value = int(Decimal(number).to_integral_value(rounding=ROUND_HALF_UP, context=_ROUNDING))
    if not -(1 << (bits - 1)) <= value < 1 << (bits - 1):
        raise JsonError("22003", f"{type_name} out of range")
    return str(value)


def boolean_of(text: str) -> bool | None:
    document = read_document(text)
    if document is None or isinstance(document, bool):
        return document
    raise _cannot_cast(document, "boolean")


def _cannot_cast(document: Any, type_name: str) -> JsonError:
    return JsonError(_INVALID, f"cannot cast jsonb {_kind(document)} to type {type_name}")


def _kind(document: Any) -> str:
    match document:
        case dict():
            return "object"
        case list():
            return "array"
        case str():
            return "string"
        case bool():
            return "boolean"
    return "numeric"


# Rows


def elements(text: str) -> list[str]:
    return [document_text(item) for item in _array(text)]


def element_texts(text: str) -> list[str | None]:
    return [_as_text(item) for item in _array(text)]


def _array(text: str) -> list[Any]:
    document = read_document(text)
    if not isinstance(document, list):
        raise JsonError(_INVALID, f"cannot extract elements from {'an object' if isinstance(document, dict) else 'a scalar'}")
    return document


def keys(text: str) -> list[str]:
    document = read_document(text)
    if not isinstance(document, dict):
        kind = "an array" if isinstance(document, list) else "a scalar"
        raise JsonError(_INVALID, f"cannot call jsonb_object_keys on {kind}")
    return ordered_keys(document)


def pairs(text: str) -> list[dict[str, str]]:
    return [{"c1": key, "c2": document_text(value)} for key, value in _sorted_items(text, "jsonb_each")]


def text_pairs(text: str) -> list[dict[str, str | None]]:
    return [{"c1": key, "c2": _as_text(value)} for key, value in _sorted_items(text, "jsonb_each_text")]


def _sorted_items(text: str, name: str) -> list[tuple[str, Any]]:
    document = read_document(text)
    if not isinstance(document, dict):
        raise JsonError(_INVALID, f"cannot call {name} on a non-object")
    return [(key, document[key]) for key in ordered_keys(document)]


def _as_text(document: Any) -> str | None:
    return document if document is None or isinstance(document, str) else document_text(document)


# Order


def sort_key(text: str) -> bytes:
    """Return bytes that are ordered as PostgreSQL orders jsonb, and equal where it finds them equal."""
    document = read_document(text)
    out = bytearray()
    # An empty array comes before everything; a scalar is like an array of one that comes before other arrays.
    out.append(0 if document == [] else 3 if isinstance(document, dict) else 2 if isinstance(document, list) else 1)
    try:
        _append_key(out, document)
    except RecursionError:
        raise too_deep() from None
    return bytes(out)


def _append_key(out: bytearray, document: Any) -> None:
    match document:
        case None:
            out += b"\x01"
        case str():
            out += b"\x02" + document.encode() + b"\0"
        case bool():
            out += b"\x04\x01" if document else b"\x04\x00"
        case list():
            out += b"\x05" + len(document).to_bytes(4, "big")
            for item in document:
                _append_key(out, item)
        case dict():
            out += b"\x06" + len(document).to_bytes(4, "big")
            for key in ordered_keys(document):
                out += key.encode() + b"\0"
                _append_key(out, document[key])
        case _:
            out += b"\x03" + _number_key(Decimal(document))


def _number_key(value: Decimal) -> bytes:
    if not value:
        return b"\x01"
    exponent = value.adjusted() + _EXPONENT_BIAS
    digits = "".join(map(str, value.as_tuple().digits)).strip("0").encode()
    if value > 0:
        return b"\x02" + exponent.to_bytes(4, "big") + digits + b"\0"
    return b"\x00" + (0xFFFF_FFFF - exponent).to_bytes(4, "big") + bytes(0x69 - digit for digit in digits) + b"\xff"


_ONE = ("VARCHAR",)
_TWO = ("VARCHAR", "VARCHAR")
_WITH_LIST = ("VARCHAR", "VARCHAR[]")
_CHANGE = ("VARCHAR", "VARCHAR[]", "VARCHAR", "BOOLEAN")
_PAIRS = "STRUCT(c1 VARCHAR, c2 VARCHAR)[]"

JSON_FUNCTIONS: Sequence[tuple[str, Callable[..., object], Sequence[str], str]] = (
    ("jsonb_in", canonical, _ONE, "VARCHAR"),
    ("jsonb_sort_key", sort_key, _ONE, "BLOB"),
    ("jsonb_at", at_path, _WITH_LIST, "VARCHAR"),
    ("jsonb_text_at", text_at_path, _WITH_LIST, "VARCHAR"),
    ("record_json", record_json, _ONE, "VARCHAR"),
    ("record_at", of_records(at_path), _WITH_LIST, "VARCHAR"),
    ("record_text_at", of_records(text_at_path), _WITH_LIST, "VARCHAR"),
    ("json_at", json_raw.raw_at, _WITH_LIST, "VARCHAR"),
    ("json_text_at", json_raw.raw_text_at, _WITH_LIST, "VARCHAR"),
    ("is_json", json_raw.is_json, ("VARCHAR", "VARCHAR", "BOOLEAN"), "BOOLEAN"),
    ("checked_json", json_raw.checked, _ONE, "VARCHAR"),
    ("jsonb_contains", contains, _TWO, "BOOLEAN"),
    ("jsonb_exists", exists, _TWO, "BOOLEAN"),
    ("jsonb_exists_any", exists_any, _WITH_LIST, "BOOLEAN"),
    ("jsonb_exists_all", exists_all, _WITH_LIST, "BOOLEAN"),
    ("jsonb_concat", json_changes.concatenate, _TWO, "VARCHAR"),
    ("jsonb_delete_key", json_changes.delete_key, _TWO, "VARCHAR"),
    ("jsonb_delete_keys", json_changes.delete_keys, _WITH_LIST, "VARCHAR"),
    ("jsonb_delete_index", json_changes.delete_index, ("VARCHAR", "INTEGER"), "VARCHAR"),
    ("jsonb_delete_path", json_changes.delete_path, _WITH_LIST, "VARCHAR"),
    ("jsonb_set", json_changes.set_path, _CHANGE, "VARCHAR"),
    ("jsonb_insert", json_changes.insert_path, _CHANGE, "VARCHAR"),
    ("jsonb_strip_nulls", json_changes.strip_nulls, ("VARCHAR", "BOOLEAN"), "VARCHAR"),
    ("jsonb_object", json_changes.object_of, ("VARCHAR[]", "VARCHAR[]"), "VARCHAR"),
    ("jsonb_object_of_pairs", json_changes.object_of_pairs, ("VARCHAR[]",), "VARCHAR"),
    ("jsonb_pretty", pretty, _ONE, "VARCHAR"),
    ("float_json", float_json, ("DOUBLE",), "VARCHAR"),
    ("jsonb_number", number_of, _TWO, "VARCHAR"),
    ("jsonb_integer", integer_of, ("VARCHAR", "VARCHAR", "INTEGER"), "VARCHAR"),
    ("jsonb_boolean", boolean_of, _ONE, "BOOLEAN"),
    ("jsonb_elements", elements, _ONE, "VARCHAR[]"),
    ("jsonb_element_texts", element_texts, _ONE, "VARCHAR[]"),
    ("jsonb_keys", keys, _ONE, "VARCHAR[]"),
    ("jsonb_pairs", pairs, _ONE, _PAIRS),
    ("jsonb_text_pairs", text_pairs, _ONE, _PAIRS),
)
"""The name in DuckDB, the function, the types of its arguments and of its result."""
