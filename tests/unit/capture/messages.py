"""Messages of logical replication, as PostgreSQL sends them."""

from collections.abc import Sequence
from types import EllipsisType

from tailrace.model.ids import SourceId, TableId, TopicId
from tailrace.model.source import ReplicaIdentity, SourceTable
from tailrace.model.table import Column, ColumnType, Table

Sent = bytes | EllipsisType | None
"""A cell; `...` is one that was not sent because it did not change."""
OID = (16384).to_bytes(4, "big")


def row(cells: Sequence[Sent]) -> bytes:
    out = len(cells).to_bytes(2, "big")
    for cell in cells:
        if isinstance(cell, bytes):
            out += b"t" + len(cell).to_bytes(4, "big") + cell
        else:
            out += b"n" if cell is None else b"u"
    return out


def insert(*cells: Sent) -> bytes:
    return b"I" + OID + b"N" + row(cells)


def update(new: Sequence[Sent], old: Sequence[Sent] | None = None, kind: bytes = b"O") -> bytes:
    return b"U" + OID + (b"" if old is None else kind + row(old)) + b"N" + row(new)


def delete(old: Sequence[Sent], kind: bytes = b"K") -> bytes:
    return b"D" + OID + kind + row(old)


def truncate() -> bytes:
    return b"T\0\0\0\1\0" + OID


def source_table(
    columns: Sequence[tuple[str, ColumnType]],
    key: Sequence[str] = ("id",),
    *,
    version: int = 1,
    identity: ReplicaIdentity = "default",
    name: str = "shop.public.orders",
) -> SourceTable:
    table = Table(
        id=TableId(1),
        name=name,
        columns=tuple(Column(*column) for column in columns),
        primary_key=tuple(key),
        changes=TopicId(1),
        created_ms=0,
        history=((),) * (version - 1),
    )
    return SourceTable(source=SourceId(1), table=table, schema="public", relation="orders", oid=16384, identity=identity)
