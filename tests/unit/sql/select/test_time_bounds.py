"""An upper bound of time: what is too late is not read, by the first query either, and nothing stale is ever used."""

import asyncio
import threading

import pytest

from tailrace.model.commit import FetchedBatches
from tailrace.model.ids import Offset, PartitionId
from tailrace.model.record import NO_TIMESTAMP, RawBatch, Record
from tailrace.wire.records import encode_batch
from tests.support.aio import on_loop
from tests.support.brokers import append as append_batch
from tests.support.queries import Asker, ReadCounter, asking
from tests.support.transactions import TOPIC, started

BATCHES = 60
VALUE = b"v" * 30_000
ONE_BATCH = 31_000
FIRST_READS = 3 * 64 * 1024
"""What is read before the size of a read has grown to more than a few batches."""


async def append(sql: Asker, *seconds: float, value: bytes = VALUE) -> None:
    """A batch of a producer, of records of these times."""
    batch = encode_batch([Record(None, value, (), int(time * 1000)) for time in seconds])
    await append_batch(sql.broker, RawBatch("t", 0, batch))


async def filled(sql: Asker) -> None:
    """A batch for each second."""
    await sql.broker.topics.create("t")
    for second in range(BATCHES):
        await append(sql, second)


async def asked(sql: Asker, store: ReadCounter, where: str) -> tuple[list[object], int]:
    """The offsets that a query finds, and the bytes that it read."""
    before = store.read_bytes
    found = await sql.column(f'SELECT "offset" FROM t WHERE {where} ORDER BY "offset"')
    return found, store.read_bytes - before


def until(second: int) -> str:
    return f"timestamp < '1970-01-01 00:00:{second:02}'"


@on_loop
async def test_queries_do_not_read_what_is_too_late() -> None:
    store = ReadCounter()
    async with asking(store) as sql:
        await filled(sql)
        for bound in (2, 1, 4):
            offsets, read = await asked(sql, store, until(bound))
            assert offsets == list(range(bound))
            assert read <= bound * ONE_BATCH + FIRST_READS
        offsets, window = await asked(sql, store, f"timestamp >= '1970-01-01 00:00:30' AND {until(32)}")
        assert offsets == [30, 31]
        assert window <= 2 * ONE_BATCH + FIRST_READS


@on_loop
async def test_what_came_since_is_read() -> None:
    store = ReadCounter()
    async with asking(store) as sql:
        await filled(sql)
        await asked(sql, store, until(2))
        await append(sql, 70)
        await append(sql, 80, 1.5, 90)
        offsets, read = await asked(sql, store, until(2))
        assert offsets == [0, 1, BATCHES + 2]
        assert read <= 6 * ONE_BATCH + FIRST_READS
        assert (await asked(sql, store, until(2)))[0] == [0, 1, BATCHES + 2]


@pytest.mark.parametrize("way", ["recreated", "cleared", "trimmed"])
@on_loop
async def test_a_topic_that_lost_its_records_shows_the_new_ones(way: str) -> None:
    store = ReadCounter()
    async with asking(store) as sql:
        await filled(sql)
        assert (await asked(sql, store, until(2)))[0] == [0, 1]
        if way == "recreated":
            await sql.broker.topics.delete("t")
            await sql.broker.topics.create("t")
            start = 0
        elif way == "cleared":
            await sql.broker.retention.clear("t")
            start = BATCHES
        else:
            await sql.broker.retention.delete_before("t", 0, Offset(BATCHES - 1))
            start = BATCHES
        for second in (50, 1, 0):
            await append(sql, second)
        assert (await asked(sql, store, until(2)))[0] == [start + 1, start + 2]


@on_loop
async def test_records_of_a_batch_are_shown_once_when_only_some_of_its_offsets_were_asked_for() -> None:
    store = ReadCounter()
    async with asking(store) as sql:
        await sql.broker.topics.create("t")
        await append(sql, *[9] * 10, value=b"small")
        await append(sql, 1, 9, value=b"small")
        assert (await asked(sql, store, f'{until(5)} AND "offset" BETWEEN 4 AND 6'))[0] == []
        assert (await asked(sql, store, until(5)))[0] == [10]
        assert (await asked(sql, store, until(10)))[0] == list(range(12))


@on_loop
async def test_records_without_a_time_are_no_reason_to_read_a_batch() -> None:
    store = ReadCounter()
    async with asking(store) as sql:
        await sql.broker.topics.create("t")
        await append(sql, 9, NO_TIMESTAMP / 1000)
        assert await asked(sql, store, until(5)) == ([], 0)
        assert (await asked(sql, store, until(10)))[0] == [0]


@on_loop
async def test_records_of_a_transaction_are_found_once_it_is_committed() -> None:
    store = ReadCounter()
    async with asking(store) as sql:
        await sql.broker.topics.create(TOPIC)
        await append(sql, 1_800)
        producer = await started(sql.broker, "writer")
        await producer.write(0, b"open")
        late = "timestamp > '2000-01-01' AND timestamp < '2030-01-01'"
        assert (await asked(sql, store, late))[0] == []
        await producer.commit()
        assert (await asked(sql, store, late))[0] == [1]


@on_loop
async def test_a_query_that_finds_nothing_can_be_stopped_while_it_reads() -> None:
    store = GatedReads()
    async with asking(store) as sql:
        await filled(sql)
        store.gate.clear()
        task = asyncio.create_task(sql.result("SELECT value FROM t WHERE timestamp < '1970-01-02' AND length(value) = 1"))
        await asyncio.to_thread(store.has_begun.wait, 30)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        store.gate.set()
        sql.queries.close()
        assert 0 < store.read_bytes < BATCHES * ONE_BATCH / 2


class GatedReads(ReadCounter):
    """Reads wait while the gate is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()
        self.gate.set()
        self.has_begun = threading.Event()

    def fetch(self, partition: PartitionId, offset: Offset, max_bytes: int) -> FetchedBatches:
        self.has_begun.set()
        self.gate.wait(30)
        return super().fetch(partition, offset, max_bytes)
