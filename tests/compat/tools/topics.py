"""Topics of a server by librdkafka, which is known to work: filled before a tool runs, and read to their end after it."""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import httpx
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

_SECONDS = 60.0
_QUIET = {"log_level": 0}


class Read(NamedTuple):
    partition: int
    offset: int
    key: str | None
    value: str | None


def create(kafka: str, *topics: str, partitions: int = 1, **configs: str) -> None:
    """Create topics. In names of configs, `_` stands for a dot."""
    given = {name.replace("_", "."): value for name, value in configs.items()}
    wanted = [NewTopic(topic, partitions, 1, config=given) for topic in topics]
    admin = AdminClient({"bootstrap.servers": kafka, **_QUIET})
    for future in admin.create_topics(wanted).values():
        future.result(_SECONDS)


def names(kafka: str) -> set[str]:
    """Return the names of all topics."""
    return set(AdminClient({"bootstrap.servers": kafka, **_QUIET}).list_topics(timeout=_SECONDS).topics)


def fill(kafka: str, topic: str, records: Iterable[str | tuple[str, str | None]]) -> None:
    """Produce values, or pairs of key and value, and wait until the server has them. Keys choose partitions as in Java."""
    settings = {"enable.idempotence": True, "linger.ms": 20, "partitioner": "murmur2_random", **_QUIET}
    producer = Producer({"bootstrap.servers": kafka, **settings})
    failed: list[KafkaError] = []
    for record in records:
        key, value = (None, record) if isinstance(record, str) else record
        producer.produce(topic, value, key, on_delivery=lambda error, _: failed.append(error) if error else None)
        producer.poll(0)
    assert producer.flush(_SECONDS) == 0, "not all records were acknowledged"
    assert not failed, failed[0]


def read(kafka: str, topic: str, *, committed_only: bool = True) -> list[Read]:
    """Return all records of a topic, partition by partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": kafka,
            "group.id": "not-used",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed" if committed_only else "read_uncommitted",
            **_QUIET,
        }
    )
    try:
        partitions = consumer.list_topics(topic, timeout=_SECONDS).topics[topic].partitions
        return [record for number in sorted(partitions) for record in _read(consumer, topic, number)]
    finally:
        consumer.close()


def _read(consumer: Consumer, topic: str, partition: int) -> Iterator[Read]:
    consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING)])
    while True:
        message = consumer.poll(_SECONDS)
        assert message is not None, f"neither a record nor the end of {topic} in {_SECONDS:g} s"
        error = message.error()
        if error is not None and error.code() == KafkaError._PARTITION_EOF:
            return
        if error is not None:
            raise KafkaException(error)
        yield Read(partition, message.offset(), _text(message.key()), _text(message.value()))


def end(kafka: str, topic: str) -> int:
    """Return the offsets behind the last records of all partitions, added up. Markers of transactions count as well."""
    admin = AdminClient({"bootstrap.servers": kafka, **_QUIET})
    partitions = admin.list_topics(topic, timeout=_SECONDS).topics[topic].partitions
    asked = admin.list_offsets({TopicPartition(topic, number): OffsetSpec.latest() for number in partitions})
    return sum(future.result(_SECONDS).offset for future in asked.values())


def values(records: Sequence[Read]) -> list[str | None]:
    return [record.value for record in records]


def latest(records: Sequence[Read]) -> dict[str | None, str | None]:
    """Return the last value of each key."""
    return {record.key: record.value for record in records}


def compacted_records(url: str) -> int:
    """Return how many records compaction has removed since the start of the server, which is asked over HTTP."""
    lines = httpx.get(f"{url}/metrics").text.splitlines()
    return sum(int(float(line.split()[-1])) for line in lines if line.startswith("tailrace_compacted_records_total"))


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode()
