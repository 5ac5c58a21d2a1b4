"""Large values are stored once beside the log, are complete for every reader, and are removed when no record refers to them."""

import asyncio

import msgspec
import pytest

from tailrace.broker.broker import Broker
from tailrace.broker.metrics import BrokerCollector
from tailrace.broker.reading.scan import ScanRange
from tailrace.model.commit import Buffer
from tailrace.model.consume import LogEdge, PartitionOffset
from tailrace.model.errors import (
    InvalidRequestError,
    LostPayloadError,
    MessageTooLargeError,
    OffsetOutOfRangeError,
    OverloadedError,
    StorageFullError,
    UnknownPartitionError,
)
from tailrace.model.fetch import PartitionFetch
from tailrace.model.ids import Cursor, Offset
from tailrace.model.limits import DEFAULT_LIMITS, KIB
from tailrace.model.names import parse_pattern
from tailrace.model.record import Message, RawBatch, Record, reference_to
from tailrace.store.contract import Store
from tailrace.store.memory import MemoryStore
from tailrace.wire.batch import REFERENCE_MASK, check_batch, with_attributes
from tailrace.wire.payload_references import is_payload_reference
from tailrace.wire.records import decode_batch, encode_batch
from tests.support.aio import on_loop, until
from tests.support.brokers import GatedStore, bounds_of, options, raw, running_broker, values_in
from tests.support.clocks import ManualClock
from tests.support.queues import QueueConsumer, publish, values

INLINE = 100 * KIB
A, B = b"a" * (INLINE + 1), b"b" * (2 * INLINE)


def kept(store: Store) -> set[bytes]:
    return set(store.payloads.digests())


def digests(*values: bytes) -> set[bytes]:
    return {reference_to(value).digest for value in values}


def stored_batches(broker: Broker, topic: str = "t") -> list[Buffer]:
    store = broker.store
    partition = broker.topics.get(topic).partition(0)
    return list(store.fetch(partition, store.bounds(partition).start, 10**9).batches)


async def sweep_all(broker: Broker) -> int:
    """Sweep twice: payloads that lose their references in one sweep are removed by the next. Return how many."""
    return await broker.payload_sweep.run_once() + await broker.payload_sweep.run_once()


@on_loop
async def test_values_over_the_limit_are_kept_beside_the_log_and_those_at_it_are_not() -> None:
    store = MemoryStore()
    async with running_broker(store) as broker:
        await broker.topics.create("t")
        await broker.publisher.publish([Message("t", A[:-1]), Message("t", A), Message("t", None), Message("t", b"small")])
        assert kept(store) == digests(A)
        assert [is_payload_reference(batch) for batch in stored_batches(broker)] == [False, True, False]
        assert sum(map(len, stored_batches(broker))) < INLINE + 1000
        assert await values_in(broker, "t") == [A[:-1], A, None, b"small"]


@on_loop
async def test_large_and_small_messages_of_one_publish_keep_their_order_and_share_a_commit() -> None:
    store = MemoryStore()
    async with running_broker(store) as broker:
        await broker.topics.create("t")
        await broker.topics.create("u")
        commits = store.stats().commits
        values = [b"0", A, b"2", b"3", B, A, b"6"]
        published = await broker.publisher.publish([Message("t", value) for value in values] + [Message("u", B)])
        assert store.stats().commits == commits + 1
        assert [each.offset for each in published] == [0, 1, 2, 3, 4, 5, 6, 0]
        assert [each.cursor for each in published] == list(range(8))
        assert await values_in(broker, "t") == values
        assert await values_in(broker, "u") == [B]
        assert kept(store) == digests(A, B)


