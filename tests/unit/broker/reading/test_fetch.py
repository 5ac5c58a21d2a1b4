import asyncio
import threading
from concurrent.futures import Future
from typing import Any

import pytest

from tailrace.model.commit import Append, Changes, FetchedBatches, OffsetBounds
from tailrace.model.consume import PartitionOffset
from tailrace.model.errors import (
    InvalidRequestError,
    OffsetOutOfRangeError,
    OverloadedError,
    StoreClosedError,
    UnknownPartitionError,
    UnknownTopicError,
)
from tailrace.model.fetch import PartitionBatches
from tailrace.model.ids import Offset, PartitionId
from tailrace.model.limits import KIB, MIB, Limits
from tailrace.model.record import Message
from tailrace.store.memory import MemoryStore
from tests.support.aio import on_loop, turns, until
from tests.support.brokers import CountingStore, GatedStore, append, options, raw, running_broker
from tests.support.clocks import ManualClock
from tests.support.fetches import BATCH_BYTES, LONG_MS, at, settled_in, values, waiting


@on_loop
async def test_what_is_there_is_returned_at_once() -> None:
    async with running_broker() as broker:
        await broker.topics.create("t", 2)
        await append(broker, raw("t", 0, b"a", b"b"))
        await append(broker, raw("t", 0, b"c"))
        await append(broker, raw("t", 1, b"d"))
        answers = await broker.fetcher.fetch([at(0), at(0, 1), at(2)], max_wait_ms=LONG_MS)
        assert values(answers) == [[b"a", b"b", b"c"], [b"d"], [b"c"]]
        assert [answer.bounds for answer in answers] == [(0, 3), (0, 1), (0, 3)]


@on_loop
async def test_without_a_wait_an_empty_answer_comes_at_once() -> None:
    async with running_broker() as broker:
        await broker.topics.create("t")
        assert await broker.fetcher.fetch([at(0)]) == [
            PartitionBatches("t", 0, [], OffsetBounds(Offset(0), Offset(0)), None, Offset(0), (), [])
        ]


@on_loop
async def test_max_bytes_is_shared_and_the_first_batch_comes_however_large() -> None:
    async with running_broker() as broker:
        await broker.topics.create("t", 3)
        for partition in range(3):
            for number in range(3):
                await append(broker, raw("t", partition, b"%d" % number))
        everything = [at(0), at(0, 1), at(0, 2)]
        assert values(await broker.fetcher.fetch(everything, max_bytes=0)) == [[b"0"], [], []]
        assert values(await broker.fetcher.fetch(everything, max_bytes=BATCH_BYTES)) == [[b"0"], [], []]
        assert values(await broker.fetcher.fetch(everything, max_bytes=4 * BATCH_BYTES)) == [[b"0", b"1", b"2"], [b"0"], []]
        assert values(await broker.fetcher.fetch(everything, max_bytes=4 * BATCH_BYTES - 1)) == [[b"0", b"1", b"2"], [], []]
        assert values(await broker.fetcher.fetch([at(0, max_bytes=1), at(0, 1)])) == [[b"0"], [b"0", b"1", b"2"]]


PLACES = ["memory", "page cache", "disk"]


def put_into(store: GatedStore, place: str) -> None:
    """Have all batches read from there."""
    store.cold = place != "memory"
    store.in_page_cache = place == "page cache"


@on_loop
@pytest.mark.parametrize("place", PLACES)
async def test_a_batch_larger_than_the_limit_of_its_partition_comes_first_or_not_at_all(place: str) -> None:
    store = GatedStore()
    async with running_broker(store) as broker:
        await broker.topics.create("t", 3)
        for partition in range(3):
            await append(broker, raw("t", partition, b"a", b"b"))
        put_into(store, place)
        less = [at(0, partition, max_bytes=BATCH_BYTES) for partition in range(3)]
        assert values(await broker.fetcher.fetch(less)) == [[b"a", b"b"], [], []]
        assert values(await broker.fetcher.fetch([at(2), *less[1:]])) == [[], [b"a", b"b"], []]


