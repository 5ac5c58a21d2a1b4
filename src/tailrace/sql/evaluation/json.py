"""JSON: parts, containment, changes and what is made of values of other types.

A jsonb is a text of JSON, which its functions parse and print. A json keeps its text, so its parts are cut from that.
"""

from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any

from tailrace.sql.analysis.json_documents import document_text, quoted_string, read_document
from tailrace.sql.analysis.tree import Call
from tailrace.sql.analysis.types import INTEGERS, NUMERIC, SqlType
from tailrace.sql.evaluation.functions import ByCall, Entry, EvaluationError, Function, expanded
from tailrace.sql.evaluation.output_texts import cast_printer
from tailrace.sql.functions import json_changes, json_functions, json_raw
from tailrace.sql.functions.float_texts import float4_text, float8_text

# Parts


def _member(text: str, name: str) -> str | None:
    return json_functions.at_path(text, [f".{name}"])


def _member_text(text: str, name: str) -> str | None:
    return json_functions.text_at_path(text, [f".{name}"])


def _item(text: str, index: int) -> str | None:
    return json_functions.at_path(text, [f"#{index}"])


def _item_text(text: str, index: int) -> str | None:
    return json_functions.text_at_path(text, [f"#{index}"])


def _path(text: str, steps: Sequence[str | None]) -> str | None:
    return json_functions.at_path(text, [None if step is None else f"/{step}" for step in steps])


def _path_text(text: str, steps: Sequence[str | None]) -> str | None:
    return json_functions.text_at_path(text, [None if step is None else f"/{step}" for step in steps])


def _raw_path(text: str, path: Sequence[str | None]) -> str | None:
    return json_raw.raw_at(text, [None if step is None else f"/{step}" for step in path])


def _raw_path_text(text: str, path: Sequence[str | None]) -> str | None:
    return json_raw.raw_text_at(text, [None if step is None else f"/{step}" for step in path])


# Making JSON of values


def jsonb_maker(sql_type: SqlType) -> Function:
    """Return a function that makes what `to_jsonb` does of a value that is not null: a document."""
    if sql_type.is_array:
        item = jsonb_maker(sql_type.element)
        return lambda items: [None if one is None else item(one) for one in items]
    match sql_type.name:
        case "json" | "jsonb":
            return read_document
        case "float8":
            return lambda value: _float_value(float8_text(value))
        case "float4":
            return lambda value: _float_value(float4_text(value))
        case "timestamptz":
            return lambda value: _iso(value) + "+00:00"
        case "timestamp":
            return _iso
        case "numeric":
            return _numeric_value
        case name if name in INTEGERS or name == "bool":
            return lambda value: value
    return cast_printer(sql_type)


def _iso(value: datetime) -> str:
    text = value.replace(tzinfo=None).isoformat()
    return text.rstrip("0") if value.microsecond else text


def _float_value(text: str) -> Any:
    """Return a float as a number, or as a string where JSON has no such number."""
    return read_document(text if text[-1].isdigit() else quoted_string(text))


def _numeric_value(value: Decimal) -> Any:
    return value if value.is_finite() else cast_printer(NUMERIC)(value)


def _numeric_text(value: Decimal) -> str:
    text = cast_printer(NUMERIC)(value)
    return text if value.is_finite() else quoted_string(text)


def json_printer(sql_type: SqlType) -> Function:
    """Return a function that makes the text that `to_json` does of a value that is not null."""
    if sql_type.is_array:
        item = json_printer(sql_type.element)
        return lambda items: f"[{','.join('null' if one is None else item(one) for one in items)}]"
    match sql_type.name:
        case "json":
            return lambda text: text
        case "jsonb":
            return json_functions.canonical
        case "bool":
            return lambda value: "true" if value else "false"
        case "numeric":
            return _numeric_text
        case "float8" | "float4":
            show = float8_text if sql_type.name == "float8" else float4_text
            return lambda value: text if (text := show(value))[-1].isdigit() else quoted_string(text)
        case name if name in INTEGERS:
            return str
    make = jsonb_maker(sql_type)
    return lambda value: quoted_string(make(value))


def _to_jsonb(call: Call) -> Function:
    make = jsonb_maker(call.arguments[0].type)
    return lambda value: document_text(make(value))


def _to_json(call: Call) -> Function:
    return json_printer(call.arguments[0].type)


def _name_printer(sql_type: SqlType) -> Function:
    if sql_type.is_array or sql_type.name in ("json", "jsonb"):
        return _wrong_name
    return cast_printer(sql_type)


def _wrong_name(value: Any) -> str:
    raise EvaluationError("22023", "key value must be scalar, not array, composite, or json")


def _build_jsonb_object(call: Call) -> Function:
    if len(call.arguments) % 2:
        return _odd_arguments
    names = [_name_printer(one.type) for one in call.arguments[::2]]
    makers = [jsonb_maker(one.type) for one in call.arguments[1::2]]

    def build(*values: Any) -> str:
        result = {}
        for at, (name, make) in enumerate(zip(names, makers, strict=True)):
            given, value = values[2 * at : 2 * at + 2]
            if given is None:
                raise EvaluationError("22023", f"argument {2 * at + 1}: key must not be null")
            result[name(given)] = None if value is None else make(value)
        return document_text(result)

    return build


def _json_object_builder(colon: str, comma: str) -> ByCall:
    return ByCall(lambda call: _build_json_object(call, colon, comma), is_strict=False)


