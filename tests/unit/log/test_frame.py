"""Frames: what is written is what is read, and nothing else passes for one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.log.frame import (
    BadFrameError,
    batch_fault,
    encode_effects,
    encode_entry,
    encode_head,
    encode_kept_entries,
    fast_encode_head,
    is_good_batch,
    read_effects,
    read_frame,
)
from tailrace.model.commit import UNKNOWN_TIMESTAMP, Changes
from tailrace.model.ids import Offset, PartitionId, Position, TopicId
from tailrace.wire.batch import with_base_offset
from tests.support.batches import encode_batch

PARTITION = PartitionId(TopicId(7), 3)
BATCH = bytes(with_base_offset(encode_batch([(5, b"value")]), 40))
SALT = 4711
HEAD = fast_encode_head(1000, 900, 77, 12345, PARTITION, 40, 1, BATCH, 5, 3, SALT)


def test_the_fast_path_encodes_a_head_as_the_general_path_does() -> None:
    entry = encode_entry(PARTITION, 40, 77, 1, BATCH, 5, 3)
    assert encode_head(1000, 900, 77, 12345, [entry], b"", 0, len(BATCH), SALT) == HEAD


def test_a_frame_is_read_as_it_was_written() -> None:
    frame = read_frame(memoryview(HEAD + BATCH), 0, 1000, SALT)
    assert (frame.position, frame.synced, frame.cursor, frame.hlc) == (1000, 900, 77, 12345)
    assert frame.size == len(HEAD) + len(BATCH)
    (entry,) = frame.entries
    assert (entry.partition, entry.base_offset, entry.cursor, entry.records, entry.max_timestamp) == (PARTITION, 40, 77, 1, 5)
    assert entry.oldest_timestamp == 3
    assert entry.position == 1000 + len(HEAD)


def test_a_frame_without_oldest_timestamps_is_read_and_keeps_its_size_when_it_is_written_again() -> None:
    (entry,) = read_frame(memoryview(HEAD + BATCH), 0, 1000, SALT).entries
    unknown = entry._replace(oldest_timestamp=UNKNOWN_TIMESTAMP)
    old = encode_head(1000, 900, 77, 12345, encode_kept_entries([unknown]), b"", 0, len(BATCH), SALT)
    assert (old[:4], len(old)) == (b"TRf1", 100)
    frame = read_frame(memoryview(old + BATCH), 0, 1000, SALT)
    assert frame.entries == [unknown._replace(position=Position(1100))]
    assert encode_head(1000, 900, 77, 12345, encode_kept_entries(frame.entries), b"", 0, len(BATCH), SALT) == old
    assert encode_head(1000, 900, 77, 12345, encode_kept_entries([entry]), b"", 0, len(BATCH), SALT) == HEAD


def test_a_frame_at_the_wrong_position_is_not_a_frame() -> None:
    with pytest.raises(BadFrameError, match="belongs to position 1000"):
        read_frame(memoryview(HEAD + BATCH), 0, 1001, SALT)


def test_a_damaged_magic_does_not_turn_a_frame_into_one_of_another_format() -> None:
    with pytest.raises(BadFrameError, match="checksum"):
        read_frame(memoryview(b"TRf1" + HEAD[4:] + BATCH), 0, 1000, SALT)


@pytest.mark.parametrize("at", range(len(HEAD) + len(BATCH)))
def test_no_flipped_bit_passes(at: int) -> None:
    damaged = bytearray(HEAD + BATCH)
    damaged[at] ^= 0x10
    with pytest.raises(BadFrameError):
        read_frame(memoryview(damaged), 0, 1000, SALT)


@pytest.mark.parametrize("at", range(len(BATCH)))
def test_a_good_batch_is_one_without_a_fault(at: int) -> None:
    base = 40
    for flipped in (0, 0x01, 0x80):
        damaged = bytearray(BATCH)
        damaged[at] ^= flipped
        data = memoryview(b"before" + damaged + b"behind")
        assert is_good_batch(data, 6, 6 + len(BATCH), base) is not bool(batch_fault(damaged, base))
        assert not is_good_batch(data, 6, 6 + len(BATCH), base + 1_000)


@given(
    creates=st.lists(st.tuples(st.integers(0, 2**32 - 1), st.integers(1, 2**32 - 1))),
    drops=st.lists(st.integers(0, 2**32 - 1)),
    trims=st.lists(st.tuples(st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1), st.integers(0, 2**63))),
    prefixes=st.lists(st.binary()),
    puts=st.lists(st.tuples(st.binary(), st.none() | st.binary())),
)
def test_effects_are_decoded_as_they_were_encoded(
    creates: list[tuple[int, int]],
    drops: list[int],
    trims: list[tuple[int, int, int]],
    prefixes: list[bytes],
    puts: list[tuple[bytes, bytes | None]],
) -> None:
    changes = Changes(
        creates=[(TopicId(topic_id), count) for topic_id, count in creates],
        drops=[TopicId(topic_id) for topic_id in drops],
        trims=[(PartitionId(TopicId(topic_id), number), Offset(start)) for topic_id, number, start in trims],
        appends=(),
        drop_prefixes=prefixes,
        puts=puts,
    )
    assert read_effects(*encode_effects(changes)) == changes
