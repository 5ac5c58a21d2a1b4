"""The broker as a whole: on a store on disk, across restarts, and at its end."""

import asyncio
from pathlib import Path

import pytest

from tailrace.broker import keys
from tailrace.broker.broker import Broker
from tailrace.model.clock import SystemClock
from tailrace.model.commit import Changes
from tailrace.model.errors import StoreClosedError
from tailrace.model.fetch import PartitionFetch
from tailrace.model.ids import Offset
from tailrace.model.record import Message
from tailrace.store.embedded import EmbeddedStore
from tailrace.store.memory import MemoryStore
from tests.support.aio import on_loop, turns
from tests.support.brokers import GatedStore, append, options, placed, raw, running_broker, values_in
from tests.support.offsets import up_to


@on_loop
async def test_everything_is_there_again_after_a_restart_on_disk(tmp_path: Path) -> None:
    clock = SystemClock()
    store = EmbeddedStore.open(tmp_path, clock=clock)
    async with running_broker(store, clock) as broker:
        await broker.topics.create("t", 2, alias="tee", options=options(dedup="id"))
        producer = await broker.producers.allocate()
        fields = {"producer_id": producer, "producer_epoch": 0}
        await append(broker, raw("t", 0, b"a", b"b", timestamp=clock.now_ms(), base_sequence=0, **fields))
        await broker.publisher.publish([Message("t", b"c", message_id="m", partition=1)])
        await broker.offsets.commit("g", [up_to("t", 0, 2)])
    store.close()
    store = EmbeddedStore.open(tmp_path, clock=clock)
    async with running_broker(store, clock) as broker:
        assert broker.topics.get("tee").topic.partitions == 2
        assert await values_in(broker, "t", 0) == [b"a", b"b"]
        again = await append(broker, raw("t", 0, b"a", b"b", timestamp=clock.now_ms(), base_sequence=0, **fields))
        assert (again.base_offset, again.duplicates) == (0, 2)
        (duplicate,) = await broker.publisher.publish([Message("t", b"c", message_id="m")])
        assert (duplicate.partition, duplicate.offset, duplicate.duplicate) == (1, 0, True)
        committed = broker.offsets.committed("g", "t", 0)
        assert committed is not None
        assert committed.offset == 2
        assert await broker.producers.allocate() == producer + 1
    store.close()


@on_loop
async def test_concurrent_callers_on_disk_get_each_their_own_offset(tmp_path: Path) -> None:
    clock = SystemClock()
    store = EmbeddedStore.open(tmp_path, clock=clock)
    async with running_broker(store, clock) as broker:
        await broker.topics.create("t", 4)

        async def caller(number: int) -> list[tuple[int, int]]:
            places: list[tuple[int, int]] = []
            for _ in range(20):
                appended = await append(broker, raw("t", number % 4, b"%d" % number, timestamp=clock.now_ms()))
                places.append((number % 4, appended.base_offset))
            return places

        places = [place for found in await asyncio.gather(*(caller(number) for number in range(32))) for place in found]
        assert sorted(places) == [(partition, offset) for partition in range(4) for offset in range(160)]
        answers = await broker.fetcher.fetch([PartitionFetch("t", partition, Offset(0), 10**6) for partition in range(4)])
        assert [answer.bounds.end for answer in answers] == [160] * 4
    store.close()


@on_loop
async def test_closing_finishes_what_is_in_flight_and_takes_nothing_new() -> None:
    store = GatedStore()
    async with running_broker(store) as broker:
        await broker.topics.create("t")
        store.close_gate()
        appending = broker.appender.append([raw("t", 0, b"v")])
        await turns()
        closing = asyncio.ensure_future(broker.close())
        await turns()
        with pytest.raises(StoreClosedError):
            await broker.appender.append([raw("t", 0, b"late")])
        with pytest.raises(StoreClosedError):
            await broker.publisher.publish([Message("t", b"late")])
        assert not closing.done()
        store.open_gate()
        await closing
        assert await appending == [placed(0, 0)]


@on_loop
async def test_closing_again_does_nothing() -> None:
    async with running_broker() as broker:
        await broker.close()
        await broker.close()


def test_a_broker_can_be_made_before_there_is_a_loop() -> None:
    store = GatedStore()
    broker = Broker(store, SystemClock())

    async def use() -> int:
        await broker.start()
        await broker.topics.create("t")
        await broker.close()
        return broker.topics.partition_count

    assert asyncio.run(use()) == 1


@on_loop
async def test_the_state_of_an_earlier_survey_of_timestamps_is_deleted() -> None:
    store = MemoryStore()
    store.commit(Changes(puts=[(keys.OLD_TIMES + b"1", b"x"), (keys.OLD_TIMES + b"2", b"y")]))
    async with running_broker(store):
        assert store.range(keys.OLD_TIMES) == []
