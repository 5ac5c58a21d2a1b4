"""Pipelines: one runs at a time, and each step of it takes effect once."""

import asyncio
from collections.abc import AsyncIterator

import msgspec
import pytest

from tailrace.broker import keys
from tailrace.broker.broker import Broker
from tailrace.broker.commits import Change
from tailrace.broker.pipelines.staged_chunks import Stage, frames_of
from tailrace.model.commit import Changes
from tailrace.model.errors import (
    InvalidRequestError,
    PipelineConflictError,
    PipelineFencedError,
    StorageFullError,
    UnknownTopicError,
)
from tailrace.model.ids import TopicId
from tailrace.model.limits import DEFAULT_LIMITS
from tailrace.model.pipeline import Lease, MarkMove, PipelineReport, StagedPublish
from tailrace.model.record import Record
from tailrace.store.memory import MemoryStore
from tailrace.wire.records import encode_batch
from tailrace.wire.staged_chunks import StagedBatch, StagedChunk, encode_staged_chunk
from tests.support.aio import on_loop, turns, until
from tests.support.brokers import GatedStore, options, running_broker, values_in
from tests.support.clocks import ManualClock

NOW = ManualClock().now_ms()


def batch(*values: bytes) -> bytes:
    return bytes(encode_batch([Record(None, value, [("message_id", value)], NOW) for value in values]))


OUT = TopicId(1)
"""The topic `out`, which is the first."""


def chunk(before: int, after: int, *values: bytes, topic: TopicId = OUT, source: str = "1/0") -> bytes:
    batches = [StagedBatch(topic, "out", 0, batch(*values), topic)] if values else []
    return encode_staged_chunk(StagedChunk([MarkMove(source, before, after)], batches))


async def staged(broker: Broker, name: str, *chunks: bytes) -> Stage:
    await broker.pipelines.stage("router", name, 0, b"".join(chunks))
    return Stage(name, 1)


async def routing(broker: Broker) -> int:
    """A pipeline that stands at 0 of its source; its epoch."""
    await broker.topics.create("out")
    lease = await broker.pipelines.lease("router", "first")
    await broker.pipelines.pin("router", lease.epoch, {"1/0": 0})
    return lease.epoch


@on_loop
async def test_what_is_staged_is_seen_when_it_is_published_and_the_mark_moves_with_it() -> None:
    async with running_broker() as broker:
        epoch = await routing(broker)
        first = await staged(broker, "a", chunk(0, 3, b"0", b"2"), chunk(3, 5))
        second = await staged(broker, "b", chunk(5, 9, b"7"))
        assert await values_in(broker, "out", 0) == []
        assert await broker.pipelines.publish("router", epoch, [first, second]) == StagedPublish(3, 0, 0)
        assert await values_in(broker, "out", 0) == [b"0", b"2", b"7"]
        assert broker.pipelines.marks("router") == {"1/0": 9}


@on_loop
async def test_steps_that_were_done_are_skipped() -> None:
    async with running_broker() as broker:
        epoch = await routing(broker)
        await broker.pipelines.publish("router", epoch, [await staged(broker, "a", chunk(0, 3, b"0"))])
        again = await staged(broker, "again", chunk(0, 3, b"0"), chunk(3, 4, b"3"))
        assert await broker.pipelines.publish("router", epoch, [again]) == StagedPublish(1, 0, 1)
        assert await values_in(broker, "out", 0) == [b"0", b"3"]


@on_loop
@pytest.mark.parametrize(("before", "after"), [(4, 6), (2, 6), (0, 6)])
async def test_a_step_that_starts_elsewhere_than_the_mark_is_rejected(before: int, after: int) -> None:
    async with running_broker() as broker:
        epoch = await routing(broker)
        await broker.pipelines.publish("router", epoch, [await staged(broker, "a", chunk(0, 3, b"0"))])
        with pytest.raises(PipelineConflictError, match="is 3, and the step goes"):
            await broker.pipelines.publish("router", epoch, [await staged(broker, "b", chunk(before, after, b"x"))])
        assert await values_in(broker, "out", 0) == [b"0"]
        assert broker.pipelines.marks("router") == {"1/0": 3}


