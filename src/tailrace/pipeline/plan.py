"""The plan: all routes as one Spark query, from the rows of steps to the routes that match each change, in the same order.

A route is a condition in Spark's SQL over the cells that it names, written when the route was made. Spark sees only these
cells, each in a typed column, its **slot**; the rest of a change passes through unread. Tables share slots: a row is of one
table, and a slot holds whatever cell of that table was assigned to it. A query has the slots that it was started with; routes
that name other cells need a new query.

The result of a route for a change takes two bits: it matches, or it can't be evaluated. The bits of all routes are packed into
a few integer columns. Where a route has parts that Spark can't compute, `python_conditions` decides on what these bits leave
open.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, cast

import msgspec
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType

from tailrace.model.route import ChangeKind, Route

MATCHED, FAILED = 1, 2
"""The route matches the change; the route can't be evaluated for it."""
ROUTES_PER_WORD = 31
"""The sign bit is not used."""

OPERATIONS: Sequence[ChangeKind] = ("insert", "update", "delete", "read")

_FOR_EVER = (1 << 63) - 1
RAW = "json"
"""The kind of a slot for types that have no column type here: it holds the cell as JSON text."""
_TYPED_KINDS = re.compile(r"boolean|smallint|int|bigint|double|string|date|timestamp|decimal\(\d+,\d+\)")
_TOKEN = re.compile(
    r"(?P<text>'(?:\\.|[^'\\])*')"
    r"|\b(?P<image>old|new)\.`(?P<column>(?:[^`]|``)*)`"
    r"|(?P<name>`(?:[^`]|``)*`)"
    r"|\b(?P<absent>old|new) IS NULL\b",
    re.DOTALL,
)
_ABSENT = {"old": "(op IN (0, 3))", "new": "(op = 2)"}
"""The operations without this image, by their indices in `OPERATIONS`."""

ColumnTypes = Mapping[int, Mapping[str, str]]
"""Spark's types, by table and column."""


class RouteBits(NamedTuple):
    """Where the two bits of a route are."""

    word: str
    shift: int
    key: str | None
    """The column with the keys of its records, if the route defines them. Where Python makes them, the plan has no such
    column."""


class RoutingPlan:
    """The plan of some routes, built once and applied to every batch, because building it takes longer than a small batch."""

    def __init__(self, routes: Sequence[Route], slots: "CellSlots") -> None:
        self.routes = routes
        self.bits = [bits_of(number, route.sql.has_key) for number, route in enumerate(routes)]
        words: dict[str, list[str]] = {}
        keys = []
        for route, (word, shift, key) in zip(routes, self.bits, strict=True):
            sql = _SlotSql(route, slots)
            words.setdefault(word, []).append(_bits_sql(route, sql, shift))
            if key is not None and route.sql.key is not None:
                keys.append(F.expr(f"CASE WHEN {applies_sql(route)} AND ({sql.condition}) THEN {sql.key} END").alias(key or ""))
        self._columns: list[Column] = [F.expr(" | ".join(bits)).alias(word) for word, bits in words.items()]
        self._columns += [*keys, F.col("step")]

    def apply(self, rows: DataFrame) -> DataFrame:
        """Return for each change the bits and keys of its routes, and the rows that carry steps."""
        return rows.select(*self._columns)


def bits_of(number: int, has_key: bool) -> RouteBits:
    """Return where the bits of the route with this index are."""
    return RouteBits(f"word_{number // ROUTES_PER_WORD}", 2 * (number % ROUTES_PER_WORD), f"key_{number}" if has_key else None)


def _bits_sql(route: Route, sql: "_SlotSql", shift: int) -> str:
    return (
        f"CASE WHEN {applies_sql(route)} THEN"
        f" CASE WHEN {sql.failure} THEN {FAILED << shift}L WHEN {sql.condition} THEN {MATCHED << shift}L"
        " ELSE 0L END ELSE 0L END"
    )


def applies_sql(route: Route) -> str:
    """Return the SQL condition that a change is of the route's table and operations, while the route is in force."""
    operations = ", ".join(str(OPERATIONS.index(each)) for each in route.operations)
    applies = f"op IN ({operations}) AND only_route IS NULL"
    if route.snapshot:
        applies = f"({applies} OR op = {OPERATIONS.index('read')} AND only_route <=> {route.id})"
        applies += f" AND (skip_routes IS NULL OR NOT contains(skip_routes, ',{route.id},'))"
    applies = f"`table` = {route.table} AND {applies} AND cursor > {route.since}L"
    return applies if route.until is None else f"{applies} AND cursor < {route.until}L"


class _SlotSql:
    """The SQL of a route, written over slots."""

    def __init__(self, route: Route, slots: "CellSlots") -> None:
        types = row_types(route.sql.row)
        self.condition, self.failure, self.key = (
            over_slots(text, route.table, slots, types)
            for text in (route.sql.condition, route.sql.failure, route.sql.key or "NULL")
        )


class CellRef(msgspec.Struct, frozen=True, order=True):
    image: str
    """`old` or `new`: the row before or after the change."""
    column: str


