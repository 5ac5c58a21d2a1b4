"""Workers on the Python SDK: a publisher that repeats by itself, and a consumer of one partition."""

from collections.abc import Sequence
from contextlib import suppress

from chaos.history import CallAnswer, CallOutcome, PollCall, RecordLocation, SeenRecord, SendCall
from chaos.workers.worker import TopicShape, Worker, WorkerContext, all_places, text
from tailrace.client import Client, OffsetOutOfRangeError, OutgoingMessage, Publisher, TailraceError, TopicConsumer

SURFACE = "sdk"
API_MS = 20_000


class SdkPublisher(Worker):
    """Publishes a few records as one, by keys: the SDK and the server choose the partitions."""

    surface = SURFACE

    def __init__(self, name: str, site: WorkerContext, seed: int, per_second: float, topics: Sequence[TopicShape]) -> None:
        super().__init__(name, site, seed, per_second)
        self._topics = topics
        self._client = Client(site.url)
        self._publisher: Publisher | None = None

    def step(self) -> None:
        if self._publisher is None:
            self._publisher = self._client.publisher(api_timeout=API_MS, request_timeout=5_000)
        topics = [self.choice.choice(self._topics).name for _ in range(self.choice.randint(1, 3))]
        # Where a record goes is known when it is there: -1 for the partition until then.
        records = tuple((RecordLocation(topic, -1, -1), self.new_value()) for topic in topics)
        messages = [OutgoingMessage(place.topic, value, key=f"k{self.choice.randrange(20)}") for place, value in records]
        call = self.site.recorder.invoke(self.name, SURFACE, SendCall(records, atomic=True))
        try:
            results = self._publisher.publish_batch(messages)
        except TailraceError as error:
            self.site.recorder.complete(call, CallOutcome(error.outcome), error=f"{type(error).__name__}: {error}")
            self._renew()
            return
        places = tuple(
            RecordLocation(place.topic, each.partition_id, each.offset)
            for (place, _), each in zip(records, results, strict=True)
        )
        self.site.recorder.complete(call, CallOutcome.OK, CallAnswer(places=places))

    def end(self) -> None:
        self._renew()
        self._client.close()

    def _renew(self) -> None:
        """A publisher whose publish is unknown does not go on: the next one might overtake it."""
        if self._publisher is not None:
            with suppress(TailraceError):
                self._publisher.close()
            self._publisher = None


class SdkReader(Worker):
    """Reads one partition for a group of its own, without committing, and another one after a while."""

    surface = SURFACE

    def __init__(self, name: str, site: WorkerContext, seed: int, per_second: float, topics: Sequence[TopicShape]) -> None:
        super().__init__(name, site, seed, per_second)
        self._places = all_places(topics)
        self._client = Client(site.url)
        self._consumer: TopicConsumer | None = None
        self._sessions = 0
        self._topic = ""

    def step(self) -> None:
        if self._consumer is None or self.choice.random() < 1 / 50:
            self._start_over()
        assert self._consumer is not None
        call = self.site.recorder.invoke(self.name, SURFACE, PollCall(f"{self.name}/{self._sessions}", committed=True))
        try:
            records = self._consumer.poll(timeout=0.1)
        except OffsetOutOfRangeError as error:
            self.site.recorder.complete(call, CallOutcome.FAILED, error=str(error))
            self._consumer.seek(error.start)
            self._sessions += 1
            return
        except TailraceError as error:
            self.site.recorder.complete(call, CallOutcome(error.outcome), error=f"{type(error).__name__}: {error}")
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
        self.site.recorder.complete(call, CallOutcome.OK, CallAnswer(seen=seen))

    def end(self) -> None:
        self._close()
        self._client.close()

    def _start_over(self) -> None:
        self._close()
        self._sessions += 1
        place = self.choice.choice(self._places)
        self._consumer = self._client.consumer(
            topic=place.topic,
            group_id=f"{self.name}-{self._sessions}",
            partition_id=place.partition,
            enable_auto_commit=False,
            api_timeout=API_MS,
            request_timeout=5_000,
        )

    def _close(self) -> None:
        if self._consumer is not None:
            with suppress(TailraceError):
                self._consumer.close()
            self._consumer = None