@on_loop
async def test_batches_that_will_not_fit_into_the_answer_are_not_read_from_disk() -> None:
    class Watched(GatedStore):
        def fetch(self, partition: PartitionId, offset: Offset, max_bytes: int) -> FetchedBatches:
            read.append(partition.number)
            return super().fetch(partition, offset, max_bytes)

    read: list[int] = []
    store = Watched()
    async with running_broker(store) as broker:
        await broker.topics.create("t", 4)
        for partition in range(4):
            await append(broker, raw("t", partition, b"a", b"b"))
        store.cold = True
        await broker.fetcher.fetch([at(0, partition, max_bytes=BATCH_BYTES) for partition in (2, 0, 3)])
        assert read == [2]
        read.clear()
        starts = [PartitionOffset(partition, Offset(0)) for partition in range(4)]
        found = await broker.committed_reader.batches_of_many("t", starts, max_bytes=8 * BATCH_BYTES)
        assert [len(each.batches) for each in found.values()] == [1] * 4
        assert read == [0, 1, 2, 3]


@on_loop
async def test_one_fetch_is_bounded_by_the_server() -> None:
    async with running_broker(limits=Limits(fetch_bytes=2 * BATCH_BYTES)) as broker:
        await broker.topics.create("t")
        for number in range(5):
            await append(broker, raw("t", 0, b"%d" % number))
        assert values(await broker.fetcher.fetch([at(0)], max_bytes=10**9)) == [[b"0", b"1"]]


@on_loop
async def test_errors_are_returned_at_once_and_for_their_partition_only() -> None:
    async with running_broker() as broker:
        await broker.topics.create("t")
        await append(broker, raw("t", 0, b"v"))
        answers = await broker.fetcher.fetch(
            [at(0), at(5), at(0, 7), at(0, 0, "nowhere")], min_bytes=10**6, max_wait_ms=LONG_MS
        )
        assert [type(answer.error) for answer in answers] == [
            type(None),
            OffsetOutOfRangeError,
            UnknownPartitionError,
            UnknownTopicError,
        ]
        assert values(answers[:1]) == [[b"v"]]


@pytest.mark.parametrize("bounds", [{"min_bytes": -1}, {"max_bytes": -1}, {"max_wait_ms": -1}])
@on_loop
async def test_negative_bounds_are_rejected(bounds: dict[str, Any]) -> None:
    async with running_broker() as broker:
        await broker.topics.create("t")
        with pytest.raises(InvalidRequestError, match="can't be below 0"):
            await broker.fetcher.fetch([at(0)], **bounds)


@on_loop
async def test_what_is_not_in_memory_is_read_in_another_thread() -> None:
    class Watched(GatedStore):
        def fetch(self, partition: PartitionId, offset: Offset, max_bytes: int) -> FetchedBatches:
            threads.append(threading.current_thread().name)
            return super().fetch(partition, offset, max_bytes)

    threads: list[str] = []
    store = Watched()
    async with running_broker(store) as broker:
        await broker.topics.create("t")
        await append(broker, raw("t", 0, b"v"))
        await broker.fetcher.fetch([at(0)])
        store.cold = True
        assert values(await broker.fetcher.fetch([at(0)])) == [[b"v"]]
        assert threads[0] == threading.current_thread().name
        assert threads[1].startswith("tailrace-reader")
        (answer,) = await broker.fetcher.fetch([at(9)])
        assert isinstance(answer.error, OffsetOutOfRangeError)


@on_loop
async def test_partitions_on_disk_are_read_with_one_trip_to_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    store = GatedStore()
    async with running_broker(store) as broker:
        await broker.topics.create("t", 4)
        for partition in range(4):
            await append(broker, raw("t", partition, b"%d" % partition))
        store.cold = True
        threads = broker.threads._threads
        trips: list[object] = []
        submit = threads.submit

        def counted(*call: Any) -> Future[Any]:
            trips.append(call)
            return submit(*call)

        monkeypatch.setattr(threads, "submit", counted)
        assert values(await broker.fetcher.fetch([at(0, partition) for partition in (2, 0, 3)])) == [[b"2"], [b"0"], [b"3"]]
        assert len(trips) == 1


