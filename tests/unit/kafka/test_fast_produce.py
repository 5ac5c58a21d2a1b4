"""The fast path of a produce and the general one give the same responses and store the same records."""

from collections.abc import Sequence
from typing import Any
from uuid import UUID, uuid4

import pytest

from tailrace.kafka.dispatch import Dispatcher, PendingResponse
from tailrace.model.ids import Offset, PartitionId
from tailrace.model.limits import DEFAULT_LIMITS
from tailrace.model.record import Record
from tailrace.model.topic import CompressionMode
from tailrace.wire.batch import read_header
from tailrace.wire.compression import Compression
from tailrace.wire.messages.produce import PRODUCE_API, PartitionProduceData, ProduceRequest, TopicProduceData
from tailrace.wire.records import encode_batch
from tests.support.aio import on_loop
from tests.support.brokers import options, values_in
from tests.support.clocks import ManualClock
from tests.support.kafka import CLIENT, Asker, answer_of, frame, running_asker

VERSIONS = range(PRODUCE_API.lowest, PRODUCE_API.highest + 1)
TOPIC_ID = uuid4()


def batch(*values: bytes, **producer: Any) -> bytes:
    return bytes(encode_batch([Record(None, value, (), ManualClock().now_ms()) for value in values], **producer))


def broken(records: bytes) -> bytes:
    return records[:-1] + bytes([records[-1] ^ 1])


CASES = {
    "one record": [batch(b"a")],
    "many records": [batch(b"a", b"b", b"c")],
    "two requests": [batch(b"a"), batch(b"b")],
    "sent twice": [batch(b"a", producer_id=0, producer_epoch=0, base_sequence=0)] * 2,
    "a gap": [batch(b"a", producer_id=0, producer_epoch=0, base_sequence=7)],
    "broken": [broken(batch(b"a"))],
    "none": [b""],
    "two batches": [batch(b"a") + batch(b"b")],
    "torn": [batch(b"a")[:-3]],
}


def without_fast_path(asker: Asker) -> Dispatcher:
    routes = [route._replace(fast_path=None) for route in asker.dispatcher.routes]
    return Dispatcher(routes, asker.traffic, DEFAULT_LIMITS)


async def responses(
    requests: Sequence[bytes],
    version: int,
    acks: int,
    *,
    fast: bool,
    name: str,
    index: int,
    compression: CompressionMode | None = None,
) -> tuple[list[bytes], Any]:
    """The bytes of all responses, and the records of the topic afterwards."""
    async with running_asker() as asker:
        topic = await asker.broker.topics.create("orders", options=options(compression=compression))
        await asker.broker.producers.allocate()
        dispatcher = asker.dispatcher if fast else without_fast_path(asker)
        found = []
        for records in requests:
            data = TopicProduceData(
                name=name,
                topic_id=topic.uuid if name == "orders" else TOPIC_ID,
                partition_data=(PartitionProduceData(index=index, records=records),),
            )
            received = frame(PRODUCE_API, version, ProduceRequest(acks=acks, topic_data=(data,)))
            response = dispatcher.dispatch(received, CLIENT)
            if isinstance(response, PendingResponse):
                response = await answer_of(response)
            # Each broker has topics with ids of its own.
            found.append(b"".join(response or ()).replace(topic.uuid.bytes, UUID(int=0).bytes))
        return found, await values_in(asker.broker, "orders")


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("requests", CASES.values(), ids=CASES.keys())
@on_loop
async def test_both_paths_respond_alike_and_store_the_same(version: int, requests: list[bytes]) -> None:
    for acks in (-1, 1, 2):
        by_path = [await responses(requests, version, acks, fast=fast, name="orders", index=0) for fast in (True, False)]
        assert by_path[0] == by_path[1]


@pytest.mark.parametrize("requests", CASES.values(), ids=CASES.keys())
@on_loop
async def test_both_paths_respond_alike_for_a_topic_with_a_codec(requests: list[bytes]) -> None:
    by_path = [
        await responses(requests, 9, -1, fast=fast, name="orders", index=0, compression="gzip") for fast in (True, False)
    ]
    assert by_path[0] == by_path[1]


@on_loop
async def test_the_fast_path_compresses_again() -> None:
    async with running_asker() as asker:
        topic = await asker.broker.topics.create("orders", options=options(compression="gzip"))
        data = TopicProduceData(name="orders", partition_data=(PartitionProduceData(index=0, records=batch(b"a")),))
        response = await asker.ask(PRODUCE_API, ProduceRequest(acks=-1, topic_data=(data,)), 9)
        assert response.responses[0].partition_responses[0].error_code == 0
        (stored,) = asker.broker.store.fetch(PartitionId(topic.id, 0), Offset(0), 1_000).batches
        assert read_header(stored).codec == Compression.GZIP
        assert await values_in(asker.broker, "orders") == [b"a"]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(("name", "index"), [("nowhere", 0), ("orders", 7)], ids=["topic", "partition"])
@on_loop
async def test_both_paths_reject_what_does_not_exist_alike(version: int, name: str, index: int) -> None:
    by_path = [await responses([batch(b"a")], version, -1, fast=fast, name=name, index=index) for fast in (True, False)]
    assert by_path[0] == by_path[1]
    assert by_path[0][1] == []


@on_loop
async def test_one_batch_takes_the_fast_path() -> None:
    async with running_asker() as asker:
        await asker.broker.topics.create("orders")
        data = TopicProduceData(name="orders", partition_data=(PartitionProduceData(index=0, records=batch(b"a")),))
        received = frame(PRODUCE_API, 9, ProduceRequest(acks=-1, topic_data=(data,)))
        (route,) = (route for route in asker.dispatcher.routes if route.api.key == PRODUCE_API.key)
        assert route.fast_path is not None
        pending = route.fast_path(received)
        assert pending is not None
        await answer_of(pending)
        assert await values_in(asker.broker, "orders") == [b"a"]
