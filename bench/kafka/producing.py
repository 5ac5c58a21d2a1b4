"""The sending half of a client: librdkafka through confluent-kafka."""

import time
from collections.abc import Sequence
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from bench.kafka.numbered import Lane, Numbering
from bench.kafka.tasks import Load, Span

ANSWER_SECONDS = 60.0
_CHUNK_BYTES = 1_000_000
_CHUNK_RECORDS = 1_000
_PROMPT = {"linger.ms": 0}
"""For records that someone waits for."""

_Chunk = tuple[int, list[dict[str, bytes]]]
"""Records for one partition, as confluent-kafka takes them."""


class Sender:
    """Has what it sends ready before the clock starts: making a record takes as long as sending it."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._prepared: tuple[tuple[int, int, int], Sequence[_Chunk]] = ((0, 0, 0), ())
        self._connections: list[Producer] = []
        self._turns = 0
        """Records over each of the connections so far."""

    def produce(self, load: Load) -> Span:
        chunks = self._chunks(load)
        producer = self._connected(load, {"queue.buffering.max.messages": load.records + 1})
        topic = load.topic
        began = time.perf_counter()
        for partition, chunk in chunks:
            producer.produce_batch(topic, chunk, partition)
        _flush(producer)
        return Span(began, time.perf_counter())

    def produce_one_by_one(self, load: Load) -> Span:
        producer = self._connected(load, _PROMPT)
        numbering = Numbering(load.record_bytes)
        values = [numbering.record(0, number) for number in range(load.records)]
        began = time.perf_counter()
        for value in values:
            producer.produce(load.topic, value, partition=0, on_delivery=_expect_delivery)
            _flush(producer)
        return Span(began, time.perf_counter())

    def produce_steadily(self, load: Load, per_second: int) -> Span:
        """The key of a record says when it left."""
        producer = self._connected(load, _PROMPT)
        numbering = Numbering(load.record_bytes)
        values = [numbering.record(0, number) for number in range(load.records)]
        began = time.perf_counter()
        for number, value in enumerate(values):
            ahead = began + number / per_second - time.perf_counter()
            if ahead > 0:
                time.sleep(ahead)
            producer.produce(load.topic, value, str(time.perf_counter()), partition=0)
            producer.poll(0)
        _flush(producer)
        return Span(began, time.perf_counter())

    def open_connections(self, load: Load) -> None:
        self._connections = [self._connected(load, _PROMPT) for _ in range(load.senders)]
        self._turns = 0

    def produce_everywhere(self, load: Load) -> Span:
        numbering = Numbering(load.record_bytes)
        begin, self._turns = self._turns, self._turns + load.records // load.senders
        turns = [[numbering.record(sender, number) for sender in range(load.senders)] for number in range(begin, self._turns)]
        began = time.perf_counter()
        for values in turns:
            for producer, value in zip(self._connections, values, strict=True):
                producer.produce(load.topic, value, partition=0, on_delivery=_expect_delivery)
            for producer in self._connections:
                _flush(producer)
        return Span(began, time.perf_counter())

    def close_connections(self) -> None:
        for producer in self._connections:
            producer.close()
        self._connections = []

    def _connected(self, load: Load, settings: dict[str, Any]) -> Producer:
        producer = Producer({"bootstrap.servers": self._bootstrap, **settings, **load.settings})
        producer.list_topics(load.topic, ANSWER_SECONDS)
        return producer

    def _chunks(self, load: Load) -> Sequence[_Chunk]:
        """Kept for the next round of the same work."""
        wanted = (load.records, load.record_bytes, load.partitions)
        kept, chunks = self._prepared
        if kept != wanted:
            self._prepared = ((0, 0, 0), ())
            chunks = _cut(load)
            self._prepared = (wanted, chunks)
        return chunks


def sent_by(load: Load) -> dict[Lane, int]:
    """What a load leaves in its topic."""
    if load.senders:
        return {Lane(0, sender): load.records // load.senders for sender in range(load.senders)}
    sizes = {Lane(partition, partition): 0 for partition in range(load.partitions)}
    for partition, chunk in _plan(load):
        sizes[Lane(partition, partition)] += len(chunk)
    return sizes


def _plan(load: Load) -> list[tuple[int, range]]:
    """Which numbers go to which partition, chunk after chunk."""
    size = max(1, min(_CHUNK_RECORDS, _CHUNK_BYTES // load.record_bytes))
    filled = [0] * load.partitions
    plan: list[tuple[int, range]] = []
    for begin in range(0, load.records, size):
        partition = len(plan) % load.partitions
        number = filled[partition]
        filled[partition] += min(size, load.records - begin)
        plan.append((partition, range(number, filled[partition])))
    return plan


def _cut(load: Load) -> list[_Chunk]:
    numbering = Numbering(load.record_bytes)
    return [
        (partition, [{"value": numbering.record(partition, number)} for number in numbers])
        for partition, numbers in _plan(load)
    ]


def _flush(producer: Producer) -> None:
    left = producer.flush(ANSWER_SECONDS)
    if left:
        raise TimeoutError(f"{left} records were not acknowledged within {ANSWER_SECONDS:.0f} s")


def _expect_delivery(error: KafkaError | None, _: Message) -> None:
    if error is not None:
        raise KafkaException(error)
