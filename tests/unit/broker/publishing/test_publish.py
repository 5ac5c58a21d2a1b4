import asyncio

import pytest

from tailrace.broker.publishing.snowflake import EPOCH_MS
from tailrace.model.errors import (
    InvalidRequestError,
    InvalidTimestampError,
    LimitExceededError,
    MessageTooLargeError,
    StorageFullError,
    TailraceError,
    UnknownPartitionError,
    UnknownTopicError,
)
from tailrace.model.ids import Cursor, Offset
from tailrace.model.limits import Limits
from tailrace.model.record import MESSAGE_ID_HEADER, Message
from tailrace.store.memory import MemoryStore
from tailrace.wire.partitioner import partition_for_key
from tests.support.aio import on_loop, turns
from tests.support.brokers import GatedStore, append, bounds_of, options, raw, running_broker, values_in
from tests.support.clocks import ManualClock

NOW = ManualClock().now_ms()


@on_loop
async def test_messages_of_many_topics_go_into_one_commit() -> None:
    store = MemoryStore()
    async with running_broker(store) as broker:
        await broker.topics.create("a", 2)
        await broker.topics.create("b", alias="bee")
        commits = store.stats().commits
        published = await broker.publisher.publish(
            [
                Message("a", b"1", partition=1),
                Message("bee", b"2"),
                Message("a", b"3", partition=0),
                Message("a", b"4", partition=1),
            ]
        )
        assert store.stats().commits == commits + 1
        assert [(each.topic, each.partition, each.offset, each.duplicate) for each in published] == [
            ("a", 1, 0, False),
            ("b", 0, 0, False),
            ("a", 0, 0, False),
            ("a", 1, 1, False),
        ]
        assert {each.cursor for each in published} == {0, 1, 2, 3}
        assert await values_in(broker, "a", 1) == [b"1", b"4"]


@on_loop
async def test_cursors_are_those_of_the_log() -> None:
    store = MemoryStore()
    async with running_broker(store) as broker:
        await broker.topics.create("a", 2)
        await append(broker, raw("a", 0, b"before"))
        published = await broker.publisher.publish([Message("a", b"%d" % number, partition=number % 2) for number in range(4)])
        places = {}
        for batch in store.scan(Cursor(0), 10_000).batches:
            for delta in range(batch.records):
                places[batch.partition.number, batch.base_offset + delta] = batch.cursor + delta
        assert [each.cursor for each in published] == [places[each.partition, each.offset] for each in published]


@on_loop
async def test_keys_choose_the_partition_as_kafkas_clients_do() -> None:
    async with running_broker() as broker:
        await broker.topics.create("t", 7)
        published = await broker.publisher.publish([Message("t", b"", key=b"key-%d" % number) for number in range(50)])
        assert [each.partition for each in published] == [partition_for_key(b"key-%d" % number, 7) for number in range(50)]


@on_loop
async def test_messages_without_a_key_go_round() -> None:
    async with running_broker() as broker:
        await broker.topics.create("t", 3)
        first = await broker.publisher.publish([Message("t", b"")] * 4)
        second = await broker.publisher.publish([Message("t", b"")] * 2)
        assert [each.partition for each in first + second] == [0, 1, 2, 0, 1, 2]


@on_loop
async def test_an_empty_key_is_a_key() -> None:
    async with running_broker() as broker:
        await broker.topics.create("t", 5)
        published = await broker.publisher.publish([Message("t", b"", key=b"")] * 3)
        assert {each.partition for each in published} == {partition_for_key(b"", 5)}


@on_loop
async def test_a_message_is_read_back_as_it_was_with_its_id_as_a_header() -> None:
    async with running_broker() as broker:
        await broker.topics.create("t")
        (published,) = await broker.publisher.publish([Message("t", None, b"k", [("h", b"x"), ("n", None)], timestamp=NOW - 5)])
        (record,) = (await broker.committed_reader.read("t", 0, Offset(0), max_records=1)).records
        assert (record.key, record.value, record.timestamp, record.offset) == (b"k", None, NOW - 5, 0)
        assert record.headers == [("h", b"x"), ("n", None), (MESSAGE_ID_HEADER, published.message_id.encode())]


@on_loop
async def test_a_message_without_a_time_gets_the_brokers() -> None:
    async with running_broker() as broker:
        await broker.topics.create("t")
        await broker.publisher.publish([Message("t", b"v")])
        (record,) = (await broker.committed_reader.read("t", 0, Offset(0), max_records=1)).records
        assert record.timestamp == NOW


