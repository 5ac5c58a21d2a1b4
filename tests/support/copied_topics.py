"""What two clusters hold, compared record by record, and a network between them that can fail."""

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from tests.support.patience import PATIENCE_SECONDS

Headers = tuple[tuple[str, bytes | None], ...]
_BEGINNING = -2
_CONSUME_SECONDS = 0.02


class Stored(NamedTuple):
    """A committed record, without its offset."""

    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp: int


class ClusterView:
    """A cluster at an address, as an ordinary client sees it."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._admin = AdminClient({"bootstrap.servers": address, "client.id": "view"})

    def create(self, topic: str, partitions: int = 1, **config: str) -> None:
        configs = {name.replace("_", "."): value for name, value in config.items()}
        (done,) = self._admin.create_topics([NewTopic(topic, partitions, config=configs)]).values()
        done.result(PATIENCE_SECONDS)

    def add_partitions(self, topic: str, count: int) -> None:
        (done,) = self._admin.create_partitions([NewPartitions(topic, count)]).values()
        done.result(PATIENCE_SECONDS)

    def delete(self, topic: str) -> None:
        (done,) = self._admin.delete_topics([topic], operation_timeout=30).values()
        done.result(PATIENCE_SECONDS)

    def delete_group(self, group: str) -> None:
        (done,) = self._admin.delete_consumer_groups([group]).values()
        done.result(PATIENCE_SECONDS)

    def delete_before(self, topic: str, partition: int, offset: int) -> None:
        (done,) = self._admin.delete_records([TopicPartition(topic, partition, offset)]).values()
        done.result(PATIENCE_SECONDS)

    def topics(self) -> dict[str, int]:
        """Return the number of partitions of each topic."""
        found = self._admin.list_topics(timeout=PATIENCE_SECONDS).topics
        return {name: len(topic.partitions) for name, topic in found.items() if topic.error is None}

    def groups(self) -> list[str]:
        return [group.group_id for group in self._admin.list_consumer_groups().result(PATIENCE_SECONDS).valid]

    def producer(self, **settings: object) -> Producer:
        return Producer({"bootstrap.servers": self.address, "linger.ms": 0, **settings})

    def send(self, topic: str, records: Iterable[tuple[bytes | None, bytes | None]], partition: int = 0) -> None:
        """Send keys and values, and wait until they are stored."""
        producer = self.producer()
        for key, value in records:
            producer.produce(topic, value, key, partition)
        assert producer.flush(PATIENCE_SECONDS) == 0

    def numbers(self, topic: str, first: int, count: int, partition: int = 0) -> None:
        """Send numbered values."""
        self.send(topic, [(b"k%d" % (number % 7), b"%d" % number) for number in range(first, first + count)], partition)

    def ends(self, topic: str) -> list[int]:
        """Return the end of each partition, markers included."""
        with self._consumer() as consumer:
            count = self.topics()[topic]
            return [
                consumer.get_watermark_offsets(TopicPartition(topic, number), PATIENCE_SECONDS)[1] for number in range(count)
            ]

    def contents(self, topic: str) -> list[list[Stored]]:
        """Return all committed records of each partition, in order."""
        with self._consumer() as consumer:
            count = self.topics()[topic]
            found: list[list[Stored]] = [[] for _ in range(count)]
            consumer.assign([TopicPartition(topic, number, _BEGINNING) for number in range(count)])
            at_end = 0
            deadline = time.monotonic() + PATIENCE_SECONDS
            while at_end < count:
                assert time.monotonic() < deadline, f"{at_end} of {count} partitions of {topic} were read to their ends"
                for message in consumer.consume(10_000, _CONSUME_SECONDS):
                    error = message.error()
                    if error is None:
                        headers = tuple(message.headers() or ())
                        found[message.partition()].append(
                            Stored(message.key(), message.value(), headers, message.timestamp()[1])
                        )
                    elif error.code() == KafkaError._PARTITION_EOF:
                        at_end += 1
                    else:
                        raise KafkaException(error)
            return found

    def values(self, topic: str) -> list[list[bytes | None]]:
        return [[record.value for record in partition] for partition in self.contents(topic)]

    def read(self, group: str, topic: str, count: int, partitions: Sequence[int] = (0,)) -> list[bytes]:
        """Read so many records as a member of a group, from where it has come to, and commit what was read."""
        settings = {"group.id": group, "enable.auto.commit": False, "auto.offset.reset": "earliest"}
        with self._consumer(**settings) as consumer:
            consumer.subscribe([topic])
            values: list[bytes] = []
            last: dict[int, int] = {}
            while len(values) < count:
                message = consumer.poll(PATIENCE_SECONDS)
                assert message is not None, f"{len(values)} of {count} records could be read"
                if message.error() is None:
                    values.append(message.value())
                    last[message.partition()] = message.offset() + 1
            if last:
                offsets = [TopicPartition(topic, number, offset) for number, offset in last.items()]
                consumer.commit(offsets=offsets, asynchronous=False)
            return values

    def commit(self, group: str, topic: str, offset: int, partition: int = 0) -> None:
        """Commit an offset of a group without members."""
        with self._consumer(**{"group.id": group}) as consumer:
            consumer.commit(offsets=[TopicPartition(topic, partition, offset)], asynchronous=False)

    def committed(self, group: str, topic: str, partition: int = 0) -> int | None:
        """Return the offset that a group has committed."""
        with self._consumer(**{"group.id": group}) as consumer:
            (found,) = consumer.committed([TopicPartition(topic, partition)], PATIENCE_SECONDS)
            return found.offset if found.offset >= 0 else None

    def value_at(self, topic: str, offset: int, partition: int = 0) -> bytes | None:
        """Return the value that a reader of committed records gets first from an offset on; `None` if there is none yet."""
        with self._consumer() as consumer:
            consumer.assign([TopicPartition(topic, partition, offset)])
            message = consumer.poll(PATIENCE_SECONDS)
            assert message is not None
            if message.error() is not None:
                assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
                return None
            value: bytes = message.value()
            return value

    def await_value(self, topic: str, value: bytes) -> None:
        """Wait until a new record of partition 0 has this value, or the last one has."""
        with self._consumer() as consumer:
            end = consumer.get_watermark_offsets(TopicPartition(topic, 0), PATIENCE_SECONDS)[1]
            consumer.assign([TopicPartition(topic, 0, max(0, end - 3))])
            deadline = time.monotonic() + PATIENCE_SECONDS
            while time.monotonic() < deadline:
                message = consumer.poll(_CONSUME_SECONDS)
                if message is not None and message.error() is None and message.value() == value:
                    return
            raise AssertionError(f"{value!r} was not in {topic} after {PATIENCE_SECONDS:g} s")

    @contextmanager
    def _consumer(self, **settings: object) -> "Iterator[Consumer]":
        given = {
            "bootstrap.servers": self.address,
            "group.id": "view",
            "isolation.level": "read_committed",
            "enable.partition.eof": "group.id" not in settings or settings["group.id"] == "view",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 10,
            **settings,
        }
        consumer = Consumer(given)
        # Without what this learns, an assignment waits for half a second.
        consumer.list_topics(timeout=PATIENCE_SECONDS)
        try:
            yield consumer
        finally:
            consumer.close()