def _build_json_object(call: Call, colon: str, comma: str) -> Function:
    if len(call.arguments) % 2:
        return _odd_arguments
    names = [_name_printer(one.type) for one in call.arguments[::2]]
    printers = [json_printer(one.type) for one in call.arguments[1::2]]

    def build(*values: Any) -> str:
        parts = []
        for at, (name, show) in enumerate(zip(names, printers, strict=True)):
            given, value = values[2 * at : 2 * at + 2]
            if given is None:
                raise EvaluationError("22004", "null value not allowed for object key")
            parts.append(f"{quoted_string(name(given))}{colon}{'null' if value is None else show(value)}")
        return f"{{{comma.join(parts)}}}"

    return build


def _odd_arguments(*values: Any) -> str:
    raise EvaluationError("22023", "argument list must have even number of elements")


def _build_jsonb_array(call: Call) -> Function:
    makers = [jsonb_maker(one.type) for one in call.arguments]
    return lambda *values: document_text(
        [None if value is None else make(value) for make, value in zip(makers, values, strict=True)]
    )


def _build_json_array(call: Call) -> Function:
    printers = [json_printer(one.type) for one in call.arguments]
    return lambda *values: (
        f"[{', '.join('null' if value is None else show(value) for show, value in zip(printers, values, strict=True))}]"
    )


def _object(names: Sequence[str | None], values: Sequence[str | None] | None = None) -> str:
    return json_changes.object_of_pairs(names) if values is None else json_changes.object_of(names, values)


def _type_of(text: str) -> str:
    names = {dict: "object", list: "array", str: "string", bool: "boolean", type(None): "null"}
    return names.get(type(read_document(text)), "number")


def _length(text: str) -> int:
    document = read_document(text)
    if isinstance(document, list):
        return len(document)
    kind = "non-array" if isinstance(document, dict) else "scalar"
    raise EvaluationError("22023", f"cannot get array length of a {kind}")


def _contained(part: str, whole: str) -> bool:
    return json_functions.contains(whole, part)


_ENTRIES: dict[str, Entry] = {
    "jsonb -> text": _member,
    "jsonb ->> text": _member_text,
    "jsonb -> int4": _item,
    "jsonb ->> int4": _item_text,
    "jsonb #> text[]": _path,
    "jsonb #>> text[]": _path_text,
    "jsonb_extract_path(jsonb, text[])": lambda text, *path: _path(text, path),
    "jsonb_extract_path_text(jsonb, text[])": lambda text, *path: _path_text(text, path),
    "jsonb_object_field(jsonb, text)": _member,
    "jsonb_object_field_text(jsonb, text)": _member_text,
    "jsonb_array_element(jsonb, int4)": _item,
    "jsonb_array_element_text(jsonb, int4)": _item_text,
    "json -> text": lambda text, name: json_raw.raw_at(text, [f".{name}"]),
    "json ->> text": lambda text, name: json_raw.raw_text_at(text, [f".{name}"]),
    "json -> int4": lambda text, index: json_raw.raw_at(text, [f"#{index}"]),
    "json ->> int4": lambda text, index: json_raw.raw_text_at(text, [f"#{index}"]),
    "json #> text[]": _raw_path,
    "json #>> text[]": _raw_path_text,
    "json_extract_path(json, text[])": lambda text, *path: _raw_path(text, path),
    "json_extract_path_text(json, text[])": lambda text, *path: _raw_path_text(text, path),
    "is_json(text, text, bool)": json_raw.is_json,
    "jsonb @> jsonb": json_functions.contains,
    "jsonb <@ jsonb": _contained,
    "jsonb_contains(jsonb, jsonb)": json_functions.contains,
    "jsonb_contained(jsonb, jsonb)": _contained,
    "jsonb ? text": json_functions.exists,
    "jsonb ?| text[]": json_functions.exists_any,
    "jsonb ?& text[]": json_functions.exists_all,
    "jsonb_exists(jsonb, text)": json_functions.exists,
    "jsonb_exists_any(jsonb, text[])": json_functions.exists_any,
    "jsonb_exists_all(jsonb, text[])": json_functions.exists_all,
    "jsonb || jsonb": json_changes.concatenate,
    "jsonb_concat(jsonb, jsonb)": json_changes.concatenate,
    "jsonb - text": json_changes.delete_key,
    "jsonb - text[]": json_changes.delete_keys,
    "jsonb - int4": json_changes.delete_index,
    "jsonb #- text[]": json_changes.delete_path,
    "jsonb_delete_path(jsonb, text[])": json_changes.delete_path,
    "jsonb_set(jsonb, text[], jsonb, bool)": lambda text, path, new, create=True: json_changes.set_path(
        text, path, new, create
    ),
    "jsonb_insert(jsonb, text[], jsonb, bool)": lambda text, path, new, after=False: json_changes.insert_path(
        text, path, new, after
    ),
    "jsonb_strip_nulls(jsonb, bool)": lambda text, in_arrays=False: json_changes.strip_nulls(text, in_arrays),
    "jsonb_pretty(jsonb)": json_functions.pretty,
    "{json}_typeof({json})": _type_of,
    "{json}_array_length({json})": _length,
    "to_jsonb(anyelement)": ByCall(_to_jsonb),
    "to_json(anyelement)": ByCall(_to_json),
    "array_to_json(anyarray)": ByCall(_to_json),
    "{json}_build_object()": lambda: "{}",
    "{json}_build_array()": lambda: "[]",
    "jsonb_build_object(any)": ByCall(_build_jsonb_object, is_strict=False),
    "json_build_object(any)": _json_object_builder(" : ", ", "),
    "json_of_row(any)": _json_object_builder(":", ","),
    "jsonb_build_array(any)": ByCall(_build_jsonb_array, is_strict=False),
    "json_build_array(any)": ByCall(_build_json_array, is_strict=False),
    "jsonb_object(text[])": _object,
    "jsonb_object(text[], text[])": _object,
}
JSON: dict[str, Entry] = expanded(_ENTRIES)
