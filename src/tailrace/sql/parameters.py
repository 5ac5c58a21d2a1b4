"""Assigns the values of a request to the parameters of its statements.

A text uses `?` or `:name`, not both. The values of `?` are a list, assigned to the statements in the order of the text; those
of `:name` are a mapping that all statements share. A list of rows, for a single INSERT, UPDATE or DELETE, runs the statement
once for each row, all in one transaction.
"""

from collections.abc import Mapping, Sequence

from tailrace.model.errors import SqlError
from tailrace.model.text import counted
from tailrace.sql.statements import Statement, Write

Parameters = Mapping[str, object] | Sequence[object]
"""The parameters of a text or of a statement: values by name, values in order, or rows of either."""

NO_PARAMETERS: Parameters = ()


def assign_parameters(statements: Sequence[Statement], given: Parameters) -> list[Parameters]:
    """Return the parameters of each statement. Every parameter must have a value, and every value a parameter."""
    names = {name for statement in statements for name in _open(statement)}
    numbered = {name for name in names if name.isdigit()}
    if numbered and names - numbered:
        raise SqlError("the text has parameters of both forms, ? and :name; use one of them")
    if isinstance(given, Mapping):
        return _by_name(statements, names, numbered, given)
    if isinstance(given, str | bytes):
        raise SqlError("the parameters must be a list or an object of values")
    if names - numbered:
        if len(statements) == 1 and given and all(isinstance(row, Mapping) for row in given):
            return [_rows_by_name(statements[0], given)]
        raise SqlError(f"the text has named parameters ({_listed(names)}); send their values as an object")
    return _in_order(statements, given)


def is_many(parameters: Parameters, statement: Statement) -> bool:
    """Return whether the parameters are rows, for each of which the statement runs once."""
    if isinstance(parameters, Mapping) or not isinstance(statement, Write) or not parameters:
        return False
    count = len(statement.parameters)
    rows = [row for row in parameters if isinstance(row, list | tuple | Mapping)]
    return len(rows) == len(parameters) and (len(rows) != count or all(len(row) == count for row in rows))


def by_name(statement: Statement, parameters: Parameters) -> Mapping[str, object]:
    """Return the values by the names of the parameters; a `?` is named by its number."""
    if isinstance(parameters, Mapping):
        return parameters
    return dict(zip(statement.parameters, parameters, strict=True))


def in_order(statement: Statement, parameters: Parameters) -> Sequence[object]:
    """Return the values in the order of the statement's parameters."""
    if isinstance(parameters, Mapping):
        return [parameters[name] for name in statement.parameters]
    return parameters


def _by_name(
    statements: Sequence[Statement], names: set[str], numbered: set[str], given: Mapping[str, object]
) -> list[Parameters]:
    if numbered:
        raise SqlError("the text has positional parameters (?); send their values as a list")
    if missing := names - given.keys():
        raise SqlError(f"the request has no value for {_listed(missing)}; add it to the parameters")
    if unused := given.keys() - names:
        raise SqlError(f"the text has no parameter {_listed(unused)}; remove its value")
    return [_rows_of(statement) or {name: given[name] for name in statement.parameters} for statement in statements]


def _in_order(statements: Sequence[Statement], given: Sequence[object]) -> list[Parameters]:
    if len(statements) == 1 and _open(statements[0]) and is_many(given, statements[0]):
        return [_rows(statements[0], given)]
    wanted = sum(len(_open(statement)) for statement in statements)
    if wanted != len(given):
        raise SqlError(f"the text has {counted(wanted, 'parameter')} (?), but the request has {counted(len(given), 'value')}")
    shared: list[Parameters] = []
    start = 0
    for statement in statements:
        count = len(_open(statement))
        shared.append(_rows_of(statement) or given[start : start + count])
        start += count
    return shared


def _rows_of(statement: Statement) -> Parameters | None:
    """Return the rows that are part of the statement itself."""
    return statement.rows if isinstance(statement, Write) else None


def _open(statement: Statement) -> Sequence[str]:
    """Return the parameters that still need values."""
    return statement.parameters if _rows_of(statement) is None else ()


def _rows(statement: Statement, rows: Sequence[object]) -> Parameters:
    count = len(statement.parameters)
    for number, row in enumerate(rows, 1):
        if not isinstance(row, list | tuple):
            raise SqlError(f"row {number} of the parameters is not a list; send a list of values for each row")
        if len(row) != count:
            raise SqlError(
                f"the statement has {counted(count, 'parameter')} (?), but row {number} has {counted(len(row), 'value')}"
            )
    return rows


def _rows_by_name(statement: Statement, rows: Sequence[object]) -> Parameters:
    if not isinstance(statement, Write):
        raise SqlError("only INSERT, UPDATE and DELETE can be run with many rows of parameters")
    names = set(statement.parameters)
    for number, row in enumerate(rows, 1):
        if not isinstance(row, Mapping) or row.keys() != names:
            raise SqlError(f"row {number} of the parameters must have exactly the values {_listed(names)}")
    return rows


def _listed(names: Sequence[str] | set[str]) -> str:
    return ", ".join(f":{name}" for name in sorted(names))
