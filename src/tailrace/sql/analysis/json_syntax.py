"""JSON where it has a syntax of its own: subscripts, `IS JSON` and the constructors of SQL/JSON."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tailrace.sql.analysis.catalog import Signature
from tailrace.sql.analysis.errors import DATATYPE_MISMATCH, AnalysisError, UnsupportedError
from tailrace.sql.analysis.scope import Scope
from tailrace.sql.analysis.tree import Call, Constant, Expression
from tailrace.sql.analysis.types import BOOL, INTEGERS, TEXT, SqlType

if TYPE_CHECKING:
    from tailrace.sql.analysis.expressions import ExpressionAnalyzer

_IS_JSON = Signature("is_json", ("text", "text", "bool"), "bool", key="is_json(text, text, bool)")
"""What `IS JSON` means. It is no function of the catalog, so that no statement can name it."""
_READABLE = frozenset(("text", "varchar", "bpchar", "json", "jsonb"))
_SCALARS = INTEGERS | {"bool", "numeric", "text"}


def json_subscript(analyzer: "ExpressionAnalyzer", found: Expression, indices: Mapping[str, Any], scope: Scope) -> Expression:
    """Return the value under a key or index of a jsonb, which is found like one step of a path."""
    if indices.get("is_slice"):
        raise AnalysisError(DATATYPE_MISMATCH, "jsonb subscript does not support slices", found.location)
    key = analyzer.analyze(indices["uidx"], scope)
    key = analyzer.coerce(key, TEXT, "explicit" if key.type.name in INTEGERS else "implicit")
    return analyzer.call("jsonb_extract_path", [found, key], found.location)


def is_json(analyzer: "ExpressionAnalyzer", fields: Mapping[str, Any], scope: Scope) -> Expression:
    location = fields.get("location", -1)
    found = analyzer.settle(analyzer.analyze(fields["expr"], scope))
    if found.type.name not in _READABLE:
        raise AnalysisError(DATATYPE_MISMATCH, f"cannot use type {found.type} in IS JSON predicate", location)
    kind = fields.get("item_type", "JS_TYPE_ANY").removeprefix("JS_TYPE_").lower()
    unique = Constant(BOOL, bool(fields.get("unique_keys")))
    return Call(BOOL, _IS_JSON, [analyzer.coerce(found, TEXT, "explicit"), Constant(TEXT, kind), unique], location=location)


def json_object(analyzer: "ExpressionAnalyzer", fields: Mapping[str, Any], scope: Scope) -> Expression:
    """Return `json_object('key': value, ...)`."""
    location = fields.get("location", -1)
    if fields.get("absent_on_null") or fields.get("unique") or "output" in fields:
        raise UnsupportedError("clauses of json_object are not supported; use jsonb_build_object", location)
    nodes: list[Mapping[str, Any]] = []
    for pair in fields.get("exprs", ()):
        nodes += [pair["JsonKeyValue"]["key"], pair["JsonKeyValue"]["value"]["raw_expr"]]
    return _built(analyzer, "json_build_object", analyzer.analyze_all(nodes, scope), location)


def json_array(analyzer: "ExpressionAnalyzer", fields: Mapping[str, Any], scope: Scope) -> Expression:
    """Return `json_array(value, ...)`, which leaves out nulls."""
    location = fields.get("location", -1)
    items = analyzer.analyze_all([item["JsonValueExpr"]["raw_expr"] for item in fields.get("exprs", ())], scope)
    if "output" in fields or not all(isinstance(item, Constant) for item in items):
        raise UnsupportedError("json_array of values that may be null is not supported; use jsonb_build_array", location)
    if fields.get("absent_on_null"):
        items = [item for item in items if isinstance(item, Constant) and item.value is not None]
    return _built(analyzer, "json_build_array", items, location)


def json_scalar(analyzer: "ExpressionAnalyzer", fields: Mapping[str, Any], scope: Scope) -> Expression:
    location = fields.get("location", -1)
    found = analyzer.settle(analyzer.analyze(fields["expr"], scope))
    if found.type.name not in _SCALARS or "output" in fields:
        raise UnsupportedError("json_scalar of this is not supported; use to_jsonb", location)
    return _built(analyzer, "to_json", [found], location)


def _built(analyzer: "ExpressionAnalyzer", name: str, arguments: Sequence[Expression], location: int) -> Expression:
    # Of a jsonb PostgreSQL makes a jsonb.
    if any(one.type in (SqlType("json"), SqlType("jsonb")) for one in arguments):
        raise UnsupportedError("JSON inside of this is not supported; use jsonb_build_object or jsonb_build_array", location)
    return analyzer.call(name, arguments, location)
