"""What ALTER TABLE makes of a table: its new definition, and what has to hold for it.

Everything is decided from the definition alone, and nothing is changed here. The actions of one statement take effect in the
order in which PostgreSQL runs them: what is dropped first, then types, new columns, and what new rows must be.
"""

from datetime import UTC, datetime
from typing import NamedTuple

import msgspec

from tailrace.model.errors import LimitExceededError, SqlError, UnsupportedSqlError
from tailrace.model.limits import Limits
from tailrace.model.suggestions import did_you_mean
from tailrace.model.table import Column, ColumnChange, Table
from tailrace.sql.statements import (
    AddColumn,
    AddConstraint,
    AlterAction,
    AlterTableStatement,
    DropColumn,
    DropConstraint,
    DropNotNull,
    ExpressionText,
    RenameColumn,
    SetColumnDefault,
    SetColumnType,
    SetNotNull,
)
from tailrace.sql.tables.constraints import analyze_check, with_renamed_column, without_column
from tailrace.sql.tables.defaults import checked_default, default_of, is_volatile
from tailrace.sql.tables.indexes import named_checks, unique_indexes
from tailrace.sql.tables.schema import check_column_name, storage_of
from tailrace.sql.tables.type_changes import UNCHANGED, type_change
from tailrace.sql.tables.values import RANGES, StoredValue

UNDEFINED_COLUMN = "42703"
DUPLICATE_COLUMN = "42701"
INVALID_TABLE_DEFINITION = "42P16"
DATATYPE_MISMATCH = "42804"


class AlteredTable(NamedTuple):
    table: Table
    """The table as it will be."""
    changed: frozenset[str]
    """Columns that are dropped, renamed or retyped, by the names that they had. No route may use them."""
    changes_key: bool
    """Whether a column of the primary key is renamed, and with it the keys of change events."""
    not_null: tuple[str, ...]
    """Columns, by their new names, in which no row may have null."""
    checks: tuple[str, ...] = ()
    """The names of new checks, which no row may break."""


def alter_table(table: Table, asked: AlterTableStatement, limits: Limits, now_ms: int) -> AlteredTable | None:
    """Return what the statement makes of the table, or `None` if it changes nothing. Raises `SqlError`."""
    draft = _Draft(table, limits, datetime.fromtimestamp(now_ms / 1000, UTC))
    for action in sorted(asked.actions, key=_pass_of):
        draft.apply(action)
    return draft.finish()


def _pass_of(action: AlterAction) -> int:
    match action:
        case DropColumn() | DropConstraint() | DropNotNull() | SetColumnDefault(default=None):
            return 0
        case SetColumnType():
            return 1
        case AddColumn():
            return 2
        case SetNotNull():
            return 3
    return 4


