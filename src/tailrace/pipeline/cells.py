"""Which cells of rows Spark gets to see: those that some route names, each in a typed column, its **slot**.

Everything else of a change goes past Spark. Tables share slots: a row is of one table, and a slot holds whatever cell of that
table was given to it. A query has the slots that it was started with; routes that name other cells need a new one.
"""

import re
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from tailrace.model.route import ChangeKind

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


class Cell(msgspec.Struct, frozen=True, order=True):
    image: str
    """`old` or `new`: the row before or after."""
    column: str


class CellSlots(msgspec.Struct, frozen=True):
    """The same for the source, which fills them, and for the plan, which reads them."""

    kinds: tuple[str, ...] = ()
    """What each slot holds: a type of Spark's, or `RAW`."""
    tables: Mapping[int, Mapping[str, Mapping[str, int]]] = {}
    """By table, image and column: the slot."""

    def cover(self, wanted: Mapping[int, Iterable[Cell]]) -> bool:
        return all(self.slot_of(table, cell) is not None for table, cells in wanted.items() for cell in cells)

    def slot_of(self, table: int, cell: Cell) -> int | None:
        return self.tables.get(table, {}).get(cell.image, {}).get(cell.column)

    @property
    def spark_types(self) -> Sequence[str]:
        return ["string" if kind == RAW else kind for kind in self.kinds]


def slots_for(wanted: Mapping[int, Iterable[Cell]], types: Mapping[int, Mapping[str, str]]) -> CellSlots:
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


def cells_in(sql: str) -> set[Cell]:
    """The cells that a route's SQL names."""
    return {Cell(found["image"], _bare(found["column"])) for found in _TOKEN.finditer(sql) if found["image"]}


def over_slots(sql: str, table: int, slots: CellSlots, types: Mapping[str, str]) -> str:
    """A route's SQL, which speaks of `old` and `new`, about the slots that hold their cells."""

    def replaced(found: re.Match[str]) -> str:
        if found["absent"]:
            return _ABSENT[found["absent"]]
        if not found["image"]:
            return found[0]
        column = _bare(found["column"])
        slot = slots.slot_of(table, Cell(found["image"], column))
        if slot is None:
            raise KeyError(f"{found[0]} of table {table} has no slot")
        if slots.kinds[slot] != RAW:
            return slot_name(slot)
        return f"from_json(concat('{{\"v\":', {slot_name(slot)}, '}}'), 'v {types[column]}').v"

    return _TOKEN.sub(replaced, sql)


def _bare(quoted: str) -> str:
    return quoted.replace("``", "`")
