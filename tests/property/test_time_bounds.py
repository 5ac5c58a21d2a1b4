"""Bounds of time find the same records in any order of times, whatever earlier queries and the survey know about them."""

import asyncio
from contextlib import AsyncExitStack
from random import Random
from typing import NamedTuple

import msgspec
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.broker.reading.answers import AnswerMemory
from tailrace.broker.reading.scan import TopicScan
from tailrace.broker.times.oldest_times import OldestTimes
from tailrace.model.commit import Append, Changes
from tailrace.model.ids import Offset, PartitionId
from tailrace.model.limits import DEFAULT_LIMITS
from tailrace.model.record import NO_TIMESTAMP, Record
from tailrace.sql.select.sources import ScanBounds, ValueRange
from tailrace.sql.select.topics import TopicRelation
from tailrace.store.memory import MemoryStore
from tailrace.wire.arrow_decoding import plain_fields
from tailrace.wire.compression import Compression
from tailrace.wire.records import encode_batch
from tests.support.brokers import NEVER, running_broker

FILLING = Random(7).randbytes(40_000)
"""So that not all batches are read at once, and two records are a run for the survey, compressed or not."""

START_MS = 1_700_000_000_000
AT_ONCE = msgspec.structs.replace(NEVER, survey_percent=100)


class Sent(NamedTuple):
    times: list[int]
    codec: Compression
    is_append_time: bool


class Asked(NamedTuple):
    times: ValueRange
    offsets: ValueRange
    more: Sent | None
    """Is appended before."""
    trimmed: int
    """So many records more are taken away before."""
    is_surveyed: bool
    is_restarted: bool


a_time = st.integers(0, 20).map(START_MS.__add__)
a_span = st.tuples(st.none() | a_time, st.none() | a_time).map(ValueRange._make)
offsets = st.tuples(st.none() | st.integers(0, 30), st.none() | st.integers(0, 30)).map(ValueRange._make)
sent = st.builds(
    Sent,
    st.lists(a_time | st.just(NO_TIMESTAMP), min_size=1, max_size=3),
    st.sampled_from(list(Compression)),
    st.booleans(),
)
asked = st.builds(
    Asked,
    a_span,
    st.just(ValueRange()) | offsets,
    st.none() | sent,
    st.just(0) | st.integers(0, 5),
    st.booleans(),
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

        def append(batch: Sent) -> None:
            newest = max(batch.times)
            data = encode_batch(
                [Record(None, FILLING, (), time) for time in batch.times],
                codec=batch.codec,
                append_time=newest if batch.is_append_time else None,
            )
            store.commit(Changes(appends=(Append(PartitionId(topic.id, 0), data, len(batch.times), newest),)))
            kept.extend([newest] * len(batch.times) if batch.is_append_time else batch.times)

        for batch in first:
            append(batch)
        async with AsyncExitStack() as running:
            broker = await running.enter_async_context(running_broker(store, settings=AT_ONCE))
            for query in queries:
                if query.is_restarted:
                    await running.aclose()
                    broker = await running.enter_async_context(running_broker(store, settings=AT_ONCE))
                if query.more is not None:
                    append(query.more)
                start = min(start + query.trimmed, len(kept))
                await broker.retention.delete_before("t", 0, Offset(start))
                if query.is_surveyed:
                    await broker.survey.run_once()
                expected = [
                    offset
                    for offset, time in enumerate(kept[start:], start)
                    if time != NO_TIMESTAMP and is_within(time, query.times) and is_within(offset, query.offsets)
                ]
                bounds = ScanBounds(offsets=query.offsets, timestamps=query.times)
                assert found(broker.scanner.view("t"), bounds, OldestTimes(MemoryStore(), 100)) == expected
                assert found(broker.scanner.view("t"), bounds, OldestTimes(store, 100)) == expected
                assert found(broker.scanner.view("t"), bounds, broker.oldest_times) == expected

    asyncio.run(check())


def found(view: TopicScan, bounds: ScanBounds, known: OldestTimes) -> list[int]:
    """Offsets of what the relation shows that is within the bounds: these only save reading, and DuckDB checks every row."""
    answer = AnswerMemory(DEFAULT_LIMITS).answer()
    relation = TopicRelation(view, ["offset", "timestamp"], bounds, DEFAULT_LIMITS, plain_fields, known, answer)
    shown = pa.Table.from_batches(relation.batches(), relation.schema)
    micros = shown["timestamp"].cast(pa.int64()).to_pylist()
    return [
        offset
        for offset, time in zip(shown["offset"].to_pylist(), micros, strict=True)
        if time is not None and is_within(time // 1000, bounds.timestamps) and is_within(offset, bounds.offsets)
    ]


def is_within(value: int, span: ValueRange) -> bool:
    return (span.low is None or span.low <= value) and (span.high is None or value <= span.high)
