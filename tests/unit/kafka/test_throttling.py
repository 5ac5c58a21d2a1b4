"""Clients that use more than their quota are told to wait, and nothing of theirs is done before, over real sockets."""

import asyncio
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import pytest

from tailrace.broker.broker import Broker
from tailrace.kafka.dispatch import RequestContext
from tailrace.kafka.listener import KafkaListener
from tailrace.kafka.metrics import Traffic
from tailrace.kafka.throttling import MeteredRequest, Throttle
from tailrace.model.clock import SystemClock
from tailrace.model.limits import DEFAULT_LIMITS
from tailrace.model.quota import QuotaEntity
from tailrace.model.record import Record
from tailrace.model.security import ANONYMOUS
from tailrace.wire.message import Api, KafkaMessage
from tailrace.wire.message_codec import MessageCodec
from tailrace.wire.messages.cluster import API_VERSIONS_API, ApiVersionsRequest
from tailrace.wire.messages.fetch import FETCH_API, FetchPartition, FetchRequest, FetchTopic
from tailrace.wire.messages.groups import LIST_GROUPS_API, ListGroupsRequest
from tailrace.wire.messages.produce import PRODUCE_API, PartitionProduceData, ProduceRequest, TopicProduceData
from tailrace.wire.records import encode_batch
from tests.support.aio import on_loop, until
from tests.support.brokers import running_broker
from tests.support.connections import Side
from tests.support.kafka import CLIENT, asker_of, frame, read_response, running_asker, sized

CODEC = MessageCodec()
EVERYBODY = QuotaEntity(ANONYMOUS.name)


class Served(NamedTuple):
    broker: Broker
    traffic: Traffic
    port: int

    async def connect(self) -> Side:
        return Side(*await asyncio.open_connection("127.0.0.1", self.port))


@asynccontextmanager
async def served() -> AsyncIterator[Served]:
    clock = SystemClock()
    async with running_broker(clock=clock) as broker:
        asker = asker_of(broker, clock)
        with socket.create_server(("127.0.0.1", 0)) as bound:
            listener = KafkaListener(asker.dispatcher, bound, asker.traffic, DEFAULT_LIMITS, 0.5)
            await listener.start()
            try:
                yield Served(broker, asker.traffic, bound.getsockname()[1])
            finally:
                await listener.stop()
                await until(lambda: asker.traffic.open == 0)


async def ask(side: Side, api: Api, request: KafkaMessage, version: int | None = None) -> Any:
    version = api.highest if version is None else version
    await side.send(sized(frame(api, version, request)))
    return read_response(api, version, await side.receive())[1]


def produce(*values: bytes, name: str = "orders", partitions: int = 1) -> ProduceRequest:
    batch = encode_batch([Record(None, value, (), 1_700_000_000_000) for value in values])
    data = tuple(PartitionProduceData(index=number, records=batch) for number in range(partitions))
    return ProduceRequest(acks=-1, topic_data=(TopicProduceData(name=name, partition_data=data),))


