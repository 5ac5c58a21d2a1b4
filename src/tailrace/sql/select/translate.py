"""Our SQL to DuckDB's: what the two mean differently is put right in the tree; sqlglot writes the rest.

- `->` and `->>` on the key or value of a record give null where it is no JSON: not every producer writes JSON, and one record
  must not fail a query over millions. Paths may be written `'id'` or `'$.id'`.
- Columns without a name are called as they were written.
- A query gives at most so many rows as are wanted.
"""

import re

from sqlglot import exp

_NAMED = (exp.Alias, exp.Column, exp.Star, exp.Columns)
_JSON_TEXTS = frozenset(("key", "value"))


_PARAMETER = re.compile(r"%\((\w+)\)s")


def with_column_names(tree: exp.Expr) -> exp.Expr:
    """A copy in which columns that are given no name are called as they were written."""
    named = tree.copy()
    for select in _first_selects(named):
        for column in list(select.expressions):
            if not isinstance(column, _NAMED) and column.find(exp.Explode, exp.Unnest) is None:
                name = _PARAMETER.sub(_as_written, column.sql(dialect="postgres"))
                column.replace(exp.alias_(column.copy(), name, quoted=True))
    return named


def to_duckdb(tree: exp.Expr, most_rows: int) -> str:
    """The tree is changed."""
    _loosen_json(tree)
    return _limited(tree, most_rows).sql(dialect="duckdb", identify=True)


def _as_written(parameter: re.Match[str]) -> str:
    return "?" if parameter[1].isdigit() else f":{parameter[1]}"


def _first_selects(tree: exp.Expr) -> list[exp.Select]:
    """The one that names the columns of the answer."""
    while isinstance(tree, exp.SetOperation | exp.Subquery):
        tree = tree.this
    return [tree] if isinstance(tree, exp.Select) else []


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
