"""What brings changes of a table of PostgreSQL to a topic, as benchmarks see it, and the topic that it writes."""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, closing
from typing import NamedTuple, Protocol

from confluent_kafka import Consumer, KafkaException, TopicPartition

from bench.audit import AuditFailure
from bench.capture.orders import Orders
from bench.workspace import Workspace
from tailrace.model.address import Address

_ANSWER_SECONDS = 30.0
_LOOK_SECONDS = 0.01
_CHECK_SECONDS = 1.0
"""How often a capture is asked whether it has failed."""
_SILENCE_SECONDS = 20.0
_AT_ONCE = 10_000


class ChangeReader(Protocol):
    """A topic that events about changes come to, and how they are read."""

    @property
    def name(self) -> str:
        """The name on the page, with versions."""

    @property
    def kafka(self) -> Address:
        """Where the topic can be read by a Kafka client."""

    @property
    def topic(self) -> str:
        """The topic of the changes, of one partition."""

    def check(self) -> None:
        """Raise `PeerFailure` if whoever writes it has failed."""

    def read_change(self, value: bytes) -> int:
        """Return the number of the change that an event is about."""


class Capture(ChangeReader, Protocol):
    """A capture of the table `orders` that can be stopped and started again. PostgreSQL keeps the stream meanwhile."""

    @property
    def remarks(self) -> Sequence[str]:
        """What the page must say of it, such as settings."""

    def prepare(self) -> None:
        """Create a slot that holds every change from now on, for `start`."""

    def start(self) -> None:
        """Begin to stream; this may still be under way on return."""

    def stop(self) -> None:
        """Stop streaming and keep the position. Returns when the slot is free."""

    def begin_snapshot(self, number: int) -> str:
        """Start another capture, which reads the existing rows first, and return the name of its topic."""

    def end_snapshot(self, number: int) -> None:
        """Remove that capture."""

    @property
    def pids(self) -> Mapping[str, int]:
        """Its processes, by what they are called on the page."""


MakeCapture = Callable[[Workspace, Orders], AbstractContextManager[Capture]]
"""Runs everything that a capture consists of but PostgreSQL, on folders of its own."""


class Passage(NamedTuple):
    """When events became readable in a topic, by the clock that all processes of the machine share."""

    none_at: float
    """The last look at which there were none."""
    last_at: float
    events: int

    @property
    def per_second(self) -> float:
        """The rate from the first events to the last, without the time that it took to begin."""
        return self.events / (self.last_at - self.none_at)

    def per_second_since(self, began: float) -> float:
        return self.events / (self.last_at - began)


class ChangeTopic:
    """Looks at the end of a topic while it grows, which costs the server next to nothing, and reads it afterwards."""

    def __init__(self, reader: ChangeReader, topic: str) -> None:
        self._reader = reader
        self._place = TopicPartition(topic, 0)
        settings = {"group.id": "bench", "enable.auto.commit": False, "queued.min.messages": 1_000_000}
        self._settings = {"bootstrap.servers": str(reader.kafka), "fetch.queue.backoff.ms": 1, **settings}
        self._consumer = Consumer(self._settings)

    def close(self) -> None:
        self._consumer.close()

    @property
    def end(self) -> int:
        """How many records it has; none if it does not exist yet."""
        try:
            return int(self._consumer.get_watermark_offsets(self._place, _ANSWER_SECONDS, cached=False)[1])
        except KafkaException:
            return 0

    def await_events(self, begin: int, count: int, within_seconds: float) -> Passage:
        """Wait until so many events are behind the offset `begin`."""
        deadline = time.monotonic() + within_seconds
        checked = time.monotonic()
        none_at = time.perf_counter()
        while True:
            looked_at, found = time.perf_counter(), self.end - begin
            if found >= count:
                return Passage(none_at, time.perf_counter(), found)
            if found <= 0:
                none_at = looked_at
            if time.monotonic() > deadline:
                raise AuditFailure(
                    f"{self._reader.name}: {found:,} of {count:,} events were there after {within_seconds:.0f} s"
                )
            if time.monotonic() > checked + _CHECK_SECONDS:
                self._reader.check()
                checked = time.monotonic()
            time.sleep(_LOOK_SECONDS)

    def check_changes(self, first: int, count: int) -> None:
        """Check that each of these changes is there, once and in order, and none behind them. A change that is in its place has
        its number as offset, because the table is captured from its first change on."""
        for expected, number in enumerate(self._read(first, count), first):
            if number != expected:
                raise AuditFailure(
                    f"{self._reader.name}: at offset {expected} is change {number}: one is lost, doubled or out of order"
                )
        self._check_end(first + count)

    def check_changes_in_any_order(self, first: int, count: int) -> None:
        """Check the same of changes whose order nobody knows."""
        missing = set(range(first, first + count)).difference(self._read(first, count))
        if missing:
            raise AuditFailure(f"{self._reader.name}: {len(missing):,} of {count:,} changes are lost, such as {min(missing)}")
        self._check_end(first + count)

    def _check_end(self, expected: int) -> None:
        if self.end != expected:
            raise AuditFailure(f"{self._reader.name}: the topic has {self.end:,} events, and {expected:,} were due")

    def _read(self, begin: int, count: int) -> list[int]:
        read = self._reader.read_change
        numbers: list[int] = []
        with closing(Consumer(self._settings)) as consumer:
            consumer.assign([TopicPartition(self._place.topic, 0, begin)])
            heard = time.monotonic()
            while len(numbers) < count and time.monotonic() < heard + _SILENCE_SECONDS:
                for message in consumer.consume(min(_AT_ONCE, count - len(numbers)), 0.2):
                    if message.error() is not None:
                        raise KafkaException(message.error())
                    numbers.append(read(message.value()))
                    heard = time.monotonic()
        if len(numbers) < count:
            raise AuditFailure(f"{self._reader.name}: {len(numbers):,} of {count:,} events could be read")
        return numbers
