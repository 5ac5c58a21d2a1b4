"""A table and its columns, as values."""

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
]


class ColumnType(msgspec.Struct, frozen=True, omit_defaults=True):
    kind: ColumnKind
    precision: int | None = None
    """Digits of a decimal, with those behind the point."""
    scale: int | None = None
    """Digits of a decimal behind the point."""
    element: "ColumnType | None" = None
    """What a list is made of."""

    def __str__(self) -> str:
        if self.kind == "decimal":
            return f"decimal({self.precision}, {self.scale})"
        return f"{self.element}[]" if self.kind == "list" else self.kind


class Column(msgspec.Struct, frozen=True, omit_defaults=True):
    name: str
    type: ColumnType
    nullable: bool = True
    default: str | None = None
    """SQL of a constant."""


class Table(msgspec.Struct, frozen=True, kw_only=True):
    id: TableId
    """Never used again, not even for a table of the same name."""
    name: str
    """With its namespace: `chat.messages`."""
    columns: tuple[Column, ...]
    primary_key: tuple[str, ...]
    changes: TopicId
    """The topic that holds every change of the table, one record for each row changed."""
    created_ms: int

    def column(self, name: str) -> Column | None:
        return next((column for column in self.columns if column.name == name), None)


class TableCheckpoint(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The rows of a table as records of the log. With the changes from `offset` on, applied in order, they are the table.

    Rows are read while others write, so a record may already tell of changes behind `offset`; applying those again does no
    harm, because a change holds the whole row.
    """

    table: TableId
    offset: Offset
    """The first change that the rows may lack."""
    first: Offset
    end: Offset
    """The records that hold the rows: from `first` up to but without `end`, in `checkpoint_partition` of the table."""
    rows: int = 0
    bytes: int = 0
    """Of the batches of these records."""
    began_ms: int = 0
    last_key: tuple[Any, ...] | None = None
    """The primary key of the last row that is in the log, as the table keeps it. Rows behind it are still to come."""


def changes_partition(table: Table) -> PartitionId:
    """Where the changes of a table are."""
    return PartitionId(table.changes, 0)


def checkpoint_partition(table: Table) -> PartitionId:
    """Where the checkpoints of a table's rows are: beside its changes, and in no list of partitions, so nobody reads it as a
    topic. It is made with the first checkpoint and goes with the topic."""
    return PartitionId(table.changes, 1)


CHANGES_PREFIX = "_changes."
"""The change topic of table `chat.messages` is `_changes.chat.messages`; the table's name is its alias."""
