import asyncio
from typing import Any

import pytest

from tailrace.broker import keys
from tailrace.broker.broker import Broker
from tailrace.broker.publishing.dedup import fingerprint_of_content, fingerprint_of_id
from tailrace.model.errors import CorruptBatchError, StorageFullError
from tailrace.model.ids import Offset
from tailrace.model.limits import Limits
from tailrace.model.record import MESSAGE_ID_HEADER, Message, Published, RawBatch, Record
from tailrace.store.memory import MemoryStore
from tailrace.wire.compression import Compression
from tailrace.wire.records import encode_batch
from tests.support.aio import on_loop, turns
from tests.support.brokers import GatedStore, append, options, placed, raw, running_broker, values_in
from tests.support.clocks import ManualClock
from tests.unit.wire.test_records import body_of

NOW = ManualClock().now_ms()
WINDOW_MS = 1_800_000

BY_ID = options(dedup="id")
BY_CONTENT = options(dedup="content")


def named(*names: str, codec: Compression = Compression.NONE, **producer: Any) -> RawBatch:
    """Return a batch for `t` whose records have these ids; an empty name stands for no id."""
    records = [Record(None, name.encode(), [(MESSAGE_ID_HEADER, name.encode())] if name else (), NOW) for name in names]
    return RawBatch("t", 0, encode_batch(records, codec=codec, **producer))


def remembered(store: MemoryStore, broker: Broker) -> tuple[int, int, int]:
    """Return the number of entries and expiries of a topic, and its stored count. They must always be equal."""
    topic_id = broker.topics.get("t").topic.id
    return (
        len(store.range(keys.dedup_entry_key(topic_id, b""))),
        len(store.range(keys.dedup_expiries(topic_id))),
        int.from_bytes(store.get(keys.dedup_count_key(topic_id)) or b""),
    )


@on_loop
async def test_an_id_that_was_published_before_is_reported_as_a_duplicate() -> None:
    async with running_broker() as broker:
        await broker.topics.create("t", 4, options=BY_ID)
        (first,) = await broker.publisher.publish([Message("t", b"1", message_id="a")])
        (again,) = await broker.publisher.publish([Message("t", b"2", message_id="a")])
        assert (again.partition, again.offset, again.duplicate, again.cursor) == (first.partition, first.offset, True, None)
        (other,) = await broker.publisher.publish([Message("t", b"1", message_id="b")])
        assert not other.duplicate
        assert broker.topics.get("t").dedup_hits == 1


@on_loop
async def test_the_same_content_is_a_duplicate_whatever_its_id_time_and_headers() -> None:
    async with running_broker() as broker:
        await broker.topics.create("t", options=BY_CONTENT)
        first = Message("t", b"v", key=b"k", message_id="a")
        again = Message("t", b"v", key=b"k", message_id="b", headers=[("h", b"")], timestamp=5)
        differs = Message("t", b"v", key=b"other")
        assert [each.duplicate for each in await broker.publisher.publish([first, again, differs])] == [False, True, False]


def test_no_two_contents_have_the_same_fingerprint() -> None:
    contents = [(None, None), (None, b""), (b"", None), (b"", b""), (b"a", b"b"), (b"ab", b""), (b"", b"ab"), (None, b"ab")]
    assert len({fingerprint_of_content(key, value) for key, value in contents}) == len(contents)


@on_loop
async def test_messages_without_an_id_are_never_duplicates_by_id() -> None:
    async with running_broker() as broker:
        await broker.topics.create("t", options=BY_ID)
        published = await broker.publisher.publish([Message("t", b"v"), Message("t", b"v")])
        assert [each.duplicate for each in published] == [False, False]


@on_loop
async def test_duplicates_inside_one_publish_are_found() -> None:
    async with running_broker() as broker:
        await broker.topics.create("t", options=BY_ID)
        await broker.topics.create("plain")
        published = await broker.publisher.publish(
            [
                Message("t", b"1", message_id="a"),
                Message("plain", b"1", message_id="a"),
                Message("t", b"2", message_id="b"),
                Message("t", b"3", message_id="a"),
            ]
        )
        assert [(each.offset, each.duplicate) for each in published] == [(0, False), (0, False), (1, False), (0, True)]
        assert await values_in(broker, "t") == [b"1", b"2"]