@pytest.mark.parametrize("partitions", [1, 2])
@pytest.mark.parametrize("version", [3, 8, 9, 12])
@on_loop
async def test_a_producer_over_its_quota_is_answered_and_told_to_wait(version: int, partitions: int) -> None:
    async with served() as server:
        await server.broker.topics.create("orders", 2)
        await server.broker.quotas.alter(EVERYBODY, {"publish_bytes": 10_000.0})
        side = await server.connect()
        small = await ask(side, PRODUCE_API, produce(b"x", partitions=partitions), version)
        assert small.throttle_time_ms == 0
        large = await ask(side, PRODUCE_API, produce(bytes(12_000 // partitions), partitions=partitions), version)
        assert {each.error_code for each in large.responses[0].partition_responses} == {0}
        assert 0 < large.throttle_time_ms <= 500
        began = time.monotonic()
        await ask(side, LIST_GROUPS_API, ListGroupsRequest())
        assert time.monotonic() - began >= large.throttle_time_ms / 1000 - 0.05
        side.writer.close()


@pytest.mark.parametrize("version", [4, 11, 12])
@on_loop
async def test_a_consumer_over_its_quota_gets_its_records_and_is_told_to_wait(version: int) -> None:
    async with served() as server:
        await server.broker.topics.create("orders")
        side = await server.connect()
        await ask(side, PRODUCE_API, produce(bytes(12_000)), 9)
        await server.broker.quotas.alter(EVERYBODY, {"consume_bytes": 10_000.0})
        wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
        request = FetchRequest(max_wait_ms=0, max_bytes=1 << 20, topics=(FetchTopic(topic="orders", partitions=(wanted,)),))
        fetched = await ask(side, FETCH_API, request, version)
        assert len(fetched.responses[0].partitions[0].records) > 12_000
        assert 0 < fetched.throttle_time_ms <= 500
        began = time.monotonic()
        await ask(side, LIST_GROUPS_API, ListGroupsRequest())
        assert time.monotonic() - began >= fetched.throttle_time_ms / 1000 - 0.05
        side.writer.close()


@on_loop
async def test_requests_that_are_sent_without_waiting_are_started_no_faster() -> None:
    async with served() as server:
        await server.broker.quotas.alter(EVERYBODY, {"requests": 20.0})
        side = await server.connect()
        began = time.monotonic()
        await side.send(sized(frame(LIST_GROUPS_API, 4, ListGroupsRequest())) * 30)
        throttled = [read_response(LIST_GROUPS_API, 4, await side.receive())[1].throttle_time_ms for _ in range(30)]
        assert time.monotonic() - began > 0.4
        assert throttled[:20] == [0] * 20
        assert throttled[-1] > 0
        side.writer.close()


@on_loop
async def test_others_are_served_while_a_client_waits_and_a_client_that_leaves_is_forgotten() -> None:
    async with served() as server:
        await server.broker.quotas.alter(QuotaEntity(None, "test"), {"requests": 1.0})
        greedy = await server.connect()
        await greedy.send(sized(frame(LIST_GROUPS_API, 4, ListGroupsRequest())) * 20)
        await greedy.receive()
        other = await server.connect()
        named = bytearray(frame(LIST_GROUPS_API, 4, ListGroupsRequest()))
        named[10:14] = b"else"
        began = time.monotonic()
        await other.send(sized(named) * 3)
        for _ in range(3):
            assert read_response(LIST_GROUPS_API, 4, await other.receive())[1].throttle_time_ms == 0
        assert time.monotonic() - began < 0.9
        greedy.writer.close()
        await until(lambda: server.traffic.open == 1)
        other.writer.close()


@on_loop
async def test_a_user_has_no_more_connections_than_its_quota() -> None:
    async with served() as server:
        await server.broker.quotas.alter(EVERYBODY, {"connections": 2.0})
        first, second, third = [await server.connect() for _ in range(3)]
        assert await third.is_closed()
        assert server.traffic.closed["quota"] == 1
        first.writer.close()
        await until(lambda: server.traffic.open == 1)
        fourth = await server.connect()
        await ask(fourth, LIST_GROUPS_API, ListGroupsRequest())
        for side in (second, third, fourth):
            side.writer.close()


@on_loop
async def test_the_time_is_written_where_each_version_of_each_response_has_it() -> None:
    async with running_asker() as asker:
        throttle = asker.dispatcher.throttle
        assert throttle is not None
        without = []
        for route in asker.dispatcher.routes:
            for version in route.versions:
                api = route.api
                body = bytearray()
                CODEC.write(api.response(), version, api.is_flexible(version), body)
                whole = (RequestContext(api, version, 7, None, CLIENT).head(len(body)), body)
                timed = b"".join(throttle.with_time(MeteredRequest(api.key, version, "", 0), whole, 1234))
                read = read_response(api, version, timed[4:])[1]
                if getattr(read, "throttle_time_ms", 0) == 1234:
                    continue
                assert timed == b"".join(whole)
                without.append(api.name)
        assert PRODUCE_API.name not in without
        assert FETCH_API.name not in without


@on_loop
async def test_without_quotas_nothing_is_metered() -> None:
    async with running_asker() as asker:
        throttle = asker.dispatcher.throttle
        assert isinstance(throttle, Throttle)
        metered = throttle.metered(frame(API_VERSIONS_API, 3, ApiVersionsRequest()))
        assert metered == MeteredRequest(API_VERSIONS_API.key, 3, "test", metered.size)
        assert throttle.charge(metered, None, ANONYMOUS) == 0
