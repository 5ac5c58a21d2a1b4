import asyncio

import pytest

from tailrace.broker import keys
from tailrace.broker.broker import Broker
from tailrace.model.errors import (
    InvalidRequestError,
    OutOfOrderSequenceError,
    ProducerFencedError,
    StorageFullError,
    UnknownProducerError,
)
from tailrace.model.ids import ProducerId
from tailrace.model.limits import Limits
from tailrace.model.record import RawBatch
from tailrace.store.memory import MemoryStore
from tests.support.aio import on_loop, turns
from tests.support.brokers import GatedStore, append, placed, raw, running_broker, values_in
from tests.support.clocks import ManualClock

LAST_SEQUENCE = (1 << 31) - 1
WEEK_MS = 7 * 24 * 3600 * 1000


def sent(producer: int, sequence: int, *values: bytes, epoch: int = 0, partition: int = 0) -> RawBatch:
    return raw("t", partition, *values, producer_id=producer, producer_epoch=epoch, base_sequence=sequence)


async def made(broker: Broker, partitions: int = 1) -> ProducerId:
    """Create the topic `t` and return a producer id."""
    await broker.topics.create("t", partitions)
    return await broker.producers.allocate()


@on_loop
async def test_producer_ids_are_given_out_once_also_over_restarts() -> None:
    store = MemoryStore()
    async with running_broker(store) as broker:
        first = await asyncio.gather(*(broker.producers.allocate() for _ in range(5)))
    async with running_broker(store) as broker:
        second = await asyncio.gather(*(broker.producers.allocate() for _ in range(5)))
    assert sorted({*first, *second}) == list(range(10))


@on_loop
async def test_a_batch_sent_again_is_stored_once_and_answered_with_its_first_offset() -> None:
    async with running_broker() as broker:
        producer = await made(broker)
        assert await append(broker, sent(producer, 0, b"a", b"b")) == placed(0, 0)
        assert await append(broker, sent(producer, 2, b"c")) == placed(2, 2)
        assert await append(broker, sent(producer, 0, b"a", b"b")) == placed(0, None, duplicates=2)
        assert await append(broker, sent(producer, 2, b"c")) == placed(2, None, duplicates=1)
        assert broker.producers.duplicates == 3
        assert broker.topics.get("t").dedup_hits == 0
        assert await values_in(broker, "t") == [b"a", b"b", b"c"]


@on_loop
async def test_the_last_five_batches_are_remembered() -> None:
    async with running_broker() as broker:
        producer = await made(broker)
        for sequence in range(7):
            await append(broker, sent(producer, sequence, b"%d" % sequence))
        for sequence in range(2, 7):
            assert (await append(broker, sent(producer, sequence, b"%d" % sequence))).base_offset == sequence
        with pytest.raises(OutOfOrderSequenceError):
            await append(broker, sent(producer, 1, b"1"))


@on_loop
async def test_a_batch_with_another_count_is_not_a_duplicate() -> None:
    async with running_broker() as broker:
        producer = await made(broker)
        await append(broker, sent(producer, 0, b"a", b"b"))
        with pytest.raises(OutOfOrderSequenceError):
            await append(broker, sent(producer, 0, b"a"))


@on_loop
async def test_gaps_are_rejected_and_change_nothing() -> None:
    async with running_broker() as broker:
        producer = await made(broker)
        await append(broker, sent(producer, 0, b"a"))
        with pytest.raises(OutOfOrderSequenceError, match="the next sequence is 1, the batch has 2"):
            await append(broker, sent(producer, 2, b"c"))
        await append(broker, sent(producer, 1, b"b"))
        assert await values_in(broker, "t") == [b"a", b"b"]


@on_loop
async def test_an_old_epoch_is_fenced_and_a_new_one_starts_at_zero() -> None:
    async with running_broker() as broker:
        producer = await made(broker)
        await append(broker, sent(producer, 0, b"a", epoch=1))
        with pytest.raises(ProducerFencedError, match="a newer one has epoch 1"):
            await append(broker, sent(producer, 1, b"b", epoch=0))
        with pytest.raises(OutOfOrderSequenceError, match="the next sequence is 0"):
            await append(broker, sent(producer, 1, b"b", epoch=2))
        await append(broker, sent(producer, 0, b"c", epoch=2))
        with pytest.raises(ProducerFencedError):
            await append(broker, sent(producer, 0, b"a", epoch=1))
        assert await values_in(broker, "t") == [b"a", b"c"]


@on_loop
async def test_sequences_go_on_at_zero_after_the_last_one() -> None:
    store = MemoryStore()
    async with running_broker(store) as broker:
        producer = await made(broker)
        await append(broker, sent(producer, 0, b"a"))
        key = keys.producer_key(broker.topics.get("t").partition(0), producer)
        state = bytearray(store.get(key) or b"")
        state[10:14] = (LAST_SEQUENCE - 2).to_bytes(4)
        store._state[key] = bytes(state)
        await append(broker, sent(producer, LAST_SEQUENCE - 1, b"b", b"c", b"d"))
        with pytest.raises(OutOfOrderSequenceError, match="the next sequence is 1,"):
            await append(broker, sent(producer, LAST_SEQUENCE, b"x"))
        await append(broker, sent(producer, 1, b"e"))
        assert (await append(broker, sent(producer, LAST_SEQUENCE - 1, b"b", b"c", b"d"))).base_offset == 1
        assert await values_in(broker, "t") == [b"a", b"b", b"c", b"d", b"e"]


