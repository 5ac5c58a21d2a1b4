"""How the columns of an answer are called that were given no name: the same on tables and on topics, and close to PostgreSQL.

A call has the name of its function, a cast that of what it casts, and `CASE` is `case`; anything else is called as it was
written, where PostgreSQL says `?column?`. Names may come twice.
"""

import re

from sqlglot import exp

_NAMED = (exp.Alias, exp.Aliases, exp.Column, exp.Star, exp.Columns, exp.Dot)
_CALL = re.compile(r"([a-z_]\w*)\s*\(", re.IGNORECASE)
_PARAMETER = re.compile(r"%\((\w+)\)s")


def with_column_names(tree: exp.Expr) -> exp.Expr:
    """A copy in which every column of the answer has a name."""
    named = tree.copy()
    clause = named.args.get("returning") or _naming_select(named)
    for column in list(clause.expressions) if clause is not None else ():
        if not isinstance(column, _NAMED) and column.find(exp.Explode, exp.Unnest) is None:
            column.replace(exp.alias_(column.copy(), _name_of(column), quoted=True))
    return named


def _naming_select(tree: exp.Expr) -> exp.Select | None:
    """The first of a UNION names the columns of all."""
    while isinstance(tree, exp.SetOperation | exp.Subquery):
        tree = tree.this
    return tree if isinstance(tree, exp.Select) else None


def _name_of(column: exp.Expr) -> str:
    inner = column
    while isinstance(inner, exp.Paren | exp.Cast | exp.Window | exp.Filter | exp.WithinGroup | exp.IgnoreNulls):
        inner = inner.this
    if isinstance(inner, exp.Column) and inner is not column:
        return inner.name
    if isinstance(inner, exp.Case):
        return "case"
    written = _written(inner)
    call = _CALL.match(written) if isinstance(inner, exp.Func | exp.Exists) else None
    return call[1].lower() if call is not None else _written(column)


def _written(column: exp.Expr) -> str:
    return _PARAMETER.sub(_parameter, column.sql(dialect="postgres"))


def _parameter(found: re.Match[str]) -> str:
    return "?" if found[1].isdigit() else f":{found[1]}"