@on_loop
async def test_many_chunks_go_into_several_frames_and_all_arrive_in_order() -> None:
    limits = msgspec.structs.replace(DEFAULT_LIMITS, group_commit_bytes=1_000)
    async with running_broker(limits=limits) as broker:
        epoch = await routing(broker)
        chunks = [chunk(at, at + 1, b"%03d" % at * 50) for at in range(40)]
        done = await broker.pipelines.publish("router", epoch, [await staged(broker, "a", *chunks)])
        assert done == StagedPublish(40, 0, 0)
        assert await values_in(broker, "out", 0) == [b"%03d" % at * 50 for at in range(40)]


@on_loop
async def test_a_frame_that_fails_leaves_the_mark_where_it_was_and_the_step_can_be_done_again() -> None:
    store = GatedStore()
    async with running_broker(store) as broker:
        epoch = await routing(broker)
        stage = await staged(broker, "a", chunk(0, 3, b"0"))
        store.close_gate()
        publishing = asyncio.ensure_future(broker.pipelines.publish("router", epoch, [stage]))
        await until(lambda: bool(store.in_flight))
        store.fail()
        with pytest.raises(StorageFullError):
            await publishing
        store.open_gate()
        assert broker.pipelines.marks("router") == {"1/0": 0}
        assert (await broker.pipelines.publish("router", epoch, [stage])).records == 1
        assert broker.pipelines.marks("router") == {"1/0": 3}


@on_loop
async def test_duplicates_are_left_out_where_the_topic_looks_for_them() -> None:
    async with running_broker() as broker:
        await broker.topics.create("out", options=options(dedup="id"))
        lease = await broker.pipelines.lease("router", "first")
        await broker.pipelines.pin("router", lease.epoch, {"1/0": 0})
        stage = await staged(broker, "a", chunk(0, 1, b"same", b"same", b"other"))
        assert await broker.pipelines.publish("router", lease.epoch, [stage]) == StagedPublish(2, 1, 0)


@on_loop
async def test_a_second_pipeline_is_rejected_while_the_first_sends_heartbeats() -> None:
    clock = ManualClock()
    async with running_broker(clock=clock) as broker:
        await routing(broker)
        with pytest.raises(PipelineFencedError, match="is run by first"):
            await broker.pipelines.lease("router", "second")
        clock.advance(DEFAULT_LIMITS.pipeline_lease_seconds * 1000)
        assert (await broker.pipelines.lease("router", "second")).epoch == 2


@on_loop
async def test_one_that_falls_silent_is_stopped_for_a_reason_and_one_that_stops_is_not() -> None:
    clock = ManualClock()
    async with running_broker(clock=clock) as broker:
        await broker.pipelines.lease("router", "first")
        clock.advance(DEFAULT_LIMITS.pipeline_lease_seconds * 1000)
        (silent,) = broker.pipelines
        assert not silent.running
        assert silent.report.last_error is not None
        assert silent.report.last_error.startswith("no heartbeat for 10 s, and the lease was not released")
        second = await broker.pipelines.lease("router", "second")
        (running,) = broker.pipelines
        assert (running.running, running.report.last_error) == (True, None)
        await broker.pipelines.release("router", second.epoch)
        (stopped,) = broker.pipelines
        assert (stopped.running, stopped.report.last_error) == (False, None)


@on_loop
async def test_whoever_was_taken_over_can_do_nothing_more() -> None:
    async with running_broker() as broker:
        old = await routing(broker)
        stage = await staged(broker, "a", chunk(0, 3, b"0"))
        new = (await broker.pipelines.lease("router", "second", take_over=True)).epoch
        with pytest.raises(PipelineFencedError, match="taken over"):
            await broker.pipelines.publish("router", old, [stage])
        with pytest.raises(PipelineFencedError):
            broker.pipelines.report("router", old, PipelineReport())
        await broker.pipelines.publish("router", new, [stage])
        assert await values_in(broker, "out", 0) == [b"0"]


@on_loop
async def test_a_released_pipeline_can_be_leased_at_once() -> None:
    async with running_broker() as broker:
        epoch = await routing(broker)
        await broker.pipelines.release("router", epoch)
        assert (await broker.pipelines.lease("router", "second")).epoch == epoch + 1


