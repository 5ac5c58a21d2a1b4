"""Under any sequence of consumer requests and crashes, each record is acquired by one consumer at a time, is done once or
becomes one dead letter, and is delivered in the order of its key. The queue is compared with a model of every record.
"""

import asyncio
from collections.abc import Coroutine, Iterator
from typing import Any, TypeVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tailrace.broker.broker import Broker
from tailrace.model.errors import LateReceiptError
from tailrace.model.ids import Offset
from tailrace.model.limits import DEFAULT_LIMITS
from tailrace.model.queue import Delivery, SettleResult
from tailrace.model.record import Message
from tailrace.store.memory import MemoryStore
from tests.support.brokers import NEVER
from tests.support.clocks import ManualClock
from tests.support.patience import PATIENCE_SECONDS
from tests.support.queues import QueueConsumer

PARTITIONS = 2
MAX_DELIVERIES = 3
TIMES_MS = st.sampled_from([20_000, 30_000, 60_000])
RECENT = 6
"""How many of the latest receipts are used; most older ones no longer count."""
T = TypeVar("T")
Place = tuple[int, int]


class ModelRecord:
    """A record in the model."""

    def __init__(self, key: bytes | None) -> None:
        self.key = key
        self.state = "ready"
        self.deliveries = 0
        self.due_ms = 0
        self.receipt = ""
        self.outcomes: dict[str, str] = {}
        """The outcome that was reported with each receipt since the last start of the server."""


class NoTimer:
    def cancel(self) -> None:
        """Do nothing: there is no timer."""


