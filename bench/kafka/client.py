"""A process with a Kafka client: librdkafka through confluent-kafka, as producer and consumer.

It makes records before the clock starts and checks what it read after the clock has stopped.
"""

import gc
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from bench.kafka.tasks import (
    Answer,
    AnyTask,
    BadDelivery,
    CloseConnections,
    Consume,
    ConsumeSteadily,
    CreateTopic,
    Delays,
    DeliveryCheck,
    Done,
    Lane,
    Load,
    Numbering,
    OpenConnections,
    Produce,
    ProduceEverywhere,
    ProduceOneByOne,
    ProduceSteadily,
    Span,
    Task,
)
from bench.machine import exact_cpu_seconds_of
from bench.peers.servers import ClientSettings, Peer
from bench.worker_process import Failed, WorkerProcess, say

ANSWER_SECONDS = 60.0
_CHUNK_BYTES = 1_000_000
_CHUNK_RECORDS = 1_000
_PROMPT = {"linger.ms": 0}
"""The timeout of records that somebody waits for."""

_Chunk = tuple[int, list[dict[str, bytes]]]
"""Records for one partition, in the form of confluent-kafka."""


class Server(NamedTuple):
    """The server that a client speaks to."""

    settings: ClientSettings
    """Its address, and what a client needs to log in."""
    pid: int

    def watch(self) -> Callable[[], Span]:
        """Start a clock. Return what stops it."""
        cpu_began, began = exact_cpu_seconds_of(self.pid), time.perf_counter()
        return lambda: Span(began, time.perf_counter(), exact_cpu_seconds_of(self.pid) - cpu_began)