@on_loop
async def test_epochs_and_marks_survive_a_restart() -> None:
    store = MemoryStore(ManualClock())
    async with running_broker(store) as broker:
        epoch = await routing(broker)
        await broker.pipelines.publish("router", epoch, [await staged(broker, "a", chunk(0, 3, b"0"))])
    async with running_broker(store) as broker:
        lease = await broker.pipelines.lease("router", "second")
        assert (lease.epoch, lease.marks) == (epoch + 1, {"1/0": 3})


@on_loop
async def test_a_pin_stays_where_it_was_first_put() -> None:
    async with running_broker() as broker:
        epoch = await routing(broker)
        assert await broker.pipelines.pin("router", epoch, {"1/0": 7, "2/0": 5}) == {"1/0": 0, "2/0": 5}


@on_loop
async def test_nothing_can_be_staged_for_a_topic_that_is_not_there() -> None:
    async with running_broker() as broker:
        nowhere = StagedBatch(TopicId(5), "nowhere", 0, batch(b"x"))
        with pytest.raises(UnknownTopicError, match="'nowhere'"):
            await staged(broker, "a", encode_staged_chunk(StagedChunk([MarkMove("1/0", 0, 1)], [nowhere])))


@on_loop
async def test_a_stage_that_is_lost_publishes_nothing() -> None:
    async with running_broker() as broker:
        epoch = await routing(broker)
        first = await staged(broker, "a", chunk(0, 1, b"0"))
        with pytest.raises(InvalidRequestError, match="stage it again"):
            await broker.pipelines.publish("router", epoch, [first, Stage("lost", 1)])
        assert await values_in(broker, "out", 0) == []


@on_loop
async def test_a_status_tells_who_runs_it_how_far_it_is_and_how_it_does() -> None:
    clock = ManualClock()
    async with running_broker(clock=clock) as broker:
        epoch = await routing(broker)
        broker.pipelines.report("router", epoch, PipelineReport(batch=4, rows=10))
        (status,) = broker.pipelines
        assert (status.name, status.owner, status.running, status.marks) == ("router", "first", True, {"1/0": 0})
        assert (status.report.batch, status.report.rows, status.idle_seconds) == (4, 10, None)
        await broker.pipelines.publish("router", epoch, [])
        clock.advance(60_000)
        (status,) = broker.pipelines
        assert (status.running, status.idle_seconds) == (False, 60)


@on_loop
async def test_the_latency_is_told_to_the_owner_and_survives_leases_and_a_restart() -> None:
    store = MemoryStore(ManualClock())
    async with running_broker(store) as broker:
        first = await broker.pipelines.lease("router", "first")
        assert first.latency == "batch"
        await broker.pipelines.set_latency("router", "realtime")
        assert broker.pipelines.report("router", first.epoch, PipelineReport()) == "realtime"
        await broker.pipelines.lease("router", "second", take_over=True)
    async with running_broker(store) as broker:
        (status,) = broker.pipelines
        assert (status.epoch, status.owner, status.latency) == (2, "second", "realtime")
        assert (await broker.pipelines.lease("router", "third")).latency == "realtime"


@on_loop
async def test_the_latency_can_be_set_before_the_first_router_comes() -> None:
    store = MemoryStore(ManualClock())
    async with running_broker(store) as broker:
        await broker.pipelines.set_latency("router", "realtime")
        (status,) = broker.pipelines
        assert (status.running, status.epoch, status.latency) == (False, 0, "realtime")
    async with running_broker(store) as broker:
        lease = await broker.pipelines.lease("router", "first")
        assert (lease.epoch, lease.latency) == (1, "realtime")


@on_loop
async def test_a_latency_that_is_set_while_a_lease_is_in_flight_is_stored_with_it() -> None:
    store = GatedStore()
    async with running_broker(store) as broker:
        store.close_gate()
        setting = asyncio.ensure_future(broker.pipelines.set_latency("router", "realtime"))
        await until(lambda: bool(store.in_flight))
        leasing = asyncio.ensure_future(broker.pipelines.lease("router", "first"))
        await until(lambda: len(store.in_flight) == 2)
        store.open_gate()
        await setting
        assert (await leasing).latency == "realtime"
    async with running_broker(store) as broker:
        (status,) = broker.pipelines
        assert (status.epoch, status.owner, status.latency) == (1, "first", "realtime")


