"""Values for the parameters of statements: which belongs to which.

A text has `?` or `:name`, not both. The values of `?` are a list, handed out over all statements in the order of the text;
those of `:name` are a mapping, the same for all. A list of rows, for one INSERT, UPDATE or DELETE, runs it once for each row,
all in one transaction.
"""

from collections.abc import Mapping, Sequence

from tailrace.model.errors import SqlError
from tailrace.model.text import counted
from tailrace.sql.statements import Statement, Write

Parameters = Mapping[str, object] | Sequence[object]
"""What came with a text, and what a statement gets: values by name, values in order, or rows of these."""

NO_PARAMETERS: Parameters = ()


def share_out(statements: Sequence[Statement], given: Parameters) -> list[Parameters]:
    """The parameters of each statement. Every value must have its place, and every place its value."""
    names = {name for statement in statements for name in _open(statement)}
    numbered = {name for name in names if name.isdigit()}
    if numbered and names - numbered:
        raise SqlError("the text has both ? and :name; use one of them")
    if isinstance(given, Mapping):
        return _by_name(statements, names, numbered, given)
    if isinstance(given, str | bytes):
        raise SqlError("the parameters must be a list or an object")
    if names - numbered:
        if len(statements) == 1 and given and all(isinstance(row, Mapping) for row in given):
            return [_rows_by_name(statements[0], given)]
        raise SqlError(f"the text has parameters by name ({_listed(names)}); give them as an object")
    return _in_order(statements, given)


def is_many(parameters: Parameters, statement: Statement) -> bool:
    """Whether these are rows, for each of which the statement is to be run."""
    if isinstance(parameters, Mapping) or not isinstance(statement, Write) or not parameters:
        return False
    count = len(statement.parameters)
    rows = [row for row in parameters if isinstance(row, list | tuple | Mapping)]
    return len(rows) == len(parameters) and (len(rows) != count or all(len(row) == count for row in rows))


def by_name(statement: Statement, parameters: Parameters) -> Mapping[str, object]:
    """The values by their names; those of `?` are their numbers."""
    if isinstance(parameters, Mapping):
        return parameters
    return dict(zip(statement.parameters, parameters, strict=True))


def _by_name(
    statements: Sequence[Statement], names: set[str], numbered: set[str], given: Mapping[str, object]
) -> list[Parameters]:
    if numbered:
        raise SqlError("the text has parameters in order (?); give them as a list")
    if missing := names - given.keys():
        raise SqlError(f"there is no value for {_listed(missing)}")
    if unused := given.keys() - names:
        raise SqlError(f"the text has no parameter {_listed(unused)}")
    return [_rows_of(statement) or {name: given[name] for name in statement.parameters} for statement in statements]


def _in_order(statements: Sequence[Statement], given: Sequence[object]) -> list[Parameters]:
    if len(statements) == 1 and _open(statements[0]) and is_many(given, statements[0]):
        return [_rows(statements[0], given)]
    wanted = sum(len(_open(statement)) for statement in statements)
    if wanted != len(given):
        raise SqlError(f"the text has {counted(wanted, 'parameter')} (?) and was given {counted(len(given), 'value')}")
    shared: list[Parameters] = []
    start = 0
    for statement in statements:
        count = len(_open(statement))
        shared.append(_rows_of(statement) or given[start : start + count])
        start += count
    return shared


def _rows_of(statement: Statement) -> Parameters | None:
    """The rows that came with the statement itself."""
    return statement.rows if isinstance(statement, Write) else None


def _open(statement: Statement) -> Sequence[str]:
    """Parameters that wait for values."""
    return statement.parameters if _rows_of(statement) is None else ()


def _rows(statement: Statement, rows: Sequence[object]) -> Parameters:
    count = len(statement.parameters)
    for number, row in enumerate(rows, 1):
        if not isinstance(row, list | tuple):
            raise SqlError(f"row {number} is not a list of values")
        if len(row) != count:
            raise SqlError(
                f"the statement has {counted(count, 'parameter')} (?), and row {number} has {counted(len(row), 'value')}"
            )
    return rows


def _rows_by_name(statement: Statement, rows: Sequence[object]) -> Parameters:
    if not isinstance(statement, Write):
        raise SqlError("only INSERT, UPDATE and DELETE take many rows of values")
    names = set(statement.parameters)
    for number, row in enumerate(rows, 1):
        if not isinstance(row, Mapping) or row.keys() != names:
            raise SqlError(f"row {number} must have the values {_listed(names)}, and no others")
    return rows


def _listed(names: Sequence[str] | set[str]) -> str:
    return ", ".join(f":{name}" for name in sorted(names))
