"""The rules of queues: each record to one consumer, for a time, and back again or to the dead letters."""

import asyncio
import threading

import pytest

from tailrace.broker.broker import Broker
from tailrace.model.changes import Fetched
from tailrace.model.errors import (
    InvalidRequestError,
    LateReceiptError,
    LimitExceededError,
    OverloadedError,
    StorageFullError,
    UnknownGroupError,
)
from tailrace.model.ids import Offset, Partition
from tailrace.model.limits import Limits
from tailrace.model.record import Message
from tailrace.model.start import Edge
from tailrace.store.memory import MemoryStore
from tests.support.aio import on_loop, turns, until
from tests.support.brokers import GatedStore, running_broker
from tests.support.clocks import ManualClock
from tests.support.queues import QueueConsumer, publish, values

VISIBILITY_MS = 30_000


@on_loop
async def test_each_record_goes_to_one_consumer_of_a_group() -> None:
    async with running_broker() as broker:
        await broker.topics.create("jobs", 2)
        await publish(broker, "jobs", *(b"%d" % number for number in range(10)))
        first, second = QueueConsumer(broker), QueueConsumer(broker)
        got = values(await first.receive(3)) + values(await second.receive(10)) + values(await first.receive(10))
        assert sorted(got) == [b"%d" % number for number in range(10)]  # type: ignore[type-var]


@on_loop
async def test_each_group_gets_every_record() -> None:
    async with running_broker() as broker:
        await broker.topics.create("jobs")
        await publish(broker, "jobs", b"a", b"b")
        for group in ("one", "two"):
            assert values(await QueueConsumer(broker, group).receive(5)) == [b"a", b"b"]


@on_loop
async def test_a_record_that_nobody_acknowledges_comes_back_after_its_visibility_timeout() -> None:
    clock = ManualClock()
    async with running_broker(clock=clock) as broker:
        await broker.topics.create("jobs")
        await publish(broker, "jobs", b"a")
        consumer = QueueConsumer(broker)
        (first,) = await consumer.receive()
        clock.advance(VISIBILITY_MS - 1)
        broker.queues.expire_due()
        assert await consumer.receive() == []
        clock.advance(1)
        broker.queues.expire_due()
        (again,) = await consumer.receive()
        assert (again.record.value, first.deliveries, again.deliveries) == (b"a", 1, 2)


@on_loop
async def test_an_ack_after_the_timeout_is_refused_even_before_anybody_noticed() -> None:
    clock = ManualClock()
    async with running_broker(clock=clock) as broker:
        await broker.topics.create("jobs")
        await publish(broker, "jobs", b"a")
        consumer = QueueConsumer(broker)
        (late,) = await consumer.receive()
        clock.advance(VISIBILITY_MS)
        with pytest.raises(LateReceiptError, match="time-out of the record at offset 0 has passed"):
            await consumer.ack(late)
        broker.queues.expire_due()
        assert values(await consumer.receive()) == [b"a"]


@on_loop
async def test_an_ack_for_a_record_that_another_one_has_is_refused_and_does_not_count() -> None:
    clock = ManualClock()
    async with running_broker(clock=clock) as broker:
        await broker.topics.create("jobs")
        await publish(broker, "jobs", b"a")
        slow, quick = QueueConsumer(broker), QueueConsumer(broker)
        (late,) = await slow.receive()
        clock.advance(VISIBILITY_MS)
        broker.queues.expire_due()
        (current,) = await quick.receive()
        with pytest.raises(LateReceiptError, match="handed out again"):
            await slow.ack(late)
        assert await quick.ack(current) == (1, [])
        with pytest.raises(LateReceiptError, match="done already"):
            await slow.ack(late)


@on_loop
async def test_of_several_receipts_the_late_ones_are_named_and_the_others_count() -> None:
    clock = ManualClock()
    async with running_broker(clock=clock) as broker:
        await broker.topics.create("jobs")
        await publish(broker, "jobs", b"a", b"b")
        consumer = QueueConsumer(broker)
        (late,) = await consumer.receive(visibility_ms=1_000)
        (good,) = await consumer.receive()
        clock.advance(1_000)
        settled = await consumer.ack(late, good)
        assert settled.accepted == 1
        assert [refusal.receipt for refusal in settled.refused] == [late.receipt]


