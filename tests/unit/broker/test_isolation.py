"""What readers see of transactions in both isolation levels."""

import asyncio

import pytest

from tailrace.broker import keys
from tailrace.broker.broker import Broker
from tailrace.broker.commits import Draft
from tailrace.broker.isolation import AbortedTransactions
from tailrace.model.errors import OffsetOutOfRangeError
from tailrace.model.fetch import AtTime, Isolation, StartEdge
from tailrace.model.ids import Offset, PartitionId, ProducerId, TopicId
from tailrace.model.transaction import AbortedTransaction
from tailrace.store.memory import MemoryStore
from tests.support.aio import on_loop, turns
from tests.support.batches import TIMESTAMP, values_of
from tests.support.brokers import CountingStore, append, options, raw, running_broker
from tests.support.clocks import ManualClock
from tests.support.transactions import bounds, committed_values, fetched, stable_offset, started

COMMITTED = Isolation.READ_COMMITTED
PARTITION = PartitionId(TopicId(1), 0)


@on_loop
async def test_the_oldest_open_transaction_holds_back_all_later_records() -> None:
    async with running_broker() as broker:
        await broker.topics.create("t")
        first, second = await started(broker, "first"), await started(broker, "second")
        await append(broker, raw("t", 0, b"before"))
        await first.write(0, b"a")
        await second.write(0, b"b")
        await append(broker, raw("t", 0, b"after"))
        assert await stable_offset(broker) == 1
        await second.commit()
        assert await stable_offset(broker) == 1
        assert await committed_values(broker) == [b"before"]
        await first.abort()
        assert await stable_offset(broker) == 6
        assert await committed_values(broker) == [b"before", b"b", b"after"]


@on_loop
async def test_readers_of_uncommitted_records_see_everything_at_once() -> None:
    async with running_broker() as broker:
        await broker.topics.create("t")
        producer = await started(broker)
        await producer.write(0, b"a")
        answer = await fetched(broker, isolation=Isolation.READ_UNCOMMITTED)
        assert values_of(answer.batches) == [b"a"]
        assert (answer.last_stable_offset, answer.bounds.end, answer.aborted) == (0, 1, ())


@on_loop
async def test_a_reader_beyond_the_last_stable_offset_gets_nothing_and_no_error() -> None:
    store = CountingStore()
    async with running_broker(store) as broker:
        await broker.topics.create("t")
        producer = await started(broker)
        await producer.write(0, b"a")
        await producer.write(0, b"b")
        before = store.fetches
        assert list((await fetched(broker, offset=1)).batches) == []
        assert store.fetches == before
        with pytest.raises(OffsetOutOfRangeError):
            await fetched(broker, offset=3)


@on_loop
async def test_only_the_aborted_transactions_of_the_fetched_range_are_listed() -> None:
    async with running_broker() as broker:
        await broker.topics.create("t")
        producer = await started(broker)
        first_offsets = []
        for _ in range(300):
            first_offsets.append(await producer.write(0, b"x"))
            await producer.abort()
        producer_id = producer.identity.producer_id
        answer = await fetched(broker, offset=first_offsets[250])
        assert answer.aborted == [AbortedTransaction(producer_id, first) for first in first_offsets[250:]]
        everything = await fetched(broker)
        assert len(everything.aborted) == 300


@on_loop
async def test_a_long_aborted_transaction_is_listed_in_every_part_of_it() -> None:
    async with running_broker() as broker:
        await broker.topics.create("t")
        long, short = await started(broker, "long"), await started(broker, "short")
        await long.write(0, b"x")
        for _ in range(5):
            await short.write(0, b"y")
            await short.abort()
        await long.write(0, b"x")
        await long.abort()
        aborted = AbortedTransaction(long.identity.producer_id, Offset(0))
        for offset in range(bounds(broker).end):
            assert aborted in (await fetched(broker, offset=offset)).aborted
            assert await committed_values(broker, offset=offset) == []


def test_the_search_for_aborted_transactions_ends_where_no_more_can_follow() -> None:
    store = CountingRanges()
    index = AbortedTransactions(store)
    for number in range(1000):
        first = Offset(number * 10)
        draft = Draft(store)
        index.add(draft, PARTITION, AbortedTransaction(ProducerId(number), first), Offset(first + 9), first)
        store.commit(draft.changes())
    assert index.between(PARTITION, Offset(5), Offset(25)) == [(0, 0), (1, 10), (2, 20)]
    assert store.read <= 100
    assert index.between(PARTITION, Offset(9_995), Offset(20_000)) == [(999, 9_990)]
    assert len(index.between(PARTITION, Offset(0), Offset(20_000))) == 1000


class CountingRanges(MemoryStore):
    read = 0

    def range(self, prefix: bytes, start: bytes = b"", limit: int | None = None):  # type: ignore[no-untyped-def]
        found = super().range(prefix, start, limit)
        self.read += len(found)
        return found