@on_loop
async def test_a_latency_that_was_not_stored_is_not_obeyed() -> None:
    store = GatedStore()
    async with running_broker(store) as broker:
        lease = await broker.pipelines.lease("router", "first")
        store.close_gate()
        setting = asyncio.ensure_future(broker.pipelines.set_latency("router", "realtime"))
        await until(lambda: bool(store.in_flight))
        assert broker.pipelines.report("router", lease.epoch, PipelineReport()) == "batch"
        store.fail()
        with pytest.raises(StorageFullError):
            await setting
        store.open_gate()
        assert broker.pipelines.report("router", lease.epoch, PipelineReport()) == "batch"


@on_loop
async def test_pipelines_that_were_stored_without_a_latency_route_in_batches() -> None:
    store = MemoryStore(ManualClock())
    async with running_broker(store) as broker:
        stored = Changes(puts=((keys.pipeline_key("router"), msgspec.msgpack.encode([7, "before"])),))
        await broker.committer.submit(Change(lambda: stored, lambda _: None))
    async with running_broker(store) as broker:
        (status,) = broker.pipelines
        assert (status.epoch, status.owner, status.latency) == (7, "before", "batch")


@on_loop
async def test_only_the_router_has_a_latency() -> None:
    async with running_broker() as broker:
        with pytest.raises(InvalidRequestError, match="pipeline 'nightly' has no latency; set that of the pipeline 'router'"):
            await broker.pipelines.set_latency("nightly", "realtime")
        assert list(broker.pipelines) == []


@on_loop
async def test_of_two_pipelines_that_take_a_lease_at_once_one_is_rejected() -> None:
    async with running_broker() as broker:
        asked = [broker.pipelines.lease("router", owner) for owner in ("first", "second")]
        answers = await asyncio.gather(*asked, return_exceptions=True)
        assert [type(answer) for answer in answers] == [Lease, PipelineFencedError]


@on_loop
async def test_marks_skip_forward_and_never_back_even_while_a_step_is_in_flight() -> None:
    store = GatedStore()
    async with running_broker(store) as broker:
        epoch = await routing(broker)
        stage = await staged(broker, "a", chunk(0, 9, b"0"))
        store.close_gate()
        publishing = asyncio.ensure_future(broker.pipelines.publish("router", epoch, [stage]))
        await until(lambda: bool(store.in_flight))
        skipping = asyncio.ensure_future(broker.pipelines.skip("router", epoch, {"1/0": 5, "2/0": 3}, []))
        await turns()
        store.open_gate()
        await publishing
        await skipping
        assert broker.pipelines.marks("router") == {"1/0": 9, "2/0": 3}


@on_loop
async def test_nobody_publishes_for_a_pipeline_without_its_epoch() -> None:
    async with running_broker() as broker:
        await routing(broker)
        with pytest.raises(InvalidRequestError, match="only its owner can publish"):
            await broker.pipelines.write("router", [], MarkMove("batch", None, 3), 1)


@on_loop
async def test_a_frame_holds_so_few_batches_that_others_are_served_in_between() -> None:
    async def chunks() -> AsyncIterator[StagedChunk]:
        for batches in (1_000, 900, 200, 5_000, 1, 1):
            yield StagedChunk([], [StagedBatch(OUT, "out", 0, b"")] * batches)

    sizes = [[len(each.batches) for each in frame] async for frame in frames_of(chunks(), 1_000_000)]
    assert sizes == [[1_000, 900], [200], [5_000], [1, 1]]


async def made_again(broker: Broker, topic: str) -> TopicId:
    await broker.topics.delete(topic)
    return (await broker.topics.create(topic)).id


@on_loop
async def test_what_was_staged_for_a_topic_does_not_reach_another_of_its_name() -> None:
    async with running_broker() as broker:
        await broker.topics.create("source")
        out, other = [(await broker.topics.create(name)).id for name in ("out", "other")]
        lease = await broker.pipelines.lease("router", "first")
        await broker.pipelines.pin("router", lease.epoch, {"1/0": 0})
        batches = [StagedBatch(topic, name, 0, batch(b"0"), topic) for topic, name in ((out, "out"), (other, "other"))]
        stage = await staged(broker, "a", encode_staged_chunk(StagedChunk([MarkMove("1/0", 0, 3)], batches)))
        await made_again(broker, "out")
        assert await broker.pipelines.publish("router", lease.epoch, [stage]) == StagedPublish(1, 0, 0)
        assert await values_in(broker, "out", 0) == []
        assert await values_in(broker, "other", 0) == [b"0"]
        assert broker.pipelines.marks("router") == {"1/0": 3}