class CellSlots(msgspec.Struct, frozen=True):
    """The slots of a query. The source fills them and the plan reads them."""

    kinds: tuple[str, ...] = ()
    """What each slot holds: one of Spark's types, or `RAW`."""
    tables: Mapping[int, Mapping[str, Mapping[str, int]]] = {}
    """By table, image and column: the slot."""
    uses: Mapping[int, Mapping[str, Mapping[str, Sequence[tuple[int, int]]]]] = {}
    """By table, image and column: between which cursors routes use the cell; all if it is not there. Others are not read: they
    may be of a column of the same name that was dropped before."""

    def cover(self, wanted: "CellSlots") -> bool:
        """Return whether all that these slots hold can be read from this one's."""
        cells = [
            (table, CellRef(image, column), slot)
            for table, images in wanted.tables.items()
            for image, slots in images.items()
            for column, slot in slots.items()
        ]
        return all(self._covers(table, cell, wanted.kinds[slot], wanted.uses_of(table, cell)) for table, cell, slot in cells)

    def uses_of(self, table: int, cell: CellRef) -> Sequence[tuple[int, int]]:
        return self.uses.get(table, {}).get(cell.image, {}).get(cell.column, ())

    def _covers(self, table: int, cell: CellRef, kind: str, uses: Sequence[tuple[int, int]]) -> bool:
        slot, own = self.slot_of(table, cell), self.uses_of(table, cell)
        if slot is None or self.kinds[slot] not in (RAW, kind):
            return False
        return not own or all(any(first <= since and until <= last for first, last in own) for since, until in uses)

    def slot_of(self, table: int, cell: CellRef) -> int | None:
        return self.tables.get(table, {}).get(cell.image, {}).get(cell.column)

    @property
    def spark_types(self) -> Sequence[str]:
        return ["string" if kind == RAW else kind for kind in self.kinds]


def slots_of(routes: Sequence[Route]) -> CellSlots:
    """Return the slots that the routes need."""
    uses: dict[int, dict[str, dict[str, list[tuple[int, int]]]]] = {}
    for route in routes:
        period = (route.since, _FOR_EVER if route.until is None else route.until)
        for cell in wanted_cells([route])[route.table]:
            periods = uses.setdefault(route.table, {}).setdefault(cell.image, {}).setdefault(cell.column, [])
            if period not in periods:
                periods.append(period)
    return msgspec.structs.replace(slots_for(wanted_cells(routes), _types(routes)), uses=uses)


def wanted_cells(routes: Iterable[Route]) -> dict[int, set[CellRef]]:
    """Return by table the cells that some route names."""
    found: dict[int, set[CellRef]] = {}
    for route in routes:
        for text in (route.sql.condition, route.sql.failure, route.sql.key or ""):
            found.setdefault(route.table, set()).update(cells_in(text))
    return found


def slots_for(wanted: Mapping[int, Iterable[CellRef]], types: ColumnTypes) -> CellSlots:
    """Assign the cells of each table to as few slots as possible."""
    kinds: list[str] = []
    tables: dict[int, dict[str, dict[str, int]]] = {}
    for table, cells in sorted(wanted.items()):
        taken: set[int] = set()
        for cell in sorted(cells):
            kind = kind_of(types[table][cell.column])
            slot = next((at for at, each in enumerate(kinds) if each == kind and at not in taken), len(kinds))
            if slot == len(kinds):
                kinds.append(kind)
            taken.add(slot)
            tables.setdefault(table, {}).setdefault(cell.image, {})[cell.column] = slot
    return CellSlots(tuple(kinds), tables)


def slot_name(slot: int) -> str:
    return f"cell_{slot}"


def kind_of(type_: str) -> str:
    """Return what a slot for values of this type holds."""
    return type_ if _TYPED_KINDS.fullmatch(type_) else RAW


def cells_in(sql: str) -> set[CellRef]:
    """Return the cells that a route's SQL names."""
    return {CellRef(found["image"], _unquoted(found["column"])) for found in _TOKEN.finditer(sql) if found["image"]}


def over_slots(sql: str, table: int, slots: CellSlots, types: Mapping[str, str]) -> str:
    """Rewrite a route's SQL over `old` and `new` to the slots that hold their cells."""

    def cell_sql(cell: CellRef) -> str:
        slot = slots.slot_of(table, cell)
        if slot is None:
            raise KeyError(f"{cell.image}.{cell.column} of table {table} has no slot")
        if slots.kinds[slot] != RAW:
            return slot_name(slot)
        return f"from_json(concat('{{\"v\":', {slot_name(slot)}, '}}'), 'v {types[cell.column]}').v"

    return over_cells(sql, cell_sql)


def over_cells(sql: str, cell_sql: Callable[[CellRef], str]) -> str:
    """Rewrite a route's SQL over `old` and `new` with what stands for their cells."""

    def replaced(found: re.Match[str]) -> str:
        if found["absent"]:
            return _ABSENT[found["absent"]]
        if not found["image"]:
            return found[0]
        return cell_sql(CellRef(found["image"], _unquoted(found["column"])))

    return _TOKEN.sub(replaced, sql)


def _unquoted(quoted: str) -> str:
    return quoted.replace("``", "`")


def _types(routes: Iterable[Route]) -> ColumnTypes:
    """Return the types by table. Routes of several dialects may read a column as different types; its cells are raw then."""
    found: dict[int, dict[str, str]] = {}
    rows = dict.fromkeys((route.table, route.sql.row) for route in routes)
    for table, row in rows:
        known = found.setdefault(table, {})
        for name, type_ in row_types(row).items():
            known[name] = type_ if known.get(name, type_) == type_ else RAW
    return found


def row_types(row: str) -> Mapping[str, str]:
    return {field.name: field.dataType.simpleString() for field in row_fields(row)}


def row_fields(row: str) -> Sequence[StructField]:
    """Return the columns of a route's type of rows."""
    return cast(StructType, StructType.fromDDL(row)).fields if row else ()
