"""Batches with a correct checksum and invalid content are rejected as Kafka rejects them, and nothing of them is stored.

The kinds and codes of `tests/support/broken_batches.py` were put to Apache Kafka 4.3.1. Where that takes them, or says that it
does not know what happened, the answer here is that the records are invalid.
"""

import asyncio
from collections.abc import Sequence

import pytest

from tailrace.broker.pipelines.staged_chunks import Stage
from tailrace.model.errors import CorruptBatchError, MessageTooLargeError, TailraceError
from tailrace.model.ids import Offset
from tailrace.model.limits import Limits
from tailrace.model.record import RawBatch
from tailrace.wire.messages.produce import (
    PRODUCE_API,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)
from tailrace.wire.messages.transactions import INIT_PRODUCER_ID_API, InitProducerIdRequest
from tailrace.wire.staged_chunks import StagedBatch, StagedChunk, encode_staged_chunk
from tests.support.aio import on_loop
from tests.support.batches import TIMESTAMP
from tests.support.broken_batches import (
    BROKEN,
    CASES,
    CODECS,
    INVALID_RECORD,
    SNAPPY,
    batch,
    good_batch,
    record,
    varint,
)
from tests.support.brokers import options, running_broker, values_in
from tests.support.kafka import Asker, running_asker

broken_kinds = pytest.mark.parametrize(("kind", "codec"), CASES, ids=[f"{kind}, {codec}" for kind, codec in CASES])
every_codec = pytest.mark.parametrize("codec", CODECS.values(), ids=CODECS)


async def send(
    asker: Asker, batches: Sequence[bytes], *, acks: int = -1, transactional_id: str | None = None
) -> Sequence[PartitionProduceResponse]:
    """Send one batch to each partition from 0 on, in one request."""
    parts = tuple(PartitionProduceData(index=number, records=data) for number, data in enumerate(batches))
    request = ProduceRequest(
        acks=acks, transactional_id=transactional_id, topic_data=(TopicProduceData(name="t", partition_data=parts),)
    )
    response = await asker.ask(PRODUCE_API, request, 12)
    found: Sequence[PartitionProduceResponse] = response.responses[0].partition_responses
    return found


@broken_kinds
@on_loop
async def test_a_broken_batch_is_rejected_and_nothing_is_stored(kind: str, codec: int) -> None:
    broken = BROKEN[kind].build(codec)
    async with running_asker() as asker:
        await asker.broker.topics.create("t", 2)
        (alone,) = await send(asker, [broken])
        assert (alone.error_code, alone.base_offset) == (BROKEN[kind].code, -1)
        good, among_others = await send(asker, [good_batch(0), broken])
        assert (good.error_code, among_others.error_code) == (0, BROKEN[kind].code)
        assert await values_in(asker.broker, "t", 0) == [b"value"]
        assert await values_in(asker.broker, "t", 1) == []


@pytest.mark.parametrize("kind", ["offset delta with a gap", "more records claimed than there are", "huge key"])
@every_codec
@on_loop
async def test_a_broken_batch_of_a_transaction_is_rejected(kind: str, codec: int) -> None:
    spoiled = {"offset delta with a gap": [record(3)], "more records claimed than there are": [record(0)]}
    records = spoiled.get(kind, [record(0, key=varint(2**31 - 1))])
    async with running_asker() as asker:
        await asker.broker.topics.create("t", 2)
        request = InitProducerIdRequest(transactional_id="tx", transaction_timeout_ms=60_000)
        given = await asker.ask(INIT_PRODUCER_ID_API, request, 5)
        producer = (given.producer_id, given.producer_epoch, 0)
        count = 7 if "claimed" in kind else 1
        broken = batch(records, codec, attributes=0x10, producer=producer, count=count)
        (answer,) = await send(asker, [broken], transactional_id="tx")
        assert answer.error_code == INVALID_RECORD
        fine = batch([record(0)], codec, attributes=0x10, producer=producer)
        (answer,) = await send(asker, [fine], transactional_id="tx")
        assert (answer.error_code, answer.base_offset) == (0, 0)


@broken_kinds
@on_loop
async def test_what_pipelines_stage_is_checked_in_the_same_way(kind: str, codec: int) -> None:
    async with running_broker() as broker:
        topic = await broker.topics.create("t")
        body = encode_staged_chunk(StagedChunk([], [StagedBatch(topic.id, "t", 0, BROKEN[kind].build(codec))]))
        with pytest.raises(TailraceError):
            await broker.pipelines.stage("p", "stage", 0, body)
            lease = await broker.pipelines.lease("p", "somebody")
            await broker.pipelines.publish("p", lease.epoch, [Stage("stage", 1)])
        assert await values_in(broker, "t") == []


@every_codec
@on_loop
async def test_good_batches_are_stored_byte_for_byte(codec: int) -> None:
    values = [b"x" * size for size in (0, 1, 63, 64, 8191, 8192, 100_000)]
    sent = good_batch(codec, values)
    async with running_asker() as asker:
        await asker.broker.topics.create("t", 2)
        for _ in range(2):
            (answer,) = await send(asker, [sent])
            assert answer.error_code == 0
        fetched = await asker.broker.committed_reader.read("t", 0, Offset(0), max_records=100)
        assert [each.value for each in fetched.records] == values * 2
        (stored,) = asker.broker.store.fetch(asker.broker.topics.get("t").partition(0), Offset(0), 1).batches
        assert bytes(stored)[16:] == sent[16:]


