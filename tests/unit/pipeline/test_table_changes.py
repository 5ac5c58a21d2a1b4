"""Stored changes become change rows: each once, in order, in steps that are bounded and follow upon each other."""

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.model.errors import OffsetOutOfRangeError, UnknownTopicError, UnknownTopicIdError
from tailrace.model.ids import Cursor
from tailrace.model.record import Record
from tailrace.pipeline import table_changes
from tailrace.pipeline.connection import ServerAddress, ServerConnection
from tailrace.pipeline.errors import DataLossError
from tailrace.pipeline.plan import CellRef, CellSlots, slots_for
from tailrace.pipeline.steps import ChangeStep, read_step
from tailrace.pipeline.table_changes import ChangeRange, change_rows
from tailrace.wire.batch import with_base_offset
from tailrace.wire.batch_stream import FetchedPartitionHead, FetchedPartitionPart, PlacedBatch
from tailrace.wire.records import encode_batch

UUID = "0198a1b2-0000-7000-8000-000000000005"
FIRST_CURSOR = 1_000
SLOTS = slots_for({7: [CellRef("new", "id")]}, {7: {"id": "bigint"}})


class ChangeTopic(ServerConnection):
    """Holds batches of changes, and hands out a few at a time."""

    def __init__(self, sizes: list[int], at_once: int, row_bytes: int) -> None:
        super().__init__(ServerAddress("http://127.0.0.1:1"))
        self._at_once = at_once
        self._batches: list[tuple[int, int, bytes]] = []
        offset = 0
        for size in sizes:
            records = [_change(number, row_bytes) for number in range(offset, offset + size)]
            self._batches.append((offset, offset + size, bytes(with_base_offset(encode_batch(records), offset))))
            offset += size
        self.end = offset

    def batches(
        self, topic: str, partition: int, offset: int, max_bytes: int, *, topic_uuid: str | None = None
    ) -> FetchedPartitionPart:
        found = [each for each in self._batches if each[1] > offset][: self._at_once]
        placed_batches = [PlacedBatch(Cursor(FIRST_CURSOR + first), batch) for first, _, batch in found]
        return FetchedPartitionPart(FetchedPartitionHead(0, found[-1][1] if found else offset, 0, self.end, 0), placed_batches)


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
        patched.setattr(table_changes, "STEP_ROWS", step_rows)
        rows = list(change_rows(topic, ChangeRange("5/0", 7, "c", UUID, routes, start, end), SLOTS))
    at = start
    for batch in rows:
        step = step_of(batch)
        wanted = range(at, at + step.changes.num_rows)
        assert (step.move.source, step.move.before, step.move.after) == ("5/0", at, at + len(wanted))
        assert len(wanted) <= max(1, step_rows // routes)
        assert step.changes.column("cursor").to_pylist() == [FIRST_CURSOR + number for number in wanted]
        assert step.changes.column("new").to_pylist() == [b'{"id":%d,"t":"xxxxxxxxxx"}' % number for number in wanted]
        seen = batch.slice(0, batch.num_rows - 1)
        assert seen.column("cell_0").to_pylist() == list(wanted)
        assert seen.column("cursor").to_pylist() == step.changes.column("cursor").to_pylist()
        assert set(seen.column("table").to_pylist()) == {7}
        at = step.move.after
    assert at == end


def step_of(batch: pa.RecordBatch) -> ChangeStep:
    """The last row carries it, and no other."""
    steps = batch.column("step")
    assert steps.null_count == len(steps) - 1
    return read_step(steps[-1].as_buffer())


def test_large_changes_make_small_steps() -> None:
    topic = ChangeTopic([6], 1, 1_100_000)
    found = change_rows(topic, ChangeRange("5/0", 7, "c", UUID, 4, 0, 6), CellSlots())
    assert [step_of(batch).move.after for batch in found] == [1, 2, 3, 4, 5, 6]


def test_a_range_without_records_is_a_step_too() -> None:
    """Those of aborted transactions are in no answer, but the mark must get past them."""

    class Aborted(ChangeTopic):
        def batches(
            self, topic: str, partition: int, offset: int, max_bytes: int, *, topic_uuid: str | None = None
        ) -> FetchedPartitionPart:
            return FetchedPartitionPart(FetchedPartitionHead(0, self.end, 0, self.end, 0), [])

    (batch,) = change_rows(Aborted([4], 1, 1), ChangeRange("5/0", 7, "c", UUID, 1, 0, 4), SLOTS)
    step = step_of(batch)
    assert (step.move.before, step.move.after, step.changes.num_rows) == (0, 4, 0)


def test_a_topic_that_ends_early_is_a_loss_and_not_an_endless_loop() -> None:
    with pytest.raises(DataLossError, match="ends at 3, before 5"):
        list(change_rows(ChangeTopic([3], 1, 1), ChangeRange("5/0", 7, "c", UUID, 1, 0, 5), SLOTS))


def test_changes_that_are_rejected_are_named() -> None:
    class Refused(ChangeTopic):
        def batches(
            self, topic: str, partition: int, offset: int, max_bytes: int, *, topic_uuid: str | None = None
        ) -> FetchedPartitionPart:
            raise OffsetOutOfRangeError("retention was faster", 5, 9)

    with pytest.raises(DataLossError, match="changes 0 to 5 of 'c' can't be read: retention was faster"):
        list(change_rows(Refused([5], 1, 1), ChangeRange("5/0", 7, "c", UUID, 1, 0, 5), SLOTS))


@pytest.mark.parametrize("kind", [UnknownTopicError, UnknownTopicIdError])
def test_a_dropped_table_takes_with_it_what_is_not_read_yet(kind: type[UnknownTopicError]) -> None:
    class Dropped(ChangeTopic):
        def batches(
            self, topic: str, partition: int, offset: int, max_bytes: int, *, topic_uuid: str | None = None
        ) -> FetchedPartitionPart:
            assert topic_uuid == UUID
            if offset:
                raise kind("it was dropped")
            return super().batches(topic, partition, offset, max_bytes, topic_uuid=topic_uuid)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(table_changes, "STEP_ROWS", 3)
        found = list(change_rows(Dropped([3, 2], 1, 1), ChangeRange("5/0", 7, "c", UUID, 1, 0, 5), SLOTS))
    assert [step_of(batch).move.after for batch in found] == [3]
