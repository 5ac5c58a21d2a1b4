"""Subscribers and readers of patterns on compacted topics, from memory and from the log."""

from collections.abc import Sequence

import pytest

from tailrace.broker.broker import Broker
from tailrace.model.consume import LogEdge
from tailrace.model.ids import Cursor
from tailrace.model.limits import DEFAULT_LIMITS
from tailrace.model.names import parse_pattern
from tailrace.model.record import RawBatch, Record
from tailrace.wire.batch import read_header
from tailrace.wire.compression import Compression
from tailrace.wire.records import decode_batch, encode_batch
from tests.support.aio import on_loop
from tests.support.brokers import append, options, running_broker
from tests.support.fetches import at

Read = tuple[int, bytes | None, bytes | None]


async def compacted(broker: Broker, codec: int, records: int = 1_200) -> list[Read]:
    """Fill a compacted topic with large batches beside one that is not. Return cursor, key and value of what must be left."""
    await broker.topics.create("t.compacted", options=options(cleanup_policy="compact"))
    await broker.topics.create("t.other")
    written: list[Read] = []
    for first in range(0, records, 400):
        made = [Record(b"%d" % (number % 7), b"%d" % number) for number in range(first, first + 400)]
        done = await append(broker, RawBatch("t.compacted", 0, encode_batch(made, codec=codec)))
        assert done.cursor is not None
        written += [(done.cursor + delta, record.key, record.value) for delta, record in enumerate(made)]
        await append(broker, RawBatch("t.other", 0, encode_batch([Record(None, b"other")])))
    await append(broker, RawBatch("t.compacted", 0, encode_batch([Record(b"last", b"last")])))
    end = broker.store.end_cursor()
    assert await broker.compaction.run_once() > 0
    last = {key: (cursor, key, value) for cursor, key, value in written}
    return [*sorted(last.values()), (end - 1, b"last", b"last")]


def of_compacted(found: Sequence[Read]) -> list[Read]:
    return [each for each in found if each[1] is not None]


@pytest.mark.parametrize("codec", [Compression.NONE, Compression.ZSTD])
@on_loop
async def test_a_subscriber_gets_what_is_left(codec: int) -> None:
    async with running_broker() as broker:
        left = await compacted(broker, codec)
        for start in (LogEdge.BEGINNING, Cursor(left[3][0]), Cursor(left[3][0] + 1)):
            subscription = broker.subscriptions.subscribe(parse_pattern("t.*", DEFAULT_LIMITS), start)
            found: list[Read] = []
            while not found or found[-1][1] != b"last":
                for batch in await subscription.read(20):
                    found += [(record.cursor, record.key, record.value) for record in batch.records]
            subscription.close()
            least = 0 if start is LogEdge.BEGINNING else int(start)
            assert of_compacted(found) == [each for each in left if each[0] >= least]


@pytest.mark.parametrize("pattern", ["t.*", "t.*@1", "t.*@2"])
@on_loop
async def test_a_reader_of_a_pattern_gets_what_is_left(pattern: str) -> None:
    async with running_broker() as broker:
        left = await compacted(broker, Compression.NONE)
        found: list[Read] = []
        for partition in range(2 if pattern.endswith("2") else 1):
            offset = 0
            while True:
                (answer,) = await broker.fetcher.fetch([at(offset, partition, pattern)])
                assert answer.error is None
                if not answer.batches:
                    break
                data = b"".join(answer.batches)
                while data:
                    header = read_header(data)
                    batch, data = data[: header.size], data[header.size :]
                    if not header.is_control:
                        read = decode_batch(batch, DEFAULT_LIMITS)
                        found += [(each.offset, each.key, each.value) for each in read if each.offset >= offset]
                    offset = header.end_offset
        assert of_compacted(sorted(found)) == left
