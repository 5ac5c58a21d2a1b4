import asyncio

import pytest

from tailrace.broker import keys
from tailrace.broker.broker import Broker
from tailrace.model.errors import (
    InvalidGroupNameError,
    LimitExceededError,
    OffsetOutOfRangeError,
    OffsetRegressionError,
    StorageFullError,
    UnknownGroupError,
    UnknownPartitionError,
    UnknownTopicError,
)
from tailrace.model.group import CommittedOffset, Lag
from tailrace.model.ids import Offset
from tailrace.model.limits import Limits
from tailrace.store.memory import MemoryStore
from tests.support.aio import on_loop, turns
from tests.support.brokers import GatedStore, append, options, raw, running_broker
from tests.support.clocks import ManualClock
from tests.support.offsets import up_to

NOW = ManualClock().now_ms()


async def fill(broker: Broker, topic: str = "t", partitions: int = 2, records: int = 10) -> None:
    await broker.topics.create(topic, partitions)
    for partition in range(partitions):
        await append(broker, raw(topic, partition, *[b""] * records))


@on_loop
async def test_an_offset_is_committed_with_all_that_belongs_to_it() -> None:
    async with running_broker() as broker:
        await fill(broker)
        assert broker.offsets.committed("g", "t", 1) is None
        await broker.offsets.commit("g", [up_to("t", 1, 7, leader_epoch=3, metadata="näher")])
        assert broker.offsets.committed("g", "t", 1) == CommittedOffset("t", 1, Offset(7), 3, "näher", NOW)
        assert broker.offsets.committed("g", "t", 0) is None
        assert broker.offsets.committed("other", "t", 1) is None


@on_loop
async def test_offsets_of_one_commit_share_a_frame_and_are_all_or_nothing() -> None:
    store = MemoryStore()
    async with running_broker(store) as broker:
        await fill(broker)
        commits = store.stats().commits
        await broker.offsets.commit("g", [up_to("t", 0, 5), up_to("t", 1, 6)])
        assert store.stats().commits == commits + 1
        with pytest.raises(OffsetRegressionError):
            await broker.offsets.commit("g", [up_to("t", 0, 9), up_to("t", 1, 1)])
        assert [each.offset for each in broker.offsets.committed_by("g")] == [5, 6]


@on_loop
async def test_an_offset_never_moves_back_unless_it_is_reset() -> None:
    async with running_broker() as broker:
        await fill(broker)
        await broker.offsets.commit("g", [up_to("t", 0, 5)])
        await broker.offsets.commit("g", [up_to("t", 0, 5)])
        with pytest.raises(OffsetRegressionError, match=r"has committed 5 .* can't go back to 4"):
            await broker.offsets.commit("g", [up_to("t", 0, 4)])
        await broker.offsets.commit("g", [up_to("t", 0, 0)], reset=True)
        committed = broker.offsets.committed("g", "t", 0)
        assert committed is not None
        assert committed.offset == 0


@on_loop
async def test_within_one_commit_the_later_offset_of_a_partition_may_not_be_lower() -> None:
    async with running_broker() as broker:
        await fill(broker)
        with pytest.raises(OffsetRegressionError):
            await broker.offsets.commit("g", [up_to("t", 0, 5), up_to("t", 0, 4)])


@on_loop
async def test_commits_in_flight_see_each_other() -> None:
    store = GatedStore()
    async with running_broker(store) as broker:
        await fill(broker)
        store.close_gate()
        first = asyncio.ensure_future(broker.offsets.commit("g", [up_to("t", 0, 5)]))
        await turns()
        with pytest.raises(OffsetRegressionError):
            await broker.offsets.commit("g", [up_to("t", 0, 4)])
        assert broker.offsets.committed("g", "t", 0) is None
        store.open_gate()
        await first


@pytest.mark.parametrize("offset", [-1, 11])
@on_loop
async def test_offsets_outside_the_partition_are_rejected(offset: int) -> None:
    async with running_broker() as broker:
        await fill(broker)
        with pytest.raises(OffsetOutOfRangeError, match=f"offset {offset} .* ends at 10") as refused:
            await broker.offsets.commit("g", [up_to("t", 0, offset)], reset=True)
        assert (refused.value.start, refused.value.end) == (0, 10)
        assert broker.offsets.groups == []


