"""Cells of rows become typed columns: what a JSON parser reads, whatever stands around them."""

from datetime import UTC, date, datetime
from decimal import Decimal

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.model.errors import CorruptBatchError
from tailrace.pipeline.cell_columns import TypedCells
from tailrace.pipeline.plan import CellRef, slots_for

ODD = 'odd "name\\: '
TYPES = {
    "n": "bigint",
    "small": "smallint",
    "x": "double",
    "t": "string",
    "b": "boolean",
    ODD: "string",
    "tags": "array<string>",
}
values = {
    "n": st.none() | st.integers(-(2**63), 2**63 - 1),
    "small": st.none() | st.integers(-(2**15), 2**15 - 1),
    "x": st.none() | st.floats(allow_nan=False, allow_infinity=False),
    "t": st.none() | st.text(),
    "b": st.none() | st.booleans(),
    ODD: st.none() | st.text(alphabet='\\"{}[],:\n\x01n\u00fc'),
    "tags": st.none() | st.lists(st.none() | st.text(alphabet='"]},\\')),
}
rows = st.none() | st.fixed_dictionaries(values)


def read(images: list[bytes | None], *columns: str) -> dict[str, list[object]]:
    slots = slots_for({1: [CellRef("new", column) for column in columns]}, {1: TYPES})
    nothing = pa.nulls(len(images), pa.binary())
    found = TypedCells(slots).of(1, {"old": nothing, "new": pa.array(images, pa.binary())}, np.arange(len(images)))
    return {column: found[slots.slot_of(1, CellRef("new", column)) or 0].to_pylist() for column in columns}


@given(st.lists(rows, min_size=1, max_size=6), st.sets(st.sampled_from(sorted(TYPES)), min_size=1))
def test_cells_are_what_a_parser_reads(given: list[dict[str, object] | None], columns: set[str]) -> None:
    images = [None if row is None else msgspec.json.encode(row) for row in given]
    found = read(images, *columns)
    for column in columns:
        wanted = [None if row is None else row[column] for row in given]
        if column == "tags":
            found[column] = [None if text is None else msgspec.json.decode(str(text)) for text in found[column]]
        assert found[column] == wanted


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        ("date", '"0001-01-01"', date(1, 1, 1)),
        ("timestamp", '"2026-01-31T13:45:00.500000Z"', datetime(2026, 1, 31, 13, 45, 0, 500_000, UTC)),
        ("decimal(38,2)", '"-123456789012345678901234567890123456.78"', Decimal("-123456789012345678901234567890123456.78")),
        ("decimal(5,0)", '"7"', Decimal(7)),
        ("string", '{"a":[1,"}"]}', '{"a":[1,"}"]}'),
    ],
)
def test_types_that_are_text_in_json(kind: str, text: str, value: object) -> None:
    slots = slots_for({1: [CellRef("new", "v")]}, {1: {"v": kind}})
    images = pa.array([b'{"v":%b}' % text.encode(), b'{"v":null}', b'{"w":1}'], pa.binary())
    (found,) = TypedCells(slots).of(1, {"old": pa.nulls(3, pa.binary()), "new": images}, np.arange(3))
    assert found.to_pylist() == [value, None, None]


def test_other_tables_have_nothing_in_these_slots() -> None:
    slots = slots_for({1: [CellRef("new", "n")]}, {1: TYPES})
    images = {"old": pa.nulls(1, pa.binary()), "new": pa.array([b'{"n":1}'], pa.binary())}
    (found,) = TypedCells(slots).of(2, images, np.arange(1))
    assert found.to_pylist() == [None]


def test_cells_are_read_only_between_the_cursors_at_which_routes_use_them() -> None:
    """A column of another type may have had the name before."""
    slots = slots_for({1: [CellRef("new", "n")]}, {1: TYPES})
    slots = msgspec.structs.replace(slots, uses={1: {"new": {"n": [(1, 4), (5, 7)]}}})
    cells = [b'"a"', b'"b"', b"1", b"2", b'"c"', b'"d"', b"3", b'"e"']
    images = {"old": pa.nulls(8, pa.binary()), "new": pa.array([b'{"n":%b}' % cell for cell in cells], pa.binary())}
    (found,) = TypedCells(slots).of(1, images, np.arange(8))
    assert found.to_pylist() == [None, None, 1, 2, None, None, 3, None]


@pytest.mark.parametrize(
    "image", [b"nonsense", b"{nonsense}", b'{"n"1}', b'{"n":1.5}', b'{"n":9223372036854775808}', b'{"n":"1"}']
)
def test_what_is_no_row_of_the_table_is_rejected(image: bytes) -> None:
    with pytest.raises(CorruptBatchError, match="the row of a change"):
        read([b'{"n":1}', image], "n")