class Sender:
    """Produces records that are made before the clock starts: making a record takes as long as sending it."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._prepared: tuple[tuple[int, int, int], Sequence[_Chunk]] = ((0, 0, 0), ())
        self._connections: list[Producer] = []
        self._turns = 0
        """The number of records sent over each connection so far."""

    def produce(self, load: Load) -> Span:
        chunks = self._chunks(load)
        producer = self._connected(load, {"queue.buffering.max.messages": load.records + 1})
        topic = load.topic
        stop = self._server.watch()
        for partition, chunk in chunks:
            producer.produce_batch(topic, chunk, partition)
        _flush(producer)
        return stop()

    def produce_one_by_one(self, load: Load) -> Span:
        producer = self._connected(load, _PROMPT)
        numbering = Numbering(load.record_bytes)
        values = [numbering.record(0, number) for number in range(load.records)]
        stop = self._server.watch()
        for value in values:
            producer.produce(load.topic, value, partition=0, on_delivery=_expect_delivery)
            _flush(producer)
        return stop()

    def produce_steadily(self, load: Load, per_second: int) -> Span:
        """Produce records whose keys say when they were sent."""
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
        producer = Producer({**self._server.settings, **settings, **load.settings})
        producer.list_topics(load.topic, ANSWER_SECONDS)
        time.sleep(load.pause_seconds)
        return producer

    def _chunks(self, load: Load) -> Sequence[_Chunk]:
        """Return the plan of a load, which is kept for the next round."""
        wanted = (load.records, load.record_bytes, load.partitions)
        kept, chunks = self._prepared
        if kept != wanted:
            self._prepared = ((0, 0, 0), ())
            chunks = _cut(load)
            self._prepared = (wanted, chunks)
        return chunks


def sent_by(load: Load) -> dict[Lane, int]:
    """Return what a load leaves in its topic."""
    if load.senders:
        return {Lane(0, sender): load.records // load.senders for sender in range(load.senders)}
    sizes = {Lane(partition, partition): 0 for partition in range(load.partitions)}
    for partition, chunk in _plan(load):
        sizes[Lane(partition, partition)] += len(chunk)
    return sizes


def _plan(load: Load) -> list[tuple[int, range]]:
    """Yield which numbers go to which partition, chunk by chunk."""
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


_SILENCE_SECONDS = 20.0
_AT_ONCE = 10_000
_UNHINDERED: dict[str, Any] = {
    # By default librdkafka pauses for a second whenever its queue is full, which would dominate the measurement.
    "fetch.queue.backoff.ms": 1,
    "queued.min.messages": 1_000_000,
    # With the default of 500 ms some reads of many partitions stalled for that long, with every server.
    "fetch.wait.max.ms": 10,
}


class Receiver:
    def __init__(self, server: Server, admin: AdminClient) -> None:
        self._server = server
        self._admin = admin

    def consume(self, load: Load, on_ready: Callable[[], None]) -> Span:
        consumer = self._connected(load, _UNHINDERED)
        on_ready()
        found: list[list[Message]] = []
        count = 0
        stop = self._server.watch()
        heard_at = time.perf_counter()
        consumer.assign(_from_start(load))
        while count < load.records:
            # No more than are left: otherwise it would wait until its timeout.
            messages = consumer.consume(min(_AT_ONCE, load.records - count), 0.1)
            if messages:
                found.append(messages)
                count += len(messages)
                heard_at = time.perf_counter()
            elif time.perf_counter() - heard_at > _SILENCE_SECONDS:
                break
        span = stop()
        consumer.close()
        self._check(load, [message for messages in found for message in messages])
        return span

    def consume_steadily(self, load: Load, on_ready: Callable[[], None]) -> Delays:
        consumer = self._connected(load, {})
        consumer.assign(_from_start(load))
        # Until the first fetch waits at the server, as that of a reader that keeps up does.
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
                **self._server.settings,
                "group.id": "bench",
                "enable.auto.commit": False,
                **settings,
            }
        )
        consumer.list_topics(load.topic, ANSWER_SECONDS)
        # This response comes over the connection that is read from. Otherwise that to a server which is quick to tell where its
        # partitions are would be made while the clock runs.
        consumer.get_watermark_offsets(TopicPartition(load.topic, 0), ANSWER_SECONDS, cached=False)
        time.sleep(load.pause_seconds)
        return consumer

    def _check(self, load: Load, found: list[Message]) -> None:
        ledger = DeliveryCheck(Numbering(load.record_bytes))
        for message in found:
            error = message.error()
            if error is not None:
                raise KafkaException(error)
            ledger.tick(message.partition() or 0, message.value() or b"")
        sent = sent_by(load)
        ledger.close(sent)
        # A duplicate at the very end would not have been read otherwise.
        for partition, end in end_offsets(self._admin, _from_start(load)).items():
            expected = sum(count for lane, count in sent.items() if lane.partition == partition)
            if end != expected:
                raise BadDelivery(f"partition {partition} ends at offset {end}, and {expected} records were sent")


def end_offsets(admin: AdminClient, places: Sequence[TopicPartition]) -> dict[int, int]:
    """Return the end offset of each partition."""
    asked = admin.list_offsets({place: OffsetSpec.latest() for place in places})
    return {place.partition: answer.result(ANSWER_SECONDS).offset for place, answer in asked.items()}


def _from_start(load: Load) -> list[TopicPartition]:
    return [TopicPartition(load.topic, number, 0) for number in range(load.partitions)]


class ClientProcess(WorkerProcess[Task, Answer]):
    """Runs this module as a child process."""

    def __init__(self, peer: Peer) -> None:
        settings = {"bootstrap.servers": str(peer.address), **peer.client_settings}
        arguments = (str(peer.pid), msgspec.json.encode(settings).decode())
        super().__init__(peer.name, "bench.kafka.client", *arguments, answers=Answer)


class _Client:
    def __init__(self, server: Server) -> None:
        self._admin = AdminClient(dict(server.settings))
        self._sender = Sender(server)
        self._receiver = Receiver(server, self._admin)

    def serve(self) -> None:
        for line in sys.stdin.buffer:
            task: AnyTask = msgspec.json.decode(line, type=AnyTask)
            try:
                say(self._do(task))
            except (BadDelivery, KafkaException, TimeoutError, BufferError) as error:
                say(Failed(f"{type(task).__name__} of {task.load.topic!r}: {error}"))
            gc.collect()

    def _do(self, task: AnyTask) -> Answer:
        load = task.load
        match task:
            case CreateTopic():
                return self._create(load.topic, load.partitions)
            case Produce():
                return self._sender.produce(load)
            case ProduceOneByOne():
                return self._sender.produce_one_by_one(load)
            case ProduceSteadily():
                return self._sender.produce_steadily(load, task.per_second)
            case OpenConnections():
                self._sender.open_connections(load)
                return Done()
            case ProduceEverywhere():
                return self._sender.produce_everywhere(load)
            case CloseConnections():
                self._sender.close_connections()
                return Done()
            case Consume():
                return self._receiver.consume(load, _say_ready)
            case ConsumeSteadily():
                return self._receiver.consume_steadily(load, _say_ready)

    def _create(self, topic: str, partitions: int) -> Done:
        # Batches may be this large if large ones are requested.
        wanted = NewTopic(topic, partitions, 1, config={"max.message.bytes": "10000000"})
        self._admin.create_topics([wanted])[topic].result(ANSWER_SECONDS)
        self._await_leaders(topic, partitions)
        return Done()

    def _await_leaders(self, topic: str, partitions: int) -> None:
        """Wait until every partition returns its end: records sent to Kafka before that were sometimes reordered."""
        places = [TopicPartition(topic, number) for number in range(partitions)]
        deadline = time.monotonic() + ANSWER_SECONDS
        while not (self._has_leaders(topic, partitions) and self._has_offsets(places)):
            if time.monotonic() > deadline:
                raise TimeoutError(f"not all of {partitions} partitions had a leader after {ANSWER_SECONDS:.0f} s")
            time.sleep(0.02)

    def _has_leaders(self, topic: str, partitions: int) -> bool:
        found = self._admin.list_topics(topic, ANSWER_SECONDS).topics[topic].partitions.values()
        return len(found) == partitions and all(each.error is None and each.leader >= 0 for each in found)

    def _has_offsets(self, places: list[TopicPartition]) -> bool:
        try:
            return len(end_offsets(self._admin, places)) == len(places)
        except KafkaException:
            return False


def _say_ready() -> None:
    say(Done())


if __name__ == "__main__":
    gc.disable()  # the collector would scan every record that is kept for the check
    _Client(Server(msgspec.json.decode(sys.argv[2]), int(sys.argv[1]))).serve()