@on_loop
async def test_message_ids_are_snowflakes_unless_they_are_given() -> None:
    clock = ManualClock(1_800_000_000_000)
    async with running_broker(clock=clock) as broker:
        await broker.topics.create("t")
        published = await broker.publisher.publish([Message("t", b""), Message("t", b"", message_id="mine"), Message("t", b"")])
        first, given, third = (each.message_id for each in published)
        assert given == "mine"
        assert (int(first) >> 22) + EPOCH_MS == clock.now_ms()
        assert int(third) > int(first)


@on_loop
async def test_a_message_id_can_come_as_a_header() -> None:
    async with running_broker() as broker:
        await broker.topics.create("t")
        (published,) = await broker.publisher.publish([Message("t", b"", headers=[(MESSAGE_ID_HEADER, b"mine")])])
        assert published.message_id == "mine"
        with pytest.raises(InvalidRequestError, match="a different one in its header"):
            await broker.publisher.publish([Message("t", b"", headers=[(MESSAGE_ID_HEADER, b"mine")], message_id="other")])


@on_loop
async def test_message_ids_rise_over_a_restart_with_a_clock_that_stepped_back() -> None:
    store = MemoryStore()
    clock = ManualClock(1_800_000_000_000)
    async with running_broker(store, clock) as broker:
        await broker.topics.create("t")
        (before,) = await broker.publisher.publish([Message("t", b"")])
    clock.step_back(3_600_000)
    async with running_broker(store, clock) as broker:
        (after,) = await broker.publisher.publish([Message("t", b"")])
        assert int(after.message_id) > int(before.message_id)


GOOD = Message("t", b"good")


@pytest.mark.parametrize(
    ("bad", "error", "reason"),
    [
        (Message("nowhere", b""), UnknownTopicError, "'nowhere'"),
        (Message("t", b"", partition=9), UnknownPartitionError, "no partition 9"),
        (Message("t", b"", partition=-1), UnknownPartitionError, "no partition -1"),
        (Message("t", bytes(1_048_577)), MessageTooLargeError, "payload_bytes"),
        (Message("t", b"", key=bytes(65_537)), LimitExceededError, "key_bytes"),
        (Message("t", b"", headers=[("h", b"")] * 33), LimitExceededError, "more than headers allows"),
        (Message("t", b"", headers=[("h", bytes(4_097))]), LimitExceededError, "header_bytes"),
        (Message("t", b"", headers=[("h" * 4_097, b"")]), LimitExceededError, "header_bytes"),
        (Message("t", b"", message_id="i" * 256), LimitExceededError, "message_id_bytes"),
        (Message("t", b"", message_id=""), LimitExceededError, "message_id_bytes"),
        (Message("t", b"", timestamp=-1), InvalidTimestampError, "-1"),
        (Message("t", b"", timestamp=NOW + 3_600_001), InvalidTimestampError, "timestamp_ahead_ms"),
        (
            Message("t", bytes(1_048_000), key=bytes(65_000), headers=[("h", bytes(4_000))] * 2),
            MessageTooLargeError,
            "batch_bytes",
        ),
        (Message("small", bytes(200)), MessageTooLargeError, "max_message_bytes 200"),
    ],
)
@on_loop
async def test_one_bad_message_rejects_all_and_changes_nothing(bad: Message, error: type[TailraceError], reason: str) -> None:
    store = MemoryStore()
    async with running_broker(store) as broker:
        await broker.topics.create("t")
        await broker.topics.create("small", options=options(max_message_bytes=200))
        commits = store.stats().commits
        with pytest.raises(error) as refused:
            await broker.publisher.publish([GOOD, bad, GOOD])
        assert reason in str(refused.value)
        assert store.stats().commits == commits
        assert bounds_of(broker, "t") == (0, 0)


@on_loop
async def test_a_rejected_publish_does_not_move_the_round() -> None:
    async with running_broker() as broker:
        await broker.topics.create("t", 3)
        with pytest.raises(UnknownTopicError):
            await broker.publisher.publish([GOOD, Message("nowhere", b"")])
        (published,) = await broker.publisher.publish([GOOD])
        assert published.partition == 0


