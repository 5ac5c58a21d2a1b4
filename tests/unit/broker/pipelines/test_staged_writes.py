"""What writers without a lease publish: once, all or nothing, in one frame or in many."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import msgspec
import pytest

from tailrace.broker.broker import Broker
from tailrace.broker.pipelines.staged_chunks import Stage
from tailrace.model.errors import InvalidRecordsError, InvalidRequestError, StorageFullError, UnknownTopicError
from tailrace.model.limits import DEFAULT_LIMITS
from tailrace.model.pipeline import MarkMove, StagedPublish
from tailrace.model.record import Record
from tailrace.store.memory import MemoryStore
from tailrace.wire.batch import CONTROL_MASK, with_attributes
from tailrace.wire.records import encode_batch
from tailrace.wire.staged_chunks import StagedBatch, StagedChunk, encode_staged_chunk
from tests.support.aio import on_loop, until
from tests.support.brokers import GatedStore, bounds_of, options, running_broker, values_in
from tests.support.clocks import ManualClock

NOW = ManualClock().now_ms()
SMALL = msgspec.structs.replace(DEFAULT_LIMITS, frame_bytes=2_000, group_commit_bytes=500)
"""A value of `LARGE` goes into some ten frames of one chunk each."""
LARGE = [b"%03d" % number * 100 for number in range(10)]
LATER = [b"later"]


def batch(*values: bytes) -> bytes:
    return bytes(encode_batch([Record(None, value, [("message_id", value)], NOW) for value in values]))


async def staged(broker: Broker, name: str, values: Sequence[bytes], topic: str = "out") -> list[Stage]:
    """A chunk for each value, over two parts."""
    topic_id = broker.topics.get(topic).topic.id
    chunks = [encode_staged_chunk(StagedChunk([], [StagedBatch(topic_id, topic, 0, batch(value))])) for value in values]
    for part, some in enumerate((chunks[:4], chunks[4:])):
        await broker.pipelines.stage("q", name, part, b"".join(some))
    return [Stage(name, 2)]


async def write(broker: Broker, stages: list[Stage], number: int, *, writer: str = "query-7") -> StagedPublish | None:
    return await broker.pipelines.write(writer, stages, MarkMove("batch", None, number), 10)


async def write_values(broker: Broker, values: Sequence[bytes], number: int, stage: str = "a") -> StagedPublish | None:
    return await write(broker, await staged(broker, stage, values), number)


def marks(broker: Broker) -> dict[str, int]:
    return broker.pipelines.marks("query-7")


class Interrupted:
    """A broker whose store holds the commits of a large write back, so that it can be stopped between any two."""

    def __init__(self, settled: int) -> None:
        self.store = GatedStore(limits=SMALL)
        self._settled = settled

    async def play(self) -> None:
        async with running_broker(self.store, limits=SMALL) as broker:
            await broker.topics.create("out")
            stages = await staged(broker, "first", LARGE)
            self.store.close_gate()
            writing = asyncio.ensure_future(write(broker, stages, 0))
            for _ in range(self._settled):
                await until(lambda: bool(self.store.in_flight))
                self.store.settle(1)
            await until(lambda: bool(self.store.in_flight))
            self.store.fail()
            with pytest.raises(StorageFullError):
                await writing

    @asynccontextmanager
    async def failing_again(self) -> AsyncIterator[Broker]:
        """The next broker, when its first attempt to go on has failed as well."""
        self.store.close_gate()
        async with running_broker(self.store, limits=SMALL) as broker:
            await until(lambda: bool(self.store.in_flight))
            self.store.fail()
            self.store.open_gate()
            await until(lambda: not broker.pipelines._writes._running)
            yield broker


@on_loop
async def test_a_batch_that_fits_into_a_frame_is_one_and_happens_once() -> None:
    store = GatedStore()
    async with running_broker(store) as broker:
        await broker.topics.create("out")
        stages = [*await staged(broker, "a", [b"1"]), *await staged(broker, "b", [b"2"])]
        store.close_gate()
        writing = asyncio.ensure_future(write(broker, stages, 0))
        await until(lambda: bool(store.in_flight))
        (commit,) = store.in_flight
        assert [append.records for append in commit.changes.appends] == [1, 1]
        store.open_gate()
        assert await writing == StagedPublish(2, 0, 0)
        assert await write_values(broker, [b"1", b"2"], 0) == StagedPublish(0, 0, 1)
        assert await values_in(broker, "out") == [b"1", b"2"]


@on_loop
async def test_a_write_is_answered_the_same_when_it_is_asked_again_and_its_stages_are_gone() -> None:
    async with running_broker() as broker:
        await broker.topics.create("out")
        stages = await staged(broker, "a", [b"1"])
        await write(broker, stages, 0)
        assert await write(broker, stages, 0) == StagedPublish(0, 0, 1)


@on_loop
async def test_a_batch_larger_than_a_frame_is_written_in_order_and_once() -> None:
    async with running_broker(limits=SMALL) as broker:
        await broker.topics.create("out")
        assert await write_values(broker, LARGE, 0) == StagedPublish(10, 0, 0)
        assert await write_values(broker, LARGE, 0) == StagedPublish(0, 0, 1)
        assert await write_values(broker, LATER, 1) == StagedPublish(1, 0, 0)
        assert await values_in(broker, "out") == LARGE + LATER
        assert marks(broker) == {"batch": 1}


@on_loop
@pytest.mark.parametrize("settled", range(1, 12))
async def test_a_large_write_that_is_cut_off_goes_on_by_itself_after_a_restart(settled: int) -> None:
    """Its decision is the first commit; ten frames and the end follow."""
    interrupted = Interrupted(settled)
    await interrupted.play()
    async with running_broker(interrupted.store, limits=SMALL) as broker:
        interrupted.store.open_gate()
        await until(lambda: marks(broker) == {"batch": 0})
        # The writer, who knows nothing of that, has staged the rows anew and in another order.
        assert await write_values(broker, LARGE[::-1], 0) == StagedPublish(0, 0, 1)
        assert await values_in(broker, "out") == LARGE


@on_loop
async def test_of_a_large_write_that_is_cut_off_before_it_is_decided_nothing_is_left() -> None:
    interrupted = Interrupted(0)
    await interrupted.play()
    async with running_broker(interrupted.store, limits=SMALL) as broker:
        interrupted.store.open_gate()
        with pytest.raises(InvalidRequestError, match="stage it again"):
            await write(broker, [Stage("first", 2)], 0)
        assert await values_in(broker, "out") == []
        assert marks(broker) == {}
        assert await write_values(broker, LARGE, 0) == StagedPublish(10, 0, 0)


@on_loop
async def test_a_large_write_that_found_no_room_goes_on_when_its_writer_asks_again() -> None:
    store = GatedStore(limits=SMALL)
    async with running_broker(store, limits=SMALL) as broker:
        await broker.topics.create("out")
        stages = await staged(broker, "first", LARGE)
        store.close_gate()
        writing = asyncio.ensure_future(write(broker, stages, 0))
        for _ in range(4):
            await until(lambda: bool(store.in_flight))
            store.settle(1)
        await until(lambda: bool(store.in_flight))
        store.fail()
        with pytest.raises(StorageFullError):
            await writing
        # Spark takes a batch whose commit failed for lost, and has its stages thrown away.
        await broker.pipelines.discard(stages)
        store.open_gate()
        await write(broker, stages, 0)
        assert await values_in(broker, "out") == LARGE


@on_loop
async def test_what_could_not_be_finished_is_tried_again_without_its_writer() -> None:
    interrupted = Interrupted(3)
    await interrupted.play()
    async with interrupted.failing_again() as broker:
        await broker.pipelines.clean()
        assert await values_in(broker, "out") == LARGE


@on_loop
async def test_a_write_that_takes_long_goes_on_and_is_asked_for_again() -> None:
    store = GatedStore(limits=SMALL)
    async with running_broker(store, limits=SMALL) as broker:
        await broker.topics.create("out")
        stages = await staged(broker, "a", LARGE)
        store.close_gate()
        move = MarkMove("batch", None, 0)
        assert await broker.pipelines.write("query-7", stages, move, 0.001) is None
        assert await broker.pipelines.write("query-7", stages, move, 0.001) is None
        store.open_gate()
        assert (await write(broker, stages, 0) or StagedPublish(0, 0, 0)).records == 10
        assert await values_in(broker, "out") == LARGE


@on_loop
async def test_the_next_batch_of_a_writer_waits_for_the_one_that_is_running() -> None:
    store = GatedStore(limits=SMALL)
    async with running_broker(store, limits=SMALL) as broker:
        await broker.topics.create("out")
        first, second = await staged(broker, "a", LARGE), await staged(broker, "b", LATER)
        store.close_gate()
        writing = [asyncio.ensure_future(write(broker, stages, number)) for number, stages in enumerate((first, second))]
        await until(lambda: bool(store.in_flight))
        store.open_gate()
        await asyncio.gather(*writing)
        assert await values_in(broker, "out") == LARGE + LATER


@on_loop
async def test_a_bad_batch_rejects_a_large_write_whole() -> None:
    async with running_broker(limits=SMALL) as broker:
        await broker.topics.create("out")
        damaged = with_attributes(bytearray(batch(b"x" * 1_000)), CONTROL_MASK)
        body = encode_staged_chunk(StagedChunk([], [StagedBatch(broker.topics.get("out").topic.id, "out", 0, damaged)]))
        await broker.pipelines.stage("q", "bad", 0, body)
        with pytest.raises(InvalidRecordsError, match="control"):
            await write(broker, [*await staged(broker, "good", LARGE), Stage("bad", 1)], 0)
        assert await values_in(broker, "out") == []


@on_loop
async def test_a_topic_that_is_dropped_under_a_large_write_takes_its_part_with_it() -> None:
    interrupted = Interrupted(4)
    await interrupted.play()
    async with interrupted.failing_again() as broker:
        await broker.topics.delete("out")
        await broker.topics.create("out")
        assert await write_values(broker, LATER, 1) == StagedPublish(1, 0, 0)
        assert await values_in(broker, "out") == LATER


@on_loop
async def test_a_large_write_leaves_out_duplicates_where_the_topic_looks_for_them() -> None:
    limits = msgspec.structs.replace(SMALL, group_commit_bytes=1_000)
    async with running_broker(limits=limits) as broker:
        await broker.topics.create("out", options=options(dedup="id"))
        assert await write_values(broker, [*LARGE, *LARGE[:3]], 0) == StagedPublish(10, 3, 0)
        assert bounds_of(broker, "out", 0)[1] == 10


async def write_once(broker: Broker, writer: str) -> StagedPublish | None:
    return await write(broker, await staged(broker, f"stage-{writer}", [writer.encode()]), 1, writer=writer)


@on_loop
async def test_writers_without_a_lease_are_bounded_and_the_longest_silent_forgotten() -> None:
    limits = msgspec.structs.replace(DEFAULT_LIMITS, writers=3, pipelines=1)
    async with running_broker(limits=limits) as broker:
        await broker.topics.create("out")
        for number in range(5):
            await write_once(broker, f"job-{number}")
        assert [bool(broker.pipelines.marks(f"job-{number}")) for number in range(5)] == [False, False, True, True, True]
        assert await write_once(broker, "job-4") == StagedPublish(0, 0, 1)
        assert list(broker.pipelines) == []


@on_loop
async def test_silent_writers_are_forgotten_also_those_from_before_a_restart() -> None:
    clock = ManualClock()
    store = MemoryStore(clock)
    async with running_broker(store, clock) as broker:
        await broker.topics.create("out")
        await write_once(broker, "job-1")
    async with running_broker(store, clock) as broker:
        await write_once(broker, "job-2")
        clock.advance((DEFAULT_LIMITS.writer_seconds - 1) * 1000)
        await write_once(broker, "job-2")
        clock.advance(2_000)
        await broker.pipelines.clean()
        assert broker.pipelines.marks("job-1") == {}
        assert broker.pipelines.marks("job-2") == {"batch": 1}


@on_loop
async def test_a_writer_is_not_forgotten_while_its_large_write_is_not_done() -> None:
    interrupted = Interrupted(4)
    await interrupted.play()
    clock = ManualClock()
    interrupted.store.close_gate()
    async with running_broker(interrupted.store, clock, SMALL) as broker:
        await until(lambda: bool(interrupted.store.in_flight))
        clock.advance((SMALL.writer_seconds + 1) * 1000)
        cleaning = asyncio.ensure_future(broker.pipelines._writers.forget_idle())
        await cleaning
        interrupted.store.open_gate()
        await until(lambda: marks(broker) == {"batch": 0})
        assert await values_in(broker, "out") == LARGE


@on_loop
async def test_stages_of_a_large_write_are_there_as_long_as_a_power_cut_could_bring_its_decision_back() -> None:
    store = MemoryStore(ManualClock(), SMALL)
    async with running_broker(store, limits=SMALL) as broker:
        await broker.topics.create("out")
        await write_values(broker, LARGE, 0, stage="large")
        await write_values(broker, LATER, 1, stage="small")
        assert store.staging.read("large", 0)
        with pytest.raises(InvalidRequestError, match="does not exist"):
            store.staging.read("small", 0)
    async with running_broker(store, limits=SMALL):
        with pytest.raises(InvalidRequestError, match="does not exist"):
            store.staging.read("large", 0)


@on_loop
@pytest.mark.parametrize("values", [LATER, LARGE], ids=["one frame", "many frames"])
async def test_what_was_staged_for_a_topic_is_not_written_to_another_of_its_name(values: list[bytes]) -> None:
    async with running_broker(MemoryStore(ManualClock(), SMALL), limits=SMALL) as broker:
        await broker.topics.create("out")
        stages = await staged(broker, "a", values)
        await broker.topics.delete("out")
        await broker.topics.create("out")
        with pytest.raises(UnknownTopicError, match="'out' that records were staged for was deleted; stage them again"):
            await write(broker, stages, 1)
        assert await values_in(broker, "out", 0) == []
        assert marks(broker) == {}
        assert await write_values(broker, values, 1, "again") == StagedPublish(len(values), 0, 0)
        assert await values_in(broker, "out", 0) == values
