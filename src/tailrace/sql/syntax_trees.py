"""What SQL texts and their sqlglot trees tell: positions for error messages, names of tables, and names of result columns.

Result columns without a name get one that is the same on tables and on topics, and close to PostgreSQL's: a call has the name
of its function, a cast the name of what it casts, and `CASE` is `case`; anything else is named as it was written, where
PostgreSQL uses `?column?`. Names may occur twice.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from sqlglot import exp
from sqlglot.tokenizer_core import Token

from tailrace.model.errors import SqlError, TailraceError
from tailrace.model.suggestions import did_you_mean
from tailrace.model.table import Table

_NAMED = (exp.Alias, exp.Aliases, exp.Column, exp.Star, exp.Columns, exp.Dot)
_CALL = re.compile(r"([a-z_]\w*)\s*\(", re.IGNORECASE)
_PARAMETER = re.compile(r"%\((\w+)\)s")
_UNKNOWN_COLUMN_MESSAGES = (
    re.compile(r"there is no column (\S+)"),
    re.compile(r'Referenced column "([^"]+)" (?:not found|was not found)'),
    re.compile(r'does not have a column named "([^"]+)"'),
)


class TextPosition(NamedTuple):
    """A position in a text; lines and columns count from 1."""

    line: int
    column: int


def position_at(text: str, index: int) -> TextPosition:
    """Return the position of a character. A line ends with a line feed, a carriage return, or both."""
    breaks = text.count("\n", 0, index) + text.count("\r", 0, index) - text.count("\r\n", 0, index)
    return TextPosition(breaks + 1, index - max(text.rfind("\n", 0, index), text.rfind("\r", 0, index)))


def position_of_token(token: Token, text: str) -> TextPosition:
    """Return where a token starts. sqlglot's own position is where it ends, which may be in another line."""
    return position_at(text, token.start)


def position_of(tree: exp.Expr) -> TextPosition | None:
    """Return where a tree starts, or `None`: names, numbers, strings and functions have a position, operators have none."""
    positions = [
        (meta["start"], TextPosition(meta["line"], max(1, meta["col"] - (meta["end"] - meta["start"]))))
        for node in tree.walk()
        if "line" in (meta := node.meta)
    ]
    return min(positions)[1] if positions else None


def name_of(table: exp.Table) -> str:
    """Return the name of a table with its namespace, as it was written."""
    return ".".join(part.name for part in table.parts)


def is_cte(table: exp.Table) -> bool:
    """Return whether the name refers to a CTE. Within a WITH, a CTE sees those before it, and itself if it is recursive."""
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


def with_column_names(tree: exp.Expr) -> exp.Expr:
    """Return a copy of the tree in which every result column has a name."""
    named = tree.copy()
    clause = named.args.get("returning") or _naming_select(named)
    for column in list(clause.expressions) if clause is not None else ():
        if not isinstance(column, _NAMED) and column.find(exp.Explode, exp.Unnest) is None:
            column.replace(exp.alias_(column.copy(), _name_of(column), quoted=True))
    return named


def _naming_select(tree: exp.Expr) -> exp.Select | None:
    """Return the SELECT that names the result columns: the first one of a UNION."""
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


def with_position(error: TailraceError, trees: Iterable[exp.Expr], columns: Iterable[str]) -> TailraceError:
    """Return an error about an unknown column with its position and the most similar of `columns`, any other error"
    " unchanged."""
    found = next((match for pattern in _UNKNOWN_COLUMN_MESSAGES if (match := pattern.search(str(error))) is not None), None)
    if found is None or not isinstance(error, SqlError) or error.line is not None:
        return error
    name = found[1].rpartition(".")[2].lower()
    for tree in trees:
        for column in tree.find_all(exp.Column):
            position = position_of(column)
            if column.name.lower() == name and position is not None:
                hint = did_you_mean(column.name, columns)
                return SqlError(f"there is no column {column.sql(dialect='postgres')}{hint}", *position)
    return error


def columns_in(trees: Iterable[exp.Expr], find: Callable[[str], Table | None]) -> Iterator[str]:
    """Return the columns of all tables that the trees name."""
    for named in (table for tree in trees for table in tree.find_all(exp.Table)):
        table = find(name_of(named))
        yield from () if table is None else (column.name for column in table.columns)
