"""Change events: encoded one by one or many at once, and read back to what SQLite keeps."""

import json

import pytest

from tailrace.model.errors import CorruptionError
from tailrace.model.ids import TableId, TopicId
from tailrace.model.limits import DEFAULT_LIMITS
from tailrace.model.record import Record
from tailrace.model.table import Column, ColumnType, Table
from tailrace.sql.tables.change_events import TableEvents

KINDS = ("bigint", "text", "boolean", "double", "json", "bytes")
TABLE = Table(
    id=TableId(1),
    name="a.t",
    columns=tuple(Column(kind, ColumnType(kind)) for kind in KINDS),  # type: ignore[arg-type]
    primary_key=("boolean", "bigint"),
    changes=TopicId(1),
    created_ms=0,
)
ROWS = [
    (1, 'é"\n', 1, 0.1, '{"a":[1.50,null]}', b"\0\xff"),
    (-(1 << 63), "", 0, -0.0, "[]", b""),
    (2, None, 1, None, None, None),
]
EVENTS = TableEvents(TABLE, DEFAULT_LIMITS)


def test_many_inserts_at_once_are_encoded_as_each_by_itself() -> None:
    expected = [EVENTS.encode("insert", None, row, 7, "99") for row in ROWS]
    assert list(EVENTS.encode_rows("insert", ROWS, 7, "99")) == expected
    assert json.loads(expected[0][0]) == {"boolean": True, "bigint": 1}


@pytest.mark.parametrize("row", ROWS)
def test_an_event_read_back_is_what_was_kept(row: tuple[object, ...]) -> None:
    _, inserted = EVENTS.encode("insert", None, row, 7, "99")  # type: ignore[arg-type]
    _, deleted = EVENTS.encode("delete", row, None, 7, "99")  # type: ignore[arg-type]
    again = EVENTS.decode(Record(None, inserted))
    assert (tuple(again.key), tuple(again.row or ())) == ((row[2], row[0]), row)
    assert [type(cell) for cell in again.row or ()] == [type(cell) for cell in row]
    gone = EVENTS.decode(Record(None, deleted))
    assert (tuple(gone.key), gone.row) == ((row[2], row[0]), None)


@pytest.mark.parametrize("value", [None, b"", b"{}", b'{"op":"insert","key":{"boolean":true},"new":null}', b"\xff"])
def test_what_is_no_event_of_the_table_is_corruption(value: bytes | None) -> None:
    with pytest.raises(CorruptionError, match=r"a\.t"):
        EVENTS.decode(Record(None, value))
