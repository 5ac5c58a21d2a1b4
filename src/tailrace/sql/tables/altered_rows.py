"""Brings the rows of a table in SQLite to its present shape, column by column.

SQLite adds, renames and drops columns itself; an added column has its value as SQLite's default, which needs no rewriting of
rows. Where a value is stored in another form afterwards, the rows are written to a new table, which takes the old one's name.
All of it happens within the caller's transaction.
"""

import apsw

from tailrace.model.table import Table
from tailrace.sql.tables.database import quoted
from tailrace.sql.tables.schema import create_sql, storage_of
from tailrace.sql.tables.schema_versions import RowShape, ShapeChange, changes_since
from tailrace.sql.tables.type_changes import UNCHANGED
from tailrace.sql.tables.values import StoredValue

_NEW_NAME = "_tailrace.altered"


def alter_rows(connection: apsw.Connection, table: Table, version: int, *, is_behind: bool) -> None:
    """Bring rows of this version to the present shape.

    With `is_behind`, rows to come may have nulls that the table does not allow any more.
    """
    for shaped in changes_since(table, version):
        _alter(connection, table.name, shaped)
    if _refuses_nulls(connection, table, is_behind):
        columns = {column.name: quoted(column.name) for column in table.columns}
        _rewrite(connection, table.name, RowShape(table.columns, table.primary_key), columns)


def _alter(connection: apsw.Connection, name: str, shaped: ShapeChange) -> None:
    place = shaped.change.place
    head = f"ALTER TABLE {quoted(name)}"
    match shaped.change.kind:
        case "add":
            column = shaped.after.columns[place]
            value = shaped.change.value
            default = "" if value is None else f" DEFAULT {_literal(value)}"
            connection.execute(f"{head} ADD COLUMN {quoted(column.name)} {storage_of(column.type)}{default}")
        case "drop":
            connection.execute(f"{head} DROP COLUMN {quoted(shaped.change.name)}")
        case "rename":
            connection.execute(
                f"{head} RENAME COLUMN {quoted(shaped.change.name)} TO {quoted(shaped.after.columns[place].name)}"
            )
        case "retype":
            old, new = shaped.before.columns[place], shaped.after.columns[place]
            conversion = shaped.conversion
            if conversion is UNCHANGED and storage_of(old.type) == storage_of(new.type):
                return
            values = {column.name: quoted(column.name) for column in shaped.after.columns}
            values[new.name] = conversion.sql.format(quoted(new.name))
            nullable = f"CASE WHEN {quoted(new.name)} IS NOT NULL THEN {values[new.name]} END"
            _rewrite(connection, name, shaped.after, {**values, new.name: nullable})


def _rewrite(connection: apsw.Connection, name: str, shape: RowShape, values: dict[str, str]) -> None:
    """Write all rows to a new table of this shape. `values` has the SQL of each column, over those of the old table."""
    indexes = connection.execute(
        "SELECT sql FROM sqlite_schema WHERE type = 'index' AND tbl_name = ? AND sql IS NOT NULL", (name,)
    ).fetchall()
    connection.execute(create_sql(shape, _NEW_NAME))
    key = ", ".join(map(quoted, shape.primary_key))
    selected = ", ".join(values[column.name] for column in shape.columns)
    connection.execute(f"INSERT INTO {quoted(_NEW_NAME)} SELECT {selected} FROM {quoted(name)} ORDER BY {key}")  # noqa: S608
    connection.execute(f"DROP TABLE {quoted(name)}")
    connection.execute(f"ALTER TABLE {quoted(_NEW_NAME)} RENAME TO {quoted(name)}")
    for (sql,) in indexes:
        connection.execute(str(sql))


def _refuses_nulls(connection: apsw.Connection, table: Table, is_behind: bool) -> bool:
    """Return whether SQLite refuses nulls that rows may have: files of older versions had NOT NULL in them."""
    nullable = {
        column.name for column in table.columns if column.nullable or (is_behind and column.name not in table.primary_key)
    }
    found = connection.execute(f"PRAGMA table_info({quoted(table.name)})")
    return any(refuses and name in nullable for _, name, _, refuses, *_ in found)


def _literal(value: StoredValue) -> str:
    match value:
        case bytes():
            return f"X'{value.hex()}'"
        case str():
            return "'" + value.replace("'", "''") + "'"
        case float():
            return repr(value)
    return str(value)
