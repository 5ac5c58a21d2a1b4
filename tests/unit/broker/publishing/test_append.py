import asyncio
from random import Random
from struct import pack_into

import pytest

from tailrace.broker.publishing.append import Appender
from tailrace.model.errors import (
    ConfigurationError,
    CorruptBatchError,
    InvalidRecordsError,
    InvalidRequestError,
    InvalidTimestampError,
    MessageTooLargeError,
    OverloadedError,
    StorageFullError,
    TailraceError,
    UnknownPartitionError,
    UnknownTopicError,
    UnsupportedBatchError,
    UnsupportedCodecError,
)
from tailrace.model.ids import Offset
from tailrace.model.limits import Limits
from tailrace.model.record import Appended, RawBatch, Record
from tailrace.store.memory import MemoryStore
from tailrace.wire.batch import CHECKED_FROM, read_header
from tailrace.wire.compression import Compression
from tailrace.wire.records import encode_batch
from tests.support.aio import on_loop, turns, until
from tests.support.brokers import GatedStore, append, bounds_of, options, placed, raw, running_broker, values_in
from tests.support.clocks import ManualClock
from tests.unit.wire.test_records import resealed

NOW = ManualClock().now_ms()


def with_attributes(attributes: int) -> bytearray:
    batch = encode_batch([Record(None, b"v", (), NOW)])
    batch[CHECKED_FROM + 1] = attributes
    return resealed(batch)


def claiming_records(count: int) -> bytearray:
    """Return a batch of one record whose header declares more."""
    batch = encode_batch([Record(None, b"v", (), NOW)])
    pack_into(">i", batch, 23, count - 1)
    pack_into(">i", batch, 57, count)
    return resealed(batch)


@on_loop
async def test_a_batch_gets_the_next_offsets_and_a_place_in_the_whole_log() -> None:
    async with running_broker() as broker:
        await broker.topics.create("a", 2)
        assert await append(broker, raw("a", 0, b"1", b"2")) == placed(0, 0)
        assert await append(broker, raw("a", 1, b"3")) == placed(0, 2)
        assert await append(broker, raw("a", 0, b"4")) == placed(2, 3)
        assert await values_in(broker, "a", 0) == [b"1", b"2", b"4"]
        assert broker.store.end_cursor() == 4


@on_loop
async def test_batches_are_stored_as_they_came_but_for_their_offset() -> None:
    store = MemoryStore()
    async with running_broker(store) as broker:
        await broker.topics.create("t")
        await append(broker, raw("t", 0, b"first"))
        sent = bytes(encode_batch([Record(b"k", b"v", [("h", b"x")], NOW)], codec=Compression.ZSTD))
        await append(broker, RawBatch("t", 0, sent))
        stored = bytes(store.fetch(broker.topics.get("t").partition(0), Offset(1), 1000).batches[0])
        assert stored[16:] == sent[16:]
        assert read_header(stored).base_offset == 1


