"""Workers on librdkafka, the client under most languages: sends with idempotence, and reads of assigned partitions."""

import logging
import time
from collections.abc import Sequence
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from chaos.history import CallAnswer, CallOutcome, PollCall, RecordLocation, SeenRecord, SendCall
from chaos.workers.worker import RunTopic, Worker, WorkerContext, all_locations, following, text

SURFACE = "kafka-librdkafka"
DELIVERY_SECONDS = 30.0

COMMON: dict[str, Any] = {
    "reconnect.backoff.ms": 50,
    "reconnect.backoff.max.ms": 500,
    "socket.timeout.ms": 10_000,
    "logger": logging.getLogger("librdkafka"),
}

_NOT_SENT = frozenset({KafkaError._QUEUE_FULL, KafkaError._PURGE_QUEUE})
_REFUSED = frozenset(
    {KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.INVALID_RECORD, KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.INVALID_TIMESTAMP}
)


class LibrdkafkaSender(Worker):
    """Sends single records to random partitions; the answer comes later, by a callback."""

    surface = SURFACE

    def __init__(
        self, name: str, context: WorkerContext, seed: int, per_second: float, topics: Sequence[RunTopic], *, padding: int = 0
    ) -> None:
        super().__init__(name, context, seed, per_second)
        self._places = all_locations(topics)
        self._padding = b"x" * padding
        self._producer: Producer | None = None

    def begin(self) -> None:
        self._producer = Producer(
            {
                **COMMON,
                "bootstrap.servers": self.context.kafka,
                "enable.idempotence": True,
                "linger.ms": 2,
                "request.timeout.ms": 5_000,
                "message.timeout.ms": int(DELIVERY_SECONDS * 1000),
                "retry.backoff.ms": 50,
            }
        )

    def step(self) -> None:
        assert self._producer is not None
        for _ in range(self.choice.randint(1, 4)):
            location, value = self.choice.choice(self._places), self.new_value()
            call = self.context.recorder.invoke(self.name, SURFACE, SendCall(((location, value),)))
            try:
                headers: list[tuple[str, str | bytes | None]] = [("padding", self._padding)] if self._padding else []
                self._producer.produce(
                    location.topic, value, partition=location.partition, headers=headers, on_delivery=self._delivered(call)
                )
            except (BufferError, KafkaException) as error:
                # Nothing was queued, so nothing can be stored.
                self.context.recorder.complete(call, CallOutcome.FAILED, error=str(error))
                self._renew_if_fatal(error)
        self._producer.poll(0)

    def end(self) -> None:
        assert self._producer is not None
        self._producer.flush(DELIVERY_SECONDS + 5)

    def _delivered(self, call: int) -> Any:
        def record(error: KafkaError | None, message: Message) -> None:
            if error is None:
                location = RecordLocation(message.topic() or "", message.partition() or 0, message.offset() or 0)
                self.context.recorder.complete(call, CallOutcome.OK, CallAnswer(locations=(location,)))
            else:
                self.context.recorder.complete(call, outcome_of(error), error=error.name())

        return record

    def _renew_if_fatal(self, error: Exception) -> None:
        if isinstance(error, KafkaException) and error.args[0].fatal():
            self.end()
            self.begin()


