"""JSON: functions and operators of jsonb. Those that read a path are in `json_paths.py`.

A jsonb is held as a text of JSON that jsonb accepts and in which no key of an object occurs twice. Its spaces, the order of its
keys and the way its numbers are written may be any until it becomes a text. A value of the type json is held as its text.
"""

from collections.abc import Callable, Sequence

from tailrace.sql.analysis.errors import AnalysisError, UnsupportedError
from tailrace.sql.analysis.tree import Call, Constant
from tailrace.sql.analysis.types import SqlType
from tailrace.sql.duckdb.output_texts import output_text
from tailrace.sql.duckdb.templates import AggregateCall, AggregateTemplate, RowFunction, Template, expanded, is_loose
from tailrace.sql.functions.json_paths import PATHS

_STRINGS = ("text", "varchar", "bpchar", "name", "unknown")
_INVALID = "22023"
_COMMA = " || ', ' || "
_COLON = {True: ": ", False: " : "}


def json_text(text: str, sql_type: SqlType, *, is_jsonb: bool = True) -> str:
    """Return the JSON of a value; null stays null."""
    if sql_type.is_array:
        inner = json_text("element", sql_type.element, is_jsonb=is_jsonb)
        name = "json_list" if is_jsonb else "json_compact_list"
        return f"{name}(list_transform({text}, lambda element: {inner}))"
    match sql_type.name:
        case "bool" | "int2" | "int4" | "int8":
            return f"CAST({text} AS VARCHAR)"
        case "numeric":
            return f"numeric_json({text})" if is_loose(sql_type) else f"CAST({text} AS VARCHAR)"
        case "float8" | "float4" if is_jsonb:
            exact = text if sql_type.name == "float8" else f"CAST(CAST({text} AS VARCHAR) AS DOUBLE)"
            return f"float_json({exact})"
        case "float8" | "float4":
            shown = output_text(text, sql_type)
            return f"CASE WHEN isfinite({text}) THEN {shown} ELSE '\"' || {shown} || '\"' END"
        case "jsonb":
            return text if is_jsonb else f"jsonb_in({text})"
        case "json":
            return f"jsonb_in({text})" if is_jsonb else text
        case "timestamp" | "timestamptz":
            zone = "+00:00" if sql_type.name == "timestamptz" else ""
            return f"('\"' || replace(CAST({text} AS VARCHAR), ' ', 'T') || '{zone}\"')"
        case "date" | "uuid" | "time":
            return f"('\"' || CAST({text} AS VARCHAR) || '\"')"
    shown = text if sql_type.name in _STRINGS else output_text(text, sql_type)
    return f"CAST(to_json({shown}) AS VARCHAR)"


def _null_as_json(text: str) -> str:
    return f"coalesce({text}, 'null')"


def _converted(*, is_jsonb: bool) -> Callable[[Sequence[str], Call], str]:
    return lambda arguments, call: json_text(arguments[0], call.arguments[0].type, is_jsonb=is_jsonb)


def _built_array(*, is_jsonb: bool) -> Callable[[Sequence[str], Call], str]:
    def render(arguments: Sequence[str], call: Call) -> str:
        items = [
            _null_as_json(json_text(one, node.type, is_jsonb=is_jsonb))
            for one, node in zip(arguments, call.arguments, strict=True)
        ]
        return f"('[' || {_COMMA.join(items)} || ']')" if items else "'[]'"

    return render


def _built_object(*, is_jsonb: bool, is_row: bool = False) -> Callable[[Sequence[str], Call], str]:
    colon, comma = (":", " || ',' || ") if is_row else (_COLON[is_jsonb], _COMMA)

    def render(arguments: Sequence[str], call: Call) -> str:
        if len(arguments) % 2:
            raise AnalysisError(_INVALID, "argument list must have even number of elements", call.location)
        pairs = []
        for at in range(0, len(arguments), 2):
            key = _key(arguments[at], call, at, is_jsonb=is_jsonb)
            value = _null_as_json(json_text(arguments[at + 1], call.arguments[at + 1].type, is_jsonb=is_jsonb))
            pairs.append(f"{key} || '{colon}' || {value}")
        if not pairs:
            return "'{}'"
        whole = f"('{{' || {comma.join(pairs)} || '}}')"
        keys = {node.value for node in call.arguments[::2] if isinstance(node, Constant)}
        return f"jsonb_in({whole})" if is_jsonb and len(keys) < len(pairs) else whole

    return render