@on_loop
async def test_appends_of_one_turn_of_the_loop_share_a_commit_and_keep_their_order() -> None:
    store = MemoryStore()
    async with running_broker(store) as broker:
        await broker.topics.create("t", 2)
        commits = store.stats().commits
        outcomes = await asyncio.gather(
            *(broker.appender.append([raw("t", number % 2, b"%d" % number)]) for number in range(100))
        )
        assert store.stats().commits == commits + 1
        assert [outcome for (outcome,) in outcomes] == [placed(number // 2, number) for number in range(100)]
        assert await values_in(broker, "t", 1) == [b"%d" % number for number in range(1, 100, 2)]


@on_loop
async def test_nothing_overtakes_an_append_that_waits_for_the_end_of_the_turn() -> None:
    async with running_broker() as broker:
        await broker.topics.create("t", 2)
        alone = broker.appender.append([raw("t", 0, b"first")])
        several = broker.appender.append([raw("t", 0, b"second"), raw("t", 1, b"second")])
        later = broker.appender.append([raw("t", 0, b"third")])
        await asyncio.gather(alone, several, later)
        assert await values_in(broker, "t", 0) == [b"first", b"second", b"third"]


@on_loop
async def test_a_shared_commit_is_bounded_in_bytes_and_batches() -> None:
    store = MemoryStore()
    async with running_broker(store) as broker:
        await broker.topics.create("t")
        commits = store.stats().commits
        await asyncio.gather(*(broker.appender.append([raw("t", 0, bytes(300_000))]) for _ in range(8)))
        assert store.stats().commits == commits + 2
        await asyncio.gather(*(broker.appender.append([raw("t", 0, b"")]) for _ in range(2_500)))
        assert store.stats().commits == commits + 5


@on_loop
async def test_in_a_shared_commit_each_batch_is_judged_for_itself() -> None:
    async with running_broker() as broker:
        await broker.topics.create("t")
        good, bad, unknown = await asyncio.gather(
            broker.appender.append([raw("t", 0, b"good")]),
            broker.appender.append([raw("t", 0, b"bad", producer_id=99, producer_epoch=0, base_sequence=0)]),
            broker.appender.append([raw("nowhere", 0, b"?")]),
        )
        assert good == [placed(0, 0)]
        assert isinstance(bad[0], TailraceError)
        assert isinstance(unknown[0], UnknownTopicError)


@on_loop
async def test_each_callback_is_called_once_even_if_another_one_raises(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Waiter:
        def __init__(self, *, is_broken: bool = False) -> None:
            self.heard: list[object] = []
            self._is_broken = is_broken

        def completed(self, outcome: object) -> None:
            self.heard.append(outcome)
            if self._is_broken:
                raise ZeroDivisionError("a defect")

        def failed(self, error: BaseException) -> None:
            self.heard.append(error)

    store = GatedStore()
    async with running_broker(store) as broker:
        await broker.topics.create("t")
        first, broken, last, refused, lost = Waiter(), Waiter(is_broken=True), Waiter(), Waiter(), Waiter()
        for waiter in (first, broken, last):
            broker.appender.append_one(raw("t", 0, b"v"), waiter)
        broker.appender.append_one(raw("nowhere", 0, b"v"), refused)
        assert [type(outcome) for outcome in refused.heard] == [UnknownTopicError]
        assert first.heard == []
        await until(lambda: bool(last.heard))
        places = [waiter.heard for waiter in (first, broken, last)]
        assert places == [[placed(number, number)] for number in range(3)]
        assert "could not be answered" in caplog.text
        store.close_gate()
        broker.appender.append_one(raw("t", 0, b"v"), lost)
        await turns()
        store.fail()
        await until(lambda: bool(lost.heard))
        assert [type(error) for error in lost.heard] == [StorageFullError]


@on_loop
async def test_the_answer_says_where_the_partition_begins() -> None:
    async with running_broker() as broker:
        await broker.topics.create("t", 2)
        await append(broker, raw("t", 0, b"1", b"2", b"3"))
        await broker.retention.delete_before("t", 0, Offset(2))
        assert await append(broker, raw("t", 0, b"4")) == placed(3, 3, log_start=2)
        both = await broker.appender.append([raw("t", 0, b"5"), raw("t", 1, b"6")])
        assert both == [placed(4, 4, log_start=2), placed(0, 5)]


@on_loop
async def test_a_batch_is_acknowledged_also_if_its_topic_is_deleted_right_after_it() -> None:
    store = GatedStore()
    async with running_broker(store) as broker:
        await broker.topics.create("t", 2)
        store.close_gate()
        alone = broker.appender.append([raw("t", 0, b"1")])
        together = broker.appender.append([raw("t", 0, b"2"), raw("t", 1, b"3")])
        await turns()
        deletion = asyncio.ensure_future(broker.topics.delete("t"))
        await turns()
        store.open_gate()
        assert await alone == [placed(0, 0, log_start=-1)]
        assert await together == [placed(1, 1, log_start=-1), placed(0, 2, log_start=-1)]
        await deletion


@on_loop
async def test_batches_of_one_request_share_a_commit_and_are_judged_each_for_itself() -> None:
    store = MemoryStore()
    async with running_broker(store) as broker:
        await broker.topics.create("a", 2)
        await broker.topics.create("b")
        commits = store.stats().commits
        outcomes = await broker.appender.append(
            [raw("a", 0, b"1"), raw("a", 7, b"x"), raw("b", 0, b"2", b"3"), RawBatch("a", 1, b"junk"), raw("a", 0, b"4")]
        )
        assert store.stats().commits == commits + 1
        assert outcomes[0] == placed(0, 0)
        assert isinstance(outcomes[1], UnknownPartitionError)
        assert outcomes[2] == placed(0, 1)
        assert isinstance(outcomes[3], CorruptBatchError)
        assert outcomes[4] == placed(1, 3)
        assert await values_in(broker, "a", 0) == [b"1", b"4"]


@on_loop
async def test_a_request_without_batches_is_answered() -> None:
    async with running_broker() as broker:
        assert await broker.appender.append([]) == []


@pytest.mark.parametrize(
    ("batch", "error", "reason"),
    [
        (b"", CorruptBatchError, "at least 61 bytes"),
        (b"\0" * 100, UnsupportedBatchError, "format 0"),
        (bytes(encode_batch([Record(None, b"v", (), NOW)]))[:-1], CorruptBatchError, "declares 69 bytes and has 68"),
        (bytes(encode_batch([Record(None, b"v", (), NOW)])).replace(b"v", b"w"), CorruptBatchError, "checksum"),
        (claiming_records(500_000), InvalidRecordsError, "counts 500000 records in 8 bytes"),
        (with_attributes(0x20), InvalidRecordsError, "control batches"),
        (with_attributes(0x10), InvalidRequestError, "is transactional and has no producer id"),
        (with_attributes(0x08), InvalidTimestampError, "LogAppendTime"),
        (with_attributes(0x05), UnsupportedCodecError, "compression codec 5"),
        (encode_batch([Record(None, b"v", (), NOW + 3_600_001)]), InvalidTimestampError, "timestamp_ahead_ms"),
        (encode_batch([Record(None, bytes(2_000_000), (), NOW)]), MessageTooLargeError, "batch_bytes 1114112"),
    ],
)
@on_loop
async def test_bad_batches_are_rejected_with_the_reason_and_change_nothing(
    batch: bytes, error: type[TailraceError], reason: str
) -> None:
    async with running_broker() as broker:
        await broker.topics.create("t")
        (outcome,) = await broker.appender.append([RawBatch("t", 0, batch)])
        assert isinstance(outcome, error)
        assert reason in str(outcome)
        assert bounds_of(broker, "t") == (0, 0)
        assert broker.topics.get("t").messages_in == 0


@on_loop
async def test_a_topic_can_take_smaller_batches_than_the_server() -> None:
    async with running_broker() as broker:
        await broker.topics.create("t", options=options(max_message_bytes=200))
        await append(broker, raw("t", 0, b"v" * 100))
        with pytest.raises(MessageTooLargeError, match="max_message_bytes 200"):
            await append(broker, raw("t", 0, b"v" * 200))


@on_loop
async def test_records_of_a_batch_are_limited() -> None:
    async with running_broker(limits=Limits(batch_records=2)) as broker:
        await broker.topics.create("t")
        with pytest.raises(MessageTooLargeError, match="batch_records"):
            await append(broker, raw("t", 0, b"1", b"2", b"3"))


@on_loop
async def test_records_of_a_batch_for_a_topic_with_dedup_are_limited_further() -> None:
    async with running_broker(limits=Limits(dedup_batch_records=2)) as broker:
        await broker.topics.create("t")
        await broker.topics.create("unique", options=options(dedup="content"))
        await append(broker, raw("t", 0, b"1", b"2", b"3"))
        with pytest.raises(MessageTooLargeError, match="dedup_batch_records"):
            await append(broker, raw("unique", 0, b"1", b"2", b"3"))


@on_loop
async def test_a_topic_can_take_batches_as_large_as_a_request() -> None:
    limits = Limits()
    async with running_broker() as broker:
        await broker.topics.create("t", options=options(max_message_bytes=limits.request_bytes))
        with pytest.raises(ConfigurationError, match=f"must be from 1 to {limits.request_bytes}"):
            await broker.topics.create("u", options=options(max_message_bytes=limits.request_bytes + 1))
        await append(broker, raw("t", 0, b"v" * 10_000_000))
        assert bounds_of(broker, "t") == (0, 1)


@on_loop
async def test_many_tiny_records_are_one_batch_and_are_read_in_parts() -> None:
    batch = encode_batch([Record(None, b"0123456789", (), NOW)] * 100_000, codec=Compression.ZSTD)
    async with running_broker() as broker:
        await broker.topics.create("t")
        await append(broker, RawBatch("t", 0, batch))
        read = await broker.committed_reader.read("t", 0, Offset(99_990), max_records=4)
        assert [record.offset for record in read.records] == [99_990, 99_991, 99_992, 99_993]
        assert read.next_offset == 99_994


@on_loop
async def test_a_topic_can_stamp_records_with_the_time_of_their_append() -> None:
    clock = ManualClock()
    async with running_broker(clock=clock) as broker:
        await broker.topics.create("t", options=options(timestamps="append"))
        clock.advance(5_000)
        appended = await append(broker, raw("t", 0, b"1", b"2", timestamp=NOW - 77))
        assert appended == placed(0, 0, append_time=NOW + 5_000)
        read = await broker.committed_reader.read("t", 0, Offset(0), max_records=10)
        assert [record.timestamp for record in read.records] == [NOW + 5_000] * 2


@on_loop
async def test_records_without_a_time_are_found_and_kept_by_the_time_of_their_append() -> None:
    store = MemoryStore()
    async with running_broker(store) as broker:
        await broker.topics.create("t")
        await append(broker, raw("t", 0, b"v", timestamp=-1))
        partition = broker.topics.get("t").partition(0)
        assert store.batch_for_time(partition, NOW) == 0
        assert store.batch_for_time(partition, NOW + 1) is None


@on_loop
async def test_no_answer_comes_before_the_batch_is_durable() -> None:
    store = GatedStore()
    async with running_broker(store) as broker:
        await broker.topics.create("t")
        store.close_gate()
        appending = broker.appender.append([raw("t", 0, b"v")])
        await turns()
        assert not appending.done()
        assert broker.topics.get("t").messages_in == 0
        store.settle()
        assert await appending == [placed(0, 0)]


@on_loop
async def test_a_failed_commit_fails_all_who_shared_it_and_the_offsets_are_given_again() -> None:
    store = GatedStore()
    async with running_broker(store) as broker:
        await broker.topics.create("t")
        store.close_gate()
        failing = [broker.appender.append([raw("t", 0, b"lost")]) for _ in range(3)]
        await turns()
        store.fail()
        for future in failing:
            with pytest.raises(StorageFullError):
                await future
        store.open_gate()
        assert (await append(broker, raw("t", 0, b"kept"))).base_offset == 0
        assert await values_in(broker, "t") == [b"kept"]
        assert broker.topics.get("t").messages_in == 1


@on_loop
async def test_batches_decided_after_their_topic_is_gone_are_rejected_and_others_are_not() -> None:
    store = GatedStore()
    async with running_broker(store) as broker:
        await broker.topics.create("gone")
        await broker.topics.create("stays")
        store.close_gate()
        store.room = 1
        blocker = broker.appender.append([raw("stays", 0, b"0")])
        await turns()
        deleting = asyncio.ensure_future(broker.topics.delete("gone"))
        await turns()
        late = asyncio.gather(broker.appender.append([raw("gone", 0, b"x")]), broker.appender.append([raw("stays", 0, b"1")]))
        await turns()
        store.open_gate()
        await blocker
        await deleting
        refused, taken = await late
        assert isinstance(refused[0], UnknownTopicError)
        assert isinstance(taken[0], Appended) and taken[0].base_offset == 1


@on_loop
async def test_with_no_room_the_publisher_waits_and_nothing_is_dropped() -> None:
    store = GatedStore()
    async with running_broker(store) as broker:
        await broker.topics.create("t")
        store.close_gate()
        store.room = 1
        first = broker.appender.append([raw("t", 0, b"1")])
        await turns()
        second = broker.appender.append([raw("t", 0, b"2")])
        await turns()
        assert not second.done()
        store.settle(1)
        await first
        store.settle()
        await second
        assert await values_in(broker, "t") == [b"1", b"2"]


@on_loop
async def test_a_publish_that_finds_no_room_for_long_is_rejected_as_overloaded() -> None:
    store = GatedStore()
    async with running_broker(store, limits=Limits(publish_wait_ms=20)) as broker:
        await broker.topics.create("t")
        store.close_gate()
        store.room = 0
        with pytest.raises(OverloadedError, match="publish_wait_ms"):
            await broker.appender.append([raw("t", 0, b"1")])
        store.open_gate()
        assert await values_in(broker, "t") == []


@on_loop
async def test_what_came_in_is_counted_by_topic() -> None:
    async with running_broker() as broker:
        await broker.topics.create("t")
        batch = raw("t", 0, b"1", b"2", b"3")
        await append(broker, batch)
        live = broker.topics.get("t")
        assert (live.messages_in, live.bytes_in) == (3, len(batch.batch))


@pytest.mark.parametrize("seed", range(20))
@on_loop
async def test_fast_append_answers_and_stores_like_append(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    async def outcome_of_all(requests: list[list[RawBatch]]) -> tuple[list[object], list[list[bytes]]]:
        store = MemoryStore(ManualClock())
        async with running_broker(store) as broker:
            await broker.topics.create("t", 2)
            for _ in range(2):
                await broker.producers.allocate()
            outcomes: list[object] = []
            for turn in requests:
                for answered in await asyncio.gather(*(broker.appender.append([batch]) for batch in turn)):
                    (outcome,) = answered
                    outcomes.append((type(outcome), str(outcome)))
            partitions = broker.topics.get("t").partitions
            stored = [[bytes(batch) for batch in store.fetch(each, Offset(0), 1 << 30).batches] for each in partitions]
            return outcomes, stored

    random = Random(seed)
    sequences = [0, 0]
    requests: list[list[RawBatch]] = []
    for _ in range(20):
        turn = []
        for _ in range(random.randrange(1, 5)):
            kind = random.choice(("plain", "next", "again", "gap", "unknown topic", "unknown partition"))
            producer = random.randrange(2)
            if kind in ("next", "again", "gap"):
                sequence = sequences[producer] + {"next": 0, "again": -1, "gap": 3}[kind]
                sequences[producer] += kind == "next"
                fields = {"producer_id": producer, "producer_epoch": 0, "base_sequence": max(0, sequence)}
                turn.append(raw("t", 0, b"sequenced", **fields))
            else:
                topic = "nowhere" if kind == "unknown topic" else "t"
                partition = 9 if kind == "unknown partition" else random.randrange(2)
                turn.append(raw(topic, partition, *[random.randbytes(3)] * random.randrange(1, 4)))
        requests.append(turn)

    def copies() -> list[list[RawBatch]]:
        return [[RawBatch(each.topic, each.partition, bytearray(each.batch)) for each in turn] for turn in requests]

    fast = await outcome_of_all(copies())
    monkeypatch.setattr(Appender, "_collect", Appender._append_alone)
    general = await outcome_of_all(copies())
    assert fast == general
