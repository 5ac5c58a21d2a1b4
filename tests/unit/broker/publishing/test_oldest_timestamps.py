"""Whatever way records come, the store knows how old the oldest one of each batch is, by the records and not by the header."""

import msgspec
import pytest

from tailrace.broker.broker import Broker
from tailrace.broker.pipelines.staged_chunks import Stage
from tailrace.model.commit import OffsetBounds
from tailrace.model.ids import Offset
from tailrace.model.limits import DEFAULT_LIMITS
from tailrace.model.pipeline import MarkMove
from tailrace.model.record import NO_TIMESTAMP, Message, RawBatch, Record
from tailrace.wire.batch import read_header, with_max_timestamp
from tailrace.wire.compression import Compression
from tailrace.wire.records import decode_batch, encode_batch
from tailrace.wire.staged_chunks import StagedBatch, StagedChunk, encode_staged_chunk
from tests.support.aio import on_loop
from tests.support.brokers import append, options, running_broker
from tests.support.clocks import ManualClock
from tests.support.transactions import started

NOW = ManualClock().now_ms()
TIMES = (NOW - 10, NOW, NOW - 9_000, NOW - 20)
OLDEST = NOW - 9_000


def batch(codec: int = Compression.NONE) -> bytearray:
    return encode_batch([Record(None, b"v%d" % time, (), time) for time in TIMES], codec=codec)


def assert_oldest(broker: Broker, *oldest: int, topic: str = "t") -> None:
    """Each batch of the topic is skipped by a bound before its oldest timestamp, and by no other."""
    partition = broker.topics.get(topic).partition(0)
    within = broker.store.bounds(partition)
    heads = [read_header(each) for each in broker.store.fetch(partition, within.start, 1 << 30).batches]
    assert len(heads) == len(oldest)
    for head, time in zip(heads, oldest, strict=True):
        whole = OffsetBounds(Offset(head.base_offset), Offset(head.base_offset + head.records))
        assert broker.store.batches_not_after(partition, time - 1, whole) == []
        assert broker.store.batches_not_after(partition, time, whole) == [whole]


@pytest.mark.parametrize("codec", list(Compression))
@on_loop
async def test_of_a_batch_of_a_producer(codec: Compression) -> None:
    async with running_broker() as broker:
        await broker.topics.create("t")
        await append(broker, RawBatch("t", 0, batch(codec)))
        assert_oldest(broker, OLDEST)


@pytest.mark.parametrize("claimed", [-1, 5, OLDEST - 1, NOW + 99_999])
@on_loop
async def test_of_a_batch_whose_header_lies(claimed: int) -> None:
    async with running_broker() as broker:
        await broker.topics.create("t")
        await append(broker, RawBatch("t", 0, with_max_timestamp(batch(), claimed)))
        assert_oldest(broker, OLDEST)


@on_loop
async def test_of_records_without_timestamps() -> None:
    async with running_broker() as broker:
        await broker.topics.create("t")
        await append(broker, RawBatch("t", 0, encode_batch([Record(None, b"v", (), NO_TIMESTAMP)])))
        some = [Record(None, b"v", (), time) for time in (NOW, NO_TIMESTAMP, NOW - 3)]
        await append(broker, RawBatch("t", 0, encode_batch(some)))
        assert_oldest(broker, (1 << 63) - 1, NOW - 3)


@on_loop
async def test_of_a_topic_with_the_time_of_append() -> None:
    async with running_broker() as broker:
        await broker.topics.create("t", options=options(timestamps="append"))
        await append(broker, RawBatch("t", 0, batch()))
        await broker.publisher.publish([Message("t", b"v", timestamp=5), Message("t", b"L" * 200_000, timestamp=5)])
        assert_oldest(broker, NOW, NOW, NOW)


@on_loop
async def test_of_a_batch_that_is_stored_without_its_duplicates() -> None:
    async with running_broker() as broker:
        await broker.topics.create("t", options=options(dedup="content"))
        await append(broker, RawBatch("t", 0, encode_batch([Record(None, b"v%d" % NOW, (), NOW)])))
        await append(broker, RawBatch("t", 0, batch()))
        assert_oldest(broker, NOW, OLDEST)


@on_loop
async def test_of_published_messages_and_of_large_ones_beside_the_log() -> None:
    async with running_broker() as broker:
        await broker.topics.create("t")
        await broker.publisher.publish([Message("t", b"v", timestamp=time) for time in TIMES])
        await broker.publisher.publish([Message("t", b"L" * 200_000, timestamp=NOW - 77)])
        assert_oldest(broker, OLDEST, NOW - 77)


@on_loop
async def test_of_a_transaction_and_its_marker() -> None:
    clock = ManualClock()
    async with running_broker(clock=clock) as broker:
        await broker.topics.create("t")
        for commits in (True, False):
            producer = await started(broker, newer=True)
            await producer.send(0, b"a")
            clock.advance(500)
            await producer.end(committed=commits)
        markers = [NOW + 500, NOW + 1_000]
        (first, *_) = broker.store.fetch(broker.topics.get("t").partition(0), Offset(0), 1 << 20).batches
        (record,) = decode_batch(first, DEFAULT_LIMITS)
        assert_oldest(broker, record.timestamp, markers[0], record.timestamp, markers[1])


@pytest.mark.parametrize("codec", [Compression.NONE, Compression.ZSTD])
@pytest.mark.parametrize("frame_bytes", [DEFAULT_LIMITS.frame_bytes, 600])
@on_loop
async def test_of_what_spark_has_staged(codec: Compression, frame_bytes: int) -> None:
    limits = msgspec.structs.replace(DEFAULT_LIMITS, frame_bytes=frame_bytes, group_commit_bytes=min(frame_bytes, 500))
    async with running_broker(limits=limits) as broker:
        await broker.topics.create("t")
        topic_id = broker.topics.get("t").topic.id
        chunk = StagedChunk([], [StagedBatch(topic_id, "t", 0, bytes(batch(codec)))] * 3)
        await broker.pipelines.stage("q", "a", 0, encode_staged_chunk(chunk))
        await broker.pipelines.write("query", [Stage("a", 1)], MarkMove("batch", None, 0), 10)
        assert_oldest(broker, OLDEST, OLDEST, OLDEST)
