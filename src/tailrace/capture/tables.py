"""The captured tables, as the database describes them, and how their definitions follow its schema.

The stream describes a table before its first row and after each change of its columns. A description that differs from what is
known becomes a new version of the table's schema, when the first row of it comes. A column that was renamed is found by its
number in the catalog, which PostgreSQL never uses again.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from tailrace.capture.change_events import RowEventEncoder
from tailrace.capture.column_types import PostgresType, column_type
from tailrace.capture.database import Connection, Database
from tailrace.capture.failures import CaptureError
from tailrace.capture.pgoutput import RelationMessage
from tailrace.capture.server_api import SourceApi
from tailrace.model.ids import TableId, TopicId
from tailrace.model.source import Source, SourceTable
from tailrace.model.table import Column, ColumnChange, Table

_TYPES = """
SELECT t.oid::bigint, format_type(t.oid, NULL), t.typtype::text, t.typelem::bigint, t.typbasetype::bigint, t.typtypmod,
       t.typcategory::text, t.typdelim::text
FROM pg_type t WHERE t.oid = ANY (%s::oid[])
"""
_KEY = """
SELECT a.attname FROM pg_index i CROSS JOIN LATERAL unnest(i.indkey) WITH ORDINALITY AS k (number, place)
JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.number
WHERE i.indrelid = %s::oid AND i.indisprimary ORDER BY k.place
"""
_NUMBERS = "SELECT attname, attnum FROM pg_attribute WHERE attrelid = %s::oid AND attnum > 0 AND NOT attisdropped"


class CurrentTable(NamedTuple):
    table: SourceTable
    encoder: RowEventEncoder
    was_created_again: bool
    """Whether the database has dropped the table and created it again since its last change."""


class CapturedTables:
    """Used by the thread that sends transactions."""

    def __init__(
        self, api: SourceApi, database: Database, source: Source, known: Sequence[SourceTable], change_bytes: int
    ) -> None:
        self._api = api
        self._database = database
        self._source = source
        self.change_bytes = change_bytes
        self._by_name = {(one.schema, one.relation): one for one in known}
        self._described: dict[int, RelationMessage] = {}
        self._current: dict[int, CurrentTable] = {}
        self._types: dict[int, PostgresType] = {}

    def find(self, relation: RelationMessage) -> SourceTable | None:
        """Return the table of this name, as the server knows it."""
        return self._by_name.get((relation.schema, relation.name))

    def describe(self, relation: RelationMessage) -> None:
        """Take the description of a table. It is compared with the definition when a row of it comes."""
        if self._described.get(relation.oid) != relation:
            self._described[relation.oid] = relation
            self._current.pop(relation.oid, None)

    def of_rows(self, oid: int) -> CurrentTable:
        """Return the table of a row, after its definition was brought up to date."""
        current = self._current.get(oid)
        if current is None:
            relation = self._described.get(oid)
            if relation is None:
                raise CaptureError(
                    f"the database sent a row of the relation {oid} without its description",
                    "It is asked again",
                    state="retrying",
                )
            current = self._define(relation)
            # It counts as created again for its next row only.
            self._current[oid] = current._replace(was_created_again=False)
        return current

    def _define(self, relation: RelationMessage) -> CurrentTable:
        there = self._by_name.get((relation.schema, relation.name))
        draft = self._draft(relation, there)
        was_created_again = there is not None and there.oid != relation.oid
        if there is None or draft != there:
            draft = self._api.define_table(draft)
            self._by_name[relation.schema, relation.name] = draft
        return CurrentTable(draft, RowEventEncoder(draft, self.change_bytes), was_created_again)

    def _draft(self, relation: RelationMessage, there: SourceTable | None) -> SourceTable:
        with self._database.connect() as connection:
            types = self._look_up_types(connection, [column.type_oid for column in relation.columns])
            key = [name for (name,) in connection.execute(_KEY, (relation.oid,))]
            numbers: dict[str, int] = dict(connection.execute(_NUMBERS, (relation.oid,)).fetchall())
        names = [column.name for column in relation.columns]
        key = _key_of_its_time(relation, key, () if there is None else there.table.primary_key)
        columns = tuple(
            Column(column.name, column_type(column.type_oid, column.type_modifier, types), nullable=column.name not in key)
            for column in relation.columns
        )
        attributes = tuple(numbers.get(name, 0) for name in names)
        if there is None:
            table = Table(
                id=TableId(0),
                name=f"{self._source.name}.{relation.schema}.{relation.name}",
                columns=columns,
                primary_key=tuple(key),
                changes=TopicId(0),
                created_ms=0,
            )
        else:
            before = there.table
            changes = column_changes(before.columns, there.attributes, columns, attributes)
            is_same = before.columns == columns and before.primary_key == tuple(key)
            history = before.history if is_same else (*before.history, changes)
            table = msgspec.structs.replace(before, columns=columns, primary_key=tuple(key), history=history)
        return SourceTable(
            source=self._source.id,
            table=table,
            schema=relation.schema,
            relation=relation.name,
            oid=relation.oid,
            identity=relation.identity,
            attributes=attributes,
            postgres_types=tuple(_type_name(types, column.type_oid) for column in relation.columns),
        )

    def _look_up_types(self, connection: Connection, oids: Sequence[int]) -> Mapping[int, PostgresType]:
        """Return what the catalog says of types, with the elements of arrays and what domains are based on."""
        # Always anew: a type may have been changed since. Those that were dropped are remembered.
        wanted = set(oids)
        asked: set[int] = set()
        while wanted - asked:
            missing = sorted(wanted - asked)
            asked |= wanted
            for oid, name, kind, element, base, modifier, category, delimiter in connection.execute(_TYPES, (missing,)):
                is_array = category == "A" and element != 0
                self._types[oid] = PostgresType(
                    oid,
                    name,
                    "array" if is_array else _KINDS.get(kind, "base"),
                    element if is_array else 0,
                    base,
                    modifier,
                    delimiter,
                )
                wanted |= {number for number in (element if is_array else 0, base) if number}
        return self._types


_KINDS: Mapping[str, Any] = {
    "b": "base",
    "c": "composite",
    "d": "domain",
    "e": "enum",
    "p": "pseudo",
    "r": "range",
    "m": "multirange",
}


def column_changes(
    before: Sequence[Column], numbers_before: Sequence[int], after: Sequence[Column], numbers_after: Sequence[int]
) -> tuple[ColumnChange, ...]:
    """Return what was done to the columns of a table, in an order in which it can be done again."""
    found: list[ColumnChange] = []
    kept = _kept(before, numbers_before, after, numbers_after)
    shape = list(enumerate(before))
    for old, column in enumerate(before):
        if old not in kept:
            place = [number for number, _ in shape].index(old)
            found.append(ColumnChange("drop", place, column.name, column.type))
            del shape[place]
    for place, (old, column) in enumerate(shape):
        now = after[kept[old]]
        if now.name != column.name:
            found.append(ColumnChange("rename", place, column.name))
        if now.type != column.type:
            found.append(ColumnChange("retype", place, type=column.type))
    found += [ColumnChange("add", place) for place in range(len(after)) if place not in kept.values()]
    return tuple(found)


def _kept(
    before: Sequence[Column], numbers_before: Sequence[int], after: Sequence[Column], numbers_after: Sequence[int]
) -> dict[int, int]:
    """Return for the columns that are still there, where they are now. Their order is the same."""
    by_number = {number: place for place, number in enumerate(numbers_after) if number}
    by_name = {column.name: place for place, column in enumerate(after)}
    kept: dict[int, int] = {}
    last = -1
    for old, column in enumerate(before):
        number = numbers_before[old] if old < len(numbers_before) else 0
        now = by_number.get(number) if number else by_name.get(column.name)
        if now is None and number and not numbers_after[by_name.get(column.name, 0)]:
            now = by_name.get(column.name)
        if now is not None and now > last:
            kept[old] = last = now
    return kept


def _key_of_its_time(relation: RelationMessage, now: Sequence[str], before: Sequence[str]) -> list[str]:
    """Return the primary key when the row was written. The catalog is that of now, and the stream may be behind it."""
    names = {column.name for column in relation.columns}
    if relation.identity == "default":
        # The stream marks the columns of the key, but not their order in it.
        marked = [column.name for column in relation.columns if column.is_key]
        return next(([*key] for key in (now, before) if set(key) == set(marked)), marked)
    return next(([*key] for key in (now, before) if key and set(key) <= names), [])


def _type_name(types: Mapping[int, PostgresType], oid: int) -> str:
    known = types.get(oid)
    return f"type {oid}" if known is None else known.name
