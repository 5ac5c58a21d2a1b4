"""Where a column stands that is not there. The engines know it only in the text that was made for them."""

import re
from collections.abc import Iterable

from sqlglot import exp

from tailrace.model.errors import SqlError, TailraceError
from tailrace.sql.places import place_of

_SAID = (
    re.compile(r"there is no column (\S+)"),
    re.compile(r'Referenced column "([^"]+)" (?:not found|was not found)'),
)


def with_place(error: TailraceError, trees: Iterable[exp.Expr]) -> TailraceError:
    """The same error, with the place of the column that it is about; others as they are."""
    found = next((match for said in _SAID if (match := said.search(str(error))) is not None), None)
    if found is None or not isinstance(error, SqlError) or error.line is not None:
        return error
    name = found[1].rpartition(".")[2].lower()
    for tree in trees:
        for column in tree.find_all(exp.Column):
            place = place_of(column)
            if column.name.lower() == name and place is not None:
                return SqlError(f"there is no column {column.sql(dialect='postgres')}", *place)
    return error