@on_loop
async def test_an_extension_counts_from_now() -> None:
    clock = ManualClock()
    async with running_broker(clock=clock) as broker:
        await broker.topics.create("jobs")
        await publish(broker, "jobs", b"a")
        consumer = QueueConsumer(broker)
        (held,) = await consumer.receive()
        clock.advance(VISIBILITY_MS - 1)
        await consumer.extend(held, visibility_ms=60_000)
        clock.advance(59_999)
        broker.queues.expire_due()
        assert await consumer.receive() == []
        assert (await consumer.ack(held)).accepted == 1


@on_loop
async def test_a_nacked_record_waits_for_its_delay() -> None:
    clock = ManualClock()
    async with running_broker(clock=clock) as broker:
        await broker.topics.create("jobs")
        await publish(broker, "jobs", b"a", b"b")
        consumer = QueueConsumer(broker)
        (first,) = await consumer.receive()
        await consumer.nack(first, delay_ms=5_000)
        assert values(await consumer.receive(5)) == [b"b"]
        clock.advance(5_000)
        broker.queues.expire_due()
        (again,) = await consumer.receive(5)
        assert (again.record.value, again.deliveries) == (b"a", 2)
        await consumer.nack(again)
        assert values(await consumer.receive(5)) == [b"a"]


@on_loop
async def test_after_max_deliveries_a_record_goes_to_the_dead_letters_with_its_story() -> None:
    async with running_broker() as broker:
        await broker.topics.create("jobs", 2)
        await broker.publish([Message("jobs", b"poison", b"k", [("kept", b"yes")], partition=1, message_id="m-1")])
        consumer = QueueConsumer(broker, max_deliveries=2)
        for expected in (1, 2):
            (delivery,) = await consumer.receive()
            assert delivery.deliveries == expected
            await consumer.nack(delivery, reason="can't be parsed")
        assert await consumer.receive() == []
        (letter,) = (await broker.read("jobs.dead_letters", 0, Offset(0), max_records=10)).records
        assert (letter.key, letter.value) == (b"k", b"poison")
        assert dict(letter.headers) == {
            "kept": b"yes",
            "message_id": b"m-1",
            "dead_letter_cause": b"can't be parsed",
            "dead_letter_group": b"workers",
            "dead_letter_deliveries": b"2",
            "origin_topic": b"jobs",
            "origin_partition": b"1",
            "origin_offset": b"0",
            "origin_message_id": b"m-1",
        }


@on_loop
async def test_a_record_that_times_out_too_often_goes_to_the_dead_letters_by_itself() -> None:
    clock = ManualClock()
    async with running_broker(clock=clock) as broker:
        await broker.topics.create("jobs")
        await publish(broker, "jobs", b"poison", b"good")
        consumer = QueueConsumer(broker, max_deliveries=1)
        await consumer.receive()
        clock.advance(VISIBILITY_MS)
        broker.queues.expire_due()
        await until(lambda: broker.queues.dead_letters.letters == 1)
        assert values(await consumer.receive(5)) == [b"good"]


@on_loop
async def test_wildcards_leave_dead_letters_alone_and_names_do_not() -> None:
    async with running_broker() as broker:
        await broker.topics.create("jobs.mail")
        await publish(broker, "jobs.mail", b"poison")
        consumer = QueueConsumer(broker, pattern="jobs.>", max_deliveries=1)
        await consumer.nack(*await consumer.receive())
        assert await consumer.receive() == []
        assert values(await QueueConsumer(broker, pattern="jobs.*.dead_letters").receive()) == [b"poison"]


@on_loop
async def test_by_key_no_two_records_of_one_key_are_out_at_once() -> None:
    clock = ManualClock()
    async with running_broker(clock=clock) as broker:
        await broker.topics.create("jobs")
        await broker.publish([Message("jobs", value, value[:1]) for value in (b"a1", b"a2", b"b1", b"a3", b"b2")])
        await publish(broker, "jobs", b"free1", b"free2")
        consumer = QueueConsumer(broker, order_by_key=True)
        got = await consumer.receive(10)
        assert values(got) == [b"a1", b"b1", b"free1", b"free2"]
        assert await consumer.receive(10) == []
        await consumer.nack(got[0], delay_ms=1_000)
        assert await consumer.receive(10) == []
        await consumer.ack(got[1])
        assert values(await consumer.receive(10)) == [b"b2"]
        clock.advance(1_000)
        broker.queues.expire_due()
        (again,) = await consumer.receive(10)
        assert again.record.value == b"a1"
        await consumer.ack(again)
        assert values(await consumer.receive(10)) == [b"a2"]


