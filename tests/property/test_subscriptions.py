"""Under any writes and reads, a subscriber gets each committed event of its topics once and in order."""

import asyncio
from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.broker.broker import Broker
from tailrace.broker.subscriptions.subscriptions import Subscription
from tailrace.model.ids import Cursor
from tailrace.model.limits import DEFAULT_LIMITS, Limits
from tailrace.model.names import parse_pattern
from tailrace.model.record import Appended, RawBatch, Record
from tailrace.store.memory import MemoryStore
from tailrace.wire.compression import Compression
from tailrace.wire.records import encode_batch
from tests.support.brokers import running_broker
from tests.support.transactions import TOPIC, Producer, started

TOPICS = (TOPIC, "a.b", "a.c")
PATTERNS = (">", "a.*", "a.b", TOPIC)
LIMITS = Limits(subscription_tail_bytes=3_000)

Event = tuple[int, str, bytes | None]


class Write(NamedTuple):
    topic: str
    records: int
    codec: Compression


class InTransaction(NamedTuple):
    producer: int
    partition: int
    records: int


class End(NamedTuple):
    producer: int
    committed: bool


class Subscribe(NamedTuple):
    pattern: str
    back: int
    """The distance of the start from the end of the log, in cursors."""


class Pull(NamedTuple):
    subscriber: int


steps = st.lists(
    st.one_of(
        st.builds(Write, st.sampled_from(TOPICS), st.integers(1, 4), st.sampled_from([Compression.NONE, Compression.ZSTD])),
        st.builds(InTransaction, st.integers(0, 1), st.integers(0, 1), st.integers(1, 3)),
        st.builds(End, st.integers(0, 1), st.booleans()),
        st.builds(Subscribe, st.sampled_from(PATTERNS), st.integers(0, 12)),
        st.builds(Pull, st.integers(0, 3)),
    ),
    max_size=60,
)


class Subscriber:
    def __init__(self, subscription: Subscription, pattern: str, start: int) -> None:
        self.subscription = subscription
        self.pattern = pattern
        self.start = start
        self.got: list[Event] = []

    async def pull(self) -> bool:
        batches = await self.subscription.read(0)
        self.got += [(record.cursor, batch.topic, record.value) for batch in batches for record in batch.records]
        return bool(batches)


class World:
    """A broker, the events written to it, and its subscribers."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.committed: dict[int, Event] = {}
        self.open: dict[int, list[Event]] = {0: [], 1: []}
        self.producers: list[Producer] = []
        self.subscribers: list[Subscriber] = []
        self.values = 0

    async def play(self, step: object) -> None:
        if isinstance(step, Write):
            values = self._values(step.records)
            batch = encode_batch([Record(None, value, (), 1_000) for value in values], codec=step.codec)
            await self._append(RawBatch(step.topic, 0, batch), values, None)
        elif isinstance(step, InTransaction):
            producer = self.producers[step.producer]
            values = self._values(step.records)
            await producer.add(step.partition)
            await self._append(producer.batch(step.partition, *values), values, step.producer)
        elif isinstance(step, End):
            if self.open[step.producer]:
                await self.producers[step.producer].end(committed=step.committed)
                if step.committed:
                    self.committed.update({event[0]: event for event in self.open[step.producer]})
                self.open[step.producer] = []
        elif isinstance(step, Subscribe):
            start = max(0, self.broker.store.end_cursor() - step.back)
            subscription = self.broker.subscriptions.subscribe(parse_pattern(step.pattern, DEFAULT_LIMITS), Cursor(start))
            self.subscribers.append(Subscriber(subscription, step.pattern, start))
        elif isinstance(step, Pull) and step.subscriber < len(self.subscribers):
            await self.subscribers[step.subscriber].pull()

    def expected(self, subscriber: Subscriber) -> list[Event]:
        pattern = parse_pattern(subscriber.pattern, DEFAULT_LIMITS)
        return [
            event
            for cursor, event in sorted(self.committed.items())
            if cursor >= subscriber.start and pattern.matches(event[1])
        ]

    def _values(self, count: int) -> list[bytes]:
        self.values += count
        return [b"%d" % number for number in range(self.values - count, self.values)]

    async def _append(self, batch: RawBatch, values: list[bytes], producer: int | None) -> None:
        (outcome,) = await self.broker.appender.append([batch])
        assert isinstance(outcome, Appended), outcome
        assert outcome.cursor is not None
        events = [(outcome.cursor + number, batch.topic, value) for number, value in enumerate(values)]
        if producer is None:
            self.committed.update({event[0]: event for event in events})
        else:
            self.open[producer] += events


@settings(max_examples=150, deadline=None)
@given(steps)
def test_each_committed_event_comes_once_and_in_order(played: list[object]) -> None:
    async def run() -> None:
        async with running_broker(MemoryStore(limits=LIMITS), limits=LIMITS) as broker:
            for name in TOPICS:
                await broker.topics.create(name, 2)
            world = World(broker)
            world.producers = [await started(broker, f"tx{number}") for number in range(2)]
            for step in played:
                await world.play(step)
                for subscriber in world.subscribers:
                    assert subscriber.got == world.expected(subscriber)[: len(subscriber.got)]
            for number in world.open:
                await world.play(End(number, True))
            for subscriber in world.subscribers:
                while subscriber.subscription.position < broker.store.end_cursor():
                    await subscriber.pull()
                assert subscriber.got == world.expected(subscriber)
                subscriber.subscription.close()

    asyncio.run(run())
