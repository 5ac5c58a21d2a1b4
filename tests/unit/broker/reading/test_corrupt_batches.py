"""A stored batch that can't be decoded: records before it are read, then an error names it, or it is skipped on request."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tailrace.broker.broker import Broker
from tailrace.client.partition import AssignedPartition
from tailrace.model.commit import OffsetBounds
from tailrace.model.consume import ConsumeRequest, LogEdge, PartitionOffset
from tailrace.model.errors import UnreadableBatchError
from tailrace.model.fetch import PartitionFetch
from tailrace.model.ids import Cursor, Offset
from tailrace.model.limits import DEFAULT_LIMITS
from tailrace.model.names import parse_pattern
from tailrace.model.queue import ReceiveRequest
from tailrace.pipeline.errors import CorruptDataError
from tailrace.pipeline.topic_reading import TopicColumns
from tailrace.store.memory import MemoryStore
from tailrace.wire.batch import read_header, with_base_offset
from tailrace.wire.batch_stream import FetchedPartitionHead, FetchedPartitionPart, PlacedBatch
from tests.support.aio import on_loop
from tests.support.bad_batches import BAD_BATCHES, good_batch, store_batches
from tests.support.brokers import running_broker
from tests.support.queries import Asker, asking

BEFORE = [b"0", b"1", b"2"]
AFTER = [b"after"]
every_kind = pytest.mark.parametrize("bad", BAD_BATCHES.values(), ids=BAD_BATCHES)


def _filled(store: MemoryStore, bad: bytes) -> None:
    (partition,) = store.partitions()
    store_batches(store, partition, [good_batch(b"0", b"1"), good_batch(b"2"), bad, good_batch(b"after")])


async def _folder_of_before(bad: bytes) -> MemoryStore:
    """Return a store with three good records, a bad batch and one more record, stored before batches were checked on append."""
    store = MemoryStore()
    async with running_broker(store) as broker:
        await broker.topics.create("t")
    _filled(store, bad)
    return store


@asynccontextmanager
async def opened(bad: bytes) -> AsyncIterator[Broker]:
    async with running_broker(await _folder_of_before(bad)) as broker:
        yield broker


def _end_of(bad: bytes) -> int:
    return 3 + read_header(bad).records


@every_kind
@on_loop
async def test_consumers_get_the_good_records_then_the_place_of_the_bad_ones(bad: bytes) -> None:
    async with opened(bad) as broker:
        first = await broker.consumers.consume(ConsumeRequest("t"))
        assert [found.record.value for found in first.records] == BEFORE
        (position,) = first.positions
        assert position.next_offset == 3
        assert first.has_more
        with pytest.raises(UnreadableBatchError, match=f"offsets 3 to {_end_of(bad) - 1} of 't', partition 0") as told:
            await broker.consumers.consume(ConsumeRequest("t", positions=[PartitionOffset(0, Offset(3))]))
        assert told.value.next_offset == _end_of(bad)
        behind = [PartitionOffset(0, Offset(_end_of(bad)))]
        rest = await broker.consumers.consume(ConsumeRequest("t", positions=behind))
        assert [found.record.value for found in rest.records] == AFTER


@every_kind
@on_loop
async def test_consumers_skip_bad_batches_by_choice_and_learn_which(bad: bytes) -> None:
    async with opened(bad) as broker:
        with broker.answers.answer(skips_corrupt=True) as answer:
            found = await broker.consumers.consume(ConsumeRequest("t"), answer)
        assert [each.record.value for each in found.records] == BEFORE + AFTER
        ((topic, partition, first, last, _),) = answer.corrupt
        assert (topic, partition, first, last) == ("t", 0, 3, _end_of(bad) - 1)
        assert broker.answers.skipped == _end_of(bad) - 3


@on_loop
async def test_a_bad_batch_in_one_partition_keeps_nothing_back_of_the_others() -> None:
    store = MemoryStore()
    async with running_broker(store) as broker:
        await broker.topics.create("t", 2)
    bad, good = sorted(store.partitions(), key=lambda partition: partition.number)
    store_batches(store, bad, [BAD_BATCHES["huge key"]])
    store_batches(store, good, [good_batch(b"good")])
    async with running_broker(store) as broker:
        with broker.answers.answer() as answer:
            found = await broker.consumers.consume(ConsumeRequest("t"), answer)
        assert [each.record.value for each in found.records] == [b"good"]
        assert [batch.partition for batch in answer.corrupt] == [0]
        with pytest.raises(UnreadableBatchError, match="partition 0"):
            await broker.consumers.consume(
                ConsumeRequest("t", positions=[PartitionOffset(each.partition, each.next_offset) for each in found.positions])
            )


async def _receive(broker: Broker, *, skips_corrupt: bool = False) -> list[bytes | None]:
    with broker.answers.answer(skips_corrupt=skips_corrupt) as answer:
        got = await broker.queues.receive(ReceiveRequest(group="g", pattern="t", max_records=10), answer)
    await broker.queues.acknowledge("g", [each.receipt for each in got])
    return [each.record.value for each in got]


@every_kind
@on_loop
async def test_queues_hand_out_the_good_records_then_report_or_skip_by_choice(bad: bytes) -> None:
    async with opened(bad) as broker:
        assert await _receive(broker) == BEFORE
        for _ in ("it", "again"):
            with pytest.raises(UnreadableBatchError, match="offsets 3 to"):
                await _receive(broker)
        assert await _receive(broker, skips_corrupt=True) == AFTER
        assert broker.queues.missed == _end_of(bad) - 3


@every_kind
@on_loop
async def test_subscribers_get_the_good_events_then_the_place_or_skip_by_choice(bad: bytes) -> None:
    async with opened(bad) as broker:
        pattern = parse_pattern("t", DEFAULT_LIMITS)
        reporting = broker.subscriptions.subscribe(pattern, LogEdge.BEGINNING)
        values: list[bytes | None] = []
        while len(values) < 3:
            values += [record.value for batch in await reporting.read(20) for record in batch.records]
        assert values == BEFORE
        with pytest.raises(UnreadableBatchError, match=f"offsets 3 to .* at cursor {reporting.position + _end_of(bad) - 3}"):
            await reporting.read(20)
        reporting.close()
        skipping = broker.subscriptions.subscribe(pattern, LogEdge.BEGINNING)
        with broker.answers.answer(skips_corrupt=True) as answer:
            while AFTER[0] not in values:
                values += [record.value for batch in await skipping.read(20, answer) for record in batch.records]
        assert values == [*BEFORE, *BEFORE, *AFTER]
        assert [(batch.first_offset, batch.last_offset) for batch in answer.corrupt] == [(3, _end_of(bad) - 1)]
        skipping.close()


@every_kind
@on_loop
async def test_kafka_fetches_end_before_a_bad_batch_and_then_say_that_it_is_corrupt(bad: bytes) -> None:
    async with opened(bad) as broker:

        async def fetch(offset: int) -> tuple[list[int], int | None]:
            (answer,) = await broker.fetcher.fetch([PartitionFetch("t", 0, Offset(offset), 1 << 20)])
            code = None if answer.error is None else answer.error.kafka_code
            return [read_header(batch).base_offset for batch in answer.batches], code

        for _ in ("looked into", "remembered"):
            assert await fetch(0) == ([0, 2], None)
            assert await fetch(3) == ([], 2)
            assert await fetch(_end_of(bad)) == ([_end_of(bad)], None)


@on_loop
async def test_batches_that_were_checked_on_append_are_not_checked_again() -> None:
    store = await _folder_of_before(good_batch(b"old"))
    async with running_broker(store) as broker:
        mark = broker.unchecked.end
        assert mark == store.end_cursor()
    async with running_broker(store) as broker:
        assert broker.unchecked.end == mark


@every_kind
@on_loop
async def test_queries_name_the_batch_and_read_around_it(bad: bytes) -> None:
    async with asking(await _folder_of_before(bad)) as sql:
        with pytest.raises(UnreadableBatchError, match=f"offsets 3 to {_end_of(bad) - 1} of 't', partition 0"):
            await sql.rows("SELECT value FROM t")
        assert await sql.column('SELECT value FROM t WHERE "offset" <= 2 ORDER BY "offset"') == ["0", "1", "2"]
        assert await sql.column(f'SELECT value FROM t WHERE "offset" >= {_end_of(bad)}') == ["after"]
        assert await _skipping(sql, "SELECT value FROM t ORDER BY 1") == ["0", "1", "2", "after"]
        early = "SELECT value FROM t WHERE timestamp <= '2033-01-01' ORDER BY 1"
        assert await _skipping(sql, early) == ["0", "1", "2", "after"]


@on_loop
async def test_queries_that_decode_ahead_reach_all_good_records_before_and_after_a_bad_batch() -> None:
    store = MemoryStore()
    async with running_broker(store) as broker:
        await broker.topics.create("t")
    (partition,) = store.partitions()
    batches = [good_batch(b"%d," % number + b"x" * 20_000) for number in range(400)]
    batches[300] = BAD_BATCHES["bytes after the headers"]
    store_batches(store, partition, batches)
    async with asking(store) as sql:
        with pytest.raises(UnreadableBatchError, match="offsets 300 to 300 of 't', partition 0"):
            await sql.rows("SELECT split_part(value, ',', 1) FROM t")
        found = await _skipping(sql, "SELECT split_part(value, ',', 1) FROM t", skipped=300)
        assert found == [str(number) for number in range(400) if number != 300]


async def _skipping(sql: Asker, text: str, skipped: int = 3) -> list[object]:
    from tailrace.sql.parse import parse

    with sql.broker.answers.answer(skips_corrupt=True) as answer:
        result = await sql.queries.run(parse(text)[0], (), answer)  # type: ignore[arg-type]
    assert [(batch.topic, batch.first_offset) for batch in answer.corrupt] == [("t", skipped)]
    return [value for (value,) in result.rows]


def _part(bad: bytes) -> FetchedPartitionPart:
    batches = [bytearray(good_batch(b"0", b"1")), bytearray(good_batch(b"2")), bytearray(bad), bytearray(good_batch(b"after"))]
    offsets = [0, 2, 3, _end_of(bad)]
    stored = [PlacedBatch(Cursor(at), with_base_offset(batch, at)) for at, batch in zip(offsets, batches, strict=True)]
    end = _end_of(bad) + 1
    return FetchedPartitionPart(FetchedPartitionHead(0, end, *OffsetBounds(Offset(0), Offset(end)), 0), stored)


@every_kind
def test_the_sdk_hands_out_the_good_records_and_keeps_the_error_for_later(bad: bytes) -> None:
    owned = AssignedPartition("t", 0, 0)
    owned.add_fetched(_part(bad), 0)
    assert [record.payload for record in owned.take_records(10)] == BEFORE
    assert owned.position == owned.fetch_offset == 3
    assert owned.failure is not None
    assert owned.failure.next_offset == _end_of(bad)
    owned.seek(_end_of(bad))
    assert owned.failure is None


@every_kind
def test_the_sdk_skips_bad_batches_by_choice(bad: bytes) -> None:
    owned = AssignedPartition("t", 0, 0, skips_corrupt=True)
    owned.add_fetched(_part(bad), 0)
    assert [record.payload for record in owned.take_records(10)] == BEFORE + AFTER
    assert owned.failure is None
    for offset in (0, 1, 2, _end_of(bad)):
        owned.progress.mark(offset)
    assert owned.progress.safe_offset == _end_of(bad) + 1


@every_kind
def test_spark_reads_up_to_a_bad_batch_and_names_it_or_skips_it_by_choice(bad: bytes) -> None:
    stored = _part(bad).batches
    reporting = TopicColumns(["value"])
    assert _values(reporting, stored, 0, 3) == BEFORE
    assert _values(reporting, stored, _end_of(bad), _end_of(bad) + 1) == AFTER
    with pytest.raises(CorruptDataError, match=f"offsets 3 to {_end_of(bad) - 1} of 't', partition 0.* corruptBatches"):
        _values(reporting, stored, 0, _end_of(bad) + 1)
    assert _values(TopicColumns(["value"], skips_corrupt=True), stored, 0, _end_of(bad) + 1) == BEFORE + AFTER


def _values(columns: TopicColumns, stored: object, start: int, end: int) -> list[bytes]:
    found = columns.decode("t", 0, stored, start, end)  # type: ignore[arg-type]
    return [value for batch in found for value in batch.column("value").to_pylist()]