@on_loop
async def test_the_end_itself_can_be_committed() -> None:
    async with running_broker() as broker:
        await fill(broker)
        await broker.offsets.commit("g", [up_to("t", 0, 10)])
        assert broker.offsets.lag("g") == [Lag("t", 0, Offset(10), Offset(10), 0)]


@on_loop
async def test_unknown_partitions_and_invalid_names_are_rejected() -> None:
    async with running_broker() as broker:
        await fill(broker)
        with pytest.raises(UnknownTopicError):
            await broker.offsets.commit("g", [up_to("nowhere", 0, 0)])
        with pytest.raises(UnknownPartitionError):
            await broker.offsets.commit("g", [up_to("t", 9, 0)])
        for name in ("", "x" * 256, "\ud800"):
            with pytest.raises(InvalidGroupNameError):
                await broker.offsets.commit(name, [up_to("t", 0, 0)])
        with pytest.raises(LimitExceededError, match="offset_metadata_bytes"):
            await broker.offsets.commit("g", [up_to("t", 0, 0, metadata="m" * 4097)])
        assert broker.offsets.groups == []


@on_loop
async def test_groups_are_limited_and_known_groups_go_on() -> None:
    async with running_broker(limits=Limits(groups=2)) as broker:
        await fill(broker)
        for group in ("a", "b"):
            await broker.offsets.commit(group, [up_to("t", 0, 1)])
        with pytest.raises(LimitExceededError, match="as many as groups allows"):
            await broker.offsets.commit("c", [up_to("t", 0, 1)])
        await broker.offsets.commit("a", [up_to("t", 0, 2)])
        await broker.offsets.delete_group("b")
        await broker.offsets.commit("c", [up_to("t", 0, 1)])
        assert broker.offsets.groups == ["a", "c"]


@on_loop
async def test_groups_in_flight_count() -> None:
    store = GatedStore()
    async with running_broker(store, limits=Limits(groups=1)) as broker:
        await fill(broker)
        store.close_gate()
        first = asyncio.ensure_future(broker.offsets.commit("a", [up_to("t", 0, 1)]))
        same = asyncio.ensure_future(broker.offsets.commit("a", [up_to("t", 1, 1)]))
        await turns()
        with pytest.raises(LimitExceededError):
            await broker.offsets.commit("b", [up_to("t", 0, 1)])
        store.fail()
        for failing in (first, same):
            with pytest.raises(StorageFullError):
                await failing
        store.open_gate()
        await broker.offsets.commit("b", [up_to("t", 0, 1)])
        assert broker.offsets.groups == ["b"]


@on_loop
async def test_offsets_and_groups_survive_a_restart() -> None:
    store = MemoryStore()
    async with running_broker(store) as broker:
        await fill(broker)
        await broker.offsets.commit("g", [up_to("t", 0, 3)])
    async with running_broker(store) as broker:
        assert broker.offsets.groups == ["g"]
        with pytest.raises(OffsetRegressionError):
            await broker.offsets.commit("g", [up_to("t", 0, 2)])


@on_loop
async def test_offsets_and_lag_are_listed_by_topic_and_partition() -> None:
    async with running_broker() as broker:
        await fill(broker, "b", 1)
        await fill(broker, "a", 2)
        await broker.offsets.commit("g", [up_to("b", 0, 4), up_to("a", 1, 9), up_to("a", 0, 0)])
        await broker.offsets.commit("gg", [up_to("a", 0, 10)])
        assert [(each.topic, each.partition, each.offset) for each in broker.offsets.committed_by("g")] == [
            ("a", 0, 0),
            ("a", 1, 9),
            ("b", 0, 4),
        ]
        assert [each.lag for each in broker.offsets.lag("g")] == [10, 1, 6]
        assert broker.offsets.total_lags() == {("g", "a"): 11, ("g", "b"): 6, ("gg", "a"): 0}


@on_loop
async def test_an_offset_below_the_start_has_no_lag_beyond_the_records_that_were() -> None:
    async with running_broker() as broker:
        await fill(broker)
        await broker.offsets.commit("g", [up_to("t", 0, 2)])
        await broker.topics.alter("t", options(retention_max_bytes=1))
        await broker.retention.run_once()
        assert broker.offsets.lag("g") == [Lag("t", 0, Offset(2), Offset(10), 8)]


