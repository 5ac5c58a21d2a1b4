"""A table and its columns, as values."""

from typing import Literal

import msgspec

from tailrace.model.ids import TableId, TopicId

Kind = Literal[
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
    kind: Kind
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


CHANGES_PREFIX = "_changes."
"""The change topic of table `chat.messages` is `_changes.chat.messages`; the table's name is its alias."""
