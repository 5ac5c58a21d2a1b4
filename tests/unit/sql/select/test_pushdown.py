"""A query reads no more of a topic than its conditions leave, shown by the bytes that the store hands out."""

import pytest

from tailrace.model.commit import UNKNOWN_TIMESTAMP, Append, Changes
from tailrace.model.ids import Offset, PartitionId
from tailrace.model.record import Record
from tailrace.model.topic import TopicOptions
from tailrace.wire.records import encode_batch
from tests.support.aio import on_loop
from tests.support.queries import Asker, ReadCounter, asking

BATCHES = 100
RECORDS = 10
START_MS = 1_600_000_000_000
BATCH_MS = 1_000
VALUE = b"v" * 1_000
ONE_BATCH = 11_000
EDGES = 70_000
"""What a query may read beside what it wants: the first piece of a read is 64 KiB."""


async def filled(sql: Asker, store: ReadCounter, *, is_known: bool = True) -> int:
    """Batches of ten records of a kilobyte, a second apart, in two partitions by turns. Returns the bytes of all.

    `is_known`: whether the index has the oldest timestamp of each batch.
    """
    topic = await sql.broker.topics.create("t", 2)
    size = 0
    for number in range(2 * BATCHES):
        records = [Record(b"k", VALUE, (), START_MS + number // 2 * BATCH_MS + i) for i in range(RECORDS)]
        batch = encode_batch(records)
        size += len(batch)
        partition, oldest = PartitionId(topic.id, number % 2), records[0].timestamp if is_known else UNKNOWN_TIMESTAMP
        append = Append(partition, batch, RECORDS, records[-1].timestamp, oldest_timestamp=oldest)
        store.commit(Changes(appends=(append,)))
    return size


@pytest.mark.parametrize(
    ("where", "rows", "batches"),
    [
        ("partition = 1", 1000, 100),
        ("partition IN (1, 7)", 1000, 100),
        ("partition = 5", 0, 0),
        ('1 = partition AND "offset" >= 990', 10, 1),
        ('partition = 0 AND "offset" BETWEEN 100 AND 119', 20, 3),
        ('partition = 0 AND "offset" < 20', 20, 3),
        ('partition = 0 AND "offset" IN (500, 505)', 2, 1),
        ('(partition = 0 AND ("offset" > 500 AND "offset" <= 510))', 10, 2),
        ('partition = 0 AND "offset" = 10 + 5 * 2', 1, 1),
        ('"offset" >= 995', 10, 2),
        ("cursor >= 1990", 10, 1 + 15),
        ("cursor BETWEEN 1000 AND 1019", 20, 2 + 30),
        ("timestamp >= '2020-09-13 12:28:15'", 100, 10),
        ("timestamp >= timestamp '2020-09-13 12:28:19' AND partition = 0", 10, 1),
        ("timestamp > '2020-09-13 12:26:40'::timestamp + interval '98 seconds 5 milliseconds'", 28, 4),
        ("timestamp > now()", 0, 0),
        ("timestamp < '2020-09-13 12:26:45'", 100, 10),
        ("timestamp BETWEEN '2020-09-13 12:27:30' AND '2020-09-13 12:27:31.5' AND partition = 1", 20, 2),
        ("timestamp < '2020-09-13 12:26:39'", 0, 0),
        ("\"offset\" < 10 AND value LIKE 'v%' AND length(key) = 1", 20, 2),
    ],
)
@on_loop
async def test_conditions_on_the_place_of_records_bound_what_is_read(where: str, rows: int, batches: int) -> None:
    store = ReadCounter()
    async with asking(store) as sql:
        await filled(sql, store)
        store.read_bytes = 0
        assert await sql.value(f"SELECT count(value) FROM t WHERE {where}") == rows
        edges = EDGES * 2 if batches else 0
        assert store.read_bytes <= batches * ONE_BATCH + edges


@pytest.mark.parametrize(
    ("where", "rows"),
    [
        ('partition = 0 OR "offset" < 10', 1010),
        ('NOT "offset" >= 10', 20),
        ('"offset" + 0 < 10', 20),
        ("partition <> 0", 1000),
        ('"offset" > partition + 994', 9),
    ],
)
@on_loop
async def test_other_conditions_are_only_checked(where: str, rows: int) -> None:
    store = ReadCounter()
    async with asking(store) as sql:
        size = await filled(sql, store)
        store.read_bytes = 0
        assert await sql.value(f"SELECT count(*) FROM t WHERE {where}") == rows
        assert store.read_bytes >= size / 2


@on_loop
async def test_a_limit_without_an_order_ends_the_reading() -> None:
    store = ReadCounter()
    async with asking(store) as sql:
        size = await filled(sql, store)
        store.read_bytes = 0
        assert await sql.column('SELECT "offset" FROM t LIMIT 5') == [0, 1, 2, 3, 4]
        assert await sql.column("SELECT length(value) FROM t LIMIT 1") == [1000]
        assert store.read_bytes < size / 4


@on_loop
async def test_each_place_of_a_topic_in_a_query_has_its_own_bounds() -> None:
    store = ReadCounter()
    async with asking(store) as sql:
        await filled(sql, store)
        store.read_bytes = 0
        assert await sql.rows(
            """SELECT a.offset, b.offset FROM t a JOIN t b ON a.offset + 900 = b.offset
            WHERE a.partition = 0 AND a.offset < 2 AND b.partition = 1 AND b.offset BETWEEN 900 AND 905 ORDER BY 1"""
        ) == [(0, 900), (1, 901)]
        assert store.read_bytes <= 2 * ONE_BATCH + 2 * EDGES
        assert await sql.value("SELECT count(*) FROM t a LEFT JOIN t b ON a.cursor = b.cursor WHERE b.offset < 10") == 20


@on_loop
async def test_conditions_around_a_subquery_do_not_bound_it() -> None:
    store = ReadCounter()
    async with asking(store) as sql:
        await filled(sql, store)
        assert await sql.value('SELECT count(*) FROM (SELECT "offset" + 990 AS "offset" FROM t) s WHERE "offset" >= 1980') == 20
        assert (
            await sql.value('SELECT count(*) FROM t x WHERE EXISTS (SELECT 1 FROM t WHERE "offset" < 1 AND x.key = t.key)')
            == 2000
        )
        assert await sql.value('SELECT count(*) FROM t AS o("offset", partition) WHERE "offset" = 1') == 1000


@on_loop
async def test_late_records_are_found_by_their_time_wherever_they_are() -> None:
    store = ReadCounter()
    async with asking(store) as sql:
        topic = await sql.broker.topics.create("t")
        for time in (5_000, 9_000, 1_000, 7_000):
            batch = encode_batch([Record(None, b"%d" % time, (), time), Record(None, b"old", (), 10)])
            store.commit(Changes(appends=(Append(PartitionId(topic.id, 0), batch, 2, time),)))
        text = "SELECT value FROM t WHERE timestamp BETWEEN '1970-01-01 00:00:01' AND '1970-01-01 00:00:08' ORDER BY cursor"
        assert await sql.column(text) == ["5000", "1000", "7000"]
        assert await sql.value("SELECT count(*) FROM t WHERE timestamp < '1970-01-01 00:00:01'") == 4


@on_loop
async def test_batches_of_unknown_age_are_read_and_give_the_same_answer() -> None:
    text = "SELECT count(value) FROM t WHERE timestamp < '2020-09-13 12:26:45'"
    for is_known in (True, False):
        store = ReadCounter()
        async with asking(store) as sql:
            size = await filled(sql, store, is_known=is_known)
            store.read_bytes = 0
            assert await sql.value(text) == 100
            assert (store.read_bytes < size / 4) == is_known


@on_loop
async def test_times_of_append_bound_a_query_on_both_sides() -> None:
    store = ReadCounter()
    async with asking(store) as sql:
        await sql.broker.topics.create("t", options=TopicOptions(timestamps="append"))
        topic = sql.broker.topics.get("t").topic
        for time in range(3):
            batch = encode_batch([Record(None, b"\xff" * 10, (), 5)], append_time=time * 1000)
            store.commit(Changes(appends=(Append(PartitionId(topic.id, 0), batch, 1, time * 1000),)))
        assert await sql.column("SELECT \"offset\" FROM t WHERE timestamp = '1970-01-01 00:00:01'") == [1]


@on_loop
async def test_what_lies_before_the_start_of_a_partition_is_not_shown() -> None:
    store = ReadCounter()
    async with asking(store) as sql:
        await filled(sql, store)
        await sql.broker.retention.delete_before("t", 0, Offset(995))
        assert await sql.column('SELECT "offset" FROM t WHERE partition = 0') == [995, 996, 997, 998, 999]
        assert await sql.value("SELECT count(*) FROM t") == 1005
        assert await sql.value("SELECT min(cursor) FROM t WHERE partition = 0 AND cursor >= 0") == 1985
