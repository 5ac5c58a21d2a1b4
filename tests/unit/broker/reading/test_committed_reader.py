import asyncio
import threading
from typing import Any

import pytest

from tailrace.model.errors import (
    LimitExceededError,
    OverloadedError,
    UnreadableBatchError,
)
from tailrace.model.ids import Offset
from tailrace.model.limits import Limits
from tailrace.model.record import RawBatch, Record
from tailrace.wire.compression import Compression
from tailrace.wire.records import DecodedPart, decode_part, encode_batch
from tests.support.aio import on_loop, until
from tests.support.brokers import append, append_unchecked, raw, running_broker
from tests.support.clocks import ManualClock
from tests.unit.wire.test_records import body_of

NOW = ManualClock().now_ms()


@on_loop
async def test_decoded_records_begin_at_the_offset_and_end_at_the_limit() -> None:
    async with running_broker() as broker:
        await broker.topics.create("t")
        for start in range(0, 12, 4):
            await append(broker, raw("t", 0, *(b"%d" % number for number in range(start, start + 4))))
        read = await broker.committed_reader.read("t", 0, Offset(2), max_records=5)
        assert [record.value for record in read.records] == [b"2", b"3", b"4", b"5", b"6"]
        assert [record.offset for record in read.records] == [2, 3, 4, 5, 6]
        assert (read.next_offset, read.bounds) == (7, (0, 12))
        rest = await broker.committed_reader.read("t", 0, Offset(7), max_records=100)
        assert [record.offset for record in rest.records] == [7, 8, 9, 10, 11]
        nothing = await broker.committed_reader.read("t", 0, Offset(12), max_records=1)
        assert (nothing.records, nothing.next_offset) == ([], 12)


@on_loop
async def test_decoded_records_know_their_place_in_the_whole_log() -> None:
    async with running_broker() as broker:
        await broker.topics.create("t")
        await broker.topics.create("u")
        await append(broker, raw("t", 0, b"a", b"b"))
        await append(broker, raw("u", 0, b"between"))
        await append(broker, raw("t", 0, b"c", b"d"))
        read = await broker.committed_reader.read("t", 0, Offset(1), max_records=10)
        assert [(record.value, record.cursor) for record in read.records] == [(b"b", 1), (b"c", 3), (b"d", 4)]


@on_loop
async def test_large_batches_are_decoded_in_another_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[str] = []

    def watched(*args: Any, **part: Any) -> DecodedPart:
        threads.append(threading.current_thread().name)
        return decode_part(*args, **part)

    monkeypatch.setattr("tailrace.broker.reading.committed_reader.decode_part", watched)
    async with running_broker() as broker:
        await broker.topics.create("t")
        await append(broker, raw("t", 0, b"small"))
        await append(broker, raw("t", 0, bytes(100_000)))
        assert len((await broker.committed_reader.read("t", 0, Offset(0), max_records=10)).records) == 2
        assert [name.startswith("tailrace-reader") for name in threads] == [False, True]


@on_loop
async def test_a_batch_that_cannot_be_decoded_is_named_with_the_way_around_it() -> None:
    async with running_broker() as broker:
        await broker.topics.create("t")
        await append(broker, raw("t", 0, b"good"))
        await append_unchecked(broker, RawBatch("t", 0, body_of(0x0C, 0, 0, 2, 1, 1, 0)))
        await append(broker, raw("t", 0, b"good again"))
        read = await broker.committed_reader.read("t", 0, Offset(0), max_records=10)
        assert [record.value for record in read.records] == [b"good"]
        with pytest.raises(UnreadableBatchError, match=r"offsets 1 to 1 of 't', partition 0.* Go on at 2"):
            await broker.committed_reader.read("t", 0, read.next_offset, max_records=10)
        assert [record.value for record in (await broker.committed_reader.read("t", 0, Offset(2), max_records=10)).records] == [
            b"good again"
        ]


@pytest.mark.parametrize("max_records", [0, -1, 10_001])
@on_loop
async def test_records_of_one_read_are_limited(max_records: int) -> None:
    async with running_broker() as broker:
        await broker.topics.create("t")
        with pytest.raises(LimitExceededError, match="read_records"):
            await broker.committed_reader.read("t", 0, Offset(0), max_records=max_records)


@on_loop
async def test_no_thread_to_decode_in_is_overload_and_not_corruption() -> None:
    async with running_broker(limits=Limits(queued_reads=1)) as broker:
        await broker.topics.create("t")
        await append(broker, raw("t", 0, bytes(100_000)))
        released = threading.Event()
        busy = asyncio.create_task(broker.threads.run(released.wait, 20))
        await until(lambda: broker.threads.queued == 1)
        with pytest.raises(OverloadedError, match="queued_reads"):
            await broker.committed_reader.read("t", 0, Offset(0), max_records=1)
        released.set()
        await busy


@on_loop
async def test_a_bomb_in_a_topic_is_named_with_the_way_around_it() -> None:
    async with running_broker(limits=Limits(decompressed_batch_bytes=1_000)) as broker:
        await broker.topics.create("t")
        bomb = encode_batch([Record(None, bytes(10_000), (), NOW)], codec=Compression.GZIP)
        await append_unchecked(broker, RawBatch("t", 0, bomb))
        with pytest.raises(UnreadableBatchError, match=r"decompressed_batch_bytes.* Go on at 1"):
            await broker.committed_reader.read("t", 0, Offset(0), max_records=1)
        assert await broker.positions.at_time("t", 0, NOW) == (0, NOW)
