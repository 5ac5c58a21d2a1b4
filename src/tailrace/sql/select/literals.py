"""Parameters of a query as constants in its tree: values that stay values, whatever they hold.

A string then behaves as one that was written in the query, which DuckDB takes for a timestamp, a UUID or a number where one is
wanted; as a parameter of its own it would be text and nothing else.
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


def with_constants(tree: exp.Expr, values: Mapping[str, object], limits: Limits) -> exp.Expr:
    """A copy of the tree with the values in the places of its parameters."""
    _check_size(values.values(), limits)

    def replaced(node: exp.Expr) -> exp.Expr:
        return constant(values[node.name]) if isinstance(node, exp.Placeholder) else node

    return tree.transform(replaced)


def _check_size(values: Iterable[object], limits: Limits) -> None:
    """Each item of a list becomes a node of the tree, as if it had been written in the text."""
    items = 0
    waiting = [values]
    while waiting:
        for value in waiting.pop():
            items += 1
            if items > limits.statement_nodes:
                raise LimitExceededError(
                    f"the parameters of the query hold more than {limits.statement_nodes} values (statement_nodes); narrow it"
                    " down, or put the values into a table and join it"
                )
            if isinstance(value, list | tuple):
                waiting.append(value)


def constant(value: object) -> exp.Expr:
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
            return exp.Array(expressions=[constant(item) for item in value])
        case dict():
            return _cast(msgspec.json.encode(value).decode(), "JSON")
    raise SqlError(f"a parameter can't be a {type(value).__name__}")


def _number(text: str) -> exp.Expr:
    number = exp.Literal.number(text.removeprefix("-"))
    return exp.Paren(this=exp.Neg(this=number)) if text.startswith("-") else number


def _text(value: str) -> exp.Expr:
    # The text of a query ends at a character 0, so such a string travels in hexadecimal digits.
    if "\0" in value:
        return exp.Anonymous(this="decode", expressions=[constant(value.encode())])
    return exp.Literal.string(value)


def _cast(text: str, kind: str) -> exp.Expr:
    return exp.cast(exp.Literal.string(text), kind, dialect="duckdb")
