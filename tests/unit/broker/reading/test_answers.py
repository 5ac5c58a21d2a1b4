"""Memory of answers: bounded for each and for all, granted in order, and always returned."""

import asyncio
import gzip

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.broker.broker import Broker
from tailrace.broker.reading.answers import AnswerMemory
from tailrace.model.consume import ConsumeRequest, LogEdge, PartitionOffset
from tailrace.model.errors import CorruptBatchError, MessageTooLargeError, OverloadedError
from tailrace.model.ids import Offset
from tailrace.model.limits import MIB, Limits
from tailrace.model.names import parse_pattern
from tailrace.model.record import Message
from tailrace.store.memory import MemoryStore
from tailrace.wire.compression import Compression, compress, decompress, decompressed_bound
from tailrace.wire.records import RECORD_OVERHEAD_BYTES, decode_part
from tests.support.aio import on_loop, turns
from tests.support.bad_batches import batch_of, good_batch, large_batch, record_of, store_batches
from tests.support.brokers import running_broker
from tests.support.queues import QueueConsumer, values

LIMITS = Limits(answer_bytes=1_000, answers_bytes=10_000, answer_wait_ms=200)


@on_loop
async def test_readers_get_memory_in_order_and_none_overtakes() -> None:
    memory = AnswerMemory(LIMITS)
    first, second, third = (memory.answer() for _ in range(3))
    await first.reserve(9_000)
    large = asyncio.create_task(second.reserve(8_000))
    await turns(3)
    small = asyncio.create_task(third.reserve(500))
    await turns(3)
    assert not large.done()
    assert not small.done()
    assert not memory.answer().try_reserve(1)
    first.close()
    await large
    await small
    assert memory.held_bytes == 8_500


@on_loop
async def test_a_reader_that_gets_no_memory_in_time_is_rejected_and_leaves_the_queue() -> None:
    memory = AnswerMemory(LIMITS)
    holding = memory.answer()
    await holding.reserve(10_000)
    with pytest.raises(OverloadedError, match="answers_bytes"):
        await memory.answer().reserve(1)
    assert (memory.waiting, memory.refused) == (0, 1)
    holding.close()
    await memory.answer().reserve(10_000)


@on_loop
async def test_a_reader_that_gives_up_while_it_waits_holds_nothing_and_lets_others_in() -> None:
    memory = AnswerMemory(LIMITS)
    holding, large, small = (memory.answer() for _ in range(3))
    await holding.reserve(5_000)
    waiting = asyncio.create_task(large.reserve(9_000))
    await turns(3)
    behind = asyncio.create_task(small.reserve(100))
    await turns(3)
    waiting.cancel()
    await behind
    assert memory.held_bytes == 5_100


@on_loop
async def test_one_that_needs_more_than_there_is_gets_it_alone() -> None:
    memory = AnswerMemory(LIMITS)
    with memory.answer() as answer:
        await answer.reserve(50_000)
        assert not memory.answer().try_reserve(1)
    assert memory.held_bytes == 0
    assert memory.answer().try_reserve(1)


def test_an_answer_that_is_dropped_gives_its_room_back() -> None:
    memory = AnswerMemory(LIMITS)
    answer = memory.answer()
    assert answer.try_reserve(500)
    answer.keep(500)
    del answer
    assert memory.held_bytes == 0


def test_an_answer_takes_no_more_than_its_own_bound() -> None:
    memory = AnswerMemory(LIMITS)
    answer = memory.answer()
    assert answer.try_reserve(4_000)
    answer.keep(1_200)
    assert not answer.try_reserve(1)
    assert answer.is_cut
    answer.trim()
    assert memory.held_bytes == 1_200


@given(st.sampled_from(list(Compression)), st.binary(max_size=2_000), st.integers(1, 2_000))
def test_the_bound_of_a_batch_is_never_too_small(codec: Compression, seed: bytes, times: int) -> None:
    data = seed * times
    packed = compress(codec, data)
    most = 16 * MIB
    assert len(decompress(codec, packed, most)) <= decompressed_bound(codec, packed, most)


@pytest.mark.parametrize("declared", [0, 1, 4_000, 2**32 - 1])
def test_what_gzip_declares_of_itself_is_not_believed(declared: int) -> None:
    packed = gzip.compress(b"x" * 100_000)[:-4] + declared.to_bytes(4, "little")
    with pytest.raises((CorruptBatchError, MessageTooLargeError)):
        decompress(Compression.GZIP, packed, 200_000)


def test_a_batch_is_decoded_up_to_the_bytes_that_there_is_room_for_and_never_less_than_one_record() -> None:
    batch = good_batch(*(b"x" * 1_000 for _ in range(100)))
    part = decode_part(batch, LIMITS, most_bytes=5 * (1_000 + RECORD_OVERHEAD_BYTES))
    assert 4 <= len(part.records) <= 6
    assert part.is_cut
    assert len(decode_part(batch, LIMITS, first=50, most_bytes=1).records) == 1
    assert decode_part(batch, LIMITS, first=50, most_bytes=1).records[0].offset == 50
    assert not decode_part(batch, LIMITS, first=99, most_bytes=1).is_cut


async def _with_large_records(broker: Broker, count: int = 4) -> None:
    await broker.topics.create("jobs")
    (partition,) = broker.topics.get("jobs").partitions
    store_batches(broker.store, partition, [large_batch(1)] * count)


