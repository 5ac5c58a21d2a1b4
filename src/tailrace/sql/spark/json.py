"""JSON: what stands at a path of constants in a column.

A column of JSON is a VARIANT. Numbers that are not whole, objects and arrays have a text in PostgreSQL that Spark does not
keep, so `->>` fails on them; texts, whole numbers and booleans are as in PostgreSQL. Where it is only compared with constants
that can't be such a text, or tested for null, another text stands for it and nothing fails.
"""

from collections.abc import Callable, Sequence
from typing import TypeGuard

from tailrace.sql.analysis.errors import UnsupportedError
from tailrace.sql.analysis.tree import ArrayOf, Call, Constant, Expression, NullTest
from tailrace.sql.spark.templates import Rendered, SparkTemplate, Template, constant_of, spark_string

_KEPT = ("STRING", "BIGINT", "BOOLEAN", "VOID")
"""Kinds of values whose text is as in PostgreSQL; `VOID` is JSON's null, which has none."""
_STARTS = ("{", "[", "-", *"0123456789")
"""How the texts of all other values start."""


def _step(node: Expression) -> str:
    value = constant_of(node, "a key or an index of JSON")
    if isinstance(value, int):
        if value < 0:
            raise UnsupportedError("in a route an index of JSON must be 0 or more", node.location)
        return f"[{value}]"
    return _key(str(value), node)


def _key(name: str, node: Expression) -> str:
    for quote in ("'", '"'):
        if quote not in name and "\\" not in name:
            return f"[{quote}{name}{quote}]"
    raise UnsupportedError("in a route a key of JSON can't have quotes of both kinds or a backslash", node.location)


def _steps(node: Expression) -> str:
    """Return the path of `#>`. A number among its items could be an index or a key, depending on the value."""
    items = constant_of(node, "a path of JSON")
    found = [str(item) for item in items] if isinstance(items, list) and None not in items else None
    if found is None or any(item.lstrip("+-").isdigit() for item in found):
        raise UnsupportedError("in a route a path of JSON must have names only; write -> for each of its items", node.location)
    return "".join(_key(item, node) for item in found)


def check_null_test(node: NullTest) -> None:
    """Refuse the test of JSON that may be JSON's null as a whole, which looks like a null of SQL in a change event."""
    argument = node.argument
    if argument is None or argument.type.name != "jsonb":
        return
    if not isinstance(argument, Call) or argument.signature.key != "jsonb -> text":
        raise UnsupportedError("in a route only a part of JSON by its name can be tested for null", node.location)


def _found(arguments: Sequence[str], call: Call) -> Rendered:
    found = _value(arguments, call)
    if not _is_first(call):
        return found
    return SparkTemplate(found, failure=_is_scalar(arguments[0]))


def _value(arguments: Sequence[str], call: Call) -> str:
    steps = _steps(call.arguments[1]) if call.signature.name.startswith("#") else _step(call.arguments[1])
    return f"variant_get({arguments[0]}, {spark_string('$' + steps)})" if steps else arguments[0]


def _is_first(call: Call) -> bool:
    return isinstance(call.arguments[1], Constant) and call.arguments[1].value == 0


def _is_scalar(text: str) -> str:
    """Return the test for a plain value, which is its own first item in PostgreSQL."""
    return f"coalesce(NOT schema_of_variant({text}) RLIKE '^(ARRAY|OBJECT)', FALSE)"


def _text(arguments: Sequence[str], call: Call) -> Rendered:
    found = _value(arguments, call)
    kept = _is_kept(found)
    failure = f"coalesce(NOT {kept}, FALSE)"
    if _is_first(call):
        failure = f"({failure} OR {_is_scalar(arguments[0])})"
    value = f"CASE WHEN {kept} THEN try_variant_get({found}, '\\u0024', 'string') END"
    return SparkTemplate(value, failure=failure)