@pytest.mark.parametrize("committed", [True, False])
def test_a_long_poll_of_committed_records_wakes_when_the_transaction_ends(committed: bool) -> None:
    @on_loop
    async def run() -> None:
        async with running_broker() as broker:
            await broker.topics.create("t")
            producer = await started(broker)
            await producer.add(0)
            polling = asyncio.create_task(fetched(broker, wait_ms=20_000))
            await turns()
            await producer.send(0, b"a")
            await append(broker, raw("t", 0, b"plain"))
            await turns()
            assert not polling.done()
            await producer.end(committed=committed)
            answer = await polling
            assert answer.last_stable_offset == 3
            assert values_of(answer.batches)[:2] == [b"a", b"plain"]
            assert len(answer.aborted) == (not committed)

    run()


@on_loop
async def test_records_of_an_open_transaction_do_not_wake_readers_of_committed_ones() -> None:
    store = CountingStore()
    async with running_broker(store) as broker:
        await broker.topics.create("t")
        producer = await started(broker)
        await producer.write(0, b"a")
        polling = asyncio.create_task(fetched(broker, wait_ms=20_000))
        await turns()
        before = store.fetches
        for _ in range(10):
            await producer.send(0, b"a")
            await turns()
        assert store.fetches == before
        await producer.commit()
        await polling


@on_loop
async def test_the_latest_offset_of_committed_records_is_the_last_stable_one() -> None:
    clock = ManualClock(TIMESTAMP)
    async with running_broker(clock=clock) as broker:
        await broker.topics.create("t")
        await append(broker, raw("t", 0, b"x", timestamp=TIMESTAMP - 10))
        producer = await started(broker)
        await producer.write(0, b"a")
        positions = broker.positions
        assert await positions.resolve("t", 0, StartEdge.LATEST) == 2
        assert await positions.resolve("t", 0, StartEdge.LATEST, isolation=COMMITTED) == 1
        assert await positions.resolve("t", 0, AtTime(TIMESTAMP), isolation=COMMITTED) == 1
        assert (await positions.at_time("t", 0, TIMESTAMP)) is not None
        assert (await positions.at_time("t", 0, TIMESTAMP, isolation=COMMITTED)) is None
        assert (await positions.at_time("t", 0, TIMESTAMP - 10, isolation=COMMITTED)) == (0, TIMESTAMP - 10)


@on_loop
async def test_decoded_reads_show_committed_records_and_step_over_the_rest() -> None:
    async with running_broker() as broker:
        await broker.topics.create("t")
        producer = await started(broker)
        await producer.write(0, b"a", b"b")
        assert (await broker.committed_reader.read("t", 0, Offset(0), max_records=10)).next_offset == 0
        await producer.abort()
        read = await broker.committed_reader.read("t", 0, Offset(0), max_records=10)
        assert (read.records, read.next_offset) == ([], 3)
        await producer.write(0, b"c", b"d")
        await producer.commit()
        assert await _read_by(broker, 1) == [(b"c", 3), (b"d", 4)]
        assert await _read_by(broker, 10) == [(b"c", 3), (b"d", 4)]


async def _read_by(broker: Broker, max_records: int) -> list[tuple[bytes | None, int]]:
    offset = Offset(0)
    found = []
    while offset < bounds(broker).end:
        read = await broker.committed_reader.read("t", 0, offset, max_records=max_records)
        found += [(record.value, int(record.offset)) for record in read.records]
        assert read.next_offset > offset
        offset = read.next_offset
    return found


@on_loop
async def test_retention_deletes_aborted_transactions_below_the_start() -> None:
    store, clock = MemoryStore(), ManualClock(TIMESTAMP)
    async with running_broker(store, clock) as broker:
        topic = await broker.topics.create("t", options=options(retention_seconds=60))
        producer = await started(broker)
        for _ in range(3):
            await producer.write(0, b"x")
            await producer.abort()
        prefix = keys.aborted_of_partition(PartitionId(topic.id, 0))
        assert len(store.range(prefix)) == 3
        clock.advance(100_000)
        await append(broker, raw("t", 0, b"y", timestamp=clock.now_ms()))
        assert await broker.retention.run_once() == 6
        assert store.range(prefix) == []


@on_loop
async def test_retention_leaves_open_transactions_alone() -> None:
    clock = ManualClock(TIMESTAMP)
    async with running_broker(clock=clock) as broker:
        await broker.topics.create("t", options=options(retention_seconds=60))
        await append(broker, raw("t", 0, b"old", timestamp=TIMESTAMP))
        producer = await started(broker)
        await producer.write(0, b"x")
        clock.advance(100_000)
        assert await broker.retention.run_once() == 1
        assert bounds(broker) == (1, 2)
        await producer.commit()
        assert await committed_values(broker, offset=1) == [b"x"]


@on_loop
async def test_nothing_of_a_deleted_topic_is_left() -> None:
    store = MemoryStore()
    async with running_broker(store) as broker:
        topic = await broker.topics.create("t")
        producer = await started(broker)
        await producer.write(0, b"x")
        await producer.abort()
        await producer.write(0, b"x")
        await broker.topics.delete("t")
        assert store.range(keys.aborted_of_topic(topic.id)) == []
        assert store.range(keys.open_transactions_of_topic(topic.id)) == []
