"""Checks the columns and keys of new tables, and writes the SQL for their rows in SQLite.

A table is STRICT and has no row ids: rows are stored in the order of the primary key. SQLite does not know the defaults; the
plans of INSERT fill them in (`defaults`).
"""

import re
from collections.abc import Collection, Iterable, Mapping
from itertools import count

import msgspec

from tailrace.model.errors import LimitExceededError, ReservedTopicError, SqlError
from tailrace.model.ids import TableId, TopicId
from tailrace.model.limits import Limits
from tailrace.model.table import Column, ColumnType, Table
from tailrace.sql.statements import CreateTableStatement
from tailrace.sql.tables.collations import COLLATIONS
from tailrace.sql.tables.database import RESERVED_NAMES, quoted
from tailrace.sql.tables.defaults import checked_default
from tailrace.sql.tables.indexes import named_checks, unique_indexes
from tailrace.sql.tables.schema_versions import RowShape

_RESERVED_COLUMNS = ("_change_type", "_commit_version", "_commit_timestamp")
"""The names of the extra columns of change feeds."""
_NAME = re.compile(r"[^\x00-\x1f\"\\\ud800-\udfff]{1,128}")
_NO_KEYS = ("json", "list")
_STORAGE = {
    "boolean": "INTEGER",
    "smallint": "INTEGER",
    "integer": "INTEGER",
    "bigint": "INTEGER",
    "double": "REAL",
    "real": "REAL",
    "bytes": "BLOB",
    **{kind: f"TEXT COLLATE {name}" for kind, name in COLLATIONS.items()},
}
"""Other types are TEXT."""


def checked_table(create: CreateTableStatement, taken: Collection[str], limits: Limits) -> Table:
    """Check a new table, and return its definition, without what the log gives it. The columns of the key can't be null.

    `taken` are the names of relations in its namespace.
    """
    if create.name.lower().startswith(RESERVED_NAMES):
        raise ReservedTopicError(f"{create.name!r} is a reserved name; give the table another one")
    if len(create.columns) > limits.table_columns:
        raise LimitExceededError(
            f"table {create.name!r} has {len(create.columns)} columns, more than table_columns allows"
            f" ({limits.table_columns}); use fewer columns"
        )
    if not create.columns:
        raise SqlError(f"table {create.name!r} has no columns; add at least one")
    if not create.primary_key:
        raise SqlError(
            f"table {create.name!r} has no PRIMARY KEY, which identifies a row in the log; add one, such as"
            f" PRIMARY KEY ({create.columns[0].name})"
        )
    columns: dict[str, Column] = {}
    for column in create.columns:
        name = column.name.lower()
        if name in columns:
            raise SqlError(f"table {create.name!r} has two columns {column.name!r}; names must differ in more than their case")
        check_column_name(column)
        columns[name] = column
    key = [_key_column(create, name, columns) for name in create.primary_key]
    for column in key:
        columns[column.name.lower()] = msgspec.structs.replace(column, nullable=False)
    key_names = tuple(column.name for column in key)
    base = create.name.rpartition(".")[2]
    names = {*taken, base, create.key_name or f"{base}_pkey"}
    uniques = unique_indexes(create.uniques, lambda name: _column(create, name, columns), create.name, key_names, names)
    return Table(
        id=TableId(0),
        name=create.name,
        columns=_numbered(map(checked_default, columns.values())),
        primary_key=key_names,
        changes=TopicId(0),
        created_ms=0,
        key_name=create.key_name,
        checks=named_checks(create.checks, tuple(columns.values()), create.name),
        indexes=uniques,
    )


def check_column_name(column: Column) -> None:
    """Raise `SqlError` if a table can't have a column of this name."""
    name = column.name.lower()
    if not _NAME.fullmatch(name):
        raise SqlError(
            f"{column.name[:40]!r} is not a valid column name; use 1 to 128 characters without quotes and backslashes"
        )
    if name in _RESERVED_COLUMNS:
        raise SqlError(f"{column.name!r} is a column of every change feed; use another name")