@on_loop
async def test_deleting_a_group_deletes_its_offsets_in_all_topics_and_no_others() -> None:
    store = MemoryStore()
    async with running_broker(store) as broker:
        await fill(broker, "a", 1)
        await fill(broker, "b", 1)
        for group in ("g", "gg"):
            await broker.offsets.commit(group, [up_to("a", 0, 1), up_to("b", 0, 2)])
        await broker.offsets.delete_group("g")
        assert broker.offsets.groups == ["gg"]
        assert broker.offsets.committed_by("g") == []
        assert len(broker.offsets.committed_by("gg")) == 2
        assert len(store.range(keys.OFFSETS)) == 2
        with pytest.raises(UnknownGroupError, match="'g'"):
            await broker.offsets.delete_group("g")


@on_loop
async def test_a_commit_after_a_deletion_in_flight_creates_the_group_again() -> None:
    store = GatedStore()
    async with running_broker(store) as broker:
        await fill(broker)
        await broker.offsets.commit("g", [up_to("t", 0, 9)])
        store.close_gate()
        deleting = asyncio.ensure_future(broker.offsets.delete_group("g"))
        await turns()
        committing = asyncio.ensure_future(broker.offsets.commit("g", [up_to("t", 0, 1)]))
        await turns()
        store.open_gate()
        await asyncio.gather(deleting, committing)
        assert broker.offsets.groups == ["g"]
        assert [each.offset for each in broker.offsets.committed_by("g")] == [1]
        assert store.get(keys.group_key("g")) is not None


@on_loop
async def test_the_offsets_of_a_group_in_one_topic_can_be_deleted() -> None:
    async with running_broker() as broker:
        await fill(broker, "a", 1)
        await fill(broker, "b", 1)
        await broker.offsets.commit("g", [up_to("a", 0, 1), up_to("b", 0, 2)])
        await broker.offsets.delete_offsets("g", "a")
        assert [each.topic for each in broker.offsets.committed_by("g")] == ["b"]


@on_loop
async def test_a_commit_of_nothing_makes_no_group() -> None:
    async with running_broker() as broker:
        await broker.offsets.commit("g", [])
        assert broker.offsets.groups == []


@on_loop
async def test_lags_of_many_offsets_are_read_in_pages() -> None:
    async with running_broker() as broker:
        await broker.topics.create("t", 1_500)
        await broker.offsets.commit("g", [up_to("t", number, 0) for number in range(1_500)])
        await append(broker, raw("t", 1_499, b"1", b"2"))
        assert broker.offsets.total_lags() == {("g", "t"): 2}


@on_loop
async def test_a_commit_that_waited_while_its_topic_was_deleted_is_rejected_and_leaves_nothing() -> None:
    store = GatedStore()
    async with running_broker(store) as broker:
        await fill(broker)
        await broker.topics.create("other")
        topic_id = broker.topics.get("t").topic.id
        store.close_gate()
        store.room = 1
        in_flight = broker.appender.append([raw("other", 0, b"")])
        await turns()
        waiting = broker.appender.append([raw("other", 0, b"")])
        await turns()
        deleting = asyncio.ensure_future(broker.topics.delete("t"))
        await turns()
        committing = asyncio.ensure_future(broker.offsets.commit("g", [up_to("t", 0, 1)]))
        await turns()
        store.open_gate()
        await asyncio.gather(in_flight, waiting, deleting)
        with pytest.raises(UnknownTopicError, match="has been deleted"):
            await committing
        assert store.range(keys.offsets_of_topic(topic_id)) == []


@on_loop
async def test_a_group_whose_first_commit_was_cancelled_does_not_count() -> None:
    store = GatedStore()
    async with running_broker(store, limits=Limits(groups=1)) as broker:
        await fill(broker)
        store.close_gate()
        store.room = 0
        impatient = asyncio.ensure_future(broker.offsets.commit("a", [up_to("t", 0, 1)]))
        await turns()
        impatient.cancel()
        await turns()
        store.open_gate()
        await broker.offsets.commit("b", [up_to("t", 0, 1)])
        assert broker.offsets.groups == ["b"]