class LibrdkafkaReader(Worker):
    """Reads assigned partitions from some offset on, and now and then assigns others."""

    surface = SURFACE

    def __init__(
        self,
        name: str,
        context: WorkerContext,
        seed: int,
        per_second: float,
        topics: Sequence[RunTopic],
        *,
        committed: bool = True,
        reassign: float = 1 / 64,
        slow: bool = False,
    ) -> None:
        super().__init__(name, context, seed, per_second)
        self._places = all_locations(topics)
        self._committed = committed
        self._reassign = reassign
        self._slow = slow
        self._sessions = 0
        self._at: dict[tuple[str, int], int] = {}
        """For each partition of this session, the next offset; -1 for the start, wherever that is."""
        self._known: dict[tuple[str, int], int] = {}
        self._begins: tuple[RecordLocation, ...] = ()
        self._consumer: Consumer | None = None

    def begin(self) -> None:
        self._consumer = open_consumer(self.context.kafka, self.name, committed=self._committed, slow=self._slow)
        self._assign(self._places, from_start=True)

    def step(self) -> None:
        assert self._consumer is not None
        if self.choice.random() < self._reassign:
            count = self.choice.randint(1, len(self._places))
            self._assign(self.choice.sample(self._places, count), from_start=self.choice.random() < 0.3)
        began = self.context.recorder.now()
        messages = self._consumer.consume(5 if self._slow else 100, 0.1)
        seen, lost = split_messages(messages)
        self._at.update(following(seen))
        lost = [location._replace(offset=self._at[location.topic, location.partition]) for location in lost]
        if seen or lost:
            what = PollCall(f"{self.name}/{self._sessions}", committed=self._committed, begins=self._begins)
            answer = CallAnswer(seen=tuple(seen), out_of_range=tuple(lost))
            self.context.recorder.observe(began, self.name, SURFACE, what, answer)
            self._begins = ()
        if lost:
            self._assign(self._places, from_start=True)

    def end(self) -> None:
        assert self._consumer is not None
        self._consumer.close()

    def _assign(self, locations: Sequence[RecordLocation], *, from_start: bool) -> None:
        assert self._consumer is not None
        self._sessions += 1
        self._known |= self._at
        self._at = {(location.topic, location.partition): -1 for location in locations}
        if not from_start:
            for partition in self._at:
                known = self._known.get(partition, 0)
                self._at[partition] = self.choice.randint(max(0, known - 50), max(0, known))
        self._begins = tuple(RecordLocation(*partition, offset) for partition, offset in self._at.items() if offset >= 0)
        wanted = [
            TopicPartition(*partition, offset if offset >= 0 else OFFSET_BEGINNING) for partition, offset in self._at.items()
        ]
        self._consumer.assign(wanted)


def open_consumer(bootstrap: str, group: str, *, committed: bool = True, slow: bool = False, **settings: Any) -> Consumer:
    """Open a consumer. A `slow` one buffers little, so that what it has not read is still on the server."""
    few = {"queued.min.messages": 1, "queued.max.messages.kbytes": 8, "fetch.message.max.bytes": 4096} if slow else {}
    return Consumer(
        {
            **COMMON,
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "auto.offset.reset": "error",
            "isolation.level": "read_committed" if committed else "read_uncommitted",
            "fetch.wait.max.ms": 200,
            "fetch.error.backoff.ms": 50,
            **few,
            **settings,
        }
    )


def split_messages(messages: Sequence[Message]) -> tuple[list[SeenRecord], list[RecordLocation]]:
    """Split messages into records, and the partitions whose next offset is below their start."""
    seen, lost = [], []
    for message in messages:
        error = message.error()
        if error is None:
            location = RecordLocation(message.topic() or "", message.partition() or 0, message.offset() or 0)
            key = message.key()
            seen.append(SeenRecord(location, text(message.value()), key=None if key is None else text(key)))
        elif error.code() == KafkaError._AUTO_OFFSET_RESET:
            lost.append(RecordLocation(message.topic() or "", message.partition() or 0, -1))
    return seen, lost


def outcome_of(error: KafkaError) -> CallOutcome:
    """Return `FAILED` only if it is certain that nothing was stored."""
    return CallOutcome.FAILED if error.code() in _NOT_SENT or error.code() in _REFUSED else CallOutcome.UNKNOWN


def read_to_end(consumer: Consumer, ends: dict[tuple[str, int], int], seconds: float) -> list[SeenRecord]:
    """Return all records of these partitions from their start up to the given ends, or until the time is up."""
    consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for topic, partition in ends])
    left = {location for location, end in ends.items() if end}
    found: list[SeenRecord] = []
    deadline = time.monotonic() + seconds
    while left and time.monotonic() < deadline:
        seen, _ = split_messages(consumer.consume(1000, 0.2))
        found += seen
        for position in consumer.position([TopicPartition(*location) for location in left]):
            if position.offset >= ends[position.topic, position.partition]:
                left.discard((position.topic, position.partition))
    return found