@pytest.mark.parametrize(
    "odd",
    [
        record(0, length=varint(14, width=5)),
        record(0, key=varint(3, width=5) + b"key"),
        record(0, later=varint(0, width=10)),
        record(0, key=varint(-1), value=varint(-1)),
        record(0, headers=varint(2) + varint(0) + varint(-1) + varint(0) + varint(0)),
        record(0, headers=varint(1) + varint(4) + "\U0001f40e".encode() + varint(-1)),
    ],
    ids=["wide length", "wide key length", "wide timestamp", "nulls", "empty header names", "a horse"],
)
@on_loop
async def test_unusual_batches_that_kafka_accepts_are_accepted(odd: bytes) -> None:
    async with running_asker() as asker:
        await asker.broker.topics.create("t", 2)
        (answer,) = await send(asker, [batch([odd])])
        assert answer.error_code == 0, answer.error_message
        assert len((await asker.broker.committed_reader.read("t", 0, Offset(0), max_records=9)).records) == 1


@on_loop
async def test_a_wrong_max_timestamp_in_a_header_is_corrected() -> None:
    """As in Kafka, because searches by time use the header."""
    async with running_asker() as asker:
        await asker.broker.topics.create("t", 2)
        later = record(1, later=varint(500))
        (answer,) = await send(asker, [batch([record(0), later], max_timestamp=TIMESTAMP + 99_999_999_999)])
        assert answer.error_code == 0
        partition = asker.broker.topics.get("t").partition(0)
        store = asker.broker.store
        assert store.batch_for_time(partition, TIMESTAMP + 500) == 0
        assert store.batch_for_time(partition, TIMESTAMP + 501) is None
        assert await values_in(asker.broker, "t") == [b"value", b"value"]


@on_loop
async def test_batches_of_a_partition_keep_their_order_whatever_their_check_takes() -> None:
    """Large compressed batches are checked in threads; small ones after them must not overtake."""
    large = good_batch(CODECS["gzip"], [b"large" * 20_000] * 20)
    small = good_batch(0, [b"small"])
    async with running_broker() as broker:
        await broker.topics.create("t", 2)
        answers = []
        for number in range(20):
            if number % 3 == 2:
                answers.append(broker.appender.append([RawBatch("t", 1, large), RawBatch("t", 0, small)]))
            else:
                answers.append(broker.appender.append([RawBatch("t", 0, large if number % 3 == 0 else small)]))
        outcomes = [(await answer)[-1] for answer in answers]
        assert not any(isinstance(outcome, TailraceError) for outcome in outcomes)
        offsets = [outcome.base_offset for outcome in outcomes]  # type: ignore[union-attr]
        assert offsets == sorted(offsets)


@on_loop
async def test_other_partitions_do_not_wait_for_a_batch_that_takes_long() -> None:
    slow = good_batch(CODECS["gzip"], [bytes(1_000_000)] * 15)
    async with running_broker() as broker:
        await broker.topics.create("t", 2)
        first = broker.appender.append([RawBatch("t", 0, slow)])
        second = broker.appender.append([RawBatch("t", 1, good_batch(0))])
        done, _ = await asyncio.wait((first, second), return_when=asyncio.FIRST_COMPLETED)
        assert done == {second}
        await first


@on_loop
async def test_the_bound_of_decompressed_bytes_is_that_of_the_limits() -> None:
    async with running_broker(limits=Limits(decompressed_batch_bytes=100_000)) as broker:
        await broker.topics.create("t")
        (fits,) = await broker.appender.append([RawBatch("t", 0, good_batch(SNAPPY, [bytes(99_000)]))])
        (too_large,) = await broker.appender.append([RawBatch("t", 0, good_batch(SNAPPY, [bytes(100_000)]))])
        assert not isinstance(fits, TailraceError)
        assert isinstance(too_large, MessageTooLargeError)


@on_loop
async def test_a_topic_that_looks_for_duplicates_checks_first() -> None:
    async with running_broker() as broker:
        await broker.topics.create("t", options=options(dedup="content"))
        for name, codec in CASES:
            (outcome,) = await broker.appender.append([RawBatch("t", 0, BROKEN[name].build(codec))])
            assert isinstance(outcome, TailraceError), name
        assert await values_in(broker, "t") == []


@on_loop
async def test_batches_in_check_are_answered_when_the_broker_closes() -> None:
    async with running_broker() as broker:
        await broker.topics.create("t")
        answers = [
            broker.appender.append([RawBatch("t", 0, good_batch(CODECS["gzip"], [bytes(1_000_000)] * 5))]) for _ in range(5)
        ]
        await broker.close()
        for answer in answers:
            (outcome,) = await asyncio.wait_for(answer, 10)
            assert not isinstance(outcome, CorruptBatchError)
