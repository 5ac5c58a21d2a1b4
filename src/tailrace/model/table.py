"""Tables, their columns, and the checkpoints of their rows."""

from typing import Any, Literal

import msgspec

from tailrace.model.ids import Offset, PartitionId, TableId, TopicId

ColumnKind = Literal[
    "boolean",
    "smallint",
    "integer",
    "bigint",
    "double",
    "decimal",
    "text",
    "bytes",
    "date",
    "timestamp",
    "uuid",
    "json",
    "list",
    "real",
    "time",
    "char",
    "enum",
    "interval",
]


class ColumnType(msgspec.Struct, frozen=True, omit_defaults=True):
    kind: ColumnKind
    precision: int | None = None
    """All digits of a decimal."""
    scale: int | None = None
    """Digits of a decimal after the point."""
    element: "ColumnType | None" = None
    """The type of the elements of a list."""
    length: int | None = None
    """The most characters of a text, and the number of characters of a char."""
    name: str = ""
    """The name of an enum, as CREATE TYPE gave it."""
    labels: tuple[str, ...] = ()
    """The values of an enum, in order."""

    def __str__(self) -> str:
        if self.kind == "decimal":
            return "decimal" if self.precision is None else f"decimal({self.precision}, {self.scale})"
        if self.kind == "enum":
            return self.name
        if self.length is not None:
            return f"{'varchar' if self.kind == 'text' else self.kind}({self.length})"
        return f"{self.element}[]" if self.kind == "list" else self.kind


class EnumType(msgspec.Struct, frozen=True, kw_only=True):
    """A type that CREATE TYPE ... AS ENUM has made. The columns of the type take its labels when they are loaded."""

    name: str
    labels: tuple[str, ...]
    created_ms: int


class Identity(msgspec.Struct, frozen=True, omit_defaults=True):
    """How a column numbers its rows."""

    kind: Literal["always", "by_default", "serial"]
    """`always` takes no values from statements; the others do."""
    start: int = 1
    increment: int = 1
    number: int = 0
    """Which one of the table it is; its last value is kept under this number, whatever the column is called."""


class Column(msgspec.Struct, frozen=True, omit_defaults=True):
    name: str
    type: ColumnType
    nullable: bool = True
    default: str | None = None
    """An expression in SQL."""
    identity: Identity | None = None


class Check(msgspec.Struct, frozen=True):
    """A condition that no row may make false."""

    name: str
    expression: str
    """In SQL, as it was written."""


class TableIndex(msgspec.Struct, frozen=True, omit_defaults=True):
    """An index of a table besides its primary key. SQLite has it, and makes it again with the rows."""

    name: str
    """Without the namespace, which is that of the table."""
    columns: tuple[str, ...]
    descending: tuple[str, ...] = ()
    """Those of its columns that are sorted the other way round."""
    is_unique: bool = False
    is_constraint: bool = False
    """Whether UNIQUE of the table made it."""


ColumnChangeKind = Literal["add", "drop", "rename", "retype"]


class ColumnChange(msgspec.Struct, frozen=True, omit_defaults=True):
    """What ALTER TABLE did to one column. The rows that were there before become rows of the new shape by it."""

    kind: ColumnChangeKind
    place: int
    """The place of the column among the columns at that time, counted from 0."""
    name: str = ""
    """The name before, of a column that was renamed or dropped."""
    type: ColumnType | None = None
    """The type before, of a column that was retyped or dropped."""
    value: Any = None
    """What rows that were there have in an added column, as the table stores it."""


class Table(msgspec.Struct, frozen=True, kw_only=True):
    id: TableId
    """Never reused, not even for a table of the same name."""
    name: str
    """The name with its namespace: `chat.messages`."""
    columns: tuple[Column, ...]
    primary_key: tuple[str, ...]
    changes: TopicId
    """The topic of the table's changes, with one record for each changed row."""
    created_ms: int
    history: tuple[tuple[ColumnChange, ...], ...] = ()
    """For each ALTER TABLE, in order, what it did to columns; nothing if it changed only what new rows must be."""
    key_name: str | None = None
    """The name of the primary key, if it has another than `<table>_pkey`."""
    checks: tuple[Check, ...] = ()
    indexes: tuple[TableIndex, ...] = ()
    is_filling: bool = False
    """Whether CREATE TABLE AS still fills it. Nobody finds it before that is done, and the next start drops it."""

    @property
    def unique_keys(self) -> dict[str, tuple[str, ...]]:
        """The columns of the primary key and of the unique indexes, by the names of the constraints."""
        base = self.name.rpartition(".")[2]
        uniques = {index.name: index.columns for index in self.indexes if index.is_unique}
        return {self.key_name or f"{base}_pkey": self.primary_key, **uniques}

    @property
    def schema_version(self) -> int:
        """1 for a new table, one more for each ALTER TABLE. Change events have that of their rows."""
        return len(self.history) + 1

    def column(self, name: str) -> Column | None:
        return next((column for column in self.columns if column.name == name), None)


class TableCheckpoint(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The rows of a table as records of the log. With the changes from `offset` on, applied in order, they are the table.

    Rows are read while the table is written to, so a record may already contain changes after `offset`. To apply those again
    does no harm, because a change holds the whole row.
    """

    table: TableId
    offset: Offset
    """The first change that the rows may lack."""
    first: Offset
    end: Offset
    """The rows are in the records from `first` up to but without `end` of the table's `checkpoint_partition`."""
    rows: int = 0
    bytes: int = 0
    """Bytes of the batches of these records."""
    began_ms: int = 0
    last_key: tuple[Any, ...] | None = None
    """The primary key of the last row in the log, as the table stores it. Rows after it are still to come."""


def changes_partition(table: Table) -> PartitionId:
    """Return the partition of a table's changes."""
    return PartitionId(table.changes, 0)


def checkpoint_partition(table: Table) -> PartitionId:
    """Return the partition of the checkpoints of a table's rows.

    It belongs to the topic of the table's changes but is not listed, so no reader of the topic sees it. It is created with
    the first checkpoint and deleted with the topic.
    """
    return PartitionId(table.changes, 1)


CHANGES_PREFIX = "_changes."
"""The change topic of table `chat.messages` is `_changes.chat.messages`; the table's name is its alias."""
