"""Our SQL to DuckDB's: what the two mean differently is put right in the tree; sqlglot writes the rest.

- `->` and `->>` on the key or value of a record give null where it is no JSON: not every producer writes JSON, and one record
  must not fail a query over millions. Paths may be written `'id'` or `'$.id'`.
- A query gives at most so many rows as are wanted.
"""

from sqlglot import exp

_JSON_TEXTS = frozenset(("key", "value"))


def to_duckdb(tree: exp.Expr, most_rows: int | None) -> str:
    """The tree is changed. `None` is any number of rows."""
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
