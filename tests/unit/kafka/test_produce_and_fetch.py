"""Produce and fetch over the handlers: batches are stored as they are, and each partition succeeds or fails on its own."""

import asyncio
from typing import Any
from uuid import uuid4

import pytest

from tailrace.model.commit import Buffer
from tailrace.model.limits import DEFAULT_LIMITS
from tailrace.model.record import Record
from tailrace.wire.messages.fetch import (
    FETCH_API,
    FetchPartition,
    FetchPartitionData,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
)
from tailrace.wire.messages.produce import (
    PRODUCE_API,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tailrace.wire.messages.transactions import INIT_PRODUCER_ID_API, InitProducerIdRequest
from tailrace.wire.records import decode_batch, encode_batch
from tests.support.aio import on_loop, turns
from tests.support.brokers import values_in
from tests.support.clocks import ManualClock
from tests.support.kafka import Asker, running_asker

PRODUCE_VERSIONS = range(PRODUCE_API.lowest, PRODUCE_API.highest + 1)
FETCH_VERSIONS = range(FETCH_API.lowest, FETCH_API.highest + 1)


def batch(*values: bytes, **producer: Any) -> bytes:
    return bytes(encode_batch([Record(None, value, (), ManualClock().now_ms()) for value in values], **producer))


async def send(
    asker: Asker, records: Buffer | None, version: int = 12, acks: int = -1, number: int = 0
) -> ProduceResponse | None:
    topic = asker.broker.topics.get("orders").topic
    data = TopicProduceData(
        name="orders", topic_id=topic.uuid, partition_data=(PartitionProduceData(index=number, records=records),)
    )
    response: ProduceResponse | None = await asker.ask(PRODUCE_API, ProduceRequest(acks=acks, topic_data=(data,)), version)
    return response


def only(response: ProduceResponse | None) -> PartitionProduceResponse:
    assert response is not None
    return response.responses[0].partition_responses[0]


async def read(asker: Asker, version: int = 12, offset: int = 0, **fields: Any) -> FetchResponse:
    topic = asker.broker.topics.get("orders").topic
    wanted = FetchTopic(
        topic="orders", topic_id=topic.uuid, partitions=(FetchPartition(fetch_offset=offset, partition_max_bytes=1 << 20),)
    )
    response: FetchResponse = await asker.ask(FETCH_API, FetchRequest(topics=(wanted,), min_bytes=1, **fields), version)
    return response


def partition_of(response: FetchResponse) -> FetchPartitionData:
    return response.responses[0].partitions[0]


@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
@on_loop
async def test_records_are_stored_whatever_version_brings_them(version: int) -> None:
    async with running_asker() as asker:
        await asker.broker.topics.create("orders")
        await send(asker, batch(b"zero"))
        answer = only(await send(asker, batch(b"one", b"two"), version))
        assert (answer.error_code, answer.base_offset) == (0, 1)
        assert answer.log_start_offset == (0 if version >= 5 else -1)
        assert await values_in(asker.broker, "orders") == [b"zero", b"one", b"two"]


@pytest.mark.parametrize("version", FETCH_VERSIONS)
@on_loop
async def test_batches_come_back_byte_for_byte_whatever_version_asks(version: int) -> None:
    async with running_asker() as asker:
        await asker.broker.topics.create("orders")
        first, large = batch(b"a", b"b"), batch(b"c" * 10_000)
        await send(asker, first)
        await send(asker, large)
        response = await read(asker, version)
        answer = partition_of(response)
        assert (answer.error_code, answer.high_watermark, answer.last_stable_offset) == (0, 3, 3)
        records = bytes(answer.records or b"")
        assert len(records) == len(first) + len(large)
        # The broker sets base offset and leader epoch, which the checksum does not cover.
        assert records[16 : len(first)] == first[16:]
        assert records[len(first) + 16 :] == large[16:]
        assert int.from_bytes(records[len(first) : len(first) + 8]) == 2
        if version >= 13:
            assert response.responses[0].topic_id == asker.broker.topics.get("orders").topic.uuid
        else:
            assert response.responses[0].topic == "orders"


@on_loop
async def test_acks_0_stores_the_records_without_a_response() -> None:
    async with running_asker() as asker:
        await asker.broker.topics.create("orders")
        assert await send(asker, batch(b"x"), acks=0) is None
        assert await values_in(asker.broker, "orders") == [b"x"]


@on_loop
async def test_a_failed_produce_with_acks_0_closes_the_connection() -> None:
    async with running_asker() as asker:
        await asker.broker.topics.create("orders")
        with pytest.raises(Exception, match="a produce with acks=0 failed"):
            await send(asker, b"garbage" * 20, acks=0)


@pytest.mark.parametrize(
    ("records", "code"),
    [
        (None, 87),
        (b"", 87),
        (batch(b"a") + batch(b"b"), 87),
        (b"\0" * 8 + b"\0\0\0\x20" + b"\0\0\0\0" + b"\x01" + b"\0" * 27, 87),
        (batch(b"a")[:-1], 2),
        (batch(b"a")[:-1] + b"?", 2),
        (b"short", 2),
        (batch(b"x" * 2_000_000), 10),
    ],
    ids=["null", "empty", "two batches", "old format", "torn", "bad checksum", "too short", "too large"],
)
@on_loop
async def test_rejected_records_get_kafkas_error_code(records: bytes | None, code: int) -> None:
    async with running_asker() as asker:
        await asker.broker.topics.create("orders")
        answer = only(await send(asker, records))
        assert (answer.error_code, answer.base_offset) == (code, -1)
        assert answer.error_message
        assert await values_in(asker.broker, "orders") == []


@on_loop
async def test_one_bad_partition_does_not_keep_the_others_from_being_stored() -> None:
    async with running_asker() as asker:
        await asker.broker.topics.create("orders", 3)
        partitions = (
            PartitionProduceData(index=0, records=batch(b"a")),
            PartitionProduceData(index=9, records=batch(b"b")),
            PartitionProduceData(index=1, records=None),
            PartitionProduceData(index=2, records=batch(b"c")),
        )
        topics = (
            TopicProduceData(name="orders", partition_data=partitions),
            TopicProduceData(name="nothing", partition_data=partitions[:1]),
        )
        response = await asker.ask(PRODUCE_API, ProduceRequest(acks=1, topic_data=topics), 12)
        codes = [[each.error_code for each in topic.partition_responses] for topic in response.responses]
        assert codes == [[0, 3, 87, 0], [3]]
        assert await values_in(asker.broker, "orders", 0) == [b"a"]
        assert await values_in(asker.broker, "orders", 2) == [b"c"]


@on_loop
async def test_a_topic_that_was_created_again_rejects_records_for_the_old_one() -> None:
    async with running_asker() as asker:
        old = (await asker.broker.topics.create("orders")).uuid
        await asker.broker.topics.delete("orders")
        await asker.broker.topics.create("orders")
        data = TopicProduceData(topic_id=old, partition_data=(PartitionProduceData(records=batch(b"x")),))
        response = await asker.ask(PRODUCE_API, ProduceRequest(acks=-1, topic_data=(data,)), 13)
        assert only(response).error_code == 100
        assert await values_in(asker.broker, "orders") == []


@on_loop
async def test_acks_of_two_are_rejected() -> None:
    async with running_asker() as asker:
        await asker.broker.topics.create("orders")
        assert only(await send(asker, batch(b"x"), acks=2)).error_code == 21


@on_loop
async def test_an_idempotent_batch_that_is_sent_again_is_stored_once() -> None:
    async with running_asker() as asker:
        await asker.broker.topics.create("orders")
        given = await asker.ask(INIT_PRODUCER_ID_API, InitProducerIdRequest(transactional_id=None), 5)
        other = await asker.ask(INIT_PRODUCER_ID_API, InitProducerIdRequest(transactional_id=None), 5)
        assert (given.error_code, given.producer_epoch) == (0, 0)
        assert other.producer_id != given.producer_id
        records = batch(b"x", producer_id=given.producer_id, producer_epoch=0, base_sequence=0)
        assert only(await send(asker, records)).base_offset == 0
        assert only(await send(asker, records)).base_offset == 0
        assert await values_in(asker.broker, "orders") == [b"x"]


@on_loop
async def test_a_fetch_waits_until_records_come() -> None:
    async with running_asker() as asker:
        await asker.broker.topics.create("orders")
        waiting = asyncio.ensure_future(read(asker, max_wait_ms=20_000))
        await turns()
        assert not waiting.done()
        await send(asker, batch(b"x"))
        assert partition_of(await waiting).records


@pytest.mark.parametrize(("offset", "code"), [(5, 1), (-1, 1)])
@on_loop
async def test_an_offset_out_of_range_is_reported_at_once(offset: int, code: int) -> None:
    async with running_asker() as asker:
        await asker.broker.topics.create("orders")
        answer = partition_of(await read(asker, offset=offset, max_wait_ms=20_000))
        assert (answer.error_code, answer.high_watermark) == (code, -1)


@on_loop
async def test_an_unknown_topic_is_reported_at_once_by_name_and_by_id() -> None:
    async with running_asker() as asker:
        by_name = FetchTopic(topic="nothing", partitions=(FetchPartition(),))
        by_id = FetchTopic(topic_id=uuid4(), partitions=(FetchPartition(),))
        for topic, version, code in ((by_name, 12, 3), (by_id, 13, 100)):
            response = await asker.ask(FETCH_API, FetchRequest(topics=(topic,), min_bytes=1, max_wait_ms=20_000), version)
            assert partition_of(response).error_code == code


@on_loop
async def test_a_reader_that_knows_a_newer_leader_is_sent_back_to_the_metadata() -> None:
    async with running_asker() as asker:
        await asker.broker.topics.create("orders")
        topic = FetchTopic(topic="orders", partitions=(FetchPartition(current_leader_epoch=5),))
        response = await asker.ask(FETCH_API, FetchRequest(topics=(topic,)), 12)
        assert partition_of(response).error_code == 75


@on_loop
async def test_a_session_returns_only_changes() -> None:
    async with running_asker() as asker:
        await asker.broker.topics.create("orders")
        first = await read(asker, session_id=0, session_epoch=0)
        session = first.session_id
        assert session > 0
        assert len(first.responses) == 1

        async def go_on(epoch: int, **fields: object) -> FetchResponse:
            request = FetchRequest(session_id=session, session_epoch=epoch, min_bytes=0, **fields)  # type: ignore[arg-type]
            response: FetchResponse = await asker.ask(FETCH_API, request, 12)
            return response

        assert (await go_on(1)).responses == ()
        await send(asker, batch(b"x"))
        told = await go_on(2)
        assert partition_of(told).records
        moved = FetchTopic(topic="orders", partitions=(FetchPartition(fetch_offset=1, partition_max_bytes=1 << 20),))
        assert (await go_on(3, topics=(moved,))).responses == ()
        assert (await go_on(3)).error_code == 71
        assert (await go_on(4, forgotten_topics_data=(ForgottenTopic(topic="orders", partitions=(0,)),))).responses == ()
        await send(asker, batch(b"y"))
        assert (await go_on(5)).responses == ()
        await go_on(-1)
        assert (await go_on(6)).error_code == 70


@on_loop
async def test_readers_of_committed_records_get_a_list_of_aborted_transactions_and_others_none() -> None:
    async with running_asker() as asker:
        await asker.broker.topics.create("orders")
        assert partition_of(await read(asker, isolation_level=1)).aborted_transactions == ()
        assert partition_of(await read(asker, isolation_level=0)).aborted_transactions is None


async def make_again(asker: Asker, *values: bytes) -> None:
    await asker.broker.topics.delete("orders")
    await asker.broker.topics.create("orders")
    await send(asker, batch(*values))


@pytest.mark.parametrize("version", [version for version in FETCH_VERSIONS if version >= 13])
@on_loop
async def test_a_topic_that_was_created_again_is_not_read_by_its_old_id(version: int) -> None:
    async with running_asker() as asker:
        await asker.broker.topics.create("orders")
        await send(asker, batch(b"old 0", b"old 1"))
        first = await read(asker, version, session_epoch=0)
        assert partition_of(first).records
        await make_again(asker, b"new 0", b"new 1", b"new 2")
        request = FetchRequest(session_id=first.session_id, session_epoch=1, min_bytes=1)
        told = partition_of(await asker.ask(FETCH_API, request, version))
        assert (told.error_code, bytes(told.records or b"")) == (100, b"")


@pytest.mark.parametrize("version", [7, 12])
@on_loop
async def test_a_session_by_name_learns_once_that_its_topic_was_created_again(version: int) -> None:
    async with running_asker() as asker:
        await asker.broker.topics.create("orders")
        await send(asker, batch(b"old 0", b"old 1"))
        first = await read(asker, version, session_epoch=0)
        await make_again(asker, b"new 0", b"new 1", b"new 2")

        async def go_on(epoch: int, offset: int) -> FetchPartitionData:
            moved = FetchTopic(topic="orders", partitions=(FetchPartition(fetch_offset=offset, partition_max_bytes=1 << 20),))
            request = FetchRequest(session_id=first.session_id, session_epoch=epoch, topics=(moved,), min_bytes=1)
            return partition_of(await asker.ask(FETCH_API, request, version))

        assert (await go_on(1, offset=2)).error_code == 1
        told = await go_on(2, offset=0)
        assert told.records is not None
        records = decode_batch(told.records, DEFAULT_LIMITS)
        assert [record.value for record in records] == [b"new 0", b"new 1", b"new 2"]


@pytest.mark.parametrize(("version", "code"), [(12, 3), (13, 100)])
@on_loop
async def test_a_waiting_fetch_fails_when_its_topic_is_deleted(version: int, code: int) -> None:
    async with running_asker() as asker:
        await asker.broker.topics.create("orders")
        waiting = asyncio.create_task(read(asker, version, max_wait_ms=20_000))
        await turns(10)
        await asker.broker.topics.delete("orders")
        assert partition_of(await waiting).error_code == code
