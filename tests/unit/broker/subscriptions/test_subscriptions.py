"""Which events a subscriber gets, in which order, and which it never sees."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from crc32c import crc32c

from tailrace.broker.broker import Broker
from tailrace.broker.subscriptions.subscriptions import Subscription
from tailrace.model.consume import EventBatch, LogEdge, StartCursor
from tailrace.model.errors import CursorOutOfRangeError, OverloadedError, StoreClosedError, UnreadableBatchError
from tailrace.model.ids import Cursor
from tailrace.model.limits import DEFAULT_LIMITS, Limits
from tailrace.model.names import parse_pattern
from tailrace.model.record import RawBatch, Record
from tailrace.store.memory import MemoryStore
from tailrace.wire.batch import CHECKED_FROM, HEADER_BYTES
from tailrace.wire.compression import Compression
from tailrace.wire.records import encode_batch
from tests.support.aio import on_loop, turns
from tests.support.brokers import append, append_unchecked, raw, running_broker
from tests.support.transactions import TOPIC, started

LATEST = LogEdge.LATEST
BEGINNING = LogEdge.BEGINNING
Event = tuple[int, str, bytes | None]


@asynccontextmanager
async def subscribed(broker: Broker, pattern: str, start: StartCursor = BEGINNING) -> AsyncIterator[Subscription]:
    subscription = broker.subscriptions.subscribe(parse_pattern(pattern, DEFAULT_LIMITS), start)
    try:
        yield subscription
    finally:
        subscription.close()


def events(found: "list[EventBatch] | tuple[EventBatch, ...]") -> list[Event]:
    return [(record.cursor, batch.topic, record.value) for batch in found for record in batch.records]


async def take(subscription: Subscription, count: int) -> list[Event]:
    """Return the next events, exactly `count` of them."""
    found: list[Event] = []
    while len(found) < count:
        batches = await subscription.read(20)
        assert batches, "nothing came in time"
        found += events(list(batches))
    assert len(found) == count
    return found


async def nothing(subscription: Subscription) -> None:
    assert await subscription.read(0) == []


async def write(broker: Broker, topic: str, *values: bytes, partition: int = 0) -> None:
    await append(broker, raw(topic, partition, *values))


@on_loop
async def test_events_of_all_matching_topics_come_in_the_order_of_the_log() -> None:
    async with running_broker() as broker:
        for name in ("orders.us", "orders.eu", "payments"):
            await broker.topics.create(name, 2)
        for number in range(12):
            name = ("orders.us", "orders.eu", "payments")[number % 3]
            await write(broker, name, b"%d" % number, partition=number % 2)
        expected = [(number, ("orders.us", "orders.eu")[number % 3], b"%d" % number) for number in range(12) if number % 3 < 2]
        async with subscribed(broker, "orders.*") as behind:
            assert await take(behind, 8) == expected
            await nothing(behind)
            await write(broker, "orders.eu", b"new")
            assert await take(behind, 1) == [(12, "orders.eu", b"new")]


@pytest.mark.parametrize("start", [LATEST, Cursor(3)])
def test_a_subscriber_at_the_end_gets_new_events(start: StartCursor) -> None:
    @on_loop
    async def run() -> None:
        async with running_broker() as broker:
            await broker.topics.create("a")
            await write(broker, "a", b"0", b"1", b"2")
            async with subscribed(broker, "a", start) as subscription:
                waiting = asyncio.ensure_future(subscription.read(20))
                await turns(5)
                await write(broker, "a", b"3", b"4")
                assert events(list(await waiting)) == [(3, "a", b"3"), (4, "a", b"4")]
                assert subscription.position == 5

    run()


@pytest.mark.parametrize("cursor", range(7))
def test_a_subscription_resumes_at_any_cursor_also_inside_a_batch(cursor: int) -> None:
    @on_loop
    async def run() -> None:
        async with running_broker() as broker:
            await broker.topics.create("a")
            await write(broker, "a", b"0", b"1", b"2")
            await write(broker, "a", b"3", b"4", b"5")
            async with subscribed(broker, ">", Cursor(cursor)) as subscription:
                assert await take(subscription, 6 - cursor) == [(at, "a", b"%d" % at) for at in range(cursor, 6)]

    run()


@on_loop
async def test_two_subscribers_at_the_end_get_the_same_object() -> None:
    async with running_broker() as broker:
        await broker.topics.create("a")
        async with subscribed(broker, "a", LATEST) as one, subscribed(broker, ">", LATEST) as other:
            reads = [asyncio.ensure_future(each.read(20)) for each in (one, other)]
            await turns(5)
            await write(broker, "a", b"0")
            ((mine,), (yours,)) = await asyncio.gather(*reads)
            assert mine is yours


@on_loop
async def test_topics_made_later_are_included_and_deleted_ones_are_not_shown() -> None:
    async with running_broker() as broker:
        await broker.topics.create("a.old")
        await write(broker, "a.old", b"gone")
        async with subscribed(broker, "a.>", LATEST) as subscription:
            waiting = asyncio.ensure_future(subscription.read(20))
            await turns(5)
            await broker.topics.create("a.new")
            await write(broker, "a.new", b"here")
            assert events(list(await waiting)) == [(1, "a.new", b"here")]
        await broker.topics.delete("a.old")
        async with subscribed(broker, "a.>") as subscription:
            assert await take(subscription, 1) == [(1, "a.new", b"here")]


@on_loop
async def test_a_name_may_be_an_alias_and_a_wildcard_may_not() -> None:
    async with running_broker() as broker:
        await broker.topics.create("a.b", alias="c.d")
        await write(broker, "a.b", b"0")
        async with subscribed(broker, "c.d") as by_alias, subscribed(broker, "c.*") as by_pattern:
            assert await take(by_alias, 1) == [(0, "a.b", b"0")]
            await nothing(by_pattern)
            await broker.topics.alter("a.b", alias=None)
            await write(broker, "a.b", b"1")
            await nothing(by_alias)


@on_loop
async def test_events_that_do_not_match_only_move_the_position() -> None:
    async with running_broker() as broker:
        await broker.topics.create("a")
        await broker.topics.create("b")
        async with subscribed(broker, "a", LATEST) as subscription:
            waiting = asyncio.ensure_future(subscription.read(0.05))
            await turns(5)
            await write(broker, "b", b"0", b"1")
            assert await waiting == []
            assert subscription.position == 2


@on_loop
async def test_open_transactions_block_later_events_and_aborted_ones_are_never_sent() -> None:
    async with running_broker() as broker:
        await broker.topics.create(TOPIC, 2)
        await broker.topics.create("other")
        producer = await started(broker)
        async with subscribed(broker, ">", LATEST) as tail, subscribed(broker, "other", LATEST) as untouched:
            await producer.write(0, b"aborted")
            await write(broker, "other", b"after")
            assert await take(untouched, 1) == [(1, "other", b"after")]
            await nothing(tail)
            waiting = asyncio.ensure_future(tail.read(20))
            await turns(5)
            await producer.abort()
            assert events(list(await waiting)) == [(1, "other", b"after")]
            await producer.write(1, b"committed")
            await write(broker, "other", b"last")
            await nothing(tail)
            await producer.commit()
            expected = [(3, TOPIC, b"committed"), (4, "other", b"last")]
            assert await take(tail, 2) == expected
        async with subscribed(broker, ">") as behind:
            assert await take(behind, 3) == [(1, "other", b"after"), *expected]


@on_loop
async def test_a_transaction_whose_topic_is_deleted_blocks_nobody() -> None:
    async with running_broker() as broker:
        await broker.topics.create(TOPIC)
        await broker.topics.create("other")
        producer = await started(broker)
        async with subscribed(broker, ">", LATEST) as subscription:
            await producer.write(0, b"open")
            await write(broker, "other", b"after")
            waiting = asyncio.ensure_future(subscription.read(20))
            await turns(5)
            assert not waiting.done()
            await broker.topics.delete(TOPIC)
            assert events(list(await waiting)) == [(1, "other", b"after")]


@on_loop
async def test_a_subscriber_behind_the_tail_reads_the_log_and_misses_nothing() -> None:
    limits = Limits(subscription_tail_bytes=2_000)
    async with running_broker(MemoryStore(limits=limits), limits=limits) as broker:
        await broker.topics.create("a")
        async with subscribed(broker, "a", LATEST) as slow, subscribed(broker, "a", LATEST) as quick:
            for number in range(20):
                await write(broker, "a", b"%d" % number)
                assert await take(quick, 1) == [(number, "a", b"%d" % number)]
            assert await take(slow, 20) == [(number, "a", b"%d" % number) for number in range(20)]


@pytest.mark.parametrize(("room", "scans"), [(16_000_000, 1), (0, 5)])
def test_batches_that_were_read_and_not_sent_are_kept_if_there_is_memory(room: int, scans: int) -> None:
    limits = Limits(subscription_ahead_bytes=room)

    @on_loop
    async def run() -> None:
        async with running_broker(MemoryStore(limits=limits), limits=limits) as broker:
            await broker.topics.create("a")
            for number in range(30):
                await write(broker, "a", b"%10d" % number * 1_000)
            calls = []
            scan = broker.subscriptions.scan
            broker.subscriptions.scan = lambda *asked: calls.append(asked) or scan(*asked)  # type: ignore[func-returns-value,method-assign]
            async with subscribed(broker, "a") as subscription:
                first = events(list(await subscription.read(20)))
                assert 0 < len(first) < 30
                assert 0 < broker.subscriptions.ahead_bytes <= room or room == 0
                rest = await take(subscription, 30 - len(first))
                assert [cursor for cursor, _, _ in first + rest] == list(range(30))
                assert len(calls) == scans
            async with subscribed(broker, "a") as subscription:
                await subscription.read(20)
            assert broker.subscriptions.ahead_bytes == 0

    run()


@on_loop
async def test_commits_that_did_not_pass_the_tail_are_read_from_the_log() -> None:
    async with running_broker() as broker:
        await broker.topics.create("a")
        async with subscribed(broker, "a", LATEST) as subscription:
            waiting = asyncio.ensure_future(subscription.read(20))
            await turns(5)
            watcher = broker.committer._observer
            broker.committer.watch(None)
            await write(broker, "a", b"unseen")
            broker.committer.watch(watcher)
            await write(broker, "a", b"seen")
            found = events(list(await waiting))
            found += await take(subscription, 2 - len(found))
            assert found == [(0, "a", b"unseen"), (1, "a", b"seen")]


@on_loop
async def test_a_failing_watcher_delays_no_response(caplog: pytest.LogCaptureFixture) -> None:
    def fail(*_: object) -> None:
        raise KeyError("mine")

    async with running_broker() as broker:
        await broker.topics.create("a")
        broker.committer.watch(fail)
        await write(broker, "a", b"0")
        await write(broker, "a", b"1")
    assert caplog.text.count("KeyError: 'mine'") == 2


@on_loop
async def test_decoded_parts_count_in_the_memory_of_the_tail() -> None:
    limits = Limits(subscription_tail_bytes=100_000)
    async with running_broker(MemoryStore(limits=limits), limits=limits) as broker:
        await broker.topics.create("a")
        records = [Record(None, b"x" * 1_000, (), 1_000) for _ in range(1_000)]
        async with subscribed(broker, "a", LATEST) as subscription:
            for _ in range(3):
                await append(broker, RawBatch("a", 0, encode_batch(records, codec=Compression.ZSTD)))
                assert len(await take(subscription, 1_000)) == 1_000
                assert 0 <= broker.subscriptions._tail._kept_bytes <= limits.subscription_tail_bytes


@pytest.mark.parametrize("codec", [Compression.NONE, Compression.ZSTD])
def test_a_large_batch_comes_in_small_parts(codec: Compression) -> None:
    @on_loop
    async def run() -> None:
        async with running_broker() as broker:
            await broker.topics.create("a")
            records = [Record(None, b"%d" % number, (), 1_000) for number in range(3_000)]
            await append(broker, RawBatch("a", 0, encode_batch(records, codec=codec)))
            async with subscribed(broker, "a") as subscription:
                first = await subscription.read(20)
                assert max(len(batch.records) for batch in first) <= 500
                rest = await take(subscription, 3_000 - len(events(list(first))))
            assert [value for _, _, value in events(list(first)) + rest] == [record.value for record in records]

    run()


@on_loop
async def test_records_that_can_not_be_decoded_are_reported_with_the_place_to_go_on() -> None:
    async with running_broker() as broker:
        await broker.topics.create("a")
        await write(broker, "a", b"0")
        await append_unchecked(broker, RawBatch("a", 0, garbled(encode_batch([Record(None, b"x" * 100, (), 1_000)]))))
        await write(broker, "a", b"2")
        async with subscribed(broker, "a") as subscription:
            assert await take(subscription, 1) == [(0, "a", b"0")]
            with pytest.raises(UnreadableBatchError, match="at cursor 2"):
                await subscription.read(20)
        async with subscribed(broker, "a", Cursor(2)) as subscription:
            assert await take(subscription, 1) == [(2, "a", b"2")]


def garbled(batch: bytearray) -> bytearray:
    """Return the batch with garbage for records and a correct checksum."""
    batch[HEADER_BYTES] = 0x7F
    batch[CHECKED_FROM - 4 : CHECKED_FROM] = crc32c(memoryview(batch)[CHECKED_FROM:]).to_bytes(4)
    return batch


@on_loop
async def test_a_cursor_beyond_the_end_is_rejected_with_the_end() -> None:
    async with running_broker() as broker:
        await broker.topics.create("a")
        await write(broker, "a", b"0")
        with pytest.raises(CursorOutOfRangeError, match=r"cursor 2 .* ends at 1") as refused:
            broker.subscriptions.subscribe(parse_pattern("a", DEFAULT_LIMITS), Cursor(2))
        assert refused.value.end == 1
        assert broker.subscriptions.subscribers == 0


@on_loop
async def test_the_number_of_subscribers_is_bounded() -> None:
    async with running_broker(limits=Limits(subscribers=1)) as broker:
        async with subscribed(broker, "a"):
            with pytest.raises(OverloadedError, match="subscribers"):
                broker.subscriptions.subscribe(parse_pattern("b", DEFAULT_LIMITS), LATEST)
        async with subscribed(broker, "b"):
            assert broker.subscriptions.subscribers == 1


@on_loop
async def test_closing_the_broker_wakes_waiting_subscribers() -> None:
    async with running_broker() as broker:
        await broker.topics.create("a")
        async with subscribed(broker, "a") as subscription:
            waiting = asyncio.ensure_future(subscription.read(20))
            await turns(5)
            await broker.close()
            with pytest.raises(StoreClosedError):
                await waiting
