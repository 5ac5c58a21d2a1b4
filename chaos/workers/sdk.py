"""Workers on the Python SDK: a publisher that retries by itself, and a consumer of one partition."""

from collections.abc import Sequence
from contextlib import suppress

from chaos.history import CallAnswer, CallOutcome, PollCall, RecordLocation, SeenRecord, SendCall
from chaos.workers.worker import RunTopic, Worker, WorkerContext, all_locations, text
from tailrace.client import Client, OffsetOutOfRangeError, OutgoingMessage, Publisher, TailraceError, TopicConsumer

SURFACE = "sdk"
API_MS = 20_000


class SdkPublisher(Worker):
    """Publishes a few records at once, by keys: the SDK and the server choose the partitions."""

    surface = SURFACE

    def __init__(self, name: str, context: WorkerContext, seed: int, per_second: float, topics: Sequence[RunTopic]) -> None:
        super().__init__(name, context, seed, per_second)
        self._topics = topics
        self._client = Client(context.url)
        self._publisher: Publisher | None = None

    def step(self) -> None:
        if self._publisher is None:
            self._publisher = self._client.publisher(api_timeout=API_MS, request_timeout=5_000)
        topics = [self.choice.choice(self._topics).name for _ in range(self.choice.randint(1, 3))]
        # The partition of a record is known when it is stored; it is -1 until then.
        records = tuple((RecordLocation(topic, -1, -1), self.new_value()) for topic in topics)
        messages = [OutgoingMessage(location.topic, value, key=f"k{self.choice.randrange(20)}") for location, value in records]
        call = self.context.recorder.invoke(self.name, SURFACE, SendCall(records, atomic=True))
        try:
            results = self._publisher.publish_batch(messages)
        except TailraceError as error:
            self.context.recorder.complete(call, CallOutcome(error.outcome), error=f"{type(error).__name__}: {error}")
            self._renew()
            return
        locations = tuple(
            RecordLocation(location.topic, each.partition_id, each.offset)
            for (location, _), each in zip(records, results, strict=True)
        )
        self.context.recorder.complete(call, CallOutcome.OK, CallAnswer(locations=locations))

    def end(self) -> None:
        self._renew()
        self._client.close()

    def _renew(self) -> None:
        """Replace a publisher after a publish of unknown outcome, which the next one might overtake."""
        if self._publisher is not None:
            with suppress(TailraceError):
                self._publisher.close()
            self._publisher = None


class SdkReader(Worker):
    """Reads one partition for a group of its own, without committing, and another one after a while."""

    surface = SURFACE

    def __init__(self, name: str, context: WorkerContext, seed: int, per_second: float, topics: Sequence[RunTopic]) -> None:
        super().__init__(name, context, seed, per_second)
        self._places = all_locations(topics)
        self._client = Client(context.url)
        self._consumer: TopicConsumer | None = None
        self._sessions = 0
        self._topic = ""

    def step(self) -> None:
        if self._consumer is None or self.choice.random() < 1 / 50:
            self._start_over()
        assert self._consumer is not None
        call = self.context.recorder.invoke(self.name, SURFACE, PollCall(f"{self.name}/{self._sessions}", committed=True))
        try:
            records = self._consumer.poll(timeout=0.1)
        except OffsetOutOfRangeError as error:
            self.context.recorder.complete(call, CallOutcome.FAILED, error=str(error))
            self._consumer.seek(error.start)
            self._sessions += 1
            return
        except TailraceError as error:
            self.context.recorder.complete(call, CallOutcome(error.outcome), error=f"{type(error).__name__}: {error}")
            return
        seen = tuple(
            SeenRecord(
                RecordLocation(each.topic_name, each.partition_id, each.offset),
                text(each.payload),
                each.cursor,
                text(each.key) if each.key else None,
            )
            for each in records
        )
        self.context.recorder.complete(call, CallOutcome.OK, CallAnswer(seen=seen))

    def end(self) -> None:
        self._close()
        self._client.close()

    def _start_over(self) -> None:
        self._close()
        self._sessions += 1
        location = self.choice.choice(self._places)
        self._consumer = self._client.consumer(
            topic=location.topic,
            group_id=f"{self.name}-{self._sessions}",
            partition_id=location.partition,
            enable_auto_commit=False,
            api_timeout=API_MS,
            request_timeout=5_000,
        )

    def _close(self) -> None:
        if self._consumer is not None:
            with suppress(TailraceError):
                self._consumer.close()
            self._consumer = None
