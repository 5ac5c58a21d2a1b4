"""The sequencer: its fast path for one batch does what the general path does."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.model.clock import HybridClock
from tailrace.model.commit import ASSIGN, Changes
from tailrace.model.errors import InvalidPartitionsError, OffsetOutOfRangeError, SequencingError, TailraceError
from tailrace.model.ids import Cursor, Offset, PartitionId, TopicId
from tailrace.model.limits import Limits
from tailrace.model.topic import TopicNames
from tailrace.store.sequencer import PendingCommit, Sequencer
from tests.support.batches import append
from tests.support.clocks import ManualClock

TOPIC = TopicId(10)
PARTITIONS = [PartitionId(TOPIC, number) for number in range(3)]
UNKNOWN = PartitionId(TOPIC, 7)
LIMITS = Limits(frame_bytes=600)


class NamedTopics(TopicNames):
    def name(self, topic_id: TopicId) -> str | None:
        return "orders" if topic_id == TOPIC else None


def new_sequencer() -> Sequencer:
    ends = {partition: Offset(5 * partition.number) for partition in PARTITIONS}
    return Sequencer(HybridClock(ManualClock()), LIMITS, ends, Cursor(100), NamedTopics())


def ignore(commit: object) -> None:
    pass


def outcome_of(admitted: PendingCommit) -> tuple[object, ...]:
    return admitted.changes, admitted.receipt.hlc, admitted.cursor, list(admitted.offsets), admitted.size


@given(
    steps=st.lists(
        st.tuples(
            st.sampled_from([*PARTITIONS, UNKNOWN]), st.integers(1, 3), st.sampled_from([ASSIGN, 0, 5, 6, 10]), st.booleans()
        ),
        max_size=20,
    )
)
def test_the_fast_path_admits_one_batch_as_the_general_path_does(steps: list[tuple[PartitionId, int, int, bool]]) -> None:
    fast, general = new_sequencer(), new_sequencer()
    for partition, records, base_offset, is_large in steps:
        only = append(partition, *[bytes(700 if is_large else 10)] * records, base_offset=base_offset)
        changes = Changes(appends=[only])
        outcomes: list[object] = []
        for admit in (
            lambda: fast._fast_admit(changes, only, ignore),  # noqa: B023  called before the next step
            lambda: general._admit(changes, ignore),  # noqa: B023
        ):
            try:
                outcomes.append(outcome_of(admit()))
            except TailraceError as error:
                outcomes.append((type(error), str(error)))
        assert outcomes[0] == outcomes[1]
        assert [fast.next_offset(each) for each in PARTITIONS] == [general.next_offset(each) for each in PARTITIONS]


def test_one_batch_and_nothing_else_takes_the_fast_path() -> None:
    only = append(PARTITIONS[0], b"one")
    assert new_sequencer().admit(Changes(appends=[only]), ignore).only == only
    for changes in (
        Changes(appends=[only, only]),
        Changes(appends=[only], puts=[(b"key", b"value")]),
        Changes(appends=[only], trims=[(PARTITIONS[1], Offset(1))]),
        Changes(appends=[only], drop_prefixes=[b"prefix"]),
        Changes(puts=[(b"key", b"value")]),
    ):
        assert new_sequencer().admit(changes, ignore).only is None


def test_errors_name_the_topic() -> None:
    sequencer = new_sequencer()
    with pytest.raises(SequencingError, match="partition 1 of 'orders': the next offset is 5, the commit was built for 4"):
        sequencer.admit(Changes(appends=[append(PARTITIONS[1], b"x", base_offset=4)]), ignore)
    with pytest.raises(TailraceError, match="there is no partition 7 of 'orders'"):
        sequencer.next_offset(UNKNOWN)
    with pytest.raises(OffsetOutOfRangeError, match="partition 2 of 'orders' ends at offset 10 and can't start at 11"):
        sequencer.admit(Changes(trims=[(PARTITIONS[2], Offset(11))]), ignore)
    with pytest.raises(InvalidPartitionsError, match="'orders' has 3 partitions and can't have 2"):
        sequencer.admit(Changes(creates=[(TOPIC, 2)]), ignore)