@on_loop
async def test_each_partition_has_its_own_sequence() -> None:
    async with running_broker() as broker:
        producer = await made(broker, 2)
        for partition in (0, 1):
            await append(broker, sent(producer, 0, b"a", partition=partition))
        assert await values_in(broker, "t", 1) == [b"a"]


@on_loop
async def test_unknown_producers_are_rejected() -> None:
    async with running_broker() as broker:
        producer = await made(broker)
        with pytest.raises(UnknownProducerError, match="was not allocated"):
            await append(broker, sent(producer + 1, 0, b"a"))
        with pytest.raises(UnknownProducerError, match="first sequence is 4, not 0"):
            await append(broker, sent(producer, 4, b"a"))


@pytest.mark.parametrize("fields", [(-2, 0, 0), (0, -1, 0), (0, 0, -1)])
@on_loop
async def test_negative_fields_are_rejected(fields: tuple[int, int, int]) -> None:
    async with running_broker() as broker:
        await made(broker)
        producer, epoch, sequence = fields
        with pytest.raises(InvalidRequestError, match="may be negative"):
            await append(broker, sent(producer, sequence, b"a", epoch=epoch))


@on_loop
async def test_batches_in_flight_see_each_other() -> None:
    store = GatedStore()
    async with running_broker(store) as broker:
        producer = await made(broker)
        store.close_gate()
        first = broker.appender.append([sent(producer, 0, b"a")])
        await turns()
        second = broker.appender.append([sent(producer, 1, b"b")])
        await turns()
        gap = broker.appender.append([sent(producer, 3, b"d")])
        await turns()
        assert len(store.in_flight) == 2
        assert isinstance((await gap)[0], OutOfOrderSequenceError)
        store.settle()
        assert [(await future)[0] for future in (first, second)] == [placed(0, 0), placed(1, 1)]


@on_loop
async def test_the_same_batch_twice_in_one_turn_is_stored_once() -> None:
    async with running_broker() as broker:
        producer = await made(broker)
        first, second = await asyncio.gather(*(broker.appender.append([sent(producer, 0, b"a")]) for _ in range(2)))
        assert (first, second) == ([placed(0, 0)], [placed(0, None, duplicates=1)])
        assert await values_in(broker, "t") == [b"a"]


@on_loop
async def test_the_same_batch_twice_in_one_request_is_stored_once() -> None:
    async with running_broker() as broker:
        producer = await made(broker)
        outcomes = await broker.appender.append([sent(producer, 0, b"a"), sent(producer, 0, b"a"), sent(producer, 1, b"b")])
        assert outcomes == [placed(0, 0), placed(0, None, duplicates=1), placed(1, 1)]
        assert await values_in(broker, "t") == [b"a", b"b"]


@on_loop
async def test_a_duplicate_is_not_acknowledged_before_its_first_is_durable() -> None:
    store = GatedStore()
    async with running_broker(store) as broker:
        producer = await made(broker)
        store.close_gate()
        first = broker.appender.append([sent(producer, 0, b"a")])
        await turns()
        again = broker.appender.append([sent(producer, 0, b"a")])
        other = broker.appender.append([raw("t", 0, b"other")])
        await turns()
        assert not again.done()
        store.settle(1)
        assert await again == [placed(0, None, duplicates=1)]
        assert not other.done()
        store.settle()
        await asyncio.gather(first, other)
        assert await values_in(broker, "t") == [b"a", b"other"]


@on_loop
async def test_a_stored_batch_is_acknowledged_even_if_others_of_the_request_are_rejected() -> None:
    """A client that gets an error assumes that its batch is not stored, and sends its records again in another batch."""
    store = GatedStore()
    async with running_broker(store) as broker:
        producer = await made(broker, 2)
        await broker.appender.append([sent(producer, 0, b"a")])
        store.close_gate()
        again = broker.appender.append([sent(producer, 0, b"a")])
        other = broker.appender.append([raw("t", 0, b"other")])
        in_one_request = broker.appender.append([sent(producer, 0, b"a"), raw("t", 1, b"another")])
        await turns()
        store.fail()
        store.open_gate()
        assert await again == [placed(0, None, duplicates=1)]
        with pytest.raises(StorageFullError):
            await other
        first, second = await in_one_request
        assert first == placed(0, None, duplicates=1)
        assert isinstance(second, StorageFullError)
        assert await values_in(broker, "t") == [b"a"]