@on_loop
async def test_topics_that_match_later_join_in_and_wake_those_who_wait() -> None:
    async with running_broker() as broker:
        consumer = QueueConsumer(broker, pattern="jobs.*", start=Edge.LATEST)
        waiting = asyncio.create_task(consumer.receive(wait_ms=20_000))
        await until(lambda: broker.queues.waiters == 1)
        await broker.topics.create("jobs.new")
        await publish(broker, "jobs.new", b"a")
        assert values(await waiting) == [b"a"]


@on_loop
async def test_a_consumer_that_waits_gets_what_another_one_gives_back() -> None:
    clock = ManualClock()
    async with running_broker(clock=clock) as broker:
        await broker.topics.create("jobs")
        await publish(broker, "jobs", b"a")
        first, second = QueueConsumer(broker), QueueConsumer(broker)
        (held,) = await first.receive()
        waiting = asyncio.create_task(second.receive(wait_ms=20_000))
        await until(lambda: broker.queues.waiters == 1)
        await first.nack(held)
        (again,) = await waiting
        waiting = asyncio.create_task(first.receive(wait_ms=20_000))
        await until(lambda: broker.queues.waiters == 1)
        clock.advance(VISIBILITY_MS)
        broker.queues.expire_due()
        assert values(await waiting) == [again.record.value]


@on_loop
async def test_a_group_that_begins_at_the_latest_gets_what_comes_after_also_after_a_restart() -> None:
    clock = ManualClock()
    store = MemoryStore(clock)
    async with running_broker(store, clock) as broker:
        await broker.topics.create("jobs")
        await publish(broker, "jobs", b"before")
        clock.advance(1)
        assert await QueueConsumer(broker, start=Edge.LATEST).receive() == []
        await publish(broker, "jobs", b"after")
    async with running_broker(store, clock) as broker:
        assert values(await QueueConsumer(broker, start=Edge.LATEST).receive(5)) == [b"after"]


@on_loop
async def test_what_is_acknowledged_stays_so_after_a_restart_and_what_was_out_comes_again() -> None:
    clock = ManualClock()
    store = MemoryStore(clock)
    async with running_broker(store, clock) as broker:
        await broker.topics.create("jobs")
        await publish(broker, "jobs", b"a", b"b", b"c", b"d")
        before = await QueueConsumer(broker).receive(3)
        await QueueConsumer(broker).ack(before[1])
    async with running_broker(store, clock) as broker:
        consumer = QueueConsumer(broker)
        with pytest.raises(LateReceiptError, match="restarted"):
            await consumer.ack(before[0])
        got = await consumer.receive(10)
        assert [(each.record.value, each.deliveries) for each in got] == [(b"a", 2), (b"c", 2), (b"d", 1)]


@on_loop
async def test_a_record_that_stops_the_server_each_time_ends_among_the_dead_letters() -> None:
    clock = ManualClock()
    store = MemoryStore(clock)
    for start in range(3):
        async with running_broker(store, clock) as broker:
            if start == 0:
                await broker.topics.create("jobs")
                await publish(broker, "jobs", b"poison")
            assert values(await QueueConsumer(broker, max_deliveries=3).receive()) == [b"poison"]
    async with running_broker(store, clock) as broker:
        broker.queues.expire_due()
        await until(lambda: broker.queues.dead_letters.letters == 1)
        assert await QueueConsumer(broker).receive() == []


@on_loop
async def test_an_ack_that_can_not_be_stored_is_told_and_can_be_sent_again() -> None:
    store = GatedStore()
    async with running_broker(store) as broker:
        await broker.topics.create("jobs")
        await publish(broker, "jobs", b"a")
        consumer = QueueConsumer(broker)
        (held,) = await consumer.receive()
        await turns()
        store.close_gate()
        ack = asyncio.create_task(consumer.ack(held))
        await turns()
        assert not ack.done()
        store.fail()
        with pytest.raises(StorageFullError):
            await ack
        store.open_gate()
        assert (await consumer.ack(held)).accepted == 1


@on_loop
async def test_acks_that_come_together_share_writes() -> None:
    store = GatedStore()
    async with running_broker(store) as broker:
        await broker.topics.create("jobs")
        await publish(broker, "jobs", *[b"x"] * 100)
        consumer = QueueConsumer(broker)
        held = await consumer.receive(100)
        await turns()
        store.close_gate()
        acks = [asyncio.create_task(consumer.ack(each)) for each in held]
        await turns()
        writes = len(store.in_flight)
        store.settle()
        await until(lambda: bool(store.in_flight))
        writes += len(store.in_flight)
        store.settle()
        assert sum(settled.accepted for settled in await asyncio.gather(*acks)) == 100
        assert writes == 2


