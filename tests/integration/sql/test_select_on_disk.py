"""Queries over a topic on disk: no more is read than they want, and many records are decoded by the compiled loops."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa

from tailrace.model.commit import Append, Changes
from tailrace.model.ids import PartitionId
from tailrace.model.limits import KIB, MIB, Limits
from tailrace.store.embedded import EmbeddedStore
from tailrace.wire.compression import Compression
from tailrace.wire.fast_arrow_encoding import RecordColumns
from tests.support.aio import on_loop
from tests.support.plain_encoding import encode_plain
from tests.support.queries import Asker, asking

RECORDS = 24_000
LIMITS = Limits(tail_cache_bytes=64 * KIB)
START_MS = 1_700_000_000_000


def value(number: int) -> bytes:
    return b'{"id":%d,"text":"%s"}' % (number, b"x" * 300)


@asynccontextmanager
async def filled(folder: Path, codec: Compression = Compression.NONE) -> AsyncIterator[tuple[Asker, EmbeddedStore]]:
    """About 8 MB in batches of 64 KiB, a record a millisecond."""
    store = EmbeddedStore.open(folder, durability="relaxed", limits=LIMITS)
    try:
        async with asking(store, LIMITS) as sql:
            topic = await sql.broker.topics.create("app.events")
            values = pa.array([value(number) for number in range(RECORDS)])
            columns = RecordColumns(pa.array(np.arange(RECORDS) + START_MS), values)
            batches = encode_plain(columns, codec=codec, most_bytes=64 * KIB)
            appends = [Append(PartitionId(topic.id, 0), *batch) for batch in batches]
            store.commit(Changes(appends=appends))
            yield sql, store
    finally:
        store.close()


@on_loop
async def test_bounded_queries_read_a_fraction_of_the_disk(tmp_path: Path) -> None:
    async with filled(tmp_path) as (sql, store):
        size = sql.broker.positions.size("app.events", 0)
        assert size > 7 * MIB
        for where, rows in (
            ('"offset" BETWEEN 12000 AND 12009', 10),
            ("cursor >= 23990", 10),
            ("cursor BETWEEN 100 AND 104", 5),
            ("timestamp >= '2023-11-14 22:13:43.990'", 10),
            ("partition = 3", 0),
        ):
            before = store.stats().disk_read_bytes
            found = await sql.value(f"SELECT count(value) FROM app.events WHERE {where}")
            assert found == rows
            assert store.stats().disk_read_bytes - before < size / 4, where


@on_loop
async def test_many_records_are_decoded_alike_before_and_after_the_loops_are_loaded(tmp_path: Path) -> None:
    async with filled(tmp_path, Compression.ZSTD) as (sql, _):
        text = "SELECT count(*), sum(length(value)), sum((value ->> 'id')::bigint), max(\"offset\") FROM app.events"
        lengths = sum(len(value(number)) for number in range(RECORDS))
        expected = [(RECORDS, lengths, sum(range(RECORDS)), RECORDS - 1)]
        assert await sql.rows(text) == expected
        sources = sql.queries._sources
        assert sources is not None
        sources.read_fields.load()
        assert await sql.rows(text) == expected
