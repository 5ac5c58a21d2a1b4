"""Where in a text something stands, as people count: lines and columns from 1."""

import re
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from sqlglot import exp
from sqlglot.tokenizer_core import Token

from tailrace.model.errors import SqlError, TailraceError
from tailrace.model.suggestions import did_you_mean
from tailrace.model.table import Table


class TextPosition(NamedTuple):
    line: int
    column: int


def position_at(text: str, index: int) -> TextPosition:
    """A line ends with a line feed, a carriage return, or both."""
    breaks = text.count("\n", 0, index) + text.count("\r", 0, index) - text.count("\r\n", 0, index)
    return TextPosition(breaks + 1, index - max(text.rfind("\n", 0, index), text.rfind("\r", 0, index)))


def position_of_token(token: Token, text: str) -> TextPosition:
    """Where a token begins. sqlglot tells where it ends, which may be in another line."""
    return position_at(text, token.start)


def position_of(tree: exp.Expr) -> TextPosition | None:
    """The first word of a tree that has a place: names, numbers, strings and functions have one, operators have none."""
    places = [
        (meta["start"], TextPosition(meta["line"], max(1, meta["col"] - (meta["end"] - meta["start"]))))
        for node in tree.walk()
        if "line" in (meta := node.meta)
    ]
    return min(places)[1] if places else None


def name_of(table: exp.Table) -> str:
    """With its namespace, as it was written."""
    return ".".join(part.name for part in table.parts)


def is_cte(table: exp.Table) -> bool:
    """Whether the name is that of a CTE where it stands: one of the same WITH sees those before it, and itself if recursive."""
    if table.args.get("db"):
        return False
    inside: exp.Expr = table
    while inside.parent is not None:
        around = inside.parent
        with_ = around.args.get("with_")
        if isinstance(around, exp.With):
            seen = around.expressions if around.recursive else around.expressions[: around.expressions.index(inside)]
        elif isinstance(with_, exp.With) and with_ is not inside:
            seen = with_.expressions
        else:
            seen = []
        if any(cte.alias == table.name for cte in seen):
            return True
        inside = around
    return False


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


_SAID = (
    re.compile(r"there is no column (\S+)"),
    re.compile(r'Referenced column "([^"]+)" (?:not found|was not found)'),
    re.compile(r'does not have a column named "([^"]+)"'),
)


def with_position(error: TailraceError, trees: Iterable[exp.Expr], columns: Iterable[str]) -> TailraceError:
    """The same error, with the place of the column that it is about, and the nearest of `columns`; others as they are."""
    found = next((match for said in _SAID if (match := said.search(str(error))) is not None), None)
    if found is None or not isinstance(error, SqlError) or error.line is not None:
        return error
    name = found[1].rpartition(".")[2].lower()
    for tree in trees:
        for column in tree.find_all(exp.Column):
            place = position_of(column)
            if column.name.lower() == name and place is not None:
                hint = did_you_mean(column.name, columns)
                return SqlError(f"there is no column {column.sql(dialect='postgres')}{hint}", *place)
    return error


def columns_in(trees: Iterable[exp.Expr], find: Callable[[str], Table | None]) -> Iterator[str]:
    """Those of all tables that are named there."""
    for named in (table for tree in trees for table in tree.find_all(exp.Table)):
        table = find(name_of(named))
        yield from () if table is None else (column.name for column in table.columns)