def _is_kept(found: str) -> str:
    return f"schema_of_variant({found}) IN ({', '.join(map(spark_string, _KEPT))})"


def is_text_of_json(node: Expression | None) -> TypeGuard[Call]:
    return isinstance(node, Call) and JSON.get(node.signature.key) is _text


def is_other_text(node: Expression | None) -> bool:
    """Return whether an expression is a constant that is no text of an object, an array or a number."""
    return isinstance(node, Constant) and isinstance(node.value, str) and not node.value.startswith(_STARTS)


def compared_text(arguments: Sequence[str], call: Call) -> SparkTemplate:
    """Return `->>` with a stand-in for texts that Spark does not keep, which no constant of `is_other_text` equals."""
    found = _value(arguments, call)
    kept = f"WHEN {_is_kept(found)} THEN try_variant_get({found}, '\\u0024', 'string')"
    value = f"CASE {kept} WHEN {found} IS NOT NULL THEN '{{' END"
    return SparkTemplate(value, failure=_is_scalar(arguments[0]) if _is_first(call) else "")


def _kind(arguments: Sequence[str], call: Call) -> Rendered:
    if not isinstance(call.arguments[0], Call):
        raise UnsupportedError("in a route jsonb_typeof takes a part of JSON, as in jsonb_typeof(j -> 'a')", call.location)
    schema = f"schema_of_variant({arguments[0]})"
    kinds = [
        f"WHEN {schema} RLIKE {spark_string(f'^({pattern})')} THEN '{name}'"
        for name, pattern in (
            ("string", "STRING"),
            ("boolean", "BOOLEAN"),
            ("null", "VOID"),
            ("object", "OBJECT"),
            ("array", "ARRAY"),
        )
    ]
    return f"CASE {' '.join(kinds)} WHEN {schema} IS NOT NULL THEN 'number' END"


def _has_keys(word: str) -> Callable[[Sequence[str], Call], Rendered]:
    """Return the template of a test for keys. What is no object can have texts instead, which Spark does not look for."""

    def render(arguments: Sequence[str], call: Call) -> Rendered:
        keys = [str(name) for name in _constants(call.arguments[1]) if name is not None]
        found = [f"variant_get({arguments[0]}, {spark_string('$' + _key(key, call))}) IS NOT NULL" for key in keys]
        if not found:
            raise UnsupportedError("in a route the keys of JSON must not be none", call.location)
        value = f"CASE WHEN {arguments[0]} IS NOT NULL THEN {f' {word} '.join(found)} END"
        return SparkTemplate(f"({value})", failure=_is_other_than("OBJECT", arguments[0]))

    return render


def _constants(node: Expression) -> list[object]:
    if isinstance(node, ArrayOf):
        return [constant_of(item, "a key of JSON") for item in node.items]
    value = constant_of(node, "a key of JSON")
    return value if isinstance(value, list) else [value]


def _length(arguments: Sequence[str], call: Call) -> Rendered:
    value = f"size(try_variant_get({arguments[0]}, '\\u0024', 'array<variant>'))"
    return SparkTemplate(
        f"CASE WHEN {arguments[0]} IS NOT NULL THEN {value} END", failure=_is_other_than("ARRAY", arguments[0])
    )


def _is_other_than(kind: str, text: str) -> str:
    return f"coalesce(NOT schema_of_variant({text}) RLIKE '^{kind}', FALSE)"


JSON: dict[str, Template] = {
    "jsonb ? text": _has_keys("OR"),
    "jsonb ?| text[]": _has_keys("OR"),
    "jsonb ?& text[]": _has_keys("AND"),
    "jsonb_array_length(jsonb)": _length,
    "jsonb -> text": _found,
    "jsonb -> int4": _found,
    "jsonb #> text[]": _found,
    "jsonb_typeof(jsonb)": _kind,
    "jsonb ->> text": _text,
    "jsonb ->> int4": _text,
    "jsonb #>> text[]": _text,
}
