"""The copy of a topic in its target: watched while it is filled, read as it comes, and checked afterwards."""

import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import NamedTuple

from confluent_kafka import OFFSET_BEGINNING, Consumer, IsolationLevel, KafkaException, Message, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from bench.audit import AuditFailure
from bench.kafka.client import sent_by
from bench.kafka.tasks import BadDelivery, DeliveryCheck, Load, Numbering
from bench.peers.servers import PeerFailure
from bench.shadow.copies import TopicCopier
from tailrace.model.address import Address

_ANSWER_SECONDS = 30.0
_LOOK_SECONDS = 0.01
_CHECK_SECONDS = 1.0
_SILENCE_SECONDS = 20.0
_AT_ONCE = 10_000
_QUIET = {"log_level": 0}


class Passed(NamedTuple):
    """When records became readable in the target."""

    none_at: float
    """The last look at which there were none."""
    last_at: float

    @property
    def seconds(self) -> float:
        return self.last_at - self.none_at


class TargetTopic:
    """Looks at the ends of a topic while it is filled, which costs the target next to nothing."""

    def __init__(self, address: Address, topic: str, partitions: int) -> None:
        self._address = str(address)
        self._admin = AdminClient({"bootstrap.servers": self._address, **_QUIET})
        self._places = [TopicPartition(topic, number) for number in range(partitions)]

    def await_records(self, records: int, copier: TopicCopier, within_seconds: float, on_none: Callable[[], None]) -> Passed:
        """Wait until there are so many records, and their markers. `on_none` is called as long as there are none."""
        deadline = time.monotonic() + within_seconds
        checked = time.monotonic()
        none_at = time.perf_counter()
        # The clock begins with the first record, committed or not, and ends with the last one that is committed.
        isolation = IsolationLevel.READ_UNCOMMITTED
        while True:
            looked_at, found = time.perf_counter(), self._records(isolation)
            if isolation is IsolationLevel.READ_COMMITTED and found >= records:
                return Passed(none_at, time.perf_counter())
            if found:
                isolation = IsolationLevel.READ_COMMITTED
            elif isolation is IsolationLevel.READ_UNCOMMITTED:
                none_at = looked_at
                on_none()
            if time.monotonic() > deadline:
                raise PeerFailure(f"{copier.name}: {found:,} of {records:,} records were there after {within_seconds:.0f} s")
            if time.monotonic() > checked + _CHECK_SECONDS:
                copier.check()
                checked = time.monotonic()
            time.sleep(_LOOK_SECONDS)

    def _records(self, isolation: IsolationLevel) -> int:
        """Return the sum of all ends; 0 if the topic is not there yet. Markers are so few that they do not count."""
        wanted = {place: OffsetSpec.latest() for place in self._places}
        total = 0
        for future in self._admin.list_offsets(wanted, isolation_level=isolation, request_timeout=_ANSWER_SECONDS).values():
            try:
                total += future.result(_ANSWER_SECONDS).offset
            except KafkaException:
                return 0
        return total

    def check(self, load: Load) -> None:
        """Read everything that is committed, and check that it is what was sent."""
        found = DeliveryCheck(Numbering(load.record_bytes))
        try:
            for message in self._messages(load.records):
                found.tick(message.partition(), message.value())
            found.close(sent_by(load))
        except BadDelivery as error:
            raise AuditFailure(f"the copy {self._places[0].topic}: {error}") from error

    def delays(self, records: int) -> Iterator[float]:
        """Yield, as they come, how long records took since the moment that their keys tell."""
        for message in self._messages(records):
            yield time.perf_counter() - float(message.key())

    def _messages(self, records: int) -> Iterator[Message]:
        with self._consumer() as consumer:
            count = 0
            heard = time.monotonic()
            while count < records:
                for message in consumer.consume(min(_AT_ONCE, records - count), _LOOK_SECONDS):
                    if message.error() is not None:
                        raise KafkaException(message.error())
                    yield message
                    count += 1
                    heard = time.monotonic()
                if time.monotonic() > heard + _SILENCE_SECONDS:
                    raise AuditFailure(f"the copy {self._places[0].topic} has {count:,} of {records:,} records")

    @contextmanager
    def _consumer(self) -> Iterator[Consumer]:
        settings = {"group.id": "bench", "enable.auto.commit": False, "isolation.level": "read_committed"}
        quick = {"fetch.queue.backoff.ms": 1, "fetch.wait.max.ms": 10}
        with closing(Consumer({"bootstrap.servers": self._address, **settings, **quick, **_QUIET})) as consumer:
            consumer.list_topics(self._places[0].topic, _ANSWER_SECONDS)
            consumer.assign([TopicPartition(place.topic, place.partition, OFFSET_BEGINNING) for place in self._places])
            yield consumer
