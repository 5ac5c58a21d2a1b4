"""Stored changes become change rows: each once, in order, in steps that are bounded and follow upon each other."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.model.ids import Cursor
from tailrace.model.record import Record
from tailrace.pipeline import change_reading
from tailrace.pipeline.change_reading import ChangeRange, change_rows
from tailrace.pipeline.connection import Answer, ServerConnection
from tailrace.pipeline.errors import DataLossError, RefusedError
from tailrace.wire.batch import placed
from tailrace.wire.batch_stream import PlacedBatch, encode_batches
from tailrace.wire.records import encode_batch

FIRST_CURSOR = 1_000


class ChangeTopic(ServerConnection):
    """Holds batches of changes, and hands out a few at a time."""

    def __init__(self, sizes: list[int], at_once: int, row_bytes: int) -> None:
        super().__init__("http://127.0.0.1:1")
        self._at_once = at_once
        self._batches: list[tuple[int, int, bytes]] = []
        offset = 0
        for size in sizes:
            records = [_change(number, row_bytes) for number in range(offset, offset + size)]
            self._batches.append((offset, offset + size, bytes(placed(encode_batch(records), offset))))
            offset += size
        self.end = offset

    def batches(self, topic: str, partition: int, offset: int, max_bytes: int) -> Answer:
        found = [each for each in self._batches if each[1] > offset][: self._at_once]
        body = encode_batches([PlacedBatch(Cursor(FIRST_CURSOR + first), batch) for first, _, batch in found])
        return Answer({"tailrace-next-offset": str(found[-1][1] if found else offset)}, body)


def _change(number: int, row_bytes: int) -> Record:
    row = b'{"id":%d,"t":"%b"}' % (number, b"x" * row_bytes)
    value = b'{"op":"insert","key":{"id":%d},"old":null,"new":%b,"ts":1,"tx":"1"}' % (number, row)
    return Record(b'{"id":%d}' % number, value, [("op", b"insert")], 1_700_000_000_000 + number)


@settings(max_examples=40)
@given(
    st.lists(st.integers(1, 12), min_size=1, max_size=6),
    st.integers(1, 3),
    st.integers(1, 40),
    st.integers(1, 8),
    st.data(),
)
def test_every_change_of_a_range_comes_once_and_in_order(
    sizes: list[int], at_once: int, step_rows: int, routes: int, data: st.DataObject
) -> None:
    topic = ChangeTopic(sizes, at_once, 10)
    start = data.draw(st.integers(0, topic.end - 1))
    end = data.draw(st.integers(start + 1, topic.end))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(change_reading, "_STEP_ROWS", step_rows)
        rows = [
            row for batch in change_rows(topic, ChangeRange("5/0", 7, "c", routes, start, end)) for row in batch.to_pylist()
        ]
    changes = [row for row in rows if row["mark_to"] is None]
    assert [row["position"] for row in changes] == list(range(start, end))
    assert [row["cursor"] - FIRST_CURSOR for row in changes] == list(range(start, end))
    assert [row["new_json"] for row in changes] == [b'{"id":%d,"t":"xxxxxxxxxx"}' % number for number in range(start, end)]
    at = start
    inside = 0
    for row in rows:
        if row["mark_to"] is None:
            inside += 1
            continue
        assert (row["mark_from"], row["mark_to"]) == (at, at + inside)
        assert inside <= max(1, step_rows // routes)
        at, inside = row["mark_to"], 0
    assert (at, inside) == (end, 0)


def test_large_changes_make_small_steps() -> None:
    topic = ChangeTopic([6], 1, 1_100_000)
    marks = [
        row for batch in change_rows(topic, ChangeRange("5/0", 7, "c", 4, 0, 6)) for row in batch.to_pylist() if row["mark_to"]
    ]
    assert [row["mark_to"] for row in marks] == [1, 2, 3, 4, 5, 6]


def test_a_topic_that_ends_early_is_a_loss_and_not_an_endless_loop() -> None:
    with pytest.raises(DataLossError, match="ends at 3, before 5"):
        list(change_rows(ChangeTopic([3], 1, 1), ChangeRange("5/0", 7, "c", 1, 0, 5)))


def test_changes_that_are_refused_are_named() -> None:
    class Gone(ChangeTopic):
        def batches(self, topic: str, partition: int, offset: int, max_bytes: int) -> Answer:
            raise RefusedError("it was dropped", 404, "unknown-topic")

    with pytest.raises(DataLossError, match="changes 0 to 5 of 'c' can't be read: it was dropped"):
        list(change_rows(Gone([5], 1, 1), ChangeRange("5/0", 7, "c", 1, 0, 5)))
