"""What comes out of the plan, for whoever reads it in a task: two bits for each route, in words of some routes each."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, cast

import msgspec
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from tailrace.model.route import ChangeKind, Route

MATCHED, FAILED = 1, 2
"""A change takes the route; the route can't be evaluated for it."""
ROUTES_PER_WORD = 31
"""The sign is left alone."""


class RouteBits(NamedTuple):
    """Where a route's two bits are."""

    word: str
    shift: int
    key: str | None
    """The column with the keys of its records, if the route chooses them."""


def bits_of(number: int, has_key: bool) -> RouteBits:
    """Of the route that is so many routes behind the first."""
    return RouteBits(f"word_{number // ROUTES_PER_WORD}", 2 * (number % ROUTES_PER_WORD), f"key_{number}" if has_key else None)


RAW = "json"
"""The kind of a slot for what has no form of its own here: the cell as JSON text."""
_OWN_KINDS = re.compile(r"boolean|smallint|int|bigint|double|string|date|timestamp|decimal\(\d+,\d+\)")
_TOKEN = re.compile(
    r"(?P<text>'(?:\\.|[^'\\])*')"
    r"|\b(?P<image>old|new)\.`(?P<column>(?:[^`]|``)*)`"
    r"|(?P<name>`(?:[^`]|``)*`)"
    r"|\b(?P<absent>old|new) IS NULL\b",
    re.DOTALL,
)
_ABSENT = {"old": "(op IN (0, 3))", "new": "(op = 2)"}
"""Of which operations a row is not there, by their places among `OPERATIONS`."""

OPERATIONS: Sequence[ChangeKind] = ("insert", "update", "delete", "read")


class CellRef(msgspec.Struct, frozen=True, order=True):
    image: str
    """`old` or `new`: the row before or after."""
    column: str


class CellSlots(msgspec.Struct, frozen=True):
    """The same for the source, which fills them, and for the plan, which reads them."""

    kinds: tuple[str, ...] = ()
    """What each slot holds: a type of Spark's, or `RAW`."""
    tables: Mapping[int, Mapping[str, Mapping[str, int]]] = {}
    """By table, image and column: the slot."""

    def cover(self, wanted: Mapping[int, Iterable[CellRef]]) -> bool:
        return all(self.slot_of(table, cell) is not None for table, cells in wanted.items() for cell in cells)

    def slot_of(self, table: int, cell: CellRef) -> int | None:
        return self.tables.get(table, {}).get(cell.image, {}).get(cell.column)

    @property
    def spark_types(self) -> Sequence[str]:
        return ["string" if kind == RAW else kind for kind in self.kinds]


def slots_for(wanted: Mapping[int, Iterable[CellRef]], types: Mapping[int, Mapping[str, str]]) -> CellSlots:
    """As few slots as hold the cells of each table. `types` are Spark's, by table and column."""
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
    """What a slot for values of this type holds."""
    return type_ if _OWN_KINDS.fullmatch(type_) else RAW


def cells_in(sql: str) -> set[CellRef]:
    """The cells that a route's SQL names."""
    return {CellRef(found["image"], _unquoted(found["column"])) for found in _TOKEN.finditer(sql) if found["image"]}


def over_slots(sql: str, table: int, slots: CellSlots, types: Mapping[str, str]) -> str:
    """A route's SQL, which speaks of `old` and `new`, about the slots that hold their cells."""

    def replaced(found: re.Match[str]) -> str:
        if found["absent"]:
            return _ABSENT[found["absent"]]
        if not found["image"]:
            return found[0]
        column = _unquoted(found["column"])
        slot = slots.slot_of(table, CellRef(found["image"], column))
        if slot is None:
            raise KeyError(f"{found[0]} of table {table} has no slot")
        if slots.kinds[slot] != RAW:
            return slot_name(slot)
        return f"from_json(concat('{{\"v\":', {slot_name(slot)}, '}}'), 'v {types[column]}').v"

    return _TOKEN.sub(replaced, sql)


def _unquoted(quoted: str) -> str:
    return quoted.replace("``", "`")


Types = Mapping[int, Mapping[str, str]]
"""By table and column."""


class RoutingPlan:
    """The plan of some routes, made once and applied to every batch: to write it down takes longer than a small batch does."""

    def __init__(self, routes: Sequence[Route], slots: CellSlots) -> None:
        self.routes = routes
        self.verdicts = [bits_of(number, route.sql.key is not None) for number, route in enumerate(routes)]
        types = _types(routes)
        words: dict[str, list[str]] = {}
        keys = []
        for route, verdict in zip(routes, self.verdicts, strict=True):
            sql = _OverSlots(route, slots, types)
            words.setdefault(verdict.word, []).append(_bits(route, sql, verdict.shift))
            if verdict.key is not None:
                keys.append(F.expr(f"CASE WHEN {_reaches(route)} AND ({sql.condition}) THEN {sql.key} END").alias(verdict.key))
        self._columns: list[Column] = [F.expr(" | ".join(bits)).alias(word) for word, bits in words.items()]
        self._columns += [*keys, F.col("step")]

    def apply(self, rows: DataFrame) -> DataFrame:
        """For each change the words and keys of its routes, and the rows that carry steps."""
        return rows.select(*self._columns)


def wanted_cells(routes: Iterable[Route]) -> dict[int, set[CellRef]]:
    """By table, the cells that some route names."""
    found: dict[int, set[CellRef]] = {}
    for route in routes:
        for text in (route.sql.condition, route.sql.failure, route.sql.key or ""):
            found.setdefault(route.table, set()).update(cells_in(text))
    return found


def slots_of(routes: Sequence[Route]) -> CellSlots:
    return slots_for(wanted_cells(routes), _types(routes))


class _OverSlots:
    """The SQL of a route, about slots."""

    def __init__(self, route: Route, slots: CellSlots, types: Types) -> None:
        self.condition, self.failure, self.key = (
            over_slots(text, route.table, slots, types[route.table])
            for text in (route.sql.condition, route.sql.failure, route.sql.key or "NULL")
        )


def _bits(route: Route, sql: _OverSlots, shift: int) -> str:
    """SQL for the bits of a route where they belong."""
    return (
        f"CASE WHEN {_reaches(route)} THEN"
        f" CASE WHEN {sql.failure} THEN {FAILED << shift}L WHEN {sql.condition} THEN {MATCHED << shift}L"
        " ELSE 0L END ELSE 0L END"
    )


def _reaches(route: Route) -> str:
    """SQL for whether a change is the route's business at all."""
    operations = ", ".join(str(OPERATIONS.index(each)) for each in route.operations)
    reaches = f"op IN ({operations}) AND only_route IS NULL"
    if route.snapshot:
        reaches = f"({reaches} OR op = {OPERATIONS.index('read')} AND only_route <=> {route.id})"
        reaches += f" AND (skip_routes IS NULL OR NOT contains(skip_routes, ',{route.id},'))"
    reaches = f"`table` = {route.table} AND {reaches} AND cursor > {route.since}L"
    return reaches if route.until is None else f"{reaches} AND cursor < {route.until}L"


def _types(routes: Iterable[Route]) -> Types:
    found: dict[int, dict[str, str]] = {}
    for route in routes:
        if route.table not in found:
            row = cast(StructType, StructType.fromDDL(route.sql.row)) if route.sql.row else StructType()
            found[route.table] = {field.name: field.dataType.simpleString() for field in row.fields}
    return found
