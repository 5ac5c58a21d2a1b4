"""Names of constraints and indexes, as PostgreSQL gives them, and the indexes of SQLite that are made of them.

The definition of an index is part of the table's definition in the log; the index itself is derived, like the rows. SQLite
keeps values of a column so that equal ones are equal bytes, so it decides what is unique as PostgreSQL does: nulls are
distinct.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import NoReturn

import apsw

from tailrace.model.errors import SqlError, TableExistsError, UnsupportedSqlError
from tailrace.model.table import Check, Column, Table, TableIndex
from tailrace.sql.analysis.tree import ColumnReference
from tailrace.sql.statements import CheckDefinition, CreateIndexStatement, UniqueDefinition
from tailrace.sql.tables.constraints import analyze_check
from tailrace.sql.tables.database import quoted

_PREFIX = "_tailrace.index."
_NO_INDEX = ("json", "list")
_MAX_COLUMNS = 32
_MAX_NAME_BYTES = 63
_UNDEFINED_COLUMN = "42703"
_DUPLICATE_OBJECT = "42710"

FindColumn = Callable[[str], Column]


def named_checks(
    checks: Iterable[CheckDefinition], columns: Sequence[Column], table: str, known: Sequence[Check] = ()
) -> tuple[Check, ...]:
    """Check new conditions of a table, and return them with names: `t_x_check` if it uses the column x alone."""
    found: list[Check] = []
    for definition in checks:
        expression = analyze_check(definition.expression, columns, table)
        used = {part.column for part in expression.walk() if isinstance(part, ColumnReference)}
        name = definition.name
        taken = {check.name for check in (*known, *found)}
        if name is None:
            name = chosen_name([_base(table), *(used if len(used) == 1 else ())], "check", taken)
        elif name in taken:
            raise SqlError(f"check constraint {name!r} already exists; give it another name", sqlstate=_DUPLICATE_OBJECT)
        found.append(Check(name, definition.expression.text))
    return tuple(found)


def unique_indexes(
    uniques: Iterable[UniqueDefinition], find: FindColumn, table: str, key: Sequence[str], taken: Collection[str]
) -> tuple[TableIndex, ...]:
    """Return the indexes of UNIQUE of a new table. One that says what the key or another one says is left out."""
    names = set(taken)
    found: dict[tuple[str, ...], TableIndex] = {}
    for definition in uniques:
        columns = tuple(find(name).name for name in definition.columns)
        if definition.name is None and (columns in found or columns == tuple(key)):
            continue
        name = definition.name
        if name is None:
            name = chosen_name([_base(table), *columns], "key", names)
        elif name in names:
            raise TableExistsError(f"relation {name!r} already exists; give the constraint another name")
        names.add(name)
        _check_columns([find(one) for one in columns])
        found[columns] = TableIndex(name, columns, is_unique=True, is_constraint=True)
    return tuple(found.values())


def new_index(asked: CreateIndexStatement, table: Table, taken: Collection[str]) -> TableIndex:
    """Return the index that CREATE INDEX describes."""
    columns = []
    for name in asked.columns:
        column = table.column(name)
        if column is None:
            raise SqlError(
                f"column {name!r} of table {table.name!r} does not exist", asked.line, asked.column, sqlstate=_UNDEFINED_COLUMN
            )
        columns.append(column)
    if len(set(asked.columns)) < len(asked.columns):
        raise UnsupportedSqlError("an index can't have a column twice; name it once", asked.line, asked.column)
    _check_columns(columns)
    name = asked.name or chosen_name([_base(table.name), *asked.columns], "idx", taken)
    return TableIndex(name, tuple(asked.columns), tuple(asked.descending), asked.is_unique)


def relation_names(tables: Iterable[Table], namespace: str) -> set[str]:
    """Return the names of all tables, keys and indexes of a namespace."""
    found: set[str] = set()
    for table in tables:
        of, _, base = table.name.rpartition(".")
        if of == namespace:
            found |= {base, *table.unique_keys, *(index.name for index in table.indexes)}
    return found


def chosen_name(parts: Sequence[str], label: str, taken: Collection[str]) -> str:
    """Return a name such as `t_x_key`, with a number if it is taken."""
    number = 0
    while True:
        tail = f"_{label}{number or ''}"
        head = "_".join(parts).encode()[: _MAX_NAME_BYTES - len(tail)].decode(errors="ignore")
        if head + tail not in taken:
            return head + tail
        number += 1


def ensure_indexes(connection: apsw.Connection, table: Table) -> None:
    """Make the indexes of a table in SQLite what its definition says. The caller starts and ends the transaction.

    Raises `apsw.ConstraintError` if rows break a unique one.
    """
    wanted = {f"{_PREFIX}{table.id}.{index.name}": index_sql(table, index) for index in table.indexes}
    there = dict(
        connection.execute(
            "SELECT name, sql FROM sqlite_master WHERE type = 'index' AND tbl_name = ? AND sql IS NOT NULL", (table.name,)
        )
    )
    for name, sql in there.items():
        if wanted.get(name) != sql:
            connection.execute(f"DROP INDEX {quoted(name)}")
    for name, sql in wanted.items():
        if there.get(name) != sql:
            connection.execute(sql)


def drop_other_indexes(connection: apsw.Connection, table: Table) -> None:
    """Drop the indexes that the definition does not have any more. A column that they use can't be dropped before."""
    wanted = {f"{_PREFIX}{table.id}.{index.name}" for index in table.indexes}
    there = connection.execute("SELECT name FROM sqlite_master WHERE type = 'index' AND tbl_name = ?", (table.name,)).fetchall()
    for name in (str(name) for (name,) in there):
        if name.startswith(_PREFIX) and name not in wanted:
            connection.execute(f"DROP INDEX {quoted(name)}")


def drop_indexes(connection: apsw.Connection, table: Table) -> None:
    """Drop all indexes of a table besides its primary key."""
    there = connection.execute("SELECT name FROM sqlite_master WHERE type = 'index' AND tbl_name = ?", (table.name,)).fetchall()
    for name in (str(name) for (name,) in there):
        if name.startswith(_PREFIX):
            connection.execute(f"DROP INDEX {quoted(name)}")


def index_sql(table: Table, index: TableIndex) -> str:
    name = quoted(f"{_PREFIX}{table.id}.{index.name}")
    columns = ", ".join(f"{quoted(one)}{' DESC' if one in index.descending else ''}" for one in index.columns)
    return f"CREATE {'UNIQUE ' if index.is_unique else ''}INDEX {name} ON {quoted(table.name)} ({columns})"


def _base(table: str) -> str:
    return table.rpartition(".")[2]


def _check_columns(columns: Sequence[Column]) -> None:
    if len(columns) > _MAX_COLUMNS:
        raise UnsupportedSqlError(f"an index has at most {_MAX_COLUMNS} columns; use fewer")
    for column in columns:
        if column.type.kind in _NO_INDEX:
            _refuse(column)


def _refuse(column: Column) -> NoReturn:
    raise UnsupportedSqlError(f"column {column.name!r} is {column.type} and can't be indexed; use another column")