@on_loop
async def test_every_reader_gets_the_value_and_all_else_as_it_was_published() -> None:
    async with running_broker() as broker:
        await broker.topics.create("t")
        subscription = broker.subscriptions.subscribe(parse_pattern("t", DEFAULT_LIMITS), LogEdge.LATEST)
        late = broker.subscriptions.subscribe(parse_pattern("t", DEFAULT_LIMITS), LogEdge.BEGINNING)
        now = ManualClock().now_ms()
        message = Message("t", A, b"key", [("h", b"1"), ("none", None)], timestamp=now, message_id="m1")
        await broker.publisher.publish([Message("t", b"before"), message])
        wanted = Record(b"key", A, [("h", b"1"), ("none", None), ("message_id", b"m1")], now, Offset(1))

        (answer,) = await broker.fetcher.fetch([PartitionFetch("t", 0, Offset(1), 10**9)])
        assert [check_batch(batch).attributes for batch in answer.batches] == [0]
        many = await broker.committed_reader.batches_of_many("t", [PartitionOffset(0, Offset(1))])
        scanned = [
            each.batch
            for piece in broker.scanner.view("t").partitions[0].parts(ScanRange(Offset(1), Offset(2)))
            for each in piece
        ]
        for batches in (answer.batches, many[0].batches, scanned):
            assert [record for batch in batches for record in decode_batch(batch, DEFAULT_LIMITS)] == [wanted]

        placed = wanted._replace(cursor=Cursor(1))
        assert (await broker.committed_reader.read("t", 0, Offset(1), max_records=5)).records == [placed]
        for each in (subscription, late):
            found: list[Record] = []
            while len(found) < 2:
                found += [record for events in await each.read(10) for record in events.records]
            assert found[1] == placed
            each.close()


@on_loop
async def test_a_topic_with_append_times_keeps_them_for_large_values() -> None:
    clock = ManualClock()
    async with running_broker(clock=clock) as broker:
        await broker.topics.create("t", options=options(timestamps="append"))
        await broker.publisher.publish([Message("t", A, timestamp=5)])
        (record,) = (await broker.committed_reader.read("t", 0, Offset(0), max_records=1)).records
        assert record.timestamp == clock.now_ms()


@on_loop
async def test_the_same_content_is_written_once_and_counted() -> None:
    store = MemoryStore()
    async with running_broker(store) as broker:
        await broker.topics.create("t")
        await broker.topics.create("u")
        await broker.publisher.publish([Message("t", A), Message("u", A)])
        await broker.publisher.publish([Message("t", A), Message("t", B)])
        assert kept(store) == digests(A, B)
        numbers = {family.name: family.samples[0].value for family in BrokerCollector(broker).collect() if family.samples}
        assert numbers["tailrace_payloads_stored"] == 2
        assert numbers["tailrace_payload_stored_bytes"] == len(A) + len(B)
        assert numbers["tailrace_payloads_found"] == 2


@on_loop
async def test_a_fetch_counts_payloads_in_its_budget_and_returns_at_least_one_batch() -> None:
    async with running_broker() as broker:
        await broker.topics.create("t")
        await broker.publisher.publish([Message("t", b"%d" % number + A) for number in range(10)])

        async def fetched(max_bytes: int) -> int:
            (answer,) = await broker.fetcher.fetch([PartitionFetch("t", 0, Offset(0), 10**9)], max_bytes=max_bytes)
            assert len(answer.cursors) == len(answer.batches)
            return len(answer.batches)

        assert await fetched(1) == 1
        assert await fetched(2 * len(A)) == 1
        assert await fetched(3 * len(A) + 1000) == 3
        assert await fetched(10**9) == 10


@on_loop
async def test_a_fetch_that_waits_for_many_bytes_is_woken_by_a_payload() -> None:
    async with running_broker() as broker:
        await broker.topics.create("t")
        waiting = asyncio.ensure_future(
            broker.fetcher.fetch([PartitionFetch("t", 0, Offset(0), 10**9)], min_bytes=INLINE, max_wait_ms=25_000)
        )
        await until(lambda: len(broker.waiting_fetches) == 1)
        await broker.publisher.publish([Message("t", A)])
        (answer,) = await asyncio.wait_for(waiting, 20)
        assert sum(map(len, answer.batches)) > INLINE


