"""Bounds of time find the same records in any order of times, whatever earlier queries have left to know about them."""

import asyncio
from typing import NamedTuple

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.broker.scan import TopicView
from tailrace.model.changes import Append, Changes
from tailrace.model.ids import Partition
from tailrace.model.limits import DEFAULT_LIMITS
from tailrace.model.record import NO_TIMESTAMP, Record
from tailrace.sql.select.bounds import Bounds, Span
from tailrace.sql.select.oldest_times import OldestTimes
from tailrace.sql.select.topics import TopicRelation
from tailrace.store.memory import MemoryStore
from tailrace.wire.codecs import Codec
from tailrace.wire.plain_fields import plain_fields
from tailrace.wire.records import encode_batch
from tests.support.brokers import running_broker

FILLING = b"v" * 40_000
"""So that not all batches are read at once."""

START_MS = 1_700_000_000_000


class Sent(NamedTuple):
    times: list[int]
    codec: Codec
    is_append_time: bool


class Asked(NamedTuple):
    times: Span
    offsets: Span
    more: Sent | None
    """Is appended before."""


a_time = st.integers(0, 20).map(START_MS.__add__)
a_span = st.tuples(st.none() | a_time, st.none() | a_time).map(Span._make)
offsets = st.tuples(st.none() | st.integers(0, 30), st.none() | st.integers(0, 30)).map(Span._make)
sent = st.builds(
    Sent,
    st.lists(a_time | st.just(NO_TIMESTAMP), min_size=1, max_size=3),
    st.sampled_from([Codec.NONE, Codec.LZ4]),
    st.booleans(),
)
asked = st.builds(Asked, a_span, st.just(Span()) | offsets, st.none() | sent)


@settings(max_examples=40, deadline=None)
@given(st.lists(sent, max_size=10), st.lists(asked, min_size=1, max_size=5))
def test_queries_by_time_find_just_the_records_of_that_time(first: list[Sent], queries: list[Asked]) -> None:
    async def check() -> None:
        store = MemoryStore()
        async with running_broker(store) as broker:
            topic = await broker.topics.create("t")
            kept: list[int] = []

            def append(batch: Sent) -> None:
                newest = max(batch.times)
                data = encode_batch(
                    [Record(None, FILLING, (), time) for time in batch.times],
                    codec=batch.codec,
                    append_time=newest if batch.is_append_time else None,
                )
                store.commit(Changes(appends=(Append(Partition(topic.id, 0), data, len(batch.times), newest),)))
                kept.extend([newest] * len(batch.times) if batch.is_append_time else batch.times)

            for batch in first:
                append(batch)
            known = OldestTimes(100)
            for query in queries:
                if query.more is not None:
                    append(query.more)
                expected = [
                    offset
                    for offset, time in enumerate(kept)
                    if time != NO_TIMESTAMP and is_within(time, query.times) and is_within(offset, query.offsets)
                ]
                bounds = Bounds(offsets=query.offsets, timestamps=query.times)
                assert found(broker.view("t"), bounds, OldestTimes(100)) == expected
                assert found(broker.view("t"), bounds, known) == expected

    asyncio.run(check())


def found(view: TopicView, bounds: Bounds, known: OldestTimes) -> list[int]:
    """Offsets of what the relation shows that is within the bounds: these only save reading, and DuckDB checks every row."""
    relation = TopicRelation(view, ["offset", "timestamp"], bounds, DEFAULT_LIMITS, plain_fields, known)
    shown = pa.Table.from_batches(relation.batches(), relation.schema)
    micros = shown["timestamp"].cast(pa.int64()).to_pylist()
    return [
        offset
        for offset, time in zip(shown["offset"].to_pylist(), micros, strict=True)
        if time is not None and is_within(time // 1000, bounds.timestamps) and is_within(offset, bounds.offsets)
    ]


def is_within(value: int, span: Span) -> bool:
    return (span.low is None or span.low <= value) and (span.high is None or value <= span.high)