def _key(text: str, call: Call, at: int, *, is_jsonb: bool) -> str:
    node = call.arguments[at]
    if node.type.is_array or node.type.name in ("json", "jsonb"):
        raise AnalysisError(_INVALID, "key value must be scalar, not array, composite, or json", node.location)
    missing = (
        (_INVALID, f"argument {at + 1}: key must not be null")
        if is_jsonb
        else ("22004", "null value not allowed for object key")
    )
    if isinstance(node, Constant) and node.value is None:
        raise AnalysisError(*missing, node.location)
    quoted = _as_key(text, node.type)
    return quoted if isinstance(node, Constant) else f"coalesce({quoted}, fail('{missing[0]}', '{missing[1]}'))"


def _as_key(text: str, sql_type: SqlType) -> str:
    shown = f"CAST({text} AS VARCHAR)" if sql_type.name == "bool" else output_text(text, sql_type)
    return f"CAST(to_json({shown}) AS VARCHAR)"


def _stripped(arguments: Sequence[str], call: Call) -> str:
    return f"jsonb_strip_nulls({arguments[0]}, {arguments[1] if len(arguments) > 1 else 'false'})"


def _changed(name: str, default: str) -> Callable[[Sequence[str], Call], str]:
    def render(arguments: Sequence[str], call: Call) -> str:
        target, path, value = arguments[:3]
        return f"{name}({target}, {path}, {value}, {arguments[3] if len(arguments) > 3 else default})"

    return render


def _deleted_keys(arguments: Sequence[str], call: Call) -> str:
    if len(arguments) == 2 and call.arguments[1].type.is_array:
        return f"jsonb_delete_keys({arguments[0]}, {arguments[1]})"
    return f"jsonb_delete_keys({arguments[0]}, [{', '.join(arguments[1:])}]::VARCHAR[])"


def _array_to_json(arguments: Sequence[str], call: Call) -> str:
    if len(arguments) > 1:
        raise UnsupportedError("array_to_json with line feeds is not supported", call.location)
    return json_text(arguments[0], call.arguments[0].type, is_jsonb=False)


def compared_json(operator: str) -> str:
    """Return the template of a comparison of jsonb."""
    return f"(jsonb_sort_key({{0}}) {operator} jsonb_sort_key({{1}}))"


JSON: dict[str, Template] = expanded(
    {
        **PATHS,
        "jsonb @> jsonb": "jsonb_contains({0}, {1})",
        "jsonb <@ jsonb": "jsonb_contains({1}, {0})",
        "jsonb_contains(jsonb, jsonb)": "jsonb_contains({0}, {1})",
        "jsonb_contained(jsonb, jsonb)": "jsonb_contains({1}, {0})",
        "jsonb ? text": "jsonb_exists({0}, {1})",
        "jsonb ?| text[]": "jsonb_exists_any({0}, {1})",
        "jsonb ?& text[]": "jsonb_exists_all({0}, {1})",
        "jsonb_exists(jsonb, text)": "jsonb_exists({0}, {1})",
        "jsonb_exists_any(jsonb, text[])": "jsonb_exists_any({0}, {1})",
        "jsonb_exists_all(jsonb, text[])": "jsonb_exists_all({0}, {1})",
        "jsonb || jsonb": "jsonb_concat({0}, {1})",
        "jsonb_concat(jsonb, jsonb)": "jsonb_concat({0}, {1})",
        "jsonb - text": "jsonb_delete_key({0}, {1})",
        "jsonb - text[]": "jsonb_delete_keys({0}, {1})",
        "jsonb - int4": "jsonb_delete_index({0}, {1})",
        "jsonb_delete(jsonb, text)": "jsonb_delete_key({0}, {1})",
        "jsonb_delete(jsonb, int4)": "jsonb_delete_index({0}, {1})",
        "jsonb_delete(jsonb, text[])": _deleted_keys,
        "jsonb #- text[]": "jsonb_delete_path({0}, {1})",
        "jsonb_delete_path(jsonb, text[])": "jsonb_delete_path({0}, {1})",
        "jsonb_set(jsonb, text[], jsonb, bool)": _changed("jsonb_set", "true"),
        "jsonb_insert(jsonb, text[], jsonb, bool)": _changed("jsonb_insert", "false"),
        "jsonb_strip_nulls(jsonb, bool)": _stripped,
        "jsonb_typeof(jsonb)": "jsonb_typeof({0})",
        "json_typeof(json)": "jsonb_typeof({0})",
        "jsonb_array_length(jsonb)": "jsonb_array_length({0})",
        "json -> text": "json_at({0}, ['.' || {1}])",
        "json ->> text": "json_text_at({0}, ['.' || {1}])",
        "json -> int4": "json_at({0}, ['#' || {1}])",
        "json ->> int4": "json_text_at({0}, ['#' || {1}])",
        "json #> text[]": "json_at({0}, list_transform({1}, lambda item: '/' || item))",
        "json #>> text[]": "json_text_at({0}, list_transform({1}, lambda item: '/' || item))",
        "is_json(text, text, bool)": "is_json({0}, {1}, {2})",
        "json_array_length(json)": "jsonb_array_length({0})",
        "jsonb_pretty(jsonb)": "jsonb_pretty({0})",
        "jsonb_object(text[])": "jsonb_object_of_pairs({0})",
        "jsonb_object(text[], text[])": "jsonb_object({0}, {1})",
        "to_jsonb(anyelement)": _converted(is_jsonb=True),
        "to_json(anyelement)": _converted(is_jsonb=False),
        "array_to_json(anyarray)": _array_to_json,
        "array_to_json(anyarray, bool)": _array_to_json,
        "jsonb_build_array()": _built_array(is_jsonb=True),
        "jsonb_build_array(any)": _built_array(is_jsonb=True),
        "json_build_array()": _built_array(is_jsonb=False),
        "json_build_array(any)": _built_array(is_jsonb=False),
        "jsonb_build_object()": _built_object(is_jsonb=True),
        "jsonb_build_object(any)": _built_object(is_jsonb=True),
        "json_build_object()": _built_object(is_jsonb=False),
        "json_build_object(any)": _built_object(is_jsonb=False),
        "json_of_row(any)": _built_object(is_jsonb=False, is_row=True),
    }
)

