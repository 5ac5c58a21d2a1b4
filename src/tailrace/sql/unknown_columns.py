"""Where a column stands that is not there, and which was probably meant. The engines know it only in the text that was made
for them."""

import re
from collections.abc import Callable, Iterable, Iterator

from sqlglot import exp

from tailrace.model.errors import SqlError, TailraceError
from tailrace.model.table import Table
from tailrace.sql.near_names import did_you_mean
from tailrace.sql.places import name_of, place_of

_SAID = (
    re.compile(r"there is no column (\S+)"),
    re.compile(r'Referenced column "([^"]+)" (?:not found|was not found)'),
    re.compile(r'does not have a column named "([^"]+)"'),
)


def with_place(error: TailraceError, trees: Iterable[exp.Expr], columns: Iterable[str]) -> TailraceError:
    """The same error, with the place of the column that it is about, and the nearest of `columns`; others as they are."""
    found = next((match for said in _SAID if (match := said.search(str(error))) is not None), None)
    if found is None or not isinstance(error, SqlError) or error.line is not None:
        return error
    name = found[1].rpartition(".")[2].lower()
    for tree in trees:
        for column in tree.find_all(exp.Column):
            place = place_of(column)
            if column.name.lower() == name and place is not None:
                hint = did_you_mean(column.name, columns)
                return SqlError(f"there is no column {column.sql(dialect='postgres')}{hint}", *place)
    return error


def columns_in(trees: Iterable[exp.Expr], find: Callable[[str], Table | None]) -> Iterator[str]:
    """Those of all tables that are named there."""
    for named in (table for tree in trees for table in tree.find_all(exp.Table)):
        table = find(name_of(named))
        yield from () if table is None else (column.name for column in table.columns)
