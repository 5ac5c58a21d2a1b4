"""The partitions of a consumer: assignment, fetched records, and what may be committed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.client.partition import AssignedPartition, PartitionProgress, assign_ranges
from tailrace.model.errors import CorruptBatchError, OffsetOutOfRangeError
from tailrace.model.ids import Cursor
from tailrace.model.record import Record
from tailrace.wire.batch import with_base_offset
from tailrace.wire.batch_stream import FetchedPartitionHead, FetchedPartitionPart, PlacedBatch
from tailrace.wire.records import encode_batch


def part(base_offset: int, count: int, next_offset: int | None = None, start: int = 0) -> FetchedPartitionPart:
    batch = with_base_offset(
        encode_batch([Record(None, b"%d" % (base_offset + nth), (), 5) for nth in range(count)]), base_offset
    )
    after = base_offset + count if next_offset is None else next_offset
    return FetchedPartitionPart(FetchedPartitionHead(0, after, start, 100, 0), [PlacedBatch(Cursor(1000 + base_offset), batch)])


def nothing(next_offset: int, start: int = 0) -> FetchedPartitionPart:
    return FetchedPartitionPart(FetchedPartitionHead(0, next_offset, start, 100, 0), [])


def test_records_are_handed_out_in_order_and_never_more_than_asked() -> None:
    partition = AssignedPartition("t", 0, 0)
    partition.add_fetched(part(0, 5), 0)
    first, rest = partition.take_records(3), partition.take_records(3)
    assert [record.offset for record in first] == [0, 1, 2]
    assert [record.payload for record in rest] == [b"3", b"4"]
    assert [record.cursor for record in rest] == [1003, 1004]
    assert partition.is_empty


def test_the_position_is_that_of_the_next_record() -> None:
    partition = AssignedPartition("t", 0, 0)
    partition.add_fetched(part(0, 5), 0)
    partition.take_records(2)
    assert (partition.position, partition.fetch_offset) == (2, 5)


def test_a_batch_that_begins_earlier_is_cut_to_what_was_asked_for() -> None:
    partition = AssignedPartition("t", 0, 3)
    partition.add_fetched(part(0, 5), 3)
    assert [record.offset for record in partition.take_records(10)] == [3, 4]


def test_seek_moves_the_position_and_keeps_the_marks() -> None:
    partition = AssignedPartition("t", 0, 0)
    partition.add_fetched(part(0, 5), 0)
    partition.take_records(5)
    partition.progress.mark(0)
    partition.progress.mark(1)
    partition.seek(0)
    assert (partition.position, partition.is_empty, partition.progress.safe_offset) == (0, True, 2)


def test_what_was_fetched_before_a_seek_is_thrown_away() -> None:
    partition = AssignedPartition("t", 0, 0)
    partition.seek(50)
    partition.add_fetched(part(0, 5), 0)
    assert (partition.is_empty, partition.position) == (True, 50)


def test_what_was_skipped_by_a_seek_is_not_committed() -> None:
    partition = AssignedPartition("t", 0, 0)
    partition.seek(50)
    partition.add_fetched(part(50, 2), 50)
    for record in partition.take_records(2):
        partition.progress.mark(record.offset)
    assert partition.progress.safe_offset == 0


def test_offsets_without_a_record_do_not_hold_up_commits() -> None:
    partition = AssignedPartition("t", 0, 0)
    partition.add_fetched(part(2, 2, next_offset=7), 0)
    for record in partition.take_records(10):
        partition.progress.mark(record.offset)
    assert (partition.progress.safe_offset, partition.position) == (7, 7)


def test_offsets_without_a_record_between_records_are_done_only_up_to_the_next_record() -> None:
    partition = AssignedPartition("t", 0, 0)
    _, (early,) = part(0, 1)
    _, (late,) = part(5, 1)
    partition.add_fetched(FetchedPartitionPart(FetchedPartitionHead(0, 6, 0, 100, 0), [early, late]), 0)
    first, last = partition.take_records(10)
    partition.progress.mark(first.offset)
    assert partition.progress.safe_offset == last.offset == 5


def test_nothing_but_aborted_transactions_is_stepped_over() -> None:
    partition = AssignedPartition("t", 0, 0)
    partition.add_fetched(nothing(9), 0)
    assert (partition.position, partition.progress.safe_offset) == (9, 9)


def test_what_retention_took_before_it_was_read_is_reported() -> None:
    partition = AssignedPartition("t", 0, 3)
    with pytest.raises(OffsetOutOfRangeError, match="starts at 8, and this consumer is at 3") as told:
        partition.add_fetched(nothing(8, start=8), 3)
    assert told.value.start == 8


def test_what_retention_took_does_not_hold_up_commits_for_ever() -> None:
    partition = AssignedPartition("t", 0, 3)
    partition.seek(8)
    partition.add_fetched(part(8, 1, start=8), 8)
    partition.progress.mark(partition.take_records(1)[0].offset)
    assert partition.progress.safe_offset == 9


def test_a_batch_with_a_wrong_checksum_is_not_handed_out() -> None:
    partition = AssignedPartition("t", 0, 0)
    head, ((cursor, batch),) = part(0, 2)
    damaged = bytearray(batch)
    damaged[-1] ^= 1
    with pytest.raises(CorruptBatchError):
        partition.add_fetched(FetchedPartitionPart(head, [PlacedBatch(cursor, damaged)]), 0)


def test_marking_in_order_moves_the_safe_offset() -> None:
    progress = PartitionProgress(10)
    assert (progress.safe_offset, progress.is_ahead) == (10, False)
    progress.mark(10)
    progress.mark(11)
    assert (progress.safe_offset, progress.is_ahead) == (12, True)


def test_a_gap_holds_it_back_until_it_is_filled() -> None:
    progress = PartitionProgress(0)
    progress.mark(1)
    progress.mark(2)
    progress.mark(4)
    assert progress.safe_offset == 0
    progress.mark(0)
    assert progress.safe_offset == 3
    progress.mark(3)
    assert progress.safe_offset == 5


def test_marking_twice_or_below_changes_nothing() -> None:
    progress = PartitionProgress(5)
    for offset in (3, 5, 5, 8, 8):
        progress.mark(offset)
    assert (progress.safe_offset, progress.held_ranges) == (6, 1)


def test_a_commit_is_remembered_and_never_goes_back() -> None:
    progress = PartitionProgress(0)
    progress.mark(0)
    progress.mark(1)
    progress.note_commit(2)
    progress.note_commit(1)
    assert (progress.committed_offset, progress.is_ahead) == (2, False)


def test_neighbouring_marks_take_the_room_of_one() -> None:
    progress = PartitionProgress(0)
    for offset in range(1000, 1, -1):
        progress.mark(offset)
    assert progress.held_ranges == 1


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 6))))
def test_the_safe_offset_is_the_first_that_was_not_marked(ranges: list[tuple[int, int]]) -> None:
    progress = PartitionProgress(3)
    marked: set[int] = set()
    for start, size in ranges:
        progress.mark_range(start, start + size)
        marked.update(range(start, start + size))
        expected = next(offset for offset in range(3, 100) if offset not in marked)
        assert progress.safe_offset == expected


def test_the_first_members_by_id_get_the_odd_ones() -> None:
    shares = assign_ranges({"b": ["t"], "a": ["t"]}, {"t": 3})
    assert shares == {"a": {"t": [0, 1]}, "b": {"t": [2]}}


def test_each_topic_is_shared_among_those_who_want_it() -> None:
    shares = assign_ranges({"a": ["t", "u"], "b": ["u"]}, {"t": 2, "u": 2})
    assert shares == {"a": {"t": [0, 1], "u": [0]}, "b": {"u": [1]}}


def test_who_gets_nothing_is_there_with_nothing() -> None:
    assert assign_ranges({"a": ["t"], "b": ["t"]}, {"t": 1}) == {"a": {"t": [0]}, "b": {}}


@given(st.integers(1, 9), st.integers(0, 30))
def test_every_partition_has_one_owner_and_shares_differ_by_one_at_most(members: int, partitions: int) -> None:
    shares = assign_ranges({f"m{number}": ["t"] for number in range(members)}, {"t": partitions})
    sizes = [len(share.get("t", [])) for share in shares.values()]
    assert sorted(number for share in shares.values() for number in share.get("t", [])) == list(range(partitions))
    assert max(sizes) - min(sizes) <= 1
