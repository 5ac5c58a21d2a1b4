"""Change events in a topic of Kafka, as Spark's own connector would find them, and how many records a topic there has."""

from collections.abc import Iterator

import msgspec
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from bench.audit import AuditFailure
from bench.kafka.consuming import end_offsets
from tailrace.model.address import Address

PARTITIONS = 2
_TIMESTAMP = 1_700_000_000_000
_ANSWER_SECONDS = 30.0
_FLUSH_SECONDS = 120.0
_AT_ONCE = 10_000


def create_topic(address: Address, topic: str) -> None:
    # Kept in a name: without it the client is gone before the answer comes.
    admin = AdminClient({"bootstrap.servers": str(address)})
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(_ANSWER_SECONDS)


def produce_changes(address: Address, topic: str, changes: int, body_bytes: int) -> None:
    """What Tailrace has in the change topic of a table: one event for each row."""
    create_topic(address, topic)
    producer = Producer({"bootstrap.servers": str(address), "linger.ms": 50, "queue.buffering.max.messages": 10 * _AT_ONCE})
    for number, (key, value) in enumerate(_events(changes, body_bytes)):
        producer.produce(topic, value, key)
        if number % _AT_ONCE == 0:
            producer.flush(_FLUSH_SECONDS)
    if producer.flush(_FLUSH_SECONDS) or records_in(address, topic) != changes:
        raise AuditFailure(f"Kafka did not take all {changes} change events")


def records_in(address: Address, topic: str) -> int:
    places = [TopicPartition(topic, number) for number in range(PARTITIONS)]
    return sum(end_offsets(AdminClient({"bootstrap.servers": str(address)}), places).values())


def _events(changes: int, body_bytes: int) -> Iterator[tuple[bytes, bytes]]:
    body = "x" * body_bytes
    for number in range(changes):
        key = {"id": number}
        event = {"op": "insert", "key": key, "old": None, "new": {"id": number, "body": body}, "ts": _TIMESTAMP, "tx": "1"}
        yield msgspec.json.encode(key), msgspec.json.encode(event)
