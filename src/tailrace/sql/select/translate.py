"""Translates queries to DuckDB's SQL: the tree is changed where the two differ, and sqlglot writes the rest.

- `->` and `->>` on the key or value of a record return null if it is not JSON: not every producer writes JSON, and one record
  must not fail a query over millions. Paths may be written `'id'` or `'$.id'`.
- Parameters become constants in the tree. A string then behaves like one that is written in the query, which DuckDB converts to
  a timestamp, a UUID or a number where one is needed; as a parameter of DuckDB it would only be text.
- The number of rows is limited.
"""

import math
from collections.abc import Iterable, Mapping
from datetime import date, datetime
from decimal import Decimal
from uuid import UUID

import msgspec
from sqlglot import exp

from tailrace.model.errors import LimitExceededError, SqlError
from tailrace.model.limits import Limits

_JSON_TEXTS = frozenset(("key", "value"))


def to_duckdb(tree: exp.Expr, most_rows: int | None) -> str:
    """Return the query as SQL. The tree is changed. `None` means any number of rows."""
    _loosen_json(tree)
    return (tree if most_rows is None else _limited(tree, most_rows)).sql(dialect="duckdb", identify=True)


def _loosen_json(tree: exp.Expr) -> None:
    for node in list(tree.find_all(exp.JSONExtract, exp.JSONExtractScalar)):
        path = node.expression
        if isinstance(path, exp.JSONPath) and len(path.expressions) == 2 and str(path.expressions[1].this).startswith("$"):
            node.set("expression", exp.Literal.string(path.expressions[1].this))
        is_outermost = not isinstance(node.parent, exp.JSONExtract | exp.JSONExtractScalar)
        if is_outermost and _is_record_text(node):
            node.replace(exp.Anonymous(this="TRY", expressions=[node.copy()]))


def _is_record_text(node: exp.Expr) -> bool:
    while isinstance(node, exp.JSONExtract | exp.JSONExtractScalar | exp.Paren):
        node = node.this
    return isinstance(node, exp.Column) and node.name.lower() in _JSON_TEXTS


def _limited(tree: exp.Expr, most_rows: int) -> exp.Expr:
    if not isinstance(tree, exp.Select | exp.SetOperation):
        return tree
    limit = tree.args.get("limit")
    if limit is None:
        tree.set("limit", exp.Limit(expression=exp.Literal.number(most_rows)))
        return tree
    if isinstance(limit, exp.Limit) and isinstance(limit.expression, exp.Literal) and limit.expression.is_int:
        limit.set("expression", exp.Literal.number(min(int(limit.expression.name), most_rows)))
        return tree
    return exp.select("*").from_(tree.subquery("found")).limit(most_rows)


def with_constants(tree: exp.Expr, values: Mapping[str, object], limits: Limits) -> exp.Expr:
    """Return a copy of the tree with the values in place of its parameters."""
    _check_size(values.values(), limits)

    def replaced(node: exp.Expr) -> exp.Expr:
        return constant_expression(values[node.name]) if isinstance(node, exp.Placeholder) else node

    return tree.transform(replaced)


def _check_size(values: Iterable[object], limits: Limits) -> None:
    """Limit the number of values: each item of a list becomes a node of the tree, as if it were written in the text."""
    items = 0
    waiting = [values]
    while waiting:
        for value in waiting.pop():
            items += 1
            if items > limits.statement_nodes:
                raise LimitExceededError(
                    f"the parameters of the query have more than {limits.statement_nodes} values (statement_nodes); send"
                    " fewer, or insert them into a table and join it"
                )
            if isinstance(value, list | tuple):
                waiting.append(value)


def constant_expression(value: object) -> exp.Expr:
    match value:
        case None:
            return exp.null()
        case bool():
            return exp.Boolean(this=value)
        case int():
            return _number(str(value))
        case float():
            return _number(repr(value)) if math.isfinite(value) else _cast(str(value), "DOUBLE")
        case Decimal():
            return _number(format(value, "f")) if value.is_finite() else _cast(str(value), "DOUBLE")
        case str():
            return _text(value)
        case bytes():
            return exp.Anonymous(this="unhex", expressions=[exp.Literal.string(value.hex())])
        case datetime():
            return _cast(value.isoformat(), "TIMESTAMPTZ" if value.tzinfo else "TIMESTAMP")
        case date():
            return _cast(value.isoformat(), "DATE")
        case UUID():
            return _cast(str(value), "UUID")
        case list() | tuple():
            return exp.Array(expressions=[constant_expression(item) for item in value])
        case dict():
            return _cast(msgspec.json.encode(value).decode(), "JSON")
    raise SqlError(
        f"a parameter can't be a {type(value).__name__}; use a type that JSON has, or bytes, a date, a time, a UUID or a"
        " Decimal"
    )


def _number(text: str) -> exp.Expr:
    number = exp.Literal.number(text.removeprefix("-"))
    return exp.Paren(this=exp.Neg(this=number)) if text.startswith("-") else number


def _text(value: str) -> exp.Expr:
    # DuckDB ends the text of a query at a character 0, so such a string is sent in hexadecimal.
    if "\0" in value:
        return exp.Anonymous(this="decode", expressions=[constant_expression(value.encode())])
    return exp.Literal.string(value)


def _cast(text: str, kind: str) -> exp.Expr:
    return exp.cast(exp.Literal.string(text), kind, dialect="duckdb")