@on_loop
@pytest.mark.parametrize("place", PLACES)
async def test_partitions_share_max_bytes_and_tell_their_errors(place: str) -> None:
    store = GatedStore()
    async with running_broker(store) as broker:
        await broker.topics.create("t", 4)
        for partition in range(4):
            await append(broker, raw("t", partition, b"%d" % partition))
        put_into(store, place)
        small = [at(0, partition, max_bytes=BATCH_BYTES) for partition in range(4)]
        assert values(await broker.fetcher.fetch(small, max_bytes=2 * BATCH_BYTES)) == [[b"0"], [b"1"], [], []]
        large = [at(0, partition, max_bytes=3 * BATCH_BYTES) for partition in range(4)]
        assert values(await broker.fetcher.fetch(large, max_bytes=4 * BATCH_BYTES)) == [[b"0"], [b"1"], [b"2"], [b"3"]]
        good, bad = await broker.fetcher.fetch([at(0, 1), at(9, 2)])
        assert values([good]) == [[b"1"]]
        assert isinstance(bad.error, OffsetOutOfRangeError)


@on_loop
async def test_what_is_in_the_page_cache_is_read_without_a_thread() -> None:
    class Watched(GatedStore):
        def fetch_cached(
            self, partition: PartitionId, offset: Offset, max_bytes: int, *, at_least_one: bool = True
        ) -> FetchedBatches | None:
            threads.append(threading.current_thread().name)
            allowed.append((partition.number, max_bytes, at_least_one))
            return super().fetch_cached(partition, offset, max_bytes, at_least_one=at_least_one)

    threads: list[str] = []
    allowed: list[tuple[int, int, bool]] = []
    store = Watched()
    async with running_broker(store) as broker:
        await broker.topics.create("t", 4)
        for partition in range(3):
            await append(broker, raw("t", partition, b"%d" % partition))
        put_into(store, "page cache")
        wanted = [at(0, partition, max_bytes=3 * BATCH_BYTES) for partition in (2, 0, 1)]
        found = await broker.fetcher.fetch(wanted, max_bytes=2 * BATCH_BYTES)
        assert values(found) == [[b"2"], [b"0"], []]
        assert set(threads) == {threading.current_thread().name}
        assert allowed == [(2, 2 * BATCH_BYTES, True), (0, BATCH_BYTES, False)], "the last one has no room left"
        assert broker.threads.queued == 0


@on_loop
async def test_other_tasks_run_between_large_reads_from_the_page_cache() -> None:
    class Large(GatedStore):
        def fetch_cached(
            self, partition: PartitionId, offset: Offset, max_bytes: int, *, at_least_one: bool = True
        ) -> FetchedBatches | None:
            order.append(f"read {partition.number}")
            asyncio.get_running_loop().call_soon(order.append, "turn")
            return super().fetch_cached(partition, offset, max_bytes, at_least_one=at_least_one)

    order: list[str] = []
    store = Large()
    async with running_broker(store) as broker:
        await broker.topics.create("t", 4)
        for partition in range(4):
            for _ in range(3):
                await append(broker, raw("t", partition, bytes(900 * KIB)))
        put_into(store, "page cache")
        await broker.fetcher.fetch([at(0, partition, max_bytes=3 * MIB) for partition in range(4)])
        assert order[:3] == ["read 0", "read 1", "turn"], "after more than four megabytes"
        assert order.index("read 2") < order.index("read 3")
        await until(lambda: order.count("turn") == 4)


@on_loop
async def test_the_disk_begins_with_all_reads_before_the_first_is_waited_for() -> None:
    class Watched(GatedStore):
        def start_reading(self, partition: PartitionId, offset: Offset, max_bytes: int) -> None:
            order.append(("start", partition.number))

        def fetch(self, partition: PartitionId, offset: Offset, max_bytes: int) -> FetchedBatches:
            order.append(("fetch", partition.number))
            return super().fetch(partition, offset, max_bytes)

    order: list[tuple[str, int]] = []
    store = Watched()
    async with running_broker(store) as broker:
        await broker.topics.create("t", 3)
        for partition in range(3):
            await append(broker, raw("t", partition, b"%d" % partition))
        put_into(store, "disk")
        await broker.fetcher.fetch([at(0, partition, max_bytes=BATCH_BYTES) for partition in range(3)])
        assert order == [(call, number) for call in ("start", "fetch") for number in range(3)]


