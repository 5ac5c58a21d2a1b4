"""Bounds of time find the same records in any order of times, whatever the index knows about them."""

import asyncio
from contextlib import AsyncExitStack
from random import Random
from typing import NamedTuple

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.broker.broker import Broker
from tailrace.broker.reading.answers import AnswerMemory
from tailrace.broker.reading.scan import TopicScan
from tailrace.model.commit import UNKNOWN_TIMESTAMP, Append, Changes
from tailrace.model.ids import Offset, PartitionId
from tailrace.model.limits import DEFAULT_LIMITS
from tailrace.model.record import NO_TIMESTAMP, RawBatch, Record
from tailrace.sql.select.sources import ScanBounds, ValueRange
from tailrace.sql.select.topics import TopicRelation
from tailrace.store.memory import MemoryStore
from tailrace.wire.arrow_decoding import plain_fields
from tailrace.wire.compression import Compression
from tailrace.wire.records import encode_batch
from tests.support.brokers import append, running_broker

FILLING = Random(7).randbytes(40_000)
"""So that not all batches are read at once, compressed or not."""

START_MS = 1_700_000_000_000


class Sent(NamedTuple):
    times: list[int]
    codec: Compression
    is_append_time: bool
    is_checked: bool
    """Comes from a producer; others are from a version that did not store how old the oldest record is."""


class Asked(NamedTuple):
    times: ValueRange
    offsets: ValueRange
    more: Sent | None
    """Is appended before."""
    trimmed: int
    """So many records more are taken away before."""
    is_restarted: bool


a_time = st.integers(0, 20).map(START_MS.__add__)
a_span = st.tuples(st.none() | a_time, st.none() | a_time).map(ValueRange._make)
offsets = st.tuples(st.none() | st.integers(0, 30), st.none() | st.integers(0, 30)).map(ValueRange._make)
sent = st.builds(
    Sent,
    st.lists(a_time | st.just(NO_TIMESTAMP), min_size=1, max_size=3),
    st.sampled_from(list(Compression)),
    st.booleans(),
    st.booleans(),
)
asked = st.builds(
    Asked,
    a_span,
    st.just(ValueRange()) | offsets,
    st.none() | sent,
    st.just(0) | st.integers(0, 5),
    st.booleans(),
)


@settings(max_examples=40, deadline=None)
@given(st.lists(sent, max_size=10), st.lists(asked, min_size=1, max_size=5))
def test_queries_by_time_find_just_the_records_of_that_time(first: list[Sent], queries: list[Asked]) -> None:
    async def check() -> None:
        store = MemoryStore()
        async with running_broker(store) as broker:
            topic = await broker.topics.create("t")
        kept: list[int] = []
        start = 0

        async def send(broker: Broker, batch: Sent) -> None:
            newest = max(batch.times)
            data = encode_batch(
                [Record(None, FILLING, (), time) for time in batch.times],
                codec=batch.codec,
                append_time=newest if batch.is_append_time else None,
            )
            if batch.is_append_time:
                oldest = newest if batch.is_checked else UNKNOWN_TIMESTAMP
                appended = Append(PartitionId(topic.id, 0), data, len(batch.times), newest, oldest_timestamp=oldest)
                store.commit(Changes(appends=(appended,)))
            elif batch.is_checked:
                await append(broker, RawBatch("t", 0, data))
            else:
                store.commit(Changes(appends=(Append(PartitionId(topic.id, 0), data, len(batch.times), newest),)))
            kept.extend([newest] * len(batch.times) if batch.is_append_time else batch.times)

        async with AsyncExitStack() as running:
            broker = await running.enter_async_context(running_broker(store))
            for batch in first:
                await send(broker, batch)
            for query in queries:
                if query.is_restarted:
                    await running.aclose()
                    broker = await running.enter_async_context(running_broker(store))
                if query.more is not None:
                    await send(broker, query.more)
                start = min(start + query.trimmed, len(kept))
                await broker.retention.delete_before("t", 0, Offset(start))
                expected = [
                    offset
                    for offset, time in enumerate(kept[start:], start)
                    if time != NO_TIMESTAMP and is_within(time, query.times) and is_within(offset, query.offsets)
                ]
                bounds = ScanBounds(offsets=query.offsets, timestamps=query.times)
                assert found(broker.scanner.view("t"), bounds) == expected

    asyncio.run(check())


def found(view: TopicScan, bounds: ScanBounds) -> list[int]:
    """Offsets of what the relation shows that is within the bounds: these only save reading, and DuckDB checks every row."""
    answer = AnswerMemory(DEFAULT_LIMITS).answer()
    relation = TopicRelation(view, ["offset", "timestamp"], bounds, DEFAULT_LIMITS, plain_fields, answer)
    shown = pa.Table.from_batches(relation.batches(), relation.schema)
    micros = shown["timestamp"].cast(pa.int64()).to_pylist()
    return [
        offset
        for offset, time in zip(shown["offset"].to_pylist(), micros, strict=True)
        if time is not None and is_within(time // 1000, bounds.timestamps) and is_within(offset, bounds.offsets)
    ]


def is_within(value: int, span: ValueRange) -> bool:
    return (span.low is None or span.low <= value) and (span.high is None or value <= span.high)