@on_loop
async def test_the_largest_of_everything_is_taken() -> None:
    async with running_broker() as broker:
        await broker.topics.create("t")
        await broker.publisher.publish([Message("t", bytes(1_048_576))])
        await broker.publisher.publish(
            [Message("t", b"", key=bytes(65_536), headers=[("h", bytes(4_096))] * 32, message_id="i" * 255)]
        )
        assert bounds_of(broker, "t") == (0, 2)


@on_loop
async def test_messages_of_one_publish_are_limited() -> None:
    async with running_broker(limits=Limits(publish_records=3)) as broker:
        await broker.topics.create("t")
        with pytest.raises(LimitExceededError, match="publish_records"):
            await broker.publisher.publish([GOOD] * 4)
        assert await broker.publisher.publish([]) == []
        assert len(await broker.publisher.publish([GOOD] * 3)) == 3


@on_loop
async def test_a_publish_larger_than_a_batch_becomes_several_batches_in_one_commit() -> None:
    store = MemoryStore()
    async with running_broker(store) as broker:
        await broker.topics.create("t")
        commits = store.stats().commits
        values = [b"%04d" % number + bytes(100_000) for number in range(30)]
        published = await broker.publisher.publish([Message("t", value) for value in values])
        assert store.stats().commits == commits + 1
        assert [(each.offset, each.cursor) for each in published] == [(number, number) for number in range(30)]
        batches = store.fetch(broker.topics.get("t").partition(0), Offset(0), 10**8).batches
        assert 3 <= len(batches) <= 5
        assert all(len(batch) <= broker.topics.get("t").max_batch_bytes for batch in batches)
        assert await values_in(broker, "t") == values


@on_loop
async def test_a_batch_has_at_most_batch_records() -> None:
    store = MemoryStore()
    async with running_broker(store, limits=Limits(batch_records=3)) as broker:
        await broker.topics.create("t")
        await broker.publisher.publish([GOOD] * 8)
        assert len(store.fetch(broker.topics.get("t").partition(0), Offset(0), 10**8).batches) == 3


@on_loop
async def test_a_topic_can_stamp_messages_with_the_time_of_their_append() -> None:
    async with running_broker() as broker:
        await broker.topics.create("t", options=options(timestamps="append"))
        await broker.publisher.publish([Message("t", b"v", timestamp=5)])
        (record,) = (await broker.committed_reader.read("t", 0, Offset(0), max_records=1)).records
        assert record.timestamp == NOW


@on_loop
async def test_a_publish_that_fails_is_never_seen() -> None:
    store = GatedStore()
    async with running_broker(store) as broker:
        await broker.topics.create("a")
        await broker.topics.create("b")
        store.close_gate()
        publishing = asyncio.ensure_future(broker.publisher.publish([Message("a", b"x"), Message("b", b"x")]))
        await turns()
        store.fail()
        with pytest.raises(StorageFullError):
            await publishing
        store.open_gate()
        assert bounds_of(broker, "a") == bounds_of(broker, "b") == (0, 0)
        (published,) = await broker.publisher.publish([Message("a", b"y")])
        assert (published.offset, published.cursor) == (0, 0)


@on_loop
async def test_a_publish_that_waited_for_room_gets_the_offsets_of_its_turn() -> None:
    store = GatedStore()
    async with running_broker(store) as broker:
        await broker.topics.create("t")
        store.close_gate()
        store.room = 1
        appending = broker.appender.append([raw("t", 0, b"first", b"second")])
        await turns()
        publishing = asyncio.ensure_future(broker.publisher.publish([Message("t", b"third")]))
        await turns()
        store.settle(1)
        await appending
        store.open_gate()
        (published,) = await publishing
        assert (published.offset, published.cursor) == (2, 2)


@on_loop
async def test_a_publish_to_a_topic_deleted_meanwhile_is_rejected_as_a_whole() -> None:
    store = GatedStore()
    async with running_broker(store) as broker:
        await broker.topics.create("gone")
        await broker.topics.create("stays")
        store.close_gate()
        store.room = 1
        deleting = asyncio.ensure_future(broker.topics.delete("gone"))
        await turns()
        blocked = asyncio.ensure_future(broker.publisher.publish([Message("stays", b"1")]))
        await turns()
        store.open_gate()
        await deleting
        await blocked
        with pytest.raises(UnknownTopicError):
            await broker.publisher.publish([Message("stays", b"2"), Message("gone", b"2")])
        assert await values_in(broker, "stays") == [b"1"]
