"""What was not copied yet stays, up to the limits, and what had to go is named."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.broker.broker import Broker
from tailrace.broker.retention import fair_shares
from tailrace.model.limits import DEFAULT_LIMITS, KIB
from tailrace.model.record import Message
from tailrace.store.memory import MemoryStore
from tests.support.aio import on_loop
from tests.support.brokers import append, bounds_of, options, raw, running_broker
from tests.support.clocks import ManualClock
from tests.support.shadows import created, report

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
ONE = len(raw("t", 0, b"v" * KIB).batch)
"""The size of a batch of `fill`."""


async def fill(broker: Broker, topic: str, count: int, clock: ManualClock | None = None) -> None:
    for _ in range(count):
        at = (clock or ManualClock()).now_ms()
        await append(broker, raw(topic, 0, b"v" * KIB, timestamp=at))


@on_loop
async def test_retention_waits_until_records_are_copied() -> None:
    async with running_broker() as broker:
        await broker.topics.create("app.a", options=options(retention_max_bytes=2 * ONE))
        await broker.topics.create("other", options=options(retention_max_bytes=2 * ONE))
        shadow = await created(broker)
        for topic in ("app.a", "other"):
            await fill(broker, topic, 10)
        assert await broker.retention.run_once() == 8
        assert (bounds_of(broker, "app.a").start, bounds_of(broker, "other").start) == (0, 8)
        assert broker.retention.held_bytes == 8 * ONE
        report(broker, shadow, app_a=5)
        await broker.retention.run_once()
        assert bounds_of(broker, "app.a").start == 5
        assert broker.retention.held_bytes == 3 * ONE
        report(broker, shadow, app_a=10)
        await broker.retention.run_once()
        assert bounds_of(broker, "app.a").start == 8
        assert broker.retention.held_bytes == 0


@on_loop
async def test_retention_by_time_waits_and_not_for_ever() -> None:
    clock = ManualClock()
    limits = msgspec.structs.replace(DEFAULT_LIMITS, shadow_retention_seconds=7200)
    async with running_broker(clock=clock, limits=limits) as broker:
        await broker.topics.create("app.a", options=options(retention_seconds=3600))
        await created(broker)
        await fill(broker, "app.a", 1, clock)
        clock.advance(HOUR_MS)
        await fill(broker, "app.a", 1, clock)
        clock.advance(2 * HOUR_MS - 1)
        assert await broker.retention.run_once() == 0
        clock.advance(1_001)
        assert await broker.retention.run_once() == 1
        assert bounds_of(broker, "app.a").start == 1


@on_loop
async def test_no_more_is_held_than_the_limit_and_each_topic_gets_its_share() -> None:
    limits = msgspec.structs.replace(DEFAULT_LIMITS, shadow_retention_bytes=10 * ONE)
    async with running_broker(limits=limits) as broker:
        for topic, count in (("app.a", 4), ("app.b", 20), ("app.c", 20)):
            await broker.topics.create(topic, options=options(retention_max_bytes=ONE))
            await fill(broker, topic, count)
        shadow = await created(broker)
        await broker.retention.run_once()
        left = {topic: 20 - bounds_of(broker, topic).start for topic in ("app.b", "app.c")}
        assert bounds_of(broker, "app.a").start == 0
        # Three are held for the first topic. Of the seven that are left each of the others gets half.
        assert all(4 <= count <= 5 for count in left.values())
        report(broker, shadow, app_a=0, app_b=2, app_c=20)
        status = broker.shadows.status(shadow)
        assert [one.lost_records for one in broker.shadow_holds.partitions(status)] == [0, 20 - left["app.b"] - 2, 0]


@on_loop
async def test_after_a_restart_nothing_goes_before_the_copying_was_heard_of() -> None:
    store = MemoryStore()
    async with running_broker(store) as broker:
        await broker.topics.create("app.a", options=options(retention_max_bytes=ONE))
        shadow = await created(broker)
        await fill(broker, "app.a", 10)
        report(broker, shadow, app_a=5)
    async with running_broker(store) as broker:
        assert await broker.retention.run_once() == 0
        report(broker, broker.shadows.get("prod"), app_a=5)
        assert await broker.retention.run_once() == 5


@on_loop
async def test_positions_of_a_topic_that_was_made_again_are_not_those_of_the_new_one() -> None:
    async with running_broker() as broker:
        await broker.topics.create("app.a", options=options(retention_max_bytes=ONE))
        shadow = await created(broker)
        await fill(broker, "app.a", 10)
        report(broker, shadow, app_a=10)
        await broker.topics.delete("app.a")
        await broker.topics.create("app.a", options=options(retention_max_bytes=ONE))
        await fill(broker, "app.a", 5)
        assert await broker.retention.run_once() == 0


@on_loop
async def test_the_slowest_of_several_shadows_counts_and_none_that_was_dropped() -> None:
    async with running_broker() as broker:
        await broker.topics.create("app.a", options=options(retention_max_bytes=ONE))
        await fill(broker, "app.a", 10)
        first, second = await created(broker), await created(broker, name="second", bootstrap="kafka-2:9092")
        report(broker, first, app_a=10)
        report(broker, second, app_a=3)
        assert await broker.retention.run_once() == 3
        await broker.shadows.drop("second")
        assert await broker.retention.run_once() == 6


@on_loop
async def test_a_shadow_from_kafka_holds_nothing() -> None:
    async with running_broker() as broker:
        await broker.topics.create("app.a", options=options(retention_max_bytes=ONE))
        await fill(broker, "app.a", 10)
        await created(broker, direction="from")
        assert await broker.retention.run_once() == 9


@on_loop
async def test_records_are_deleted_on_request_whatever_is_copied() -> None:
    async with running_broker() as broker:
        await broker.topics.create("app.a")
        await fill(broker, "app.a", 10)
        await created(broker)
        assert await broker.retention.delete_before("app.a", 0, None) == 10


async def _write(broker: Broker, key: bytes, *values: bytes | None) -> None:
    for value in values:
        await broker.publisher.publish([Message("app.a", value, key)])


@pytest.mark.parametrize("is_copied", [True, False], ids=["copied", "behind"])
@on_loop
async def test_a_tombstone_stays_until_it_is_copied(is_copied: bool) -> None:
    clock = ManualClock()
    limits = msgspec.structs.replace(DEFAULT_LIMITS, shadow_retention_seconds=3 * 24 * 3600)
    async with running_broker(clock=clock, limits=limits) as broker:
        await broker.topics.create("app.a", options=options(cleanup_policy="compact", min_dirty_percent=0))
        shadow = await created(broker)
        await _write(broker, b"a", b"1", None)
        await _write(broker, b"b", b"1", b"2")
        report(broker, shadow, app_a=4 if is_copied else 1)
        # What compaction supersedes may go: its key has a newer record, which is copied.
        await broker.compaction.run_once()
        assert await _keys(broker) == [b"a", b"b", b"b"]
        clock.advance(2 * DAY_MS)
        await _write(broker, b"b", b"3")
        await broker.compaction.run_once()
        assert (b"a" in await _keys(broker)) is not is_copied
        assert broker.shadows.get("prod").lost_deletions == ()


@on_loop
async def test_a_tombstone_that_waited_too_long_goes_and_the_shadow_says_so() -> None:
    clock = ManualClock()
    limits = msgspec.structs.replace(DEFAULT_LIMITS, shadow_retention_seconds=3 * 24 * 3600)
    async with running_broker(clock=clock, limits=limits) as broker:
        await broker.topics.create("app.a", options=options(cleanup_policy="compact", min_dirty_percent=0))
        shadow = await created(broker)
        await _write(broker, b"a", b"1", None)
        await _write(broker, b"b", b"1", b"2")
        report(broker, shadow, app_a=1)
        await broker.compaction.run_once()
        clock.advance(5 * DAY_MS)
        for value in (b"3", b"4"):
            await _write(broker, b"b", value)
            await broker.compaction.run_once()
        assert b"a" not in await _keys(broker)
        (lost,) = broker.shadows.get("prod").lost_deletions
        assert (lost.topic, lost.partition, lost.start) == ("app.a", 0, 1)
        (note,) = broker.shadows.status(broker.shadows.get("prod")).notes
        assert "deletions of keys in partition 0 of 'app.a', offsets 1 to 3, may have been compacted away" in note


async def _keys(broker: Broker) -> list[bytes | None]:
    start, end = bounds_of(broker, "app.a")
    read = await broker.committed_reader.read("app.a", 0, start, max_records=end - start)
    return [record.key for record in read.records]


@given(st.lists(st.integers(0, 1_000), max_size=20), st.integers(0, 5_000))
def test_shares_are_fair(wanted: list[int], budget: int) -> None:
    shares = fair_shares(wanted, budget)
    assert all(share <= want for share, want in zip(shares, wanted, strict=True))
    assert sum(shares) <= budget
    if sum(wanted) <= budget:
        assert shares == wanted
    else:
        # Nothing is left over but what can't be divided, and whoever got less than wanted got as much as anyone, but for that.
        assert sum(shares) > budget - max(1, len(wanted))
        least = min(share for share, want in zip(shares, wanted, strict=True) if share < want)
        assert all(share <= least + 1 for share in shares)