@on_loop
async def test_a_duplicate_of_a_batch_that_failed_is_stored() -> None:
    store = GatedStore()
    async with running_broker(store) as broker:
        producer = await made(broker)
        store.close_gate()
        first = broker.appender.append([sent(producer, 0, b"a")])
        await turns()
        again = broker.appender.append([sent(producer, 0, b"a")])
        await turns()
        store.fail()
        store.open_gate()
        with pytest.raises(StorageFullError):
            await first
        assert await again == [placed(0, 0)]
        assert await values_in(broker, "t") == [b"a"]


@on_loop
async def test_a_request_that_mixes_a_duplicate_in_flight_with_new_batches_waits_as_a_whole() -> None:
    store = GatedStore()
    async with running_broker(store) as broker:
        producer = await made(broker, 2)
        store.close_gate()
        first = broker.appender.append([sent(producer, 0, b"a")])
        await turns()
        mixed = broker.appender.append([sent(producer, 0, b"a"), sent(producer, 0, b"b", partition=1)])
        await turns()
        assert len(store.in_flight) == 1
        store.fail()
        store.open_gate()
        with pytest.raises(StorageFullError):
            await first
        assert await mixed == [placed(0, 0), placed(0, 1)]


@on_loop
async def test_sequences_survive_a_restart() -> None:
    store = MemoryStore()
    async with running_broker(store) as broker:
        producer = await made(broker)
        await append(broker, sent(producer, 0, b"a"))
    async with running_broker(store) as broker:
        assert await append(broker, sent(producer, 0, b"a")) == placed(0, None, duplicates=1)
        with pytest.raises(OutOfOrderSequenceError):
            await append(broker, sent(producer, 5, b"x"))
        assert (await append(broker, sent(producer, 1, b"b"))).base_offset == 1


@on_loop
async def test_idle_producers_are_deleted_and_active_ones_are_not() -> None:
    clock = ManualClock()
    store = MemoryStore()
    async with running_broker(store, clock) as broker:
        silent = await made(broker)
        busy = await broker.producers.allocate()
        await append(broker, sent(silent, 0, b"a"))
        await append(broker, sent(busy, 0, b"b"))
        clock.advance(WEEK_MS)
        await append(broker, sent(busy, 1, b"c"))
        clock.advance(1)
        assert await broker.producers.states.expire() == 1
        assert broker.producers.states.expired == 1
        assert len(store.range(keys.PRODUCERS)) == 1
        with pytest.raises(UnknownProducerError):
            await append(broker, sent(silent, 1, b"d"))
        assert (await append(broker, sent(busy, 2, b"e"))).base_offset == 3


@on_loop
async def test_many_silent_producers_are_forgotten_piece_by_piece() -> None:
    clock = ManualClock()
    store = MemoryStore()
    async with running_broker(store, clock) as broker:
        await broker.topics.create("t")
        producers = [await broker.producers.allocate() for _ in range(2_500)]
        await asyncio.gather(*(broker.appender.append([sent(producer, 0, b"")]) for producer in producers))
        clock.advance(WEEK_MS + 1)
        assert await broker.producers.states.expire() == 2_500
        assert store.range(keys.PRODUCERS) == []


@on_loop
async def test_a_producer_that_speaks_while_it_is_being_forgotten_is_kept() -> None:
    clock = ManualClock()
    store = GatedStore(clock)
    async with running_broker(store, clock) as broker:
        producer = await made(broker)
        await append(broker, sent(producer, 0, b"a"))
        clock.advance(WEEK_MS + 1)
        store.close_gate()
        speaking = broker.appender.append([sent(producer, 1, b"b")])
        await turns()
        expiring = asyncio.ensure_future(broker.producers.states.expire())
        await turns()
        store.open_gate()
        await speaking
        assert await expiring == 0
        assert (await append(broker, sent(producer, 2, b"c"))).base_offset == 2


@on_loop
async def test_producers_of_a_partition_are_bounded_by_forgetting_the_longest_silent() -> None:
    clock = ManualClock()
    store = MemoryStore()
    async with running_broker(store, clock, Limits(producers_per_partition=20)) as broker:
        await broker.topics.create("t")
        producers = [await broker.producers.allocate() for _ in range(50)]
        for producer in producers:
            clock.advance(1)
            await append(broker, sent(producer, 0, b""))
            assert len(store.range(keys.PRODUCERS)) <= 20
        assert broker.producers.states.evicted >= 30
        with pytest.raises(UnknownProducerError):
            await append(broker, sent(producers[0], 1, b""))
        await append(broker, sent(producers[-1], 1, b""))
        await broker.topics.delete("t")
        assert broker.producers.states._counts == {}


@on_loop
async def test_batches_of_an_old_epoch_make_no_duplicates_of_a_new_one() -> None:
    async with running_broker() as broker:
        producer = await made(broker)
        await append(broker, sent(producer, 0, b"a"))
        await append(broker, sent(producer, 0, b"b", b"c", epoch=1))
        with pytest.raises(OutOfOrderSequenceError):
            await append(broker, sent(producer, 0, b"d", epoch=1))
