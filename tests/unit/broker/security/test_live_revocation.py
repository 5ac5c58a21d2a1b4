"""Readers that wait notice at once that they may not read any more, and those of wildcards what they may read now."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest

from tailrace.broker.broker import Broker
from tailrace.broker.security.principals import act_as
from tailrace.broker.security.settings import SecuritySettings
from tailrace.model.consume import ConsumeRequest, EventBatch, LogEdge, PartitionOffset
from tailrace.model.errors import GroupForbiddenError, TopicForbiddenError
from tailrace.model.fetch import PartitionBatches, PartitionFetch
from tailrace.model.ids import Offset
from tailrace.model.limits import DEFAULT_LIMITS
from tailrace.model.names import parse_pattern
from tailrace.model.queue import ReceiveRequest
from tailrace.model.record import Message
from tailrace.model.security import Grant, Operation, Principal, ResourceKind
from tests.support.aio import on_loop, turns
from tests.support.brokers import running_broker

SECURED = SecuritySettings(authentication="required")
ALICE = Principal("alice", "192.0.2.1")
SOON = 1.0
"""Seconds within which a change of rights has to take effect."""
LONG_MS = 20_000


def grant(operation: Operation, kind: ResourceKind, name: str) -> Grant:
    return Grant(principal="alice", operation=operation, kind=kind, name=name)


@asynccontextmanager
async def running() -> AsyncIterator[Broker]:
    """A broker with two topics, whose rest of the test is the user alice."""
    async with running_broker(security=SECURED) as broker:
        for name in ("app.a", "app.b"):
            await broker.topics.create(name)
        await broker.grants.add(
            [grant("consume", "topic", "app.a"), grant("consume", "group", "g"), grant("consume", "queue", "q")]
        )
        act_as(ALICE)
        yield broker


async def publish(broker: Broker, *topics: str) -> None:
    await broker.publisher.publish([Message(topic, b"x") for topic in topics], by_server=True)


async def revoke(broker: Broker) -> None:
    await turns()
    await broker.grants.remove(lambda one: one.kind == "topic")


def fetching(broker: Broker, topic: str, offset: int = 0, wait_ms: int = LONG_MS) -> "asyncio.Task[list[PartitionBatches]]":
    wanted = [PartitionFetch(topic, 0, Offset(offset), 10**6)]
    return asyncio.create_task(broker.fetcher.fetch(wanted, max_wait_ms=wait_ms))


@on_loop
async def test_a_fetch_that_waits_ends_when_its_right_is_revoked() -> None:
    async with running() as broker:
        waiting = fetching(broker, "app.a")
        await revoke(broker)
        (answer,) = await asyncio.wait_for(waiting, SOON)
        assert isinstance(answer.error, TopicForbiddenError)


@on_loop
async def test_a_fetch_that_waits_goes_on_when_the_rights_of_others_change() -> None:
    async with running() as broker:
        waiting = fetching(broker, "app.a")
        await turns()
        await broker.grants.add([grant("publish", "topic", "app.b")])
        await turns()
        assert not waiting.done()
        await publish(broker, "app.a")
        (answer,) = await asyncio.wait_for(waiting, SOON)
        assert len(answer.batches) == 1


@on_loop
async def test_what_does_not_exist_and_what_may_not_be_read_are_the_same() -> None:
    async with running() as broker:
        (hidden,), (missing,) = await fetching(broker, "app.b"), await fetching(broker, "app.c")
        assert hidden.error is not None
        assert missing.error is not None
        assert type(hidden.error) is type(missing.error) is TopicForbiddenError
        assert str(hidden.error).replace("app.b", "app.c") == str(missing.error)


@on_loop
async def test_a_consumer_that_waits_is_told_that_its_right_was_revoked() -> None:
    async with running() as broker:
        waiting = asyncio.create_task(broker.consumers.consume(ConsumeRequest("app.a", wait_ms=LONG_MS)))
        await revoke(broker)
        with pytest.raises(TopicForbiddenError):
            await asyncio.wait_for(waiting, SOON)


@on_loop
async def test_a_fetch_of_batches_that_waits_is_told_that_its_right_was_revoked() -> None:
    async with running() as broker:
        reading = broker.committed_reader.batches_of_many("app.a", [PartitionOffset(0, Offset(0))], max_wait_ms=LONG_MS)
        waiting = asyncio.create_task(reading)
        await revoke(broker)
        with pytest.raises(TopicForbiddenError):
            await asyncio.wait_for(waiting, SOON)


@on_loop
async def test_a_consumer_of_a_queue_that_waits_is_told_that_its_right_was_revoked() -> None:
    async with running() as broker:
        request = ReceiveRequest(group="q", pattern="app.a", wait_ms=LONG_MS)
        waiting = asyncio.create_task(broker.queues.receive(request))
        await revoke(broker)
        with pytest.raises(TopicForbiddenError):
            await asyncio.wait_for(waiting, SOON)
        await broker.grants.add([grant("consume", "topic", "app.a")])
        waiting = asyncio.create_task(broker.queues.receive(request))
        await turns()
        await broker.grants.remove(lambda one: one.kind == "queue")
        with pytest.raises(GroupForbiddenError):
            await asyncio.wait_for(waiting, SOON)


@on_loop
async def test_a_queue_of_a_wildcard_delivers_what_its_consumer_may_consume() -> None:
    async with running() as broker:
        await publish(broker, "app.a", "app.b")
        request = ReceiveRequest(group="q", pattern="app.>", max_records=10)
        assert [each.topic for each in await broker.queues.receive(request)] == ["app.a"]
        await broker.grants.add([grant("consume", "topic", "app.b")])
        assert [each.topic for each in await broker.queues.receive(request)] == ["app.b"]
        waiting = asyncio.create_task(broker.queues.receive(ReceiveRequest(group="q", pattern="app.>", wait_ms=LONG_MS)))
        await turns()
        await publish(broker, "app.b")
        assert [each.topic for each in await asyncio.wait_for(waiting, SOON)] == ["app.b"]


def topics_of(found: Sequence[EventBatch]) -> list[str]:
    return [batch.topic for batch in found]


@on_loop
async def test_a_subscription_of_a_wildcard_delivers_what_its_reader_may_consume() -> None:
    async with running() as broker:
        await publish(broker, "app.a", "app.b")
        subscription = broker.subscriptions.subscribe(parse_pattern("app.>", DEFAULT_LIMITS), LogEdge.BEGINNING)
        assert topics_of(await subscription.read(0)) == ["app.a"]
        await broker.grants.add([grant("consume", "topic", "app.b")])
        await publish(broker, "app.a", "app.b")
        assert topics_of(await subscription.read(0)) == ["app.a", "app.b"]
        await broker.grants.remove(lambda one: one.name == "app.a")
        await publish(broker, "app.a", "app.b")
        assert topics_of(await subscription.read(0)) == ["app.b"]
        waiting = asyncio.create_task(subscription.read(20))
        await revoke(broker)
        await publish(broker, "app.a", "app.b")
        await turns(50)
        assert not waiting.done()
        subscription.close()
        waiting.cancel()


@on_loop
async def test_a_subscription_of_one_topic_ends_when_its_right_is_revoked() -> None:
    async with running() as broker:
        with pytest.raises(TopicForbiddenError):
            broker.subscriptions.subscribe(parse_pattern("app.b", DEFAULT_LIMITS), LogEdge.LATEST)
        assert broker.subscriptions.subscribers == 0
        subscription = broker.subscriptions.subscribe(parse_pattern("app.a", DEFAULT_LIMITS), LogEdge.LATEST)
        waiting = asyncio.create_task(subscription.read(20))
        await revoke(broker)
        with pytest.raises(TopicForbiddenError):
            await asyncio.wait_for(waiting, SOON)
        subscription.close()


@on_loop
async def test_a_pattern_as_a_topic_delivers_what_its_reader_may_consume() -> None:
    async with running() as broker:
        await publish(broker, "app.b", "app.a", "app.b", "app.a")
        (answer,) = await fetching(broker, "app.>", wait_ms=0)
        assert answer.error is None
        assert len(answer.batches) == 1, "the messages to app.a were published together"
        end = answer.bounds.end
        waiting = fetching(broker, "app.>", end)
        await turns()
        await publish(broker, "app.b")
        await turns(50)
        await broker.grants.add([grant("consume", "topic", "app.b")])
        await publish(broker, "app.b")
        (answer,) = await asyncio.wait_for(waiting, SOON)
        assert len(answer.batches) in (1, 2)
        await revoke(broker)
        (answer,) = await fetching(broker, "app.>", wait_ms=0)
        assert sum(len(batch) for batch in answer.batches if batch) < 200
        assert await broker.pattern_positions.newest(parse_pattern("app.>", DEFAULT_LIMITS)) is None
