"""What a table may look like, and the SQL that makes it in SQLite.

A table is STRICT and has no row ids: its primary key is its order on disk. Defaults are not in SQLite; whoever inserts a row
fills them in.
"""

import re
from decimal import Decimal
from typing import NamedTuple

import msgspec
from sqlglot import exp, parse_one
from sqlglot.errors import SqlglotError

from tailrace.model.errors import LimitExceededError, ReservedTopicError, SqlError
from tailrace.model.limits import Limits
from tailrace.model.table import Column, Table
from tailrace.sql.dialect import Tailrace
from tailrace.sql.statements import CreateTableStatement
from tailrace.sql.tables.database import RESERVED_NAMES, quoted
from tailrace.sql.tables.decimals import COLLATION
from tailrace.sql.tables.values import StoredValue, stored

_RESERVED_COLUMNS = ("_change_type", "_commit_version", "_commit_timestamp")
"""What change feeds call their own columns."""
_NAME = re.compile(r"[^\x00-\x1f\"\\\ud800-\udfff]{1,128}")
_LONG_NUMBER = 40
_NO_KEYS = ("json", "list")
_STORAGE = {
    "boolean": "INTEGER",
    "smallint": "INTEGER",
    "integer": "INTEGER",
    "bigint": "INTEGER",
    "double": "REAL",
    "bytes": "BLOB",
    "decimal": f"TEXT COLLATE {COLLATION}",
}
"""What is not here is TEXT."""


class TableSchema(NamedTuple):
    """The columns of a table and its key, as they may be."""

    columns: tuple[Column, ...]
    primary_key: tuple[str, ...]


def checked_schema(create: CreateTableStatement, limits: Limits) -> TableSchema:
    """What a new table looks like. The columns of its key can't be null."""
    if create.name.lower().startswith(RESERVED_NAMES):
        raise ReservedTopicError(f"{create.name!r} is a name of the server's own; give the table another")
    if len(create.columns) > limits.table_columns:
        raise LimitExceededError(
            f"table {create.name!r} has {len(create.columns)} columns, more than table_columns allows ({limits.table_columns})"
        )
    if not create.columns:
        raise SqlError(f"table {create.name!r} has no columns")
    if not create.primary_key:
        raise SqlError(
            f"table {create.name!r} has no PRIMARY KEY, and changes of a row are told by its key; add one, such as"
            f" PRIMARY KEY ({create.columns[0].name})"
        )
    columns: dict[str, Column] = {}
    for column in create.columns:
        name = column.name.lower()
        if name in columns:
            raise SqlError(f"table {create.name!r} has two columns {column.name!r}; names differ by more than their case")
        if not _NAME.fullmatch(name):
            raise SqlError(f"a column's name has 1 to 128 characters without quotes and backslashes, not {column.name[:40]!r}")
        if name in _RESERVED_COLUMNS:
            raise SqlError(f"{column.name!r} is a column of every change feed; give the column another name")
        columns[name] = column
    key = [_key_column(create, name, columns) for name in create.primary_key]
    for column in key:
        columns[column.name.lower()] = msgspec.structs.replace(column, nullable=False)
    for column in columns.values():
        if column.default is not None:
            default_of(column)
    return TableSchema(tuple(columns.values()), tuple(column.name for column in key))


def _key_column(create: CreateTableStatement, name: str, columns: dict[str, Column]) -> Column:
    column = columns.get(name.lower())
    if column is None:
        raise SqlError(f"the key of {create.name!r} names {name!r}, which is not among its columns")
    if column.type.kind in _NO_KEYS:
        raise SqlError(f"column {name!r} is {column.type} and can't be in a primary key")
    return column


def create_sql(table: Table) -> str:
    """STRICT refuses what is of another kind than the column; the values are checked before they come here."""
    columns = [
        f"{quoted(column.name)} {_STORAGE.get(column.type.kind, 'TEXT')}{'' if column.nullable else ' NOT NULL'}"
        for column in table.columns
    ]
    key = ", ".join(quoted(name) for name in table.primary_key)
    return f"CREATE TABLE {quoted(table.name)} ({', '.join(columns)}, PRIMARY KEY ({key})) STRICT, WITHOUT ROWID"


def insert_sql(table: Table, or_replace: bool = False) -> str:
    """One row with all its columns."""
    places = ", ".join(f"?{number}" for number in range(1, len(table.columns) + 1))
    return f"INSERT {'OR REPLACE ' if or_replace else ''}INTO {quoted(table.name)} VALUES ({places})"  # noqa: S608


def delete_sql(table: Table) -> str:
    """One row by its key."""
    key = " AND ".join(f"{quoted(name)} = ?" for name in table.primary_key)
    return f"DELETE FROM {quoted(table.name)} WHERE {key}"  # noqa: S608


def rows_sql(table: Table) -> str:
    """All rows in the order of their keys."""
    key = ", ".join(quoted(name) for name in table.primary_key)
    return f"SELECT * FROM {quoted(table.name)} ORDER BY {key}"  # noqa: S608


def rows_behind_sql(table: Table, *, is_first: bool) -> str:
    """Rows in the order of their keys: from the first on, or behind a key."""
    key = ", ".join(quoted(name) for name in table.primary_key)
    behind = "" if is_first else f" WHERE ({key}) > ({', '.join('?' * len(table.primary_key))})"
    return f"SELECT * FROM {quoted(table.name)}{behind} ORDER BY {key} LIMIT ?"  # noqa: S608


def default_of(column: Column) -> StoredValue:
    """What the column gets when an INSERT leaves it out."""
    if column.default is None:
        return stored(None, column)
    try:
        tree = parse_one(column.default, dialect=Tailrace)
    except SqlglotError as error:
        raise SqlError(f"the default of column {column.name!r} can't be read: {column.default!r}") from error
    return stored(constant(tree), column)


def constant(tree: exp.Expr) -> object:
    """The value of a literal. Numbers come as they are written, because a column decides what they are."""
    match tree:
        case exp.Literal():
            return tree.name if tree.is_string else _number(tree.name)
        case exp.Neg(this=exp.Literal() as literal) if not literal.is_string:
            return _number(f"-{literal.name}")
        case exp.Boolean():
            return bool(tree.this)
        case exp.Null():
            return None
        case exp.HexString():
            return bytes.fromhex(tree.name)
        case exp.Paren() | exp.Cast():
            return constant(tree.this)
        case exp.Array():
            return [constant(item) for item in tree.expressions]
    raise SqlError(f"{tree.sql()} is not a constant")


def _number(text: str) -> int | Decimal:
    return int(text) if text.lstrip("-").isdigit() and len(text) < _LONG_NUMBER else Decimal(text)
