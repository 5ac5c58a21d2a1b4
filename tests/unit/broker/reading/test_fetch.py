import asyncio
import threading
from concurrent.futures import Future
from typing import Any

import pytest

from tailrace.model.commit import FetchedBatches, OffsetBounds
from tailrace.model.consume import PartitionOffset
from tailrace.model.errors import (
    InvalidRequestError,
    OffsetOutOfRangeError,
    OverloadedError,
    UnknownPartitionError,
    UnknownTopicError,
)
from tailrace.model.fetch import PartitionBatches
from tailrace.model.ids import Offset, PartitionId
from tailrace.model.limits import Limits
from tests.support.aio import on_loop, until
from tests.support.brokers import GatedStore, append, raw, running_broker
from tests.support.fetches import BATCH_BYTES, LONG_MS, at, values


@on_loop
async def test_what_is_there_is_returned_at_once() -> None:
    async with running_broker() as broker:
        await broker.topics.create("t", 2)
        await append(broker, raw("t", 0, b"a", b"b"))
        await append(broker, raw("t", 0, b"c"))
        await append(broker, raw("t", 1, b"d"))
        answers = await broker.fetch([at(0), at(0, 1), at(2)], max_wait_ms=LONG_MS)
        assert values(answers) == [[b"a", b"b", b"c"], [b"d"], [b"c"]]
        assert [answer.bounds for answer in answers] == [(0, 3), (0, 1), (0, 3)]


@on_loop
async def test_without_patience_an_empty_answer_comes_at_once() -> None:
    async with running_broker() as broker:
        await broker.topics.create("t")
        assert await broker.fetch([at(0)]) == [
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
        assert values(await broker.fetch(everything, max_bytes=0)) == [[b"0"], [], []]
        assert values(await broker.fetch(everything, max_bytes=BATCH_BYTES)) == [[b"0"], [], []]
        assert values(await broker.fetch(everything, max_bytes=4 * BATCH_BYTES)) == [[b"0", b"1", b"2"], [b"0"], []]
        assert values(await broker.fetch(everything, max_bytes=4 * BATCH_BYTES - 1)) == [[b"0", b"1", b"2"], [], []]
        assert values(await broker.fetch([at(0, max_bytes=1), at(0, 1)])) == [[b"0"], [b"0", b"1", b"2"]]


@on_loop
@pytest.mark.parametrize("is_on_disk", [False, True])
async def test_a_batch_that_is_larger_than_its_partition_may_bring_comes_first_or_not_at_all(is_on_disk: bool) -> None:
    store = GatedStore()
    async with running_broker(store) as broker:
        await broker.topics.create("t", 3)
        for partition in range(3):
            await append(broker, raw("t", partition, b"a", b"b"))
        store.cold = is_on_disk
        less = [at(0, partition, max_bytes=BATCH_BYTES) for partition in range(3)]
        assert values(await broker.fetch(less)) == [[b"a", b"b"], [], []]
        assert values(await broker.fetch([at(2), *less[1:]])) == [[], [b"a", b"b"], []]


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
        await broker.fetch([at(0, partition, max_bytes=BATCH_BYTES) for partition in (2, 0, 3)])
        assert read == [2]
        read.clear()
        starts = [PartitionOffset(partition, Offset(0)) for partition in range(4)]
        found = await broker.committed_many("t", starts, max_bytes=8 * BATCH_BYTES)
        assert [len(each.batches) for each in found.values()] == [1] * 4
        assert read == [0, 1, 2, 3]


@on_loop
async def test_one_fetch_is_bounded_by_the_server() -> None:
    async with running_broker(limits=Limits(fetch_bytes=2 * BATCH_BYTES)) as broker:
        await broker.topics.create("t")
        for number in range(5):
            await append(broker, raw("t", 0, b"%d" % number))
        assert values(await broker.fetch([at(0)], max_bytes=10**9)) == [[b"0", b"1"]]


@on_loop
async def test_errors_are_told_at_once_and_for_their_partition_only() -> None:
    async with running_broker() as broker:
        await broker.topics.create("t")
        await append(broker, raw("t", 0, b"v"))
        answers = await broker.fetch([at(0), at(5), at(0, 7), at(0, 0, "nowhere")], min_bytes=10**6, max_wait_ms=LONG_MS)
        assert [type(answer.error) for answer in answers] == [
            type(None),
            OffsetOutOfRangeError,
            UnknownPartitionError,
            UnknownTopicError,
        ]
        assert values(answers[:1]) == [[b"v"]]


@pytest.mark.parametrize("bounds", [{"min_bytes": -1}, {"max_bytes": -1}, {"max_wait_ms": -1}])
@on_loop
async def test_negative_bounds_are_refused(bounds: dict[str, Any]) -> None:
    async with running_broker() as broker:
        await broker.topics.create("t")
        with pytest.raises(InvalidRequestError, match="can't be below 0"):
            await broker.fetch([at(0)], **bounds)


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
        await broker.fetch([at(0)])
        store.cold = True
        assert values(await broker.fetch([at(0)])) == [[b"v"]]
        assert threads[0] == threading.current_thread().name
        assert threads[1].startswith("tailrace-reader")
        (answer,) = await broker.fetch([at(9)])
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
        assert values(await broker.fetch([at(0, partition) for partition in (2, 0, 3)])) == [[b"2"], [b"0"], [b"3"]]
        assert len(trips) == 1


@on_loop
async def test_partitions_on_disk_share_max_bytes_and_tell_their_errors() -> None:
    store = GatedStore()
    async with running_broker(store) as broker:
        await broker.topics.create("t", 4)
        for partition in range(4):
            await append(broker, raw("t", partition, b"%d" % partition))
        store.cold = True
        small = [at(0, partition, max_bytes=BATCH_BYTES) for partition in range(4)]
        assert values(await broker.fetch(small, max_bytes=2 * BATCH_BYTES)) == [[b"0"], [b"1"], [], []]
        large = [at(0, partition, max_bytes=3 * BATCH_BYTES) for partition in range(4)]
        assert values(await broker.fetch(large, max_bytes=4 * BATCH_BYTES)) == [[b"0"], [b"1"], [b"2"], [b"3"]]
        good, bad = await broker.fetch([at(0, 1), at(9, 2)])
        assert values([good]) == [[b"1"]]
        assert isinstance(bad.error, OffsetOutOfRangeError)


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
        reading = [asyncio.create_task(broker.fetch([at(0)])) for _ in range(3)]
        await until(lambda: broker.threads.queued == 3)
        (answer,) = await broker.fetch([at(0)])
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
        answers = await broker.fetch([at(1, 0, "tee")])
        live = broker.topics.get("t")
        assert (live.messages_out, live.bytes_out) == (3, sum(len(batch) for batch in answers[0].batches))
        await broker.read("t", 0, Offset(1), max_records=10)
        assert live.messages_out == 5
