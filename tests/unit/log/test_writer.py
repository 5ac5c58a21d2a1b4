"""Groups as frames: commits of one batch are encoded by a fast path, to the same bytes as by the general one."""

from itertools import product

import pytest

from tailrace.log.writer import GroupFrames
from tailrace.model.clock import HybridClock
from tailrace.model.commit import Append, Buffer, Changes
from tailrace.model.ids import Cursor, Offset, PartitionId, TopicId
from tailrace.model.limits import DEFAULT_LIMITS
from tailrace.store.contract import StoreCommit
from tailrace.store.sequencer import PendingCommit, Sequencer
from tests.support.batches import append
from tests.support.clocks import ManualClock

PARTITIONS = [PartitionId(TopicId(1), number) for number in range(2)]
SALT = 4711
RUN_BYTES = 1 << 20


def ignore(commit: StoreCommit) -> None:
    pass


def sequenced(appends: list[Append]) -> list[PendingCommit]:
    ends = {partition: Offset(40 * partition.number) for partition in PARTITIONS}
    sequencer = Sequencer(HybridClock(ManualClock()), DEFAULT_LIMITS, ends, Cursor(77))
    return [sequencer.admit(Changes(appends=[only]), ignore) for only in appends]


def encoded(group: list[PendingCommit], run_bytes: int = RUN_BYTES) -> tuple[list[bytes], GroupFrames]:
    frames = GroupFrames(group, 1000, 900, SALT, run_bytes)
    runs = []
    for buffers, size, _ in frames.encode():
        run = b"".join(map(_whole, buffers))
        assert len(run) == size
        runs.append(run)
    return runs, frames


def _whole(buffer: Buffer) -> bytes:
    return bytes(buffer)


@pytest.mark.parametrize(("is_first_fast", "is_second_fast"), list(product([True, False], repeat=2)))
def test_the_fast_path_encodes_one_batch_as_the_general_path_does(is_first_fast: bool, is_second_fast: bool) -> None:
    appends = [append(PARTITIONS[0], b"one", b"two"), append(PARTITIONS[1], b"three"), append(PARTITIONS[0], b"four")]
    (expected,), expected_frames = encoded(sequenced(appends))
    group = sequenced(appends)
    for commit, is_fast in zip(group, (is_first_fast, is_second_fast, True), strict=True):
        if not is_fast:
            commit.only = None
    (run,), frames = encoded(group)
    assert run == expected
    assert (frames.position, frames.cursor) == (expected_frames.position, expected_frames.cursor) == (1000 + len(run), 81)
    assert [batch[:7] for batch in frames.batches] == [batch[:7] for batch in expected_frames.batches]
    assert not frames.has_state
    assert not frames.is_structural


def test_a_group_is_encoded_in_runs_that_join_to_the_same_bytes() -> None:
    appends = [append(PARTITIONS[number % 2], bytes(100)) for number in range(20)]
    (whole,), _ = encoded(sequenced(appends))
    runs, _ = encoded(sequenced(appends), run_bytes=len(whole) // 3)
    assert 2 < len(runs) < 6
    assert b"".join(runs) == whole