@on_loop
async def test_a_letter_that_can_not_be_stored_is_not_handed_out_and_tried_again() -> None:
    clock = ManualClock()
    store = GatedStore(clock)
    async with running_broker(store, clock) as broker:
        await broker.topics.create("jobs")
        await broker.topics.create("jobs.dead_letters")
        await publish(broker, "jobs", b"poison")
        consumer = QueueConsumer(broker, max_deliveries=1)
        (held,) = await consumer.receive()
        await turns()
        store.close_gate()
        nack = asyncio.create_task(consumer.nack(held))
        await until(lambda: bool(store.in_flight))
        store.fail()
        await nack
        store.open_gate()
        assert await consumer.receive() == []
        clock.advance(10_000)
        broker.queues.expire_due()
        await until(lambda: broker.queues.dead_letters.letters == 1)


@on_loop
async def test_as_many_records_are_out_as_the_limit_allows() -> None:
    async with running_broker(limits=Limits(queue_in_flight=2)) as broker:
        await broker.topics.create("jobs")
        await publish(broker, "jobs", b"a", b"b", b"c")
        consumer = QueueConsumer(broker)
        held = await consumer.receive(3)
        assert values(held) == [b"a", b"b"]
        assert await consumer.receive() == []
        await consumer.ack(held[0])
        assert values(await consumer.receive()) == [b"c"]


@pytest.mark.parametrize("limits", [Limits(queue_group_in_flight=3), Limits(queues_in_flight=3)])
def test_as_many_records_are_out_over_all_partitions_as_the_limit_allows(limits: Limits) -> None:
    @on_loop
    async def scenario() -> None:
        async with running_broker(limits=limits) as broker:
            for topic in ("jobs.a", "jobs.b"):
                await broker.topics.create(topic)
                await publish(broker, topic, b"1", b"2")
            first, second = QueueConsumer(broker, pattern="jobs.*"), QueueConsumer(broker, pattern="jobs.*")
            held = await first.receive(10)
            assert len(held) == broker.queues.in_flight == 3
            waiting = asyncio.create_task(second.receive(wait_ms=20_000))
            await until(lambda: broker.queues.waiters == 1)
            # Room in one partition is room in the other.
            await first.ack(held[0])
            held += await waiting
            await first.ack(*held[1:])
            assert sorted(each.record.value or b"" for each in held) == [b"1", b"1", b"2", b"2"]
            assert broker.queues.in_flight == 0

    scenario()


@on_loop
async def test_what_retention_took_away_is_skipped_and_counted() -> None:
    async with running_broker() as broker:
        await broker.topics.create("jobs")
        await publish(broker, "jobs", b"a")
        await publish(broker, "jobs", b"b")
        consumer = QueueConsumer(broker)
        await consumer.nack(*await consumer.receive())
        await broker.retention.delete_before("jobs", 0, Offset(1))
        assert values(await consumer.receive(5)) == [b"b"]
        assert broker.queues.taker.missed == 1


@on_loop
async def test_a_deleted_topic_takes_its_share_along() -> None:
    clock = ManualClock()
    store = MemoryStore(clock)
    async with running_broker(store, clock) as broker:
        await broker.topics.create("jobs")
        await publish(broker, "jobs", b"a")
        consumer = QueueConsumer(broker)
        (held,) = await consumer.receive()
        await broker.topics.delete("jobs")
        with pytest.raises(LateReceiptError, match="deleted"):
            await consumer.ack(held)
        assert broker.queues.describe("workers").shares == []
    async with running_broker(store, clock) as broker:
        assert broker.queues.describe("workers").shares == []


@on_loop
async def test_a_deleted_queue_is_forgotten_for_good() -> None:
    clock = ManualClock()
    store = MemoryStore(clock)
    async with running_broker(store, clock) as broker:
        await broker.topics.create("jobs")
        await publish(broker, "jobs", b"a")
        consumer = QueueConsumer(broker)
        (held,) = await consumer.receive()
        await broker.queues.delete("workers")
        with pytest.raises(UnknownGroupError, match="no queue of the group 'workers'"):
            await consumer.ack(held)
    async with running_broker(store, clock) as broker:
        assert len(broker.queues) == 0
        (again,) = await QueueConsumer(broker).receive()
        assert again.deliveries == 1