@on_loop
async def test_a_publish_of_nothing_but_duplicates_writes_nothing() -> None:
    store = MemoryStore()
    async with running_broker(store) as broker:
        await broker.topics.create("t", options=BY_ID)
        await broker.publisher.publish([Message("t", b"1", message_id="a")])
        commits = store.stats().commits
        assert [each.duplicate for each in await broker.publisher.publish([Message("t", b"1", message_id="a")] * 2)] == [
            True,
            True,
        ]
        assert store.stats().commits == commits


@on_loop
async def test_topics_do_not_share_their_ids() -> None:
    async with running_broker() as broker:
        await broker.topics.create("t", options=BY_ID)
        await broker.topics.create("u", options=BY_ID)
        published = await broker.publisher.publish([Message(topic, b"", message_id="a") for topic in ("t", "u")])
        assert [each.duplicate for each in published] == [False, False]


@on_loop
async def test_after_the_window_an_id_is_new_again() -> None:
    clock = ManualClock()
    store = MemoryStore()
    async with running_broker(store, clock) as broker:
        await broker.topics.create("t", options=BY_ID)
        await broker.publisher.publish([Message("t", b"1", message_id="a")])
        clock.advance(WINDOW_MS - 1)
        assert (await broker.publisher.publish([Message("t", b"2", message_id="a")]))[0].duplicate
        clock.advance(1)
        (fresh,) = await broker.publisher.publish([Message("t", b"3", message_id="a")])
        assert (fresh.offset, fresh.duplicate) == (1, False)
        assert remembered(store, broker) == (1, 1, 1)
        clock.advance(WINDOW_MS - 1)
        (again,) = await broker.publisher.publish([Message("t", b"4", message_id="a")])
        assert (again.offset, again.duplicate) == (1, True)


@on_loop
async def test_a_topic_has_its_own_window() -> None:
    clock = ManualClock()
    async with running_broker(clock=clock) as broker:
        await broker.topics.create("t", options=options(dedup="id", dedup_window_seconds=10))
        await broker.publisher.publish([Message("t", b"1", message_id="a")])
        clock.advance(10_000)
        assert not (await broker.publisher.publish([Message("t", b"2", message_id="a")]))[0].duplicate


@on_loop
async def test_ids_survive_a_restart() -> None:
    store = MemoryStore()
    async with running_broker(store) as broker:
        await broker.topics.create("t", options=BY_ID)
        await broker.publisher.publish([Message("t", b"1", message_id="a")])
    async with running_broker(store) as broker:
        assert (await broker.publisher.publish([Message("t", b"1", message_id="a")]))[0].duplicate


@on_loop
async def test_expired_ids_are_cleaned_in_the_background_and_others_stay() -> None:
    clock = ManualClock()
    store = MemoryStore()
    async with running_broker(store, clock) as broker:
        await broker.topics.create("t", options=BY_ID)
        await broker.publisher.publish([Message("t", b"", message_id=f"old-{number}") for number in range(2_500)])
        clock.advance(WINDOW_MS - 10)
        await broker.publisher.publish([Message("t", b"", message_id="new")])
        clock.advance(10)
        assert await broker.dedup.clean() == 2_500
        assert remembered(store, broker) == (1, 1, 1)
        assert await broker.dedup.clean() == 0
        assert broker.dedup.cleaned == 2_500
        assert (await broker.publisher.publish([Message("t", b"", message_id="new")]))[0].duplicate


@on_loop
async def test_ids_are_bounded_by_forgetting_the_oldest_early() -> None:
    clock = ManualClock()
    store = MemoryStore()
    async with running_broker(store, clock, Limits(dedup_entries=100)) as broker:
        await broker.topics.create("t", options=BY_ID)
        for number in range(300):
            clock.advance(1)
            await broker.publisher.publish([Message("t", b"", message_id=f"{number}")])
            entries, expiries, count = remembered(store, broker)
            assert entries == expiries == count <= 100
        assert broker.topics.get("t").dedup_evictions >= 200
        assert (await broker.publisher.publish([Message("t", b"", message_id="299")]))[0].duplicate
        assert not (await broker.publisher.publish([Message("t", b"", message_id="0")]))[0].duplicate


