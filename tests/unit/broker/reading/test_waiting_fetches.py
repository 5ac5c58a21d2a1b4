import asyncio

import pytest

from tailrace.model.commit import Append, Changes, FetchedBatches
from tailrace.model.errors import (
    OffsetOutOfRangeError,
    OverloadedError,
    StoreClosedError,
    UnknownTopicError,
)
from tailrace.model.ids import Offset, PartitionId
from tailrace.model.limits import Limits
from tailrace.model.record import Message
from tailrace.store.memory import MemoryStore
from tests.support.aio import on_loop, turns
from tests.support.brokers import CountingStore, GatedStore, append, options, raw, running_broker
from tests.support.clocks import ManualClock
from tests.support.fetches import BATCH_BYTES, LONG_MS, at, settled_in, values, waiting

NOW = ManualClock().now_ms()


@on_loop
async def test_a_waiting_fetch_is_answered_by_the_commit_it_waits_for() -> None:
    store = CountingStore()
    async with running_broker(store) as broker:
        await broker.topics.create("t", 2)
        fetching = waiting(broker, at(0), at(0, 1))
        await settled_in(broker)
        await append(broker, raw("t", 1, b"v"))
        assert values(await fetching) == [[], [b"v"]]
        assert store.fetches == 4
        assert len(broker._waiting_fetches) == 0


@on_loop
async def test_a_waiting_fetch_reads_nothing_until_it_is_woken() -> None:
    store = CountingStore()
    async with running_broker(store) as broker:
        await broker.topics.create("t")
        await broker.topics.create("other")
        fetching = waiting(broker, at(0))
        await settled_in(broker)
        await append(broker, raw("other", 0, b"x"))
        await turns()
        assert store.fetches == 1
        await broker.publish([Message("t", b"v")])
        await fetching
        assert store.fetches == 2


@on_loop
async def test_a_fetch_waits_until_min_bytes_have_come() -> None:
    store = CountingStore()
    async with running_broker(store) as broker:
        await broker.topics.create("t", 2)
        await append(broker, raw("t", 0, b"0"))
        fetching = waiting(broker, at(0), at(0, 1), min_bytes=3 * BATCH_BYTES)
        await settled_in(broker)
        await append(broker, raw("t", 1, b"1"))
        await turns()
        assert not fetching.done()
        assert store.fetches == 2
        await append(broker, raw("t", 0, b"2"))
        assert values(await fetching) == [[b"0", b"2"], [b"1"]]


@on_loop
async def test_when_time_is_up_what_is_there_is_returned() -> None:
    async with running_broker() as broker:
        await broker.topics.create("t")
        await append(broker, raw("t", 0, b"0"))
        began = asyncio.get_running_loop().time()
        answers = await broker.fetch([at(0)], min_bytes=10_000, max_wait_ms=30)
        assert values(answers) == [[b"0"]]
        assert asyncio.get_running_loop().time() - began >= 0.03
        assert len(broker._waiting_fetches) == 0
        assert broker._waiting_fetches._waiting == {}


@on_loop
async def test_the_wait_is_bounded_by_the_server() -> None:
    async with running_broker(limits=Limits(fetch_wait_ms=20)) as broker:
        await broker.topics.create("t")
        assert values(await broker.fetch([at(0)], max_wait_ms=10**9)) == [[]]


@on_loop
async def test_a_fetch_that_has_left_something_out_does_not_wait_for_more() -> None:
    async with running_broker() as broker:
        await broker.topics.create("t", 2)
        for partition in range(2):
            await append(broker, raw("t", partition, b"a", b"b"))
        wanted = [at(0, partition, max_bytes=BATCH_BYTES) for partition in range(2)]
        async with asyncio.timeout(LONG_MS / 2_000):
            assert values(await broker.fetch(wanted, min_bytes=10_000, max_wait_ms=LONG_MS)) == [[b"a", b"b"], []]


@on_loop
async def test_deleting_a_topic_wakes_its_readers_with_the_error() -> None:
    async with running_broker() as broker:
        await broker.topics.create("t", 2)
        await broker.topics.create("other")
        fetching = waiting(broker, at(0, 1), at(0, 0, "other"))
        await settled_in(broker)
        await broker.topics.delete("t")
        answers = await fetching
        assert isinstance(answers[0].error, UnknownTopicError)
        assert answers[1].error is None