@on_loop
async def test_what_was_made_of_a_table_that_is_gone_comes_to_nothing() -> None:
    async with running_broker() as broker:
        await broker.topics.create("out")
        source = (await broker.topics.create("source")).id
        lease = await broker.pipelines.lease("router", "first")
        await broker.pipelines.pin("router", lease.epoch, {"2/0": 0})
        assert source == 2
        stage = await staged(broker, "a", chunk(0, 3, b"0", source="2/0"))
        await made_again(broker, "source")
        assert await broker.pipelines.publish("router", lease.epoch, [stage]) == StagedPublish(0, 0, 1)
        assert await values_in(broker, "out", 0) == []
        assert broker.pipelines.marks("router") == {"2/0": 0}


@on_loop
@pytest.mark.parametrize("dropped", ["out", "source"])
async def test_a_publish_behind_a_drop_that_fails_leaves_nothing_out(dropped: str) -> None:
    """It was decided as if the drop had happened; the mark must not have moved then."""
    store = GatedStore()
    async with running_broker(store) as broker:
        await broker.topics.create("out")
        await broker.topics.create("source")
        lease = await broker.pipelines.lease("router", "first")
        await broker.pipelines.pin("router", lease.epoch, {"2/0": 0})
        stage = await staged(broker, "a", chunk(0, 3, b"0", source="2/0"))
        store.close_gate()
        dropping = asyncio.ensure_future(broker.topics.delete(dropped))
        await until(lambda: bool(store.in_flight))
        publishing = asyncio.ensure_future(broker.pipelines.publish("router", lease.epoch, [stage]))
        await until(lambda: len(store.in_flight) == 2 or publishing.done())
        store.fail()
        with pytest.raises(StorageFullError):
            await dropping
        store.open_gate()
        await asyncio.gather(publishing, return_exceptions=True)
        assert broker.pipelines.marks("router") == {"2/0": 0}
        again = await staged(broker, "again", chunk(0, 3, b"0", source="2/0"))
        await broker.pipelines.publish("router", lease.epoch, [again])
        assert await values_in(broker, "out", 0) == [b"0"]
        assert broker.pipelines.marks("router") == {"2/0": 3}


@on_loop
async def test_letters_that_are_still_wanted_are_rejected_when_their_topic_is_made_again() -> None:
    """The pipeline then makes them anew, for the topic that has the name by then."""
    async with running_broker() as broker:
        epoch = await routing(broker)
        letters = (await broker.topics.create("letters")).id
        letter = StagedBatch(letters, "letters", 0, batch(b"0"), OUT)
        stage = await staged(broker, "a", encode_staged_chunk(StagedChunk([MarkMove("1/0", 0, 3)], [letter])))
        await made_again(broker, "letters")
        with pytest.raises(UnknownTopicError, match="'letters' that records were staged for was deleted; stage them again"):
            await broker.pipelines.publish("router", epoch, [stage])
        assert await values_in(broker, "letters", 0) == []
        assert broker.pipelines.marks("router") == {"1/0": 0}


@on_loop
async def test_letters_go_with_the_topic_that_they_are_about() -> None:
    async with running_broker() as broker:
        await broker.topics.create("source")
        out, letters = [(await broker.topics.create(name)).id for name in ("out", "letters")]
        lease = await broker.pipelines.lease("router", "first")
        await broker.pipelines.pin("router", lease.epoch, {"1/0": 0})
        letter = StagedBatch(letters, "letters", 0, batch(b"0"), out)
        stage = await staged(broker, "a", encode_staged_chunk(StagedChunk([MarkMove("1/0", 0, 3)], [letter])))
        await made_again(broker, "out")
        assert await broker.pipelines.publish("router", lease.epoch, [stage]) == StagedPublish(0, 0, 0)
        assert await values_in(broker, "letters", 0) == []
