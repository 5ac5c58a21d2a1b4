"""Numbered publishes that are sent again are stored once."""

import asyncio

import pytest

from tailrace.broker import keys
from tailrace.model.errors import InvalidRequestError, OutOfOrderSequenceError, StorageFullError
from tailrace.model.limits import Limits
from tailrace.model.record import Message, NumberedPublish
from tailrace.store.memory import MemoryStore
from tests.support.aio import on_loop, turns
from tests.support.brokers import GatedStore, running_broker, values_in
from tests.support.clocks import ManualClock

FIRST = NumberedPublish("p", 1)
SECOND = NumberedPublish("p", 2)


@on_loop
async def test_a_publish_that_is_sent_again_is_stored_once_and_answered_as_the_first_was() -> None:
    async with running_broker() as broker:
        await broker.topics.create("a", 2)
        await broker.topics.create("b")
        messages = [Message("a", b"1", partition=1), Message("b", b"2"), Message("a", b"3", partition=1)]
        first = await broker.publisher.publish_once(FIRST, messages)
        again = await broker.publisher.publish_once(FIRST, messages)
        assert await values_in(broker, "a", 1) == [b"1", b"3"]
        assert await values_in(broker, "b") == [b"2"]
    assert [each._replace(cursor=None, duplicate=True) for each in first] == again
    assert [each.duplicate for each in first] == [False, False, False]


@on_loop
async def test_a_new_number_is_a_new_publish_and_may_leave_some_out() -> None:
    async with running_broker() as broker:
        await broker.topics.create("a")
        await broker.publisher.publish_once(FIRST, [Message("a", b"1")])
        await broker.publisher.publish_once(NumberedPublish("p", 7), [Message("a", b"1")])
        assert await values_in(broker, "a") == [b"1", b"1"]


@on_loop
async def test_a_number_below_the_last_is_rejected() -> None:
    async with running_broker() as broker:
        await broker.topics.create("a")
        await broker.publisher.publish_once(SECOND, [Message("a", b"1")])
        with pytest.raises(OutOfOrderSequenceError, match="publish 1 after 2"):
            await broker.publisher.publish_once(FIRST, [Message("a", b"0")])
        assert await values_in(broker, "a") == [b"1"]


@on_loop
async def test_a_number_that_comes_again_with_other_messages_is_rejected() -> None:
    async with running_broker() as broker:
        await broker.topics.create("a")
        await broker.publisher.publish_once(FIRST, [Message("a", b"1")])
        with pytest.raises(InvalidRequestError, match="had 1 messages and came again with 2"):
            await broker.publisher.publish_once(FIRST, [Message("a", b"1"), Message("a", b"2")])


@on_loop
async def test_what_is_remembered_survives_a_restart() -> None:
    store = MemoryStore()
    async with running_broker(store) as broker:
        await broker.topics.create("a")
        (first,) = await broker.publisher.publish_once(FIRST, [Message("a", b"1")])
    async with running_broker(store) as broker:
        (again,) = await broker.publisher.publish_once(FIRST, [Message("a", b"1")])
        assert await values_in(broker, "a") == [b"1"]
    assert (again.offset, again.message_id, again.duplicate) == (first.offset, first.message_id, True)


@on_loop
async def test_one_that_is_sent_again_before_the_first_is_durable_waits_for_it() -> None:
    store = GatedStore()
    async with running_broker(store) as broker:
        await broker.topics.create("a")
        store.close_gate()
        first = asyncio.ensure_future(broker.publisher.publish_once(FIRST, [Message("a", b"1")]))
        again = asyncio.ensure_future(broker.publisher.publish_once(FIRST, [Message("a", b"1")]))
        await turns()
        assert not first.done() and not again.done()
        store.open_gate()
        assert (await first)[0].offset == (await again)[0].offset == 0
        assert await values_in(broker, "a") == [b"1"]


@on_loop
async def test_after_a_publish_that_failed_the_same_number_is_stored() -> None:
    store = GatedStore()
    async with running_broker(store) as broker:
        await broker.topics.create("a")
        store.close_gate()
        first = asyncio.ensure_future(broker.publisher.publish_once(FIRST, [Message("a", b"1")]))
        await turns()
        store.fail()
        with pytest.raises(StorageFullError):
            await first
        store.open_gate()
        (again,) = await broker.publisher.publish_once(FIRST, [Message("a", b"1")])
        assert not again.duplicate
        assert await values_in(broker, "a") == [b"1"]


@on_loop
async def test_beyond_the_limit_the_longest_silent_are_forgotten() -> None:
    clock = ManualClock()
    store = MemoryStore(clock)
    limits = Limits(publishers=2)
    async with running_broker(store, clock, limits) as broker:
        await broker.topics.create("a")
        for name in ("x", "y", "x", "z"):
            clock.advance(1)
            number = clock.now_ms()
            await broker.publisher.publish_once(NumberedPublish(name, number), [Message("a", name.encode())])
        assert len(store.range(keys.PUBLISHERS)) == 2
        with pytest.raises(OutOfOrderSequenceError):
            await broker.publisher.publish_once(NumberedPublish("x", 1), [Message("a", b"x")])
        await broker.publisher.publish_once(NumberedPublish("y", 1), [Message("a", b"y")])


@on_loop
async def test_silent_publishers_are_forgotten_after_their_time() -> None:
    clock = ManualClock()
    limits = Limits(publisher_idle_seconds=60)
    async with running_broker(MemoryStore(clock, limits), clock, limits) as broker:
        await broker.topics.create("a")
        await broker.publisher.publish_once(SECOND, [Message("a", b"1")])
        clock.advance(61_000)
        assert await broker.publishers.states.expire() == 1
        assert await broker.publishers.states.expire() == 0
        (again,) = await broker.publisher.publish_once(FIRST, [Message("a", b"1")])
        assert not again.duplicate


@pytest.mark.parametrize("name", ["", "x" * 256])
@on_loop
async def test_a_name_that_is_empty_or_too_long_is_rejected(name: str) -> None:
    async with running_broker() as broker:
        with pytest.raises(InvalidRequestError, match="publisher_name_length"):
            await broker.publisher.publish_once(NumberedPublish(name, 1), [Message("a", b"1")])


@on_loop
async def test_a_publisher_with_a_publish_in_flight_is_not_evicted() -> None:
    clock = ManualClock()
    store = GatedStore(clock)
    async with running_broker(store, clock, Limits(publishers=2)) as broker:
        await broker.topics.create("a")
        for name in ("x", "y"):
            clock.advance(1)
            await broker.publisher.publish_once(NumberedPublish(name, 1), [Message("a", name.encode())])
        store.close_gate()
        speaking = asyncio.ensure_future(broker.publisher.publish_once(NumberedPublish("x", 2), [Message("a", b"x")]))
        await turns()
        newcomer = asyncio.ensure_future(broker.publisher.publish_once(NumberedPublish("z", 1), [Message("a", b"z")]))
        await turns()
        store.open_gate()
        await speaking
        await newcomer
        (again,) = await broker.publisher.publish_once(NumberedPublish("x", 2), [Message("a", b"x")])
        assert again.duplicate