@on_loop
async def test_a_queue_that_could_not_be_deleted_goes_on_where_it_was() -> None:
    clock = ManualClock()
    store = GatedStore(clock)
    async with running_broker(store, clock) as broker:
        await broker.topics.create("jobs")
        await publish(broker, "jobs", b"a", b"b")
        consumer = QueueConsumer(broker)
        held = await consumer.receive(2)
        await turns()
        store.close_gate()
        deleting = asyncio.create_task(broker.queues.delete("workers"))
        await until(lambda: bool(store.in_flight))
        assert broker.queues.in_flight == 0
        store.fail()
        with pytest.raises(StorageFullError):
            await deleting
        store.open_gate()
        assert broker.queues.in_flight == 2
        assert (await consumer.ack(held[0])).accepted == 1
        clock.advance(VISIBILITY_MS)
        broker.queues.expire_due()
        assert values(await consumer.receive(2)) == [b"b"]


@on_loop
async def test_a_receive_that_is_given_up_leaves_its_records_to_others() -> None:
    store = GatedStore()
    async with running_broker(store) as broker:
        await broker.topics.create("jobs")
        await publish(broker, "jobs", b"a")
        consumer = QueueConsumer(broker)
        waiting = asyncio.create_task(consumer.receive(wait_ms=20_000, pattern="other"))
        await until(lambda: broker.queues.waiters == 1)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        assert broker.queues.waiters == 0
        (got,) = await consumer.receive()
        assert got.deliveries == 1


@on_loop
async def test_a_queue_shows_how_it_stands() -> None:
    async with running_broker() as broker:
        await broker.topics.create("jobs")
        await publish(broker, "jobs", b"a", b"b", b"c", b"d", b"e")
        consumer = QueueConsumer(broker)
        held = await consumer.receive(3)
        await consumer.ack(held[0])
        await consumer.nack(held[1])
        (status,) = broker.queues.all()
        assert status == ("workers", 5, 0, [("jobs", 0, 1, 3, 5, 1, 1, 4)])


@pytest.mark.parametrize(
    ("asked", "limit"),
    [
        ({"most": 0}, "queue_batch"),
        ({"most": 1_001}, "queue_batch"),
        ({"wait_ms": 30_001}, "fetch_wait_ms"),
        ({"visibility_ms": 0}, "queue_hold_ms"),
        ({"visibility_ms": 12 * 3_600_000 + 1}, "queue_hold_ms"),
        ({"max_deliveries": 0}, "queue_deliveries"),
        ({"max_deliveries": 101}, "queue_deliveries"),
    ],
)
def test_what_is_over_a_bound_is_refused_by_its_name(asked: dict[str, int], limit: str) -> None:
    async def receive() -> None:
        async with running_broker() as broker:
            with pytest.raises(LimitExceededError, match=limit):
                await QueueConsumer(broker).receive(**asked)
            assert len(broker.queues) == 0

    asyncio.run(receive())


@on_loop
async def test_groups_partitions_and_waiting_consumers_are_bounded() -> None:
    async with running_broker(limits=Limits(queue_groups=1, queue_shares=2, queue_waiters=0)) as broker:
        await broker.topics.create("jobs", 2)
        await broker.topics.create("more")
        assert await QueueConsumer(broker).receive() == []
        with pytest.raises(LimitExceededError, match="queue_groups"):
            await QueueConsumer(broker, "another").receive()
        with pytest.raises(LimitExceededError, match="queue_shares"):
            await QueueConsumer(broker, pattern="more").receive()
        with pytest.raises(OverloadedError, match="queue_waiters"):
            await QueueConsumer(broker).receive(wait_ms=1_000)


@pytest.mark.parametrize("receipt", ["", "abc", "ä", "AAAA", "A" * 100])
def test_what_is_no_receipt_is_refused(receipt: str) -> None:
    async def ack(broker: Broker) -> None:
        await broker.topics.create("jobs")
        await QueueConsumer(broker).receive()
        with pytest.raises(InvalidRequestError, match="no receipt"):
            await broker.queues.acknowledge("workers", [receipt])

    async def run() -> None:
        async with running_broker() as broker:
            await ack(broker)

    asyncio.run(run())


@on_loop
async def test_a_record_is_not_handed_out_too_often_right_after_a_restart_either() -> None:
    clock = ManualClock()
    store = MemoryStore(clock)
    async with running_broker(store, clock) as broker:
        await broker.topics.create("jobs")
        await publish(broker, "jobs", b"poison")
        await QueueConsumer(broker, max_deliveries=1).receive()
    async with running_broker(store, clock) as broker:
        assert await QueueConsumer(broker).receive() == []