JSON_ROWS: dict[str, RowFunction] = {
    "jsonb_array_elements(jsonb)": RowFunction("jsonb_elements({0})"),
    "jsonb_array_elements_text(jsonb)": RowFunction("jsonb_element_texts({0})"),
    "jsonb_object_keys(jsonb)": RowFunction("jsonb_keys({0})"),
    "jsonb_each(jsonb)": RowFunction("jsonb_pairs({0})", 2),
    "jsonb_each_text(jsonb)": RowFunction("jsonb_text_pairs({0})", 2),
}


def _listed(*, is_jsonb: bool, separator: str = "', '") -> AggregateTemplate:
    def render(call: AggregateCall) -> str:
        _refuse_distinct(call)
        item = _null_as_json(json_text(call.arguments[0], call.node.arguments[0].type, is_jsonb=is_jsonb))
        joined = call("string_agg", item, separator, ordered=True)
        return f"('[' || {joined} || ']')"

    return render


def _collected(*, is_jsonb: bool) -> AggregateTemplate:
    def render(call: AggregateCall) -> str:
        _refuse_distinct(call)
        key, value = call.arguments
        key_type, value_type = (one.type for one in call.node.arguments)
        if key_type.is_array or key_type.name in ("json", "jsonb"):
            raise AnalysisError(_INVALID, "key value must be scalar, not array, composite, or json", call.node.location)
        missing = "'22023', 'field name must not be null'" if is_jsonb else "'22004', 'null value not allowed for object key'"
        shown = f"coalesce({_as_key(key, key_type)}, fail({missing}))"
        pair = f"{shown} || '{_COLON[is_jsonb]}' || {_null_as_json(json_text(value, value_type, is_jsonb=is_jsonb))}"
        pairs = call("string_agg", call.only_kept(pair), "', '", ordered=True)
        return f"jsonb_in('{{' || {pairs} || '}}')" if is_jsonb else f"('{{ ' || {pairs} || ' }}')"

    return render


def _refuse_distinct(call: AggregateCall) -> None:
    if call.node.is_distinct:
        raise UnsupportedError(f"DISTINCT in {call.node.signature.name} is not supported; use a subquery", call.node.location)


JSON_AGGREGATES: dict[str, AggregateTemplate] = {
    "jsonb_agg(anyelement)": _listed(is_jsonb=True),
    "json_agg(anyelement)": _listed(is_jsonb=False),
    "json_agg(record)": _listed(is_jsonb=False, separator="', ' || chr(10) || ' '"),
    "jsonb_object_agg(any, any)": _collected(is_jsonb=True),
    "json_object_agg(any, any)": _collected(is_jsonb=False),
}