@on_loop
async def test_a_payload_goes_with_the_last_record_that_refers_to_it() -> None:
    store = MemoryStore()
    async with running_broker(store) as broker:
        await broker.topics.create("t")
        await broker.topics.create("u")
        await broker.publisher.publish([Message("t", A), Message("t", A), Message("t", B), Message("u", A)])
        assert await sweep_all(broker) == 0
        await broker.retention.delete_before("t", 0, Offset(2))
        assert await sweep_all(broker) == 0
        assert await values_in(broker, "u") == [A]
        await broker.topics.delete("u")
        assert await sweep_all(broker) == 1
        assert kept(store) == digests(B)
        assert await values_in(broker, "t") == [B]
        await broker.topics.delete("t")
        assert await sweep_all(broker) == 1
        assert kept(store) == set()
        assert store.range(b"payload") == []


@on_loop
async def test_a_payload_stays_for_one_sweep_after_its_last_reference() -> None:
    store = MemoryStore()
    async with running_broker(store) as broker:
        await broker.topics.create("t")
        await broker.publisher.publish([Message("t", A)])
        await broker.payload_sweep.run_once()
        await broker.retention.delete_before("t", 0, None)
        assert await broker.payload_sweep.run_once() == 0
        assert kept(store) == digests(A)
        assert await broker.payload_sweep.run_once() == 1


def test_more_references_than_one_commit_forgets_all_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tailrace.broker.payloads._FORGOTTEN_AT_ONCE", 10)
    monkeypatch.setattr("tailrace.broker.payloads._MOST_REMEMBERED", 30)
    asyncio.run(_many_references_go())