@on_loop
async def test_ids_are_bounded_while_many_publishes_are_in_flight() -> None:
    clock = ManualClock()
    store = GatedStore(clock)
    async with running_broker(store, clock, Limits(dedup_entries=100)) as broker:
        await broker.topics.create("t", options=BY_ID)
        await broker.publisher.publish([Message("t", b"", message_id=f"old-{number}") for number in range(100)])
        clock.advance(1)
        store.close_gate()
        publishing = [
            asyncio.ensure_future(
                broker.publisher.publish([Message("t", b"", message_id=f"{batch}-{number}") for number in range(10)])
            )
            for batch in range(5)
        ]
        await turns()
        store.open_gate()
        await asyncio.gather(*publishing)
        assert remembered(store, broker) == (100, 100, 100)
        topic_id = broker.topics.get("t").topic.id
        for batch in range(5):
            assert store.get(keys.dedup_entry_key(topic_id, fingerprint_of_id(b"%d-9" % batch))) is not None


@on_loop
async def test_a_failed_publish_leaves_no_id_behind() -> None:
    store = GatedStore()
    async with running_broker(store) as broker:
        await broker.topics.create("t", options=BY_ID)
        store.close_gate()
        failing = asyncio.ensure_future(broker.publisher.publish([Message("t", b"1", message_id="a")]))
        await turns()
        store.fail()
        with pytest.raises(StorageFullError):
            await failing
        store.open_gate()
        (published,) = await broker.publisher.publish([Message("t", b"1", message_id="a")])
        assert not published.duplicate
        assert remembered(store, broker) == (1, 1, 1)


@on_loop
async def test_a_duplicate_is_not_acknowledged_before_its_first_is_durable() -> None:
    store = GatedStore()
    async with running_broker(store) as broker:
        await broker.topics.create("t", options=BY_ID)
        store.close_gate()
        first = asyncio.ensure_future(broker.publisher.publish([Message("t", b"1", message_id="a")]))
        await turns()
        again = asyncio.ensure_future(
            broker.publisher.publish([Message("t", b"1", message_id="a"), Message("t", b"2", message_id="b")])
        )
        await turns()
        assert not again.done()
        store.open_gate()
        await first
        assert [(each.offset, each.duplicate) for each in await again] == [(0, True), (1, False)]


@on_loop
async def test_a_duplicate_of_a_message_that_failed_is_written() -> None:
    store = GatedStore()
    async with running_broker(store) as broker:
        await broker.topics.create("t", options=BY_ID)
        store.close_gate()
        first = asyncio.ensure_future(broker.publisher.publish([Message("t", b"1", message_id="a")]))
        await turns()
        again = asyncio.ensure_future(broker.publisher.publish([Message("t", b"1", message_id="a")]))
        await turns()
        store.fail()
        store.open_gate()
        with pytest.raises(StorageFullError):
            await first
        assert not (await again)[0].duplicate
        assert await values_in(broker, "t") == [b"1"]


@on_loop
async def test_cleaning_a_topic_that_was_deleted_leaves_nothing_behind() -> None:
    clock = ManualClock()
    store = GatedStore(clock)
    async with running_broker(store, clock) as broker:
        topic = await broker.topics.create("t", options=BY_ID)
        await broker.publisher.publish([Message("t", b"1", message_id="a")])
        clock.advance(WINDOW_MS)
        store.close_gate()
        deleting = asyncio.ensure_future(broker.topics.delete("t"))
        cleaning = asyncio.ensure_future(broker.dedup.clean())
        await turns()
        store.open_gate()
        await asyncio.gather(deleting, cleaning)
        assert store.range(keys.dedup_of_topic(topic.id)) == []


