"""The receiving half of a client. It reads first and checks afterwards, when the clock has stopped."""

import time
from collections.abc import Callable, Sequence
from typing import Any

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from bench.kafka.numbered import BadDelivery, Ledger, Numbering
from bench.kafka.producing import ANSWER_SECONDS, sent_by
from bench.kafka.tasks import Delays, Load, Span

_SILENCE_SECONDS = 20.0
_AT_ONCE = 10_000
_UNHINDERED: dict[str, Any] = {
    # By default librdkafka rests a second whenever its queue is full, and that would be all that is measured.
    "fetch.queue.backoff.ms": 1,
    "queued.min.messages": 1_000_000,
    # With the default of 500 ms some reads of many partitions stood still for that long, whatever the server.
    "fetch.wait.max.ms": 10,
}


class Receiver:
    def __init__(self, bootstrap: str, admin: AdminClient) -> None:
        self._bootstrap = bootstrap
        self._admin = admin

    def consume(self, load: Load, on_ready: Callable[[], None]) -> Span:
        consumer = self._connected(load, _UNHINDERED)
        on_ready()
        found: list[list[Message]] = []
        count = 0
        began = heard_at = time.perf_counter()
        consumer.assign(_from_start(load))
        while count < load.records:
            # No more than are still to come: it would wait for them until its time is up.
            messages = consumer.consume(min(_AT_ONCE, load.records - count), 0.1)
            if messages:
                found.append(messages)
                count += len(messages)
                heard_at = time.perf_counter()
            elif time.perf_counter() - heard_at > _SILENCE_SECONDS:
                break
        ended = time.perf_counter()
        consumer.close()
        self._check(load, [message for messages in found for message in messages])
        return Span(began, ended)

    def consume_steadily(self, load: Load, on_ready: Callable[[], None]) -> Delays:
        consumer = self._connected(load, {})
        consumer.assign(_from_start(load))
        # Until the first fetch waits at the server, which is how a reader that keeps up finds itself.
        consumer.poll(0.5)
        on_ready()
        found: list[Message] = []
        came: list[float] = []
        while len(found) < load.records:
            message = consumer.poll(_SILENCE_SECONDS)
            if message is None:
                break
            came.append(time.perf_counter())
            found.append(message)
        consumer.close()
        self._check(load, found)
        return Delays([at - float(message.key() or 0) for at, message in zip(came, found, strict=True)])

    def _connected(self, load: Load, settings: dict[str, Any]) -> Consumer:
        consumer = Consumer(
            {
                "bootstrap.servers": self._bootstrap,
                "group.id": "bench",
                "enable.auto.commit": False,
                **settings,
            }
        )
        consumer.list_topics(load.topic, ANSWER_SECONDS)
        # This answer comes over the connection that is read from. Else that to a server which is quick to tell where its
        # partitions are would be made while the clock runs.
        consumer.get_watermark_offsets(TopicPartition(load.topic, 0), ANSWER_SECONDS, cached=False)
        return consumer

    def _check(self, load: Load, found: list[Message]) -> None:
        ledger = Ledger(Numbering(load.record_bytes))
        for message in found:
            error = message.error()
            if error is not None:
                raise KafkaException(error)
            ledger.tick(message.partition() or 0, message.value() or b"")
        sent = sent_by(load)
        ledger.close(sent)
        # What came twice at the very end would not have been read.
        for partition, end in end_offsets(self._admin, _from_start(load)).items():
            expected = sum(count for lane, count in sent.items() if lane.partition == partition)
            if end != expected:
                raise BadDelivery(f"partition {partition} ends at offset {end}, and {expected} records were sent")


def end_offsets(admin: AdminClient, places: Sequence[TopicPartition]) -> dict[int, int]:
    """By partition."""
    asked = admin.list_offsets({place: OffsetSpec.latest() for place in places})
    return {place.partition: answer.result(ANSWER_SECONDS).offset for place, answer in asked.items()}


def _from_start(load: Load) -> list[TopicPartition]:
    return [TopicPartition(load.topic, number, 0) for number in range(load.partitions)]
