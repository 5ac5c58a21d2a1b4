"""An upper bound of time: what one query learned of times, the next ones need not read, and nothing stale is ever used."""

import asyncio
import threading

import pytest

from tailrace.model.commit import Append, Changes, FetchedBatches
from tailrace.model.ids import Offset, PartitionId
from tailrace.model.record import NO_TIMESTAMP, Record
from tailrace.wire.records import encode_batch
from tests.support.aio import on_loop
from tests.support.queries import Asker, ReadCounter, asking
from tests.support.transactions import TOPIC, started

BATCHES = 60
VALUE = b"v" * 30_000
ONE_BATCH = 31_000
FIRST_READS = 3 * 64 * 1024
"""What is read before the size of a read has grown to more than a few batches."""


def append(sql: Asker, store: ReadCounter, *seconds: float, value: bytes = VALUE) -> None:
    """A batch of records of these times."""
    batch = encode_batch([Record(None, value, (), int(time * 1000)) for time in seconds])
    partition = PartitionId(sql.broker.topics.get("t").topic.id, 0)
    store.commit(Changes(appends=(Append(partition, batch, len(seconds), int(max(seconds) * 1000)),)))


async def filled(sql: Asker, store: ReadCounter) -> None:
    """A batch for each second."""
    await sql.broker.topics.create("t")
    for second in range(BATCHES):
        append(sql, store, second)


async def asked(sql: Asker, store: ReadCounter, where: str) -> tuple[list[object], int]:
    """The offsets that a query finds, and the bytes that it read."""
    before = store.read_bytes
    found = await sql.column(f"SELECT offset FROM t WHERE {where} ORDER BY offset")
    return found, store.read_bytes - before


def until(second: int) -> str:
    return f"timestamp < '1970-01-01 00:00:{second:02}'"


@on_loop
async def test_later_queries_do_not_read_what_is_known_to_be_too_late() -> None:
    store = ReadCounter()
    async with asking(store) as sql:
        await filled(sql, store)
        offsets, first = await asked(sql, store, until(2))
        assert offsets == [0, 1]
        assert first >= BATCHES * ONE_BATCH * 0.9
        for bound in (2, 1, 4):
            offsets, again = await asked(sql, store, until(bound))
            assert offsets == list(range(bound))
            assert again <= bound * ONE_BATCH + FIRST_READS
        offsets, window = await asked(sql, store, f"timestamp >= '1970-01-01 00:00:30' AND {until(32)}")
        assert offsets == [30, 31]
        assert window < BATCHES * ONE_BATCH / 2


@on_loop
async def test_what_came_since_is_read() -> None:
    store = ReadCounter()
    async with asking(store) as sql:
        await filled(sql, store)
        await asked(sql, store, until(2))
        append(sql, store, 70)
        append(sql, store, 80, 1.5, 90)
        offsets, read = await asked(sql, store, until(2))
        assert offsets == [0, 1, BATCHES + 2]
        assert read <= 6 * ONE_BATCH + FIRST_READS
        assert (await asked(sql, store, until(2)))[0] == [0, 1, BATCHES + 2]


@pytest.mark.parametrize("way", ["recreated", "cleared", "trimmed"])
@on_loop
async def test_a_topic_that_lost_its_records_shows_the_new_ones(way: str) -> None:
    store = ReadCounter()
    async with asking(store) as sql:
        await filled(sql, store)
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
            append(sql, store, second)
        assert (await asked(sql, store, until(2)))[0] == [start + 1, start + 2]


@on_loop
async def test_records_of_a_batch_are_shown_once_when_only_some_of_its_offsets_were_asked_for() -> None:
    store = ReadCounter()
    async with asking(store) as sql:
        await sql.broker.topics.create("t")
        append(sql, store, *[9] * 10, value=b"small")
        append(sql, store, 1, 9, value=b"small")
        assert (await asked(sql, store, f"{until(5)} AND offset BETWEEN 4 AND 6"))[0] == []
        assert (await asked(sql, store, until(5)))[0] == [10]
        assert (await asked(sql, store, until(10)))[0] == list(range(12))


@on_loop
async def test_records_without_a_time_are_no_reason_to_read_a_batch_again() -> None:
    store = ReadCounter()
    async with asking(store) as sql:
        await sql.broker.topics.create("t")
        append(sql, store, 9, NO_TIMESTAMP / 1000)
        assert [await asked(sql, store, until(5)) for _ in range(2)][1] == ([], 0)
        assert (await asked(sql, store, until(10)))[0] == [0]


@on_loop
async def test_times_of_an_open_transaction_are_not_taken_for_known() -> None:
    store = ReadCounter()
    async with asking(store) as sql:
        await sql.broker.topics.create(TOPIC)
        append(sql, store, 1_900_000_000)
        producer = await started(sql.broker, "writer")
        await producer.write(0, b"open")
        early = "timestamp < '2030-01-01'"
        assert (await asked(sql, store, early))[0] == []
        await producer.commit()
        assert (await asked(sql, store, early))[0] == [1]


@on_loop
async def test_a_query_that_finds_nothing_can_be_stopped_while_it_reads() -> None:
    store = GatedReads()
    async with asking(store) as sql:
        await filled(sql, store)
        store.gate.clear()
        task = asyncio.create_task(sql.result("SELECT value FROM t WHERE timestamp < '1960-01-01'"))
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