@on_loop
async def test_in_raw_batches_only_the_duplicate_records_are_dropped() -> None:
    async with running_broker() as broker:
        await broker.topics.create("t", options=BY_ID)
        assert await append(broker, named("a", "b")) == placed(0, 0)
        assert await append(broker, named("b", "c", "a", "d", "c")) == placed(-5, 2, duplicates=3)
        assert await values_in(broker, "t") == [b"a", b"b", b"c", b"d"]
        assert broker.topics.get("t").dedup_hits == 3


@on_loop
async def test_a_raw_batch_of_nothing_but_duplicates_is_answered_with_the_first_offset() -> None:
    store = MemoryStore()
    async with running_broker(store) as broker:
        await broker.topics.create("t", options=BY_ID)
        await append(broker, named("a", "b", "c"))
        commits = store.stats().commits
        assert await append(broker, named("b", "c")) == placed(1, None, duplicates=2)
        assert store.stats().commits == commits


@pytest.mark.parametrize("codec", list(Compression))
@on_loop
async def test_raw_batches_keep_their_compression(codec: Compression) -> None:
    store = MemoryStore()
    async with running_broker(store) as broker:
        await broker.topics.create("t", options=BY_ID)
        await append(broker, named("a", codec=codec))
        await append(broker, named("a", "b", codec=codec))
        assert await values_in(broker, "t") == [b"a", b"b"]
        batches = store.fetch(broker.topics.get("t").partition(0), Offset(0), 10_000).batches
        assert [batch[22] & 7 for batch in batches] == [codec, codec]


@on_loop
async def test_raw_batches_without_ids_pass() -> None:
    async with running_broker() as broker:
        await broker.topics.create("t", options=BY_ID)
        await append(broker, named("", ""))
        assert (await append(broker, named("", ""))).duplicates == 0


@on_loop
async def test_raw_batches_are_deduplicated_by_content() -> None:
    async with running_broker() as broker:
        await broker.topics.create("t", options=BY_CONTENT)
        await append(broker, raw("t", 0, b"a", b"b", b"a"))
        assert await values_in(broker, "t") == [b"a", b"b"]


@on_loop
async def test_raw_batches_and_messages_find_each_other() -> None:
    async with running_broker() as broker:
        await broker.topics.create("t", options=BY_ID)
        await append(broker, named("a"))
        assert (await broker.publisher.publish([Message("t", b"", message_id="a")]))[0].duplicate
        await broker.publisher.publish([Message("t", b"", message_id="b")])
        assert (await append(broker, named("b"))).duplicates == 1


@on_loop
async def test_sequences_go_on_over_batches_that_were_duplicates() -> None:
    async with running_broker() as broker:
        await broker.topics.create("t", options=BY_ID)
        producer = await broker.producers.allocate()
        fields: dict[str, Any] = {"producer_id": producer, "producer_epoch": 0}
        await append(broker, named("a", "b", base_sequence=0, **fields))
        assert await append(broker, named("a", "b", base_sequence=2, **fields)) == placed(0, None, duplicates=2)
        assert await append(broker, named("b", "c", base_sequence=4, **fields)) == placed(1, 2, duplicates=1)
        assert await append(broker, named("b", "c", base_sequence=4, **fields)) == placed(1, None, duplicates=2)
        assert await append(broker, named("d", base_sequence=6, **fields)) == placed(3, 3)
        assert await values_in(broker, "t") == [b"a", b"b", b"c", b"d"]


@on_loop
async def test_a_raw_batch_that_cannot_be_decoded_is_rejected_where_its_records_matter() -> None:
    poison = RawBatch("t", 0, body_of(0x0C, 0, 0, 2, 1, 1, 0))
    async with running_broker() as broker:
        await broker.topics.create("t", options=BY_ID)
        with pytest.raises(CorruptBatchError, match="record 0 of the batch has the offset of another record"):
            await append(broker, poison)


@on_loop
async def test_raw_duplicates_in_flight_wait_for_their_first() -> None:
    store = GatedStore()
    async with running_broker(store) as broker:
        await broker.topics.create("t", options=BY_ID)
        store.close_gate()
        first = broker.appender.append([named("a")])
        await turns()
        again = broker.appender.append([named("b", "a")])
        await turns()
        assert not again.done()
        store.open_gate()
        assert await first == [placed(0, 0)]
        assert await again == [placed(-2, 1, duplicates=1)]
        assert remembered(store, broker) == (2, 2, 2)