@on_loop
async def test_fewer_deliveries_count_at_once_for_what_came_back() -> None:
    async with running_broker() as broker:
        await broker.topics.create("jobs")
        await publish(broker, "jobs", b"poison")
        consumer = QueueConsumer(broker)
        for _ in range(3):
            await consumer.nack(*await consumer.receive())
        assert await consumer.receive(max_deliveries=3) == []
        await until(lambda: broker.queues.dead_letters.letters == 1)


class HaltingStore(GatedStore):
    """Its second fetch from the disk takes until it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.go = threading.Event()
        self.fetches = 0

    def fetch(self, partition: Partition, offset: Offset, max_bytes: int) -> Fetched:
        if self.cold:
            self.fetches += 1
            if self.fetches == 2:
                self.go.wait(20)
        return super().fetch(partition, offset, max_bytes)


@on_loop
async def test_a_receive_that_is_cancelled_while_it_reads_keeps_nothing() -> None:
    store = HaltingStore()
    async with running_broker(store) as broker:
        await broker.topics.create("jobs", 2)
        await broker.publish([Message("jobs", b"a", partition=0), Message("jobs", b"b", partition=1)])
        consumer = QueueConsumer(broker)
        await consumer.nack(*await consumer.receive(2))
        store.cold = True
        reading = asyncio.create_task(consumer.receive(2))
        await until(lambda: store.fetches == 2)
        assert sum(share.in_flight for share in broker.queues.describe("workers").shares) == 1
        reading.cancel()
        store.go.set()
        await asyncio.gather(reading, return_exceptions=True)
        store.cold = False
        again = await consumer.receive(2)
        assert sorted((each.record.value, each.deliveries) for each in again) == [(b"a", 2), (b"b", 2)]  # type: ignore[type-var]


@on_loop
async def test_a_receive_whose_answer_was_lost_is_repeated_without_counting_twice() -> None:
    async with running_broker() as broker:
        await broker.topics.create("jobs", 2)
        await publish(broker, "jobs", b"a", b"b", b"c")
        consumer = QueueConsumer(broker, max_deliveries=1)
        (other,) = await consumer.receive(attempt="other")
        lost = await consumer.receive(5, attempt="mine")
        assert await consumer.receive(5, attempt="another", is_repeated=True) == []
        for _ in range(2):
            again = await consumer.receive(5, attempt="mine", is_repeated=True)
            assert sorted(values(again)) == sorted(values(lost))  # type: ignore[type-var]
            assert {delivery.deliveries for delivery in again} == {1}
        with pytest.raises(LateReceiptError):
            await consumer.ack(*lost)
        assert await consumer.ack(other, *again) == (3, [])


@on_loop
async def test_a_repeated_receive_needs_a_name() -> None:
    async with running_broker() as broker:
        with pytest.raises(InvalidRequestError, match="name of its attempt"):
            await QueueConsumer(broker).receive(is_repeated=True)
        with pytest.raises(LimitExceededError, match="attempt's name has 256 characters"):
            await QueueConsumer(broker).receive(attempt="x" * 256)


@on_loop
async def test_one_answer_holds_only_so_many_bytes_and_the_rest_follows() -> None:
    async with running_broker(limits=Limits(fetch_bytes=250_000)) as broker:
        await broker.topics.create("jobs", 5)
        for number in range(10):
            await broker.publish([Message("jobs", b"x" * 100_000, partition=number % 5)])
        consumer = QueueConsumer(broker)
        for _ in ("fresh", "given back"):
            held = []
            while got := await consumer.receive(10):
                assert sum(len(each.record.value or b"") for each in got) <= 2 * 250_000
                held += got
            assert len({(each.partition, each.record.offset) for each in held}) == 10
            await consumer.nack(*held)


@on_loop
async def test_keys_are_read_again_after_a_restart_however_large_the_records_are() -> None:
    clock = ManualClock()
    limits = Limits(fetch_bytes=150_000)
    store = MemoryStore(clock, limits)
    async with running_broker(store, clock, limits) as broker:
        await broker.topics.create("jobs")
        for number in range(6):
            await publish(broker, "jobs", b"%d" % number * 100_000, key=b"a" if number % 2 else b"b")
        while await QueueConsumer(broker).receive(10):
            pass
    async with running_broker(store, clock, limits) as broker:
        consumer = QueueConsumer(broker, order_by_key=True)
        first = [*await consumer.receive(10), *await consumer.receive(10)]
        assert [each.record.offset for each in first] == [0, 1]