@on_loop
async def test_reads_that_wait_for_the_disk_are_bounded_and_the_loop_goes_on() -> None:
    class Slow(GatedStore):
        def fetch(self, partition: PartitionId, offset: Offset, max_bytes: int) -> FetchedBatches:
            released.wait(20)
            return super().fetch(partition, offset, max_bytes)

    released = threading.Event()
    store = Slow()
    async with running_broker(store, limits=Limits(read_threads=1, queued_reads=3)) as broker:
        await broker.topics.create("t")
        await append(broker, raw("t", 0, b"v"))
        store.cold = True
        reading = [asyncio.create_task(broker.fetcher.fetch([at(0)])) for _ in range(3)]
        await until(lambda: broker.threads.queued == 3)
        (answer,) = await broker.fetcher.fetch([at(0)])
        assert isinstance(answer.error, OverloadedError)
        assert "queued_reads" in str(answer.error)
        released.set()
        assert [values(await each) for each in reading] == [[[b"v"]]] * 3
        await until(lambda: broker.threads.queued == 0)


@on_loop
async def test_what_went_out_is_counted_by_topic() -> None:
    async with running_broker() as broker:
        await broker.topics.create("t", alias="tee")
        await append(broker, raw("t", 0, b"a", b"b"))
        await append(broker, raw("t", 0, b"c"))
        answers = await broker.fetcher.fetch([at(1, 0, "tee")])
        live = broker.topics.get("t")
        assert (live.messages_out, live.bytes_out) == (3, sum(len(batch) for batch in answers[0].batches))
        await broker.committed_reader.read("t", 0, Offset(1), max_records=10)
        assert live.messages_out == 5


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
        assert len(broker.waiting_fetches) == 0


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
        await broker.publisher.publish([Message("t", b"v")])
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
        answers = await broker.fetcher.fetch([at(0)], min_bytes=10_000, max_wait_ms=30)
        assert values(answers) == [[b"0"]]
        assert asyncio.get_running_loop().time() - began >= 0.03
        assert len(broker.waiting_fetches) == 0
        assert broker.waiting_fetches._waiting == {}


@on_loop
async def test_the_wait_is_bounded_by_the_server() -> None:
    async with running_broker(limits=Limits(fetch_wait_ms=20)) as broker:
        await broker.topics.create("t")
        assert values(await broker.fetcher.fetch([at(0)], max_wait_ms=10**9)) == [[]]


@on_loop
async def test_a_fetch_that_has_left_something_out_does_not_wait_for_more() -> None:
    async with running_broker() as broker:
        await broker.topics.create("t", 2)
        for partition in range(2):
            await append(broker, raw("t", partition, b"a", b"b"))
        wanted = [at(0, partition, max_bytes=BATCH_BYTES) for partition in range(2)]
        async with asyncio.timeout(LONG_MS / 2_000):
            assert values(await broker.fetcher.fetch(wanted, min_bytes=10_000, max_wait_ms=LONG_MS)) == [[b"a", b"b"], []]


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
async def test_a_reader_that_retention_overtakes_while_it_waits_gets_an_error() -> None:
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
        assert len(broker.waiting_fetches) == 0
        assert broker.waiting_fetches._waiting == {}


@on_loop
async def test_the_number_of_waiters_is_bounded() -> None:
    async with running_broker(limits=Limits(fetch_waiters=2)) as broker:
        await broker.topics.create("t")
        fetches = [waiting(broker, at(0)) for _ in range(2)]
        await settled_in(broker, 2)
        with pytest.raises(OverloadedError, match="fetch_waiters"):
            await broker.fetcher.fetch([at(0)], max_wait_ms=LONG_MS)
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
            await broker.fetcher.fetch([at(0)])


@on_loop
async def test_records_in_flight_are_not_seen() -> None:
    store = GatedStore()
    async with running_broker(store) as broker:
        await broker.topics.create("t")
        store.close_gate()
        appending = broker.appender.append([raw("t", 0, b"v")])
        fetching = waiting(broker, at(0))
        await settled_in(broker)
        assert not fetching.done()
        store.open_gate()
        await appending
        assert values(await fetching) == [[b"v"]]


@on_loop
async def test_a_commit_between_the_reading_and_the_waiting_is_not_missed() -> None:
    class Sneaky(MemoryStore):
        """Commits a record right after a read."""

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
        assert values(await broker.fetcher.fetch([at(0)], max_wait_ms=LONG_MS)) == [[b"sneaked in"]]


@on_loop
async def test_a_decoded_read_waits_too() -> None:
    async with running_broker() as broker:
        await broker.topics.create("t")
        reading = asyncio.create_task(broker.committed_reader.read("t", 0, Offset(0), max_records=10, max_wait_ms=LONG_MS))
        await settled_in(broker)
        await broker.publisher.publish([Message("t", b"v")])
        assert [record.value for record in (await reading).records] == [b"v"]