@on_loop
async def test_an_id_renewed_while_it_is_being_cleaned_is_kept_and_counted_once() -> None:
    clock = ManualClock()
    store = GatedStore(clock)
    async with running_broker(store, clock) as broker:
        await broker.topics.create("t", options=BY_ID)
        await broker.publisher.publish([Message("t", b"1", message_id="a"), Message("t", b"2", message_id="b")])
        clock.advance(WINDOW_MS)
        store.close_gate()
        renewing = asyncio.ensure_future(broker.publisher.publish([Message("t", b"3", message_id="a")]))
        await turns()
        cleaning = asyncio.ensure_future(broker.dedup.clean())
        await turns()
        store.open_gate()
        assert not (await renewing)[0].duplicate
        assert await cleaning == 1
        assert remembered(store, broker) == (1, 1, 1)
        assert (await broker.publisher.publish([Message("t", b"4", message_id="a")]))[0].duplicate


@on_loop
async def test_an_id_renewed_while_the_oldest_are_forgotten_is_kept_and_counted_once() -> None:
    clock = ManualClock()
    store = MemoryStore()
    async with running_broker(store, clock, Limits(dedup_entries=2)) as broker:
        await broker.topics.create("t", options=BY_ID)
        await broker.publisher.publish([Message("t", b"1", message_id="a")])
        clock.advance(1)
        await broker.publisher.publish([Message("t", b"2", message_id="b")])
        clock.advance(WINDOW_MS)
        await broker.publisher.publish([Message("t", b"3", message_id="a"), Message("t", b"4", message_id="c")])
        assert remembered(store, broker) == (2, 2, 2)
        assert [
            each.duplicate for each in await broker.publisher.publish([Message("t", b"", message_id=name) for name in "ac"])
        ] == [True] * 2


@on_loop
async def test_ids_of_raw_batches_are_bounded_and_counted_too() -> None:
    clock = ManualClock()
    store = MemoryStore()
    async with running_broker(store, clock, Limits(dedup_entries=10)) as broker:
        await broker.topics.create("t", options=BY_ID)
        for number in range(30):
            clock.advance(1)
            await append(broker, named(f"{number}"))
        assert remembered(store, broker) == (10, 10, 10)
        assert broker.topics.get("t").dedup_evictions == 20


@on_loop
async def test_what_turns_out_to_be_a_duplicate_while_it_waits_is_not_written() -> None:
    store = GatedStore()
    async with running_broker(store) as broker:
        await broker.topics.create("t", options=BY_ID)

        def publish(*names: str) -> "asyncio.Future[list[Published]]":
            return asyncio.ensure_future(
                broker.publisher.publish([Message("t", name.encode(), message_id=name) for name in names])
            )

        store.close_gate()
        store.room = 1
        first = publish("x")
        await turns()
        after_first = publish("x", "a")
        waits_for_room = publish("a", "b")
        await turns()
        store.settle(1)
        await turns()
        store.settle(1)
        await turns()
        store.open_gate()
        answers = [[each.duplicate for each in await future] for future in (first, after_first, waits_for_room)]
        assert answers == [[False], [True, False], [True, False]]
        assert await values_in(broker, "t") == [b"x", b"a", b"b"]


@on_loop
async def test_the_time_of_a_batch_is_that_of_its_new_records() -> None:
    store = MemoryStore()
    async with running_broker(store) as broker:
        await broker.topics.create("t", options=BY_CONTENT)
        await append(broker, raw("t", 0, b"a"))
        records = [Record(None, b"b", (), NOW + 1), Record(None, b"a", (), NOW + 9)]
        await append(broker, RawBatch("t", 0, encode_batch(records)))
        partition = broker.topics.get("t").partition(0)
        assert store.batch_for_time(partition, NOW + 1) == 1
        assert store.batch_for_time(partition, NOW + 2) is None