class _Draft:
    def __init__(self, table: Table, limits: Limits, now: datetime) -> None:
        self._table = table
        self._limits = limits
        self._now = now
        self._columns = list(table.columns)
        self._key = list(table.primary_key)
        self._constraints = table
        self._changes: list[ColumnChange] = []
        self._changed: set[str] = set()
        self._not_null: list[str] = []
        self._retyped: set[str] = set()

    def apply(self, action: AlterAction) -> None:
        match action:
            case AddColumn():
                self._add(action)
            case DropColumn():
                self._drop(action)
            case RenameColumn():
                self._rename(action)
            case SetColumnType():
                self._retype(action)
            case SetColumnDefault():
                place = self._place(action)
                self._refuse_identity(self._columns[place], action)
                column = msgspec.structs.replace(self._columns[place], default=action.default)
                self._columns[place] = self._checked_default(column, action)
            case SetNotNull():
                self._set_not_null(self._place(action))
            case DropNotNull():
                self._drop_not_null(action)
            case AddConstraint():
                self._add_constraint(action)
            case DropConstraint():
                self._drop_constraint(action)

    def finish(self) -> AlteredTable | None:
        table = self._table
        if not self._changes and tuple(self._columns) == table.columns and self._constraints == table:
            return None
        if table.schema_version >= self._limits.table_versions:
            raise LimitExceededError(
                f"table {table.name!r} has version {table.schema_version} of its schema, the last that table_versions allows"
                f" ({self._limits.table_versions}); create a new table and insert the rows into it"
            )
        altered = msgspec.structs.replace(
            table,
            columns=tuple(self._columns),
            primary_key=tuple(self._key),
            history=(*table.history, tuple(self._changes)),
            checks=self._constraints.checks,
            indexes=self._constraints.indexes,
        )
        for check in altered.checks:
            analyze_check(ExpressionText(check.expression), altered.columns, altered.name)
        changes_key = altered.primary_key != table.primary_key
        known = {check.name for check in table.checks}
        checks = tuple(check.name for check in altered.checks if check.name not in known)
        return AlteredTable(altered, frozenset(self._changed), changes_key, tuple(self._not_null), checks)

    def _add(self, action: AddColumn) -> None:
        column, table = self._checked_default(action.column, action), self._table
        if self._find(column.name) is not None:
            if action.if_not_exists:
                return
            raise self._error(
                f"column {column.name!r} of table {table.name!r} already exists", action, sqlstate=DUPLICATE_COLUMN
            )
        check_column_name(column)
        if len(self._columns) >= self._limits.table_columns:
            raise LimitExceededError(
                f"table {table.name!r} has {len(self._columns)} columns, as many as table_columns allows"
                f" ({self._limits.table_columns})"
            )
        value = self._value(column, action)
        self._changes.append(ColumnChange("add", len(self._columns), value=value))
        self._columns.append(column)
        if not column.nullable and value is None:
            self._not_null.append(column.name)

    def _drop(self, action: DropColumn) -> None:
        place = self._find(action.name)
        if place is None and action.if_exists:
            return
        place = self._place(action)
        column = self._columns[place]
        if column.name in self._key:
            raise self._error(
                f"column {column.name!r} is part of the primary key of table {self._table.name!r}, which identifies a row in"
                " the log, and can't be dropped; create another table and insert the rows into it",
                action,
                UnsupportedSqlError,
            )
        self._constraints = without_column(self._constraints, column.name)
        self._changes.append(ColumnChange("drop", place, column.name, column.type))
        self._changed.add(column.name)
        del self._columns[place]

    def _rename(self, action: RenameColumn) -> None:
        place = self._place(action)
        column = self._columns[place]
        renamed = msgspec.structs.replace(column, name=action.new_name)
        there = self._find(action.new_name)
        if there is not None and (there != place or action.new_name == column.name):
            raise self._error(
                f"column {action.new_name!r} of table {self._table.name!r} already exists", action, sqlstate=DUPLICATE_COLUMN
            )
        check_column_name(renamed)
        self._constraints = with_renamed_column(self._constraints, column.name, renamed.name)
        self._changes.append(ColumnChange("rename", place, column.name))
        self._changed.add(column.name)
        self._columns[place] = renamed
        self._key = [renamed.name if name == column.name else name for name in self._key]

    def _retype(self, action: SetColumnType) -> None:
        place = self._place(action)
        column = self._columns[place]
        if column.name in self._retyped:
            raise self._error(f"cannot alter type of column {column.name!r} twice", action, sqlstate="0A000")
        self._retyped.add(column.name)
        if action.type == column.type:
            return
        if column.identity is not None and action.type.kind not in RANGES:
            raise self._error("identity column type must be smallint, integer, or bigint", action, sqlstate="22023")
        change = type_change(column.type, action.type)
        if change is None:
            raise self._error(
                f"column {column.name!r} is {column.type} and can't become {action.type}, because a value could fail or lose"
                f" something; add a column of the new type, UPDATE it from {column.name!r}, then drop {column.name!r}",
                action,
                UnsupportedSqlError,
            )
        is_stored_alike = change is UNCHANGED and storage_of(column.type) == storage_of(action.type)
        if column.name in self._key and not is_stored_alike:
            raise self._error(
                f"column {column.name!r} is part of the primary key and can't become {action.type}, which is stored in another"
                " form; create another table and insert the rows into it",
                action,
                UnsupportedSqlError,
            )
        retyped = self._checked_default(msgspec.structs.replace(column, type=action.type), action)
        self._changes.append(ColumnChange("retype", place, type=column.type))
        self._changed.add(column.name)
        self._columns[place] = retyped

    def _set_not_null(self, place: int) -> None:
        column = self._columns[place]
        if column.nullable:
            self._columns[place] = msgspec.structs.replace(column, nullable=False)
            self._not_null.append(column.name)

    def _drop_not_null(self, action: DropNotNull) -> None:
        place = self._place(action)
        column = self._columns[place]
        self._refuse_identity(column, action)
        if column.name in self._key:
            raise self._error(f"column {column.name!r} is in a primary key", action, sqlstate=INVALID_TABLE_DEFINITION)
        self._columns[place] = msgspec.structs.replace(column, nullable=True)

    def _value(self, column: Column, action: AlterAction) -> StoredValue:
        """Return what rows that are there have in a new column: the value of its default now."""
        if column.default is None:
            return None
        if is_volatile(column):
            raise self._error(
                f"the default of column {column.name!r} differs from row to row, which the log could not tell; add the column"
                " without it, then ALTER COLUMN ... SET DEFAULT, and UPDATE the rows",
                action,
                UnsupportedSqlError,
            )
        return default_of(msgspec.structs.replace(column, nullable=True))(self._now)

    def _checked_default(self, column: Column, action: AlterAction) -> Column:
        try:
            return checked_default(column)
        except SqlError as error:
            raise self._error(str(error), action, type(error), error.sqlstate) from error

    def _add_constraint(self, action: AddConstraint) -> None:
        there = self._constraints
        if action.check is not None:
            checks = named_checks([action.check], self._columns, self._table.name, there.checks)
            self._constraints = msgspec.structs.replace(there, checks=(*there.checks, *checks))
        if action.unique is not None:
            taken = {*there.unique_keys, *(index.name for index in there.indexes), *(check.name for check in there.checks)}
            found = unique_indexes(
                [action.unique], lambda name: self._columns[self._place_of(name, action)], self._table.name, (), taken
            )
            self._constraints = msgspec.structs.replace(there, indexes=(*there.indexes, *found))

    def _drop_constraint(self, action: DropConstraint) -> None:
        there = self._constraints
        checks = tuple(check for check in there.checks if check.name != action.name)
        indexes = tuple(index for index in there.indexes if not (index.is_constraint and index.name == action.name))
        if (checks, indexes) != (there.checks, there.indexes):
            self._constraints = msgspec.structs.replace(there, checks=checks, indexes=indexes)
        elif action.name in there.unique_keys and action.name not in {index.name for index in there.indexes}:
            raise self._error("the primary key of a table can't be dropped", action, UnsupportedSqlError)
        elif not action.if_exists:
            message = f"constraint {action.name!r} of table {self._table.name!r} does not exist"
            raise self._error(message, action, sqlstate="42704")

    def _refuse_identity(self, column: Column, action: AlterAction) -> None:
        if column.identity is not None:
            message = f"column {column.name!r} of table {self._table.name!r} is an identity column"
            raise self._error(message, action, sqlstate="42601")

    def _find(self, name: str) -> int | None:
        """Return the place of a column, whose name is the same in any case."""
        wanted = name.lower()
        return next((place for place, column in enumerate(self._columns) if column.name.lower() == wanted), None)

    def _place(self, action: "DropColumn | RenameColumn | SetColumnType | SetColumnDefault | SetNotNull | DropNotNull") -> int:
        return self._place_of(action.name, action)

    def _place_of(self, name: str, action: AlterAction) -> int:
        place = self._find(name)
        if place is None:
            hint = did_you_mean(name, [column.name for column in self._columns])
            message = f"column {name!r} of table {self._table.name!r} does not exist{hint}"
            raise self._error(message, action, sqlstate=UNDEFINED_COLUMN)
        return place

    def _error(
        self, message: str, action: AlterAction, kind: type[SqlError] = SqlError, sqlstate: str | None = None
    ) -> SqlError:
        return kind(message, *action.position, sqlstate=sqlstate)