async def _many_references_go() -> None:
    store = MemoryStore()
    limits = msgspec.structs.replace(DEFAULT_LIMITS, payload_inline_bytes=3)
    async with running_broker(store, limits=limits) as broker:
        await broker.topics.create("t", 3)
        values = [b"%04d" % number for number in range(130)]
        await broker.publisher.publish([Message("t", value, partition=number % 3) for number, value in enumerate(values)])
        await broker.retention.delete_before("t", 1, Offset(25))
        await sweep_all(broker)
        alive = [value for number, value in enumerate(values) if number % 3 != 1 or number // 3 >= 25]
        assert kept(store) == digests(*alive)
        await broker.retention.clear("t")
        await sweep_all(broker)
        assert kept(store) == set()


@on_loop
async def test_a_payload_that_a_publish_in_flight_refers_to_is_not_removed() -> None:
    store = GatedStore()
    async with running_broker(store) as broker:
        await broker.topics.create("t")
        await broker.publisher.publish([Message("t", A)])
        await broker.retention.delete_before("t", 0, None)
        await broker.payload_sweep.run_once()
        store.close_gate()
        publishing = asyncio.ensure_future(broker.publisher.publish([Message("t", A)]))
        await until(lambda: bool(store.in_flight))
        assert await broker.payloads.remove_unused(list(digests(A))) == 0
        store.open_gate()
        await publishing
        await sweep_all(broker)
        assert await values_in(broker, "t") == [A]


@on_loop
async def test_the_payload_of_a_failed_publish_is_removed() -> None:
    store = GatedStore()
    async with running_broker(store) as broker:
        await broker.topics.create("t")
        await broker.payload_sweep.run_once()
        store.close_gate()
        publishing = asyncio.ensure_future(broker.publisher.publish([Message("t", A)]))
        await until(lambda: bool(store.in_flight))
        store.fail()
        with pytest.raises(StorageFullError):
            await publishing
        store.open_gate()
        assert kept(store) == digests(A)
        assert await broker.payload_sweep.run_once() == 1


@on_loop
async def test_the_payload_of_a_cancelled_publish_is_removed() -> None:
    store = MemoryStore()
    async with running_broker(store) as broker:
        await broker.topics.create("t")
        await broker.payload_sweep.run_once()
        publishing = asyncio.ensure_future(broker.publisher.publish([Message("t", A)]))
        await asyncio.sleep(0)
        publishing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await publishing
        await until(lambda: broker.payloads.pending_bytes == 0)
        assert await broker.payload_sweep.run_once() == 1
        assert bounds_of(broker, "t").end == 0


@on_loop
async def test_a_duplicate_is_not_stored_and_its_payload_is_that_of_the_first() -> None:
    store = MemoryStore()
    async with running_broker(store) as broker:
        await broker.topics.create("t", options=options(dedup="content"))
        await broker.publisher.publish([Message("t", A)])
        again = await broker.publisher.publish([Message("t", A), Message("t", B)])
        assert [each.duplicate for each in again] == [True, False]
        await sweep_all(broker)
        assert await values_in(broker, "t") == [A, B]


@on_loop
async def test_the_payload_of_a_duplicate_by_id_goes() -> None:
    store = MemoryStore()
    async with running_broker(store) as broker:
        await broker.topics.create("t", options=options(dedup="id"))
        await broker.publisher.publish([Message("t", A, message_id="1")])
        again = await broker.publisher.publish([Message("t", B, message_id="1"), Message("t", b"c", message_id="2")])
        assert [each.duplicate for each in again] == [True, False]
        await sweep_all(broker)
        assert kept(store) == digests(A)


@on_loop
async def test_unused_payloads_are_removed_by_the_first_sweep_after_a_restart() -> None:
    store = MemoryStore()
    async with running_broker(store) as broker:
        await broker.topics.create("t")
        await broker.publisher.publish([Message("t", A)])
    store.payloads.put({reference_to(B): B})
    async with running_broker(store) as broker:
        assert await broker.payload_sweep.run_once() == 1
        assert await values_in(broker, "t") == [A]


@on_loop
async def test_a_lost_payload_is_an_error_that_names_its_record_and_the_others_are_served() -> None:
    store = MemoryStore()
    async with running_broker(store) as broker:
        await broker.topics.create("t")
        await broker.publisher.publish([Message("t", b"0"), Message("t", A), Message("t", B)])
        store.payloads.remove(digests(A))
        assert [record.value for record in (await broker.committed_reader.read("t", 0, Offset(0), max_records=5)).records] == [
            b"0"
        ]
        with pytest.raises(LostPayloadError, match=r"offset 1 of partition 0 .* is missing.* Go on at 2") as lost:
            await broker.committed_reader.read("t", 0, Offset(1), max_records=5)
        assert lost.value.next_offset == 2
        (answer,) = await broker.fetcher.fetch([PartitionFetch("t", 0, Offset(1), 10**9)])
        assert isinstance(answer.error, LostPayloadError)
        assert [record.value for record in (await broker.committed_reader.read("t", 0, Offset(2), max_records=5)).records] == [
            B
        ]
        subscription = broker.subscriptions.subscribe(parse_pattern("t", DEFAULT_LIMITS), LogEdge.BEGINNING)
        (events,) = await subscription.read(5)
        assert [record.value for record in events.records] == [b"0"]
        with pytest.raises(LostPayloadError):
            await subscription.read(5)
        subscription.close()


@on_loop
async def test_a_queue_hands_out_payloads_and_passes_over_a_lost_one() -> None:
    store = MemoryStore()
    async with running_broker(store) as broker:
        await broker.topics.create("t")
        await publish(broker, "t", b"0", A, B, b"3")
        store.payloads.remove(digests(A))
        consumer = QueueConsumer(broker, pattern="t")
        found: list[bytes | None] = []
        while len(found) < 3:
            taken = await consumer.receive(5)
            assert taken, "a queue that can't pass a lost payload"
            found += values(taken)
        assert found == [b"0", B, b"3"]
        assert broker.queues.missed == 1


@on_loop
async def test_a_record_deleted_before_its_payload_was_read_is_out_of_range() -> None:
    store = MemoryStore()
    async with running_broker(store) as broker:
        await broker.topics.create("t")
        await broker.publisher.publish([Message("t", A), Message("t", b"next")])
        partition = broker.topics.get("t").partition(0)
        fetched = store.fetch(partition, Offset(0), 1)
        view = broker.scanner.view("t").partitions[0]
        subscription = broker.subscriptions.subscribe(parse_pattern("t", DEFAULT_LIMITS), LogEdge.LATEST)
        await broker.publisher.publish([Message("t", B), Message("t", b"last")])
        await broker.retention.delete_before("t", 0, Offset(3))
        await sweep_all(broker)
        assert kept(store) == set()
        with pytest.raises(OffsetOutOfRangeError):
            broker.payload_expansion.fetched(partition, fetched, 1)
        assert list(view.parts(view.bounds)) == []
        (events,) = await subscription.read(5)
        assert [record.value for record in events.records] == [b"last"]
        subscription.close()


@on_loop
async def test_no_reader_ever_gets_a_reference_of_a_topic_that_was_deleted_meanwhile() -> None:
    store = MemoryStore()
    async with running_broker(store) as broker:
        await broker.topics.create("t")
        await broker.publisher.publish([Message("t", A)])
        partition = broker.topics.get("t").partition(0)
        fetched = store.fetch(partition, Offset(0), 1)
        await broker.topics.delete("t")
        found = broker.payload_expansion.fetched(partition, fetched, 1)
        assert [record.value for record in decode_batch(found.batches[0], DEFAULT_LIMITS)] == [A]
        await sweep_all(broker)
        with pytest.raises(UnknownPartitionError):
            broker.payload_expansion.fetched(partition, fetched, 1)


@on_loop
async def test_clients_can_not_send_references() -> None:
    async with running_broker() as broker:
        await broker.topics.create("t")
        forged = with_attributes(encode_batch([Record(None, b"x", timestamp=ManualClock().now_ms())]), REFERENCE_MASK)
        (refused,) = await broker.appender.append([RawBatch("t", 0, forged)])
        assert isinstance(refused, InvalidRequestError)
        assert "payload reference" in str(refused)


@on_loop
async def test_batches_of_kafka_producers_are_stored_as_they_come() -> None:
    store = MemoryStore()
    async with running_broker(store) as broker:
        await broker.topics.create("t")
        await broker.appender.append([raw("t", 0, A)])
        assert kept(store) == set()
        assert await values_in(broker, "t") == [A]


@on_loop
async def test_a_rejected_publish_writes_no_payload() -> None:
    store = MemoryStore()
    async with running_broker(store) as broker:
        await broker.topics.create("t")
        await broker.topics.create("small", options=options(max_message_bytes=INLINE))
        with pytest.raises(MessageTooLargeError, match="payload_bytes"):
            await broker.publisher.publish([Message("t", A), Message("t", bytes(1024 * KIB + 1))])
        with pytest.raises(MessageTooLargeError, match="max_message_bytes"):
            await broker.publisher.publish([Message("t", A), Message("small", A)])
        assert kept(store) == set()


@on_loop
async def test_payloads_that_wait_to_be_written_are_bounded() -> None:
    limits = msgspec.structs.replace(DEFAULT_LIMITS, pending_payload_bytes=3 * INLINE)
    async with running_broker(limits=limits) as broker:
        await broker.topics.create("t")
        outcomes = await asyncio.gather(
            *(broker.publisher.publish([Message("t", b"%d" % number + A)]) for number in range(5)), return_exceptions=True
        )
        refused = [outcome for outcome in outcomes if isinstance(outcome, OverloadedError)]
        assert len(refused) == 3
        assert "pending_payload_bytes" in str(refused[0])
        assert broker.payloads.pending_bytes == 0
        await broker.publisher.publish([Message("t", A)])


@on_loop
async def test_retention_by_bytes_counts_payloads() -> None:
    async with running_broker() as broker:
        await broker.topics.create("t", options=options(retention_max_bytes=3 * len(B)))
        for number in range(10):
            await broker.publisher.publish([Message("t", b"%d" % number + B[1:])])
        assert await broker.retention.run_once() == 7
        assert bounds_of(broker, "t") == (7, 10)
        assert await broker.retention.run_once() == 0
        for _ in range(5):
            await broker.publisher.publish([Message("t", A[:-1])])
        # These are half as large and in the log: five of them and one payload are the limit, and half of one more.
        await broker.retention.run_once()
        assert bounds_of(broker, "t") == (9, 15)
        await broker.publisher.publish([Message("t", B)])
        # One payload and four of them are the limit.
        assert await broker.retention.run_once() == 2