TIGHT = Limits(answer_bytes=MIB // 2, answers_bytes=6 * MIB, decompressed_batch_bytes=2 * MIB, answer_wait_ms=100)


@on_loop
async def test_one_answer_holds_one_large_record_and_says_that_there_is_more() -> None:
    async with running_broker(limits=TIGHT) as broker:
        await _with_large_records(broker)
        with broker.answers.answer() as answer:
            consumed = await broker.consumers.consume(ConsumeRequest("jobs", limit=10), answer)
            assert len(consumed.records) == 1
            assert consumed.has_more
            assert consumed.positions[0].next_offset == 1
            assert MIB <= broker.answers.held_bytes < 2 * MIB
        assert broker.answers.held_bytes == 0


@on_loop
async def test_what_is_read_by_everyone_stays_within_the_bound_for_all() -> None:
    async with running_broker(limits=TIGHT) as broker:
        await _with_large_records(broker)
        answers = [broker.answers.answer() for _ in range(10)]
        reads = [broker.consumers.consume(ConsumeRequest("jobs", limit=10), answer) for answer in answers]
        outcomes = await asyncio.gather(*reads, return_exceptions=True)
        assert any(isinstance(outcome, OverloadedError) for outcome in outcomes)
        assert sum(not isinstance(outcome, BaseException) for outcome in outcomes) >= 2
        assert broker.answers.held_bytes <= TIGHT.answers_bytes
        for answer in answers:
            answer.close()
        assert broker.answers.held_bytes == 0


@on_loop
async def test_a_read_of_many_partitions_has_one_bound() -> None:
    limits = Limits(answer_bytes=100_000)
    async with running_broker(limits=limits) as broker:
        await broker.topics.create("t", 20)
        await broker.publisher.publish([Message("t", b"x" * 20_000, partition=number) for number in range(20)])
        seen: set[int] = set()
        positions = [PartitionOffset(number, Offset(0)) for number in range(20)]
        while len(seen) < 20:
            with broker.answers.answer() as answer:
                consumed = await broker.consumers.consume(ConsumeRequest("t", positions=positions, limit=10_000), answer)
            assert 0 < sum(len(found.record.value or b"") for found in consumed.records) <= 120_000
            seen |= {found.partition for found in consumed.records}
            positions = [PartitionOffset(at.partition, at.next_offset) for at in consumed.positions]


@on_loop
async def test_a_queue_hands_out_large_records_one_by_one_and_each_of_them() -> None:
    async with running_broker(limits=TIGHT) as broker:
        await _with_large_records(broker)
        consumer = QueueConsumer(broker)
        got = []
        for _ in range(4):
            held = await consumer.receive(10)
            assert len(held) == 1
            got += [each.record.offset for each in held]
        assert got == [0, 1, 2, 3]
        assert await consumer.receive(10) == []
        assert broker.answers.held_bytes == 0


@on_loop
async def test_keys_of_open_records_are_learned_after_a_restart_however_large_they_are() -> None:
    store = MemoryStore(limits=TIGHT)
    async with running_broker(store, limits=TIGHT) as broker:
        await _with_large_records(broker)
        for _ in range(4):
            await QueueConsumer(broker).receive(1, order_by_key=True)
    async with running_broker(store, limits=TIGHT) as broker:
        consumer = QueueConsumer(broker)
        got = [each.record.offset for _ in range(4) for each in await consumer.receive(10, order_by_key=True)]
        assert got == [0, 1, 2, 3]


@on_loop
async def test_dead_letters_and_their_return_need_room_for_one_record_at_a_time() -> None:
    async with running_broker(limits=TIGHT) as broker:
        await _with_large_records(broker)
        consumer = QueueConsumer(broker, max_deliveries=1)
        for _ in range(4):
            await consumer.nack(*await consumer.receive(1))
        letters = broker.redrives.letters_of("jobs")
        assert [offset for _, offset in broker.redrives.all_left(letters)] == [0, 1, 2, 3]
        assert await broker.redrives.redrive("jobs", list(broker.redrives.all_left(letters))) == (4, 0)
        assert broker.answers.held_bytes == 0
        assert len(values(await consumer.receive(1))) == 1


@on_loop
async def test_subscribers_wait_for_room_and_get_everything_in_order() -> None:
    async with running_broker(limits=TIGHT) as broker:
        await _with_large_records(broker)
        subscription = broker.subscriptions.subscribe(parse_pattern("jobs", TIGHT), LogEdge.BEGINNING)
        holding = broker.answers.answer()
        await holding.reserve(TIGHT.answers_bytes)
        with broker.answers.answer() as answer:
            assert list(await subscription.read(0.3, answer)) == []
        holding.close()
        offsets: list[Offset] = []
        while len(offsets) < 4:
            with broker.answers.answer() as answer:
                batches = await subscription.read(20, answer)
                assert broker.answers.held_bytes >= MIB
                assert sum(len(batch.records) for batch in batches) == 1
                offsets += [record.offset for batch in batches for record in batch.records]
        assert offsets == [0, 1, 2, 3]
        subscription.close()
        assert broker.answers.held_bytes == 0


@on_loop
async def test_many_small_records_in_few_bytes_are_bounded_too() -> None:
    body = b"".join(record_of(b"", delta=number) for number in range(200_000))
    packed = batch_of(gzip.compress(body), records=200_000, codec=Compression.GZIP)
    async with running_broker(limits=Limits(read_records=1_000_000)) as broker:
        await broker.topics.create("t")
        store_batches(broker.store, broker.topics.get("t").partitions[0], [packed])
        with broker.answers.answer() as answer:
            read = await broker.committed_reader.read("t", 0, Offset(0), max_records=1_000_000, answer=answer)
            assert 0 < len(read.records) < 30_000
            assert read.next_offset == len(read.records)
            assert read.has_more