def _numbered(columns: Iterable[Column]) -> tuple[Column, ...]:
    """Return columns whose identities have numbers, under which their last values are kept."""
    numbers = count(1)
    return tuple(
        column
        if column.identity is None
        else msgspec.structs.replace(column, identity=msgspec.structs.replace(column.identity, number=next(numbers)))
        for column in columns
    )


def _column(create: CreateTableStatement, name: str, columns: Mapping[str, Column]) -> Column:
    column = columns.get(name.lower())
    if column is None:
        raise SqlError(f"column {name!r} named in key of table {create.name!r} does not exist", sqlstate="42703")
    return column


def _key_column(create: CreateTableStatement, name: str, columns: Mapping[str, Column]) -> Column:
    column = _column(create, name, columns)
    if column.type.kind in _NO_KEYS:
        raise SqlError(f"column {name!r} is {column.type} and can't be part of a primary key; use another column")
    return column


def create_sql(table: Table | RowShape, name: str | None = None) -> str:
    """Return the CREATE TABLE statement, for the table's own name or another one.

    STRICT rejects values of another kind. Values are checked before, and so are nulls: a row of the log may have one from
    before its column was NOT NULL.
    """
    columns = [f"{quoted(column.name)} {storage_of(column.type)}" for column in table.columns]
    key = ", ".join(quoted(name) for name in table.primary_key)
    target = table.name if name is None and isinstance(table, Table) else name or ""
    return f"CREATE TABLE {quoted(target)} ({', '.join(columns)}, PRIMARY KEY ({key})) STRICT, WITHOUT ROWID"


def storage_of(kind: ColumnType) -> str:
    """Return SQLite's type of a column."""
    return _STORAGE.get(kind.kind, "TEXT")


def insert_sql(table: Table, or_replace: bool = False) -> str:
    """Return the statement that inserts a row with all its columns."""
    parameters = ", ".join(f"?{number}" for number in range(1, len(table.columns) + 1))
    return f"INSERT {'OR REPLACE ' if or_replace else ''}INTO {quoted(table.name)} VALUES ({parameters})"  # noqa: S608


def upsert_sql(table: Table) -> str:
    """Return the statement that inserts a row or replaces the one with its key. It replaces no other row."""
    others = [column.name for column in table.columns if column.name not in table.primary_key]
    changed = ", ".join(f"{quoted(name)} = excluded.{quoted(name)}" for name in others)
    key = ", ".join(map(quoted, table.primary_key))
    return f"{insert_sql(table)} ON CONFLICT ({key}) DO {f'UPDATE SET {changed}' if others else 'NOTHING'}"


def delete_sql(table: Table) -> str:
    """Return the statement that deletes a row by its key."""
    key = " AND ".join(f"{quoted(name)} = ?" for name in table.primary_key)
    return f"DELETE FROM {quoted(table.name)} WHERE {key}"  # noqa: S608


def delete_all_sql(table: Table) -> str:
    """Return the statement that deletes all rows, which SQLite does page by page.

    Its text is no other statement's: prepared for this, it would call no hook for the rows.
    """
    return f"DELETE FROM {quoted(table.name)} /* TRUNCATE */"  # noqa: S608


def rows_sql(table: Table) -> str:
    """Return the query for all rows in key order."""
    key = ", ".join(quoted(name) for name in table.primary_key)
    return f"SELECT * FROM {quoted(table.name)} ORDER BY {key}"  # noqa: S608


def rows_behind_sql(table: Table, *, is_first: bool) -> str:
    """Return the query for rows in key order, from the start or after a key."""
    key = ", ".join(quoted(name) for name in table.primary_key)
    behind = "" if is_first else f" WHERE ({key}) > ({', '.join('?' * len(table.primary_key))})"
    return f"SELECT * FROM {quoted(table.name)}{behind} ORDER BY {key} LIMIT ?"  # noqa: S608
