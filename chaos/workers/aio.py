"""Workers on aiokafka, a client in Python, each with its own event loop in its thread."""

import asyncio
from abc import abstractmethod
from collections.abc import Sequence

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import KafkaError, OffsetOutOfRangeError

from chaos.history import CallAnswer, CallOutcome, PollCall, RecordLocation, SeenRecord, SendCall
from chaos.workers.worker import RunTopic, Worker, WorkerContext, all_locations, text

SURFACE = "kafka-aiokafka"
START_SECONDS = 20.0
ANSWER_SECONDS = 30.0


class AioWorker(Worker):
    surface = SURFACE

    def __init__(self, name: str, context: WorkerContext, seed: int, per_second: float, topics: Sequence[RunTopic]) -> None:
        super().__init__(name, context, seed, per_second)
        self.locations = all_locations(topics)
        self._loop = asyncio.new_event_loop()

    def step(self) -> None:
        self._loop.run_until_complete(self._step())

    def end(self) -> None:
        self._loop.run_until_complete(self._close())
        self._loop.close()

    @abstractmethod
    async def _step(self) -> None: ...

    @abstractmethod
    async def _close(self) -> None: ...


class AioSender(AioWorker):
    """Sends one record after the other, with idempotence."""

    _producer: AIOKafkaProducer | None = None

    async def _step(self) -> None:
        if self._producer is None and not await self._open():
            self.pause(0.3)
            return
        assert self._producer is not None
        location, value = self.choice.choice(self.locations), self.new_value()
        call = self.context.recorder.invoke(self.name, SURFACE, SendCall(((location, value),)))
        try:
            sent = self._producer.send_and_wait(location.topic, value.encode(), partition=location.partition)
            stored = await asyncio.wait_for(sent, ANSWER_SECONDS)
        except (KafkaError, TimeoutError) as error:
            self.context.recorder.complete(call, CallOutcome.UNKNOWN, error=type(error).__name__)
            await self._close()
            return
        self.context.recorder.complete(
            call, CallOutcome.OK, CallAnswer(locations=(RecordLocation(stored.topic, stored.partition, stored.offset),))
        )

    async def _open(self) -> bool:
        producer = AIOKafkaProducer(
            bootstrap_servers=self.context.kafka,
            enable_idempotence=True,
            request_timeout_ms=5_000,
            retry_backoff_ms=50,
            metadata_max_age_ms=5_000,
        )
        try:
            await asyncio.wait_for(producer.start(), START_SECONDS)
        except (KafkaError, TimeoutError):
            await _stop(producer)
            return False
        self._producer = producer
        return True

    async def _close(self) -> None:
        if self._producer is not None:
            await _stop(self._producer)
            self._producer = None


class AioReader(AioWorker):
    """Reads all partitions from the start on; after an error it opens a new session."""

    _consumer: AIOKafkaConsumer | None = None
    _sessions = 0

    async def _step(self) -> None:
        if self._consumer is None and not await self._open():
            self.pause(0.3)
            return
        assert self._consumer is not None
        began = self.context.recorder.now()
        try:
            batches = await self._consumer.getmany(timeout_ms=100, max_records=200)
        except OffsetOutOfRangeError as error:
            lost = tuple(RecordLocation(each.topic, each.partition, offset) for each, offset in error.args[0].items())
            what = PollCall(f"{self.name}/{self._sessions}", committed=True)
            self.context.recorder.observe(began, self.name, SURFACE, what, CallAnswer(out_of_range=lost))
            await self._close()
            return
        except KafkaError:
            await self._close()
            return
        seen = tuple(
            SeenRecord(
                RecordLocation(each.topic, each.partition, each.offset),
                text(each.value),
                key=None if each.key is None else text(each.key),
            )
            for batch in batches.values()
            for each in batch
        )
        if seen:
            what = PollCall(f"{self.name}/{self._sessions}", committed=True)
            self.context.recorder.observe(began, self.name, SURFACE, what, CallAnswer(seen=seen))

    async def _open(self) -> bool:
        consumer = AIOKafkaConsumer(
            bootstrap_servers=self.context.kafka,
            isolation_level="read_committed",
            auto_offset_reset="none",
            enable_auto_commit=False,
            fetch_max_wait_ms=200,
            request_timeout_ms=5_000,
            retry_backoff_ms=50,
        )
        try:
            await asyncio.wait_for(consumer.start(), START_SECONDS)
            consumer.assign([TopicPartition(location.topic, location.partition) for location in self.locations])
            await asyncio.wait_for(consumer.seek_to_beginning(), START_SECONDS)
        except (KafkaError, TimeoutError):
            await _stop(consumer)
            return False
        self._sessions += 1
        self._consumer = consumer
        return True

    async def _close(self) -> None:
        if self._consumer is not None:
            await _stop(self._consumer)
            self._consumer = None


async def _stop(client: AIOKafkaProducer | AIOKafkaConsumer) -> None:
    try:
        await asyncio.wait_for(client.stop(), START_SECONDS)
    except (KafkaError, TimeoutError, OSError):
        return