class QueueMachine(RuleBasedStateMachine):
    @initialize(order_by_key=st.booleans())
    def begin(self, order_by_key: bool) -> None:
        self.loop = asyncio.new_event_loop()
        self.clock = ManualClock()
        self.store = MemoryStore(self.clock)
        self.order_by_key = order_by_key
        self.known: dict[Place, ModelRecord] = {}
        self.issued: list[tuple[Place, Delivery]] = []
        self.start_broker()
        self.run(self.broker.topics.create("jobs", PARTITIONS))

    def start_broker(self) -> None:
        self.broker = Broker(self.store, self.clock, DEFAULT_LIMITS, NEVER)
        self.run(self.broker.start())
        # Deadlines are run by the test, not by a timer of the event loop.
        self.broker.queues._deadlines._call_later = lambda *_: NoTimer()
        self.consumer = QueueConsumer(self.broker, order_by_key=self.order_by_key, max_deliveries=MAX_DELIVERIES)

    def run(self, work: "Coroutine[Any, Any, T]") -> T:
        async def work_and_archiving() -> T:
            answer = await work
            for _ in range(5):
                await asyncio.sleep(0)
            while tasks := list(self.broker.queues._archiver._tasks.values()):
                await asyncio.gather(*tasks)
                # Done callbacks, which remove the tasks, run in the next iteration of the loop.
                await asyncio.sleep(0)
            return answer

        return self.loop.run_until_complete(asyncio.wait_for(work_and_archiving(), PATIENCE_SECONDS))

    @property
    def now_ms(self) -> int:
        return round(self.clock.monotonic() * 1000)

    def deliverable(self) -> Iterator[Place]:
        """Yield the records that may be delivered now, in the order of offsets within each partition."""
        for partition in range(PARTITIONS):
            seen: set[bytes | None] = set()
            for place, record in sorted(self.known.items()):
                if place[0] != partition or record.state in ("done", "dead"):
                    continue
                if self.order_by_key and record.key is not None:
                    if record.key in seen:
                        continue
                    seen.add(record.key)
                if record.state == "ready" and record.due_ms <= self.now_ms:
                    yield place

    def release_record(self, record: ModelRecord, due_ms: int = 0) -> None:
        record.state = "dead" if record.deliveries >= MAX_DELIVERIES else "ready"
        record.due_ms = due_ms
        record.receipt = ""

    def release_overdue(self) -> None:
        for record in self.known.values():
            if record.state == "out" and record.due_ms <= self.now_ms:
                self.release_record(record)

    @rule(partition=st.integers(0, PARTITIONS - 1), key=st.sampled_from([None, b"a", b"b"]), count=st.integers(1, 3))
    def publish(self, partition: int, key: bytes | None, count: int) -> None:
        sent = [Message("jobs", b"%d" % (len(self.known) + nth), key, partition=partition) for nth in range(count)]
        for published in self.run(self.broker.publisher.publish(sent)):
            self.known[published.partition, published.offset] = ModelRecord(key)

    @rule(most=st.integers(1, 5), visibility_ms=TIMES_MS)
    def receive(self, most: int, visibility_ms: int) -> None:
        self.take(most, visibility_ms)

    @rule(most=st.integers(1, 5), visibility_ms=TIMES_MS)
    def receive_after_an_answer_was_lost(self, most: int, visibility_ms: int) -> None:
        attempt = str(len(self.issued))
        self.run(self.consumer.receive(most, attempt=attempt))
        self.take(most, visibility_ms, attempt=attempt, is_repeated=True)

    def take(self, most: int, visibility_ms: int, **asked: Any) -> None:
        expected = list(self.deliverable())
        got = self.run(self.consumer.receive(most, visibility_ms=visibility_ms, **asked))
        places = [(delivery.partition, int(delivery.record.offset)) for delivery in got]
        assert len(places) == min(most, len(expected))
        for partition in range(PARTITIONS):
            mine = [place for place in places if place[0] == partition]
            assert mine == [place for place in expected if place[0] == partition][: len(mine)]
        for place, delivery in zip(places, got, strict=True):
            record = self.known[place]
            record.state = "out"
            record.deliveries += 1
            record.due_ms = self.now_ms + visibility_ms
            record.receipt = delivery.receipt
            assert delivery.deliveries == record.deliveries
            self.issued.append((place, delivery))

    @rule(partition=st.integers(0, PARTITIONS - 1), key=st.sampled_from([None, b"a", b"b"]), most=st.integers(1, 5))
    def publish_and_receive(self, partition: int, key: bytes | None, most: int) -> None:
        self.publish(partition, key, most)
        self.receive(most, 30_000)

    def counts(self, place: Place, delivery: Delivery) -> bool:
        """Return whether the receipt counts."""
        record = self.known[place]
        return record.state == "out" and record.receipt == delivery.receipt and record.due_ms > self.now_ms

    def use_receipt(self, data: st.DataObject, settle: Any, outcome: str) -> ModelRecord | None:
        """Use any receipt, old or new. Return the record if the receipt counted and was no repetition."""
        place, delivery = data.draw(st.sampled_from(self.issued[-RECENT:]))
        record = self.known[place]
        if self.counts(place, delivery):
            assert self.run(settle(delivery)).accepted == 1
            record.outcomes[delivery.receipt] = outcome
            return record
        if record.outcomes.get(delivery.receipt) == outcome != "extend":
            assert self.run(settle(delivery)).accepted == 1
            return None
        with pytest.raises(LateReceiptError):
            self.run(settle(delivery))
        return None

    @precondition(lambda self: self.issued)
    @rule(data=st.data())
    def acknowledge(self, data: st.DataObject) -> None:
        record = self.use_receipt(data, self.consumer.ack, "ack")
        if record is not None:
            record.state = "done"

    @precondition(lambda self: self.issued)
    @rule(data=st.data(), delay_ms=st.sampled_from([0, 25_000]))
    def release(self, data: st.DataObject, delay_ms: int) -> None:
        record = self.use_receipt(data, lambda delivery: self.consumer.nack(delivery, delay_ms=delay_ms), "nack")
        if record is not None:
            self.release_record(record, self.now_ms + delay_ms if delay_ms else 0)

    @precondition(lambda self: self.issued)
    @rule(data=st.data())
    def release_unseen(self, data: st.DataObject) -> None:
        def release(delivery: Delivery) -> Coroutine[Any, Any, SettleResult]:
            return self.broker.queues.release(self.consumer.group, [delivery.receipt], unseen=True)

        record = self.use_receipt(data, release, "nack")
        if record is not None:
            record.deliveries -= 1
            self.release_record(record)

    @precondition(lambda self: self.issued)
    @rule(data=st.data(), visibility_ms=TIMES_MS)
    def extend(self, data: st.DataObject, visibility_ms: int) -> None:
        record = self.use_receipt(data, lambda delivery: self.consumer.extend(delivery, visibility_ms=visibility_ms), "extend")
        if record is not None:
            record.due_ms = self.now_ms + visibility_ms

    @precondition(lambda self: len(self.issued) > 1)
    @rule(data=st.data())
    def acknowledge_several(self, data: st.DataObject) -> None:
        chosen = data.draw(
            st.lists(st.sampled_from(self.issued[-RECENT:]), min_size=2, max_size=5, unique_by=lambda each: each[1].receipt)
        )
        good = {
            delivery.receipt: place
            for place, delivery in chosen
            if self.counts(place, delivery) or self.known[place].outcomes.get(delivery.receipt) == "ack"
        }
        if good:
            settled = self.run(self.consumer.ack(*(delivery for _, delivery in chosen)))
            assert settled.accepted == len(good)
            sent = {delivery.receipt for _, delivery in chosen}
            assert {refusal.receipt for refusal in settled.refused} == sent - good.keys()
            for receipt, place in good.items():
                self.known[place].state = "done"
                self.known[place].outcomes[receipt] = "ack"

    @precondition(lambda self: any(record.state == "out" for record in self.known.values()))
    @rule()
    def use_a_late_receipt(self) -> None:
        """Let a visibility timeout pass without running the deadlines."""
        record = next(record for record in self.known.values() if record.state == "out")
        self.clock.advance(max(0, record.due_ms - self.now_ms))
        (late,) = [delivery for _, delivery in self.issued if delivery.receipt == record.receipt]
        for settle in (self.consumer.ack, self.consumer.nack, self.consumer.extend):
            with pytest.raises(LateReceiptError):
                self.run(settle(late))

    @rule(milliseconds=st.sampled_from([1_000, 2_000, 20_000, 30_000]), runs_deadlines=st.booleans())
    def time_passes(self, milliseconds: int, runs_deadlines: bool) -> None:
        self.clock.advance(milliseconds)
        if runs_deadlines:
            self.run_deadlines()

    def run_deadlines(self) -> None:
        async def expire() -> None:
            self.broker.queues.expire_due()

        self.run(expire())
        self.release_overdue()

    @rule(is_clean=st.booleans(), seldom=st.integers(0, 2))
    def restart(self, is_clean: bool, seldom: int) -> None:
        if seldom:
            return
        if is_clean:
            self.run(self.broker.close())
        # Otherwise the broker is abandoned as in a crash, and the next one loads what is stored.
        self.start_broker()
        for record in self.known.values():
            record.outcomes.clear()
            if record.state in ("out", "ready"):
                self.release_record(record)
        self.run_deadlines()

    @invariant()
    def every_record_is_where_the_model_has_it(self) -> None:
        if not hasattr(self, "known"):
            return
        dead = sorted(place for place, record in self.known.items() if record.state == "dead")
        assert self.dead_letters() == dead
        statuses = self.broker.queues.all()
        if statuses and statuses[0].shares:
            (status,) = statuses
            fates = [record.state for record in self.known.values()]
            assert sum(share.in_flight for share in status.shares) == fates.count("out")
            assert sum(share.lag for share in status.shares) == fates.count("out") + fates.count("ready")

    def dead_letters(self) -> list[Place]:
        if self.broker.topics.find("jobs.dead_letters") is None:
            return []
        read = self.run(self.broker.committed_reader.read("jobs.dead_letters", 0, Offset(0), max_records=1_000))
        headers = [dict(record.headers) for record in read.records]
        return sorted((int(each["origin_partition"] or b""), int(each["origin_offset"] or b"")) for each in headers)

    def teardown(self) -> None:
        if not hasattr(self, "known"):
            return
        try:
            self.clock.advance(100_000)
            self.run_deadlines()
            while list(self.deliverable()):
                before = len(self.issued)
                self.receive(5, 30_000)
                for place, delivery in self.issued[before:]:
                    self.run(self.consumer.ack(delivery))
                    self.known[place].state = "done"
            self.every_record_is_where_the_model_has_it()
            assert {record.state for record in self.known.values()} <= {"done", "dead"}
            self.run(self.broker.close())
        finally:
            for task in asyncio.all_tasks(self.loop):
                task.cancel()
            self.loop.run_until_complete(asyncio.sleep(0))
            self.loop.close()


TestQueues = QueueMachine.TestCase
TestQueues.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
