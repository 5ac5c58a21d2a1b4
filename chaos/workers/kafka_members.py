"""Members of a consumer group on librdkafka, which subscribes and assigns by itself."""

from collections.abc import Sequence
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition

from chaos.history import CallAnswer, CallOutcome, CommitCall, OwnedCall, PollCall, RecordLocation
from chaos.workers.librdkafka import SURFACE, open_consumer, split_messages
from chaos.workers.worker import RunTopic, Worker, WorkerContext

SESSION_MS = 4_000
ASKS_AGAIN_SECONDS = 0.05
"""A commit whose answer is lost is sent again, on a connection that takes longer than this. The answer to the second try says
nothing about the first."""
_METADATA_HEAD = b"CGMDv2:"


class KafkaMember(Worker):
    """Subscribes, reads, commits what it has read, and now and then leaves and comes back."""

    surface = SURFACE

    def __init__(
        self,
        name: str,
        context: WorkerContext,
        seed: int,
        per_second: float,
        topics: Sequence[RunTopic],
        group: str,
        assignor: str,
    ) -> None:
        super().__init__(name, context, seed, per_second)
        self._topics = [topic.name for topic in topics]
        self._group = group
        self._assignor = assignor
        self._lives = 0
        self._read: dict[tuple[str, int], int] = {}
        self._owned: set[tuple[str, int]] = set()
        self._consumer: Consumer | None = None

    def begin(self) -> None:
        self._lives += 1
        self._read = {}
        self._owned = set()
        settings: dict[str, Any] = {
            "session.timeout.ms": SESSION_MS,
            "heartbeat.interval.ms": 500,
            "auto.offset.reset": "earliest",
            "partition.assignment.strategy": self._assignor,
        }
        self._consumer = open_consumer(self.context.kafka, self._group, **settings)
        self._consumer.subscribe(self._topics, on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._revoked)

    def step(self) -> None:
        assert self._consumer is not None
        began = self.context.recorder.now()
        seen, _ = split_messages(self._consumer.consume(50, 0.2))
        if seen:
            what = PollCall(f"{self.name}/{self._lives}", subscribed=True, committed=True)
            self.context.recorder.observe(began, self.name, SURFACE, what, CallAnswer(seen=tuple(seen)))
            self._read.update(((each.location.topic, each.location.partition), each.location.offset + 1) for each in seen)
        if self._read and self.choice.random() < 0.3:
            self._commit()
        if self.choice.random() < 1 / 150:
            self.end()
            self.begin()

    def end(self) -> None:
        assert self._consumer is not None
        self._consumer.close()

    def _commit(self) -> None:
        assert self._consumer is not None
        offsets = tuple(RecordLocation(*partition, offset) for partition, offset in self._read.items())
        what = CommitCall(self._group, offsets, generation_of(self._consumer))
        call = self.context.recorder.invoke(self.name, SURFACE, what)
        self._read = {}
        began = self.context.recorder.now()
        try:
            committed = self._consumer.commit(offsets=[TopicPartition(*location) for location in offsets], asynchronous=False)
        except KafkaException as error:
            # Only errors of the coordinator itself mean that the commit was refused; anything else may have succeeded.
            kafka_error = error.args[0]
            is_first_try = self.context.recorder.now() - began < ASKS_AGAIN_SECONDS
            refused = is_first_try and kafka_error.code() > 0 and not kafka_error.retriable()
            self.context.recorder.complete(
                call, CallOutcome.FAILED if refused else CallOutcome.UNKNOWN, error=kafka_error.name()
            )
            return
        refusals = [each.error for each in committed or () if each.error is not None]
        self.context.recorder.complete(
            call, CallOutcome.UNKNOWN if refusals else CallOutcome.OK, error=str(refusals[0]) if refusals else ""
        )

    def _assigned(self, consumer: Consumer, partitions: Sequence[TopicPartition]) -> None:
        self._read = {}
        new = {(each.topic, each.partition) for each in partitions}
        self._owned = self._owned | new if self._assignor == "cooperative-sticky" else new
        locations = tuple(RecordLocation(*partition, -1) for partition in sorted(self._owned))
        what = OwnedCall(self._group, f"{self.name}/{self._lives}", generation_of(consumer))
        self.context.recorder.observe(self.context.recorder.now(), self.name, SURFACE, what, CallAnswer(locations=locations))

    def _revoked(self, consumer: Consumer, partitions: Sequence[TopicPartition]) -> None:
        self._read = {}
        self._owned -= {(each.topic, each.partition) for each in partitions}
        what = OwnedCall(self._group, f"{self.name}/{self._lives}", generation_of(consumer))
        self.context.recorder.observe(self.context.recorder.now(), self.name, SURFACE, what, CallAnswer())


def generation_of(consumer: Consumer) -> int:
    """Return the generation from librdkafka's group metadata, or -1 if it is not there."""
    data = bytes(consumer.consumer_group_metadata() or b"")
    if not data.startswith(_METADATA_HEAD):
        return -1
    return int.from_bytes(data[len(_METADATA_HEAD) : len(_METADATA_HEAD) + 4], "little", signed=True)