@on_loop
async def test_a_new_topic_of_the_same_name_is_not_taken_for_the_old_one() -> None:
    async with running_broker() as broker:
        await broker.topics.create("t")
        fetching = waiting(broker, at(0))
        await settled_in(broker)
        deleting = asyncio.ensure_future(broker.topics.delete("t"))
        making = asyncio.ensure_future(broker.topics.create("t"))
        await asyncio.gather(deleting, making)
        await append(broker, raw("t", 0, b"of the new topic"))
        (answer,) = await fetching
        assert isinstance(answer.error, UnknownTopicError)


@on_loop
async def test_a_reader_that_retention_overtakes_while_it_waits_is_told() -> None:
    clock = ManualClock()
    async with running_broker(clock=clock) as broker:
        await broker.topics.create("t", options=options(retention_seconds=60))
        await append(broker, raw("t", 0, b"0", b"1"))
        fetching = waiting(broker, at(0), min_bytes=10_000)
        at_the_end = waiting(broker, at(2))
        await settled_in(broker, 2)
        clock.advance(61_000)
        await broker.retention.run_once()
        (answer,) = await fetching
        assert isinstance(answer.error, OffsetOutOfRangeError)
        assert (answer.error.start, answer.error.end) == (2, 2)
        await append(broker, raw("t", 0, b"2", timestamp=clock.now_ms()))
        assert values(await at_the_end) == [[b"2"]]


@on_loop
async def test_a_cancelled_fetch_leaves_nothing_behind() -> None:
    async with running_broker() as broker:
        await broker.topics.create("t", 50)
        fetches = [waiting(broker, *(at(0, number) for number in range(50))) for _ in range(20)]
        await settled_in(broker, 20)
        for fetching in fetches:
            fetching.cancel()
        await asyncio.gather(*fetches, return_exceptions=True)
        assert len(broker._waiting_fetches) == 0
        assert broker._waiting_fetches._waiting == {}


@on_loop
async def test_the_number_of_waiters_is_bounded() -> None:
    async with running_broker(limits=Limits(fetch_waiters=2)) as broker:
        await broker.topics.create("t")
        fetches = [waiting(broker, at(0)) for _ in range(2)]
        await settled_in(broker, 2)
        with pytest.raises(OverloadedError, match="fetch_waiters"):
            await broker.fetch([at(0)], max_wait_ms=LONG_MS)
        await append(broker, raw("t", 0, b"v"))
        assert [values(await fetching) for fetching in fetches] == [[[b"v"]], [[b"v"]]]


@on_loop
async def test_closing_the_broker_wakes_all_who_wait() -> None:
    async with running_broker() as broker:
        await broker.topics.create("t")
        fetching = waiting(broker, at(0))
        await settled_in(broker)
        await broker.close()
        with pytest.raises(StoreClosedError):
            await fetching
        with pytest.raises(StoreClosedError):
            await broker.fetch([at(0)])


@on_loop
async def test_records_in_flight_are_not_seen() -> None:
    store = GatedStore()
    async with running_broker(store) as broker:
        await broker.topics.create("t")
        store.close_gate()
        appending = broker.append([raw("t", 0, b"v")])
        fetching = waiting(broker, at(0))
        await settled_in(broker)
        assert not fetching.done()
        store.open_gate()
        await appending
        assert values(await fetching) == [[b"v"]]


@on_loop
async def test_a_commit_between_the_reading_and_the_waiting_is_not_missed() -> None:
    class Sneaky(MemoryStore):
        """Commits a record right after it has been read."""

        sneak = False

        def fetch(self, partition: PartitionId, offset: Offset, max_bytes: int) -> FetchedBatches:
            found = super().fetch(partition, offset, max_bytes)
            if self.sneak:
                self.sneak = False
                batch = raw("t", 0, b"sneaked in").batch
                self.commit(Changes(appends=(Append(partition, batch, 1, NOW),)))
            return found

    store = Sneaky()
    async with running_broker(store) as broker:
        await broker.topics.create("t")
        store.sneak = True
        assert values(await broker.fetch([at(0)], max_wait_ms=LONG_MS)) == [[b"sneaked in"]]


@on_loop
async def test_a_decoded_read_waits_too() -> None:
    async with running_broker() as broker:
        await broker.topics.create("t")
        reading = asyncio.create_task(broker.read("t", 0, Offset(0), max_records=10, max_wait_ms=LONG_MS))
        await settled_in(broker)
        await broker.publish([Message("t", b"v")])
        assert [record.value for record in (await reading).records] == [b"v"]
