"""A process with a client of NATS (nats-py) or of Tailrace (its SDK), for the tasks of `bench.kafka.tasks`.

A topic is a NATS stream in files with one subject of the same name, or a topic of Tailrace with one partition.
"""

import asyncio
import gc
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Literal, Protocol

import httpx
import msgspec
import nats
import uvloop
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js import JetStreamContext
from nats.js.api import PubAck, StorageType

from bench.kafka.tasks import (
    Answer,
    AnyTask,
    BadDelivery,
    Consume,
    ConsumeSteadily,
    CreateTopic,
    Delays,
    DeliveryCheck,
    Done,
    Lane,
    Load,
    Numbering,
    Produce,
    ProduceOneByOne,
    ProduceSteadily,
    Span,
    Task,
)
from bench.worker_process import Failed, WorkerProcess, say
from tailrace.client import AsyncClient, AsyncPublisher

_SILENCE_SECONDS = 20.0
_SENT = "sent"


class NatsClient:
    def __init__(self, url: str) -> None:
        self._url = url
        self._client: Client
        self._streams: JetStreamContext
        self._waiting: list[asyncio.Future[PubAck]] = []

    async def open(self) -> None:
        self._client = await nats.connect(self._url)
        self._streams = self._client.jetstream(timeout=30)

    async def close(self) -> None:
        await self._client.close()

    async def create(self, topic: str) -> None:
        await self._streams.add_stream(name=topic, subjects=[topic], storage=StorageType.FILE)

    async def publish_all(self, topic: str, values: Sequence[bytes]) -> None:
        """The library allows 4,000 pending acks."""
        publish = self._streams.publish_async
        self._waiting += [await publish(topic, value) for value in values]
        await self.flush()

    async def publish_one(self, topic: str, value: bytes) -> None:
        await self._streams.publish(topic, value)

    async def publish_at(self, topic: str, value: bytes, sent: float) -> None:
        self._waiting.append(await self._streams.publish_async(topic, value, headers={_SENT: str(sent)}))

    async def flush(self) -> None:
        """Wait for all acks. Raises if a message was refused."""
        waiting, self._waiting = self._waiting, []
        await asyncio.gather(*waiting)

    async def read(
        self, topic: str, count: int, on_ready: Callable[[], None], *, is_live: bool
    ) -> list[tuple[bytes, float, float]]:
        """Read messages that the server pushes in order, without acks."""
        found: list[tuple[bytes, float, float]] = []
        done = asyncio.Event()

        async def came(message: Msg) -> None:
            sent = float(message.headers[_SENT]) if message.headers and _SENT in message.headers else 0.0
            found.append((message.data, time.perf_counter(), sent))
            if len(found) >= count:
                done.set()

        if not is_live:
            on_ready()
        subscription = await self._streams.subscribe(topic, cb=came, ordered_consumer=True)
        if is_live:
            on_ready()
        while not done.is_set():
            before = len(found)
            try:
                await asyncio.wait_for(done.wait(), _SILENCE_SECONDS)
            except TimeoutError:
                if len(found) == before:
                    break
        await subscription.unsubscribe()
        return found

    async def count(self, topic: str) -> int:
        return (await self._streams.stream_info(topic)).state.messages


_AT_ONCE = 10_000


class SdkClient:
    def __init__(self, url: str) -> None:
        self._url = url
        self._client = AsyncClient(url)
        self._publisher: AsyncPublisher

    async def open(self) -> None:
        self._publisher = self._client.publisher()

    async def close(self) -> None:
        await self._client.close()

    async def create(self, topic: str) -> None:
        await self._ask("POST", "/api/topics", {"name": topic, "partitions": 1})

    async def publish_all(self, topic: str, values: Sequence[bytes]) -> None:
        """The library buffers 20,000 messages and sends up to 2,000 in one request."""
        send = self._publisher.send
        for value in values:
            await send(topic, value)
        await self._publisher.flush()

    async def publish_one(self, topic: str, value: bytes) -> None:
        await self._publisher.publish(topic, value)

    async def publish_at(self, topic: str, value: bytes, sent: float) -> None:
        await self._publisher.send(topic, value, key=str(sent))

    async def flush(self) -> None:
        await self._publisher.flush()

    async def read(
        self, topic: str, count: int, on_ready: Callable[[], None], *, is_live: bool
    ) -> list[tuple[bytes, float, float]]:
        """Read messages by polls, without commits."""
        found: list[tuple[bytes, float, float]] = []
        if not is_live:
            on_ready()
        async with self._client.consumer(
            topic=topic, group_id="bench", partition_id=0, enable_auto_commit=False, max_poll_records=_AT_ONCE
        ) as consumer:
            if is_live:
                await consumer.poll(timedelta(milliseconds=50))
                on_ready()
            heard = time.perf_counter()
            while len(found) < count and time.perf_counter() - heard < _SILENCE_SECONDS:
                records = await consumer.poll()
                if records:
                    heard = time.perf_counter()
                    found += [(record.payload or b"", heard, float(record.key or 0) if is_live else 0.0) for record in records]
        return found

    async def count(self, topic: str) -> int:
        found = await self._ask("POST", "/api/batches/offsets", {"topics": [topic]})
        return sum(sum(each["partitions"]) for each in found["topics"])

    async def _ask(self, method: str, path: str, question: object) -> dict:  # type: ignore[type-arg]
        async with httpx.AsyncClient(base_url=self._url, timeout=30) as client:
            answer = await client.request(method, path, json=question)
            answer.raise_for_status()
            said: dict = answer.json()  # type: ignore[type-arg]
            return said


Kind = Literal["nats-py", "sdk"]

_TASK_SECONDS = 120.0


class MessagingClient(Protocol):
    """The work that a client library does. Raises whatever fails."""

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def create(self, topic: str) -> None: ...

    async def publish_all(self, topic: str, values: Sequence[bytes]) -> None:
        """Publish as fast as possible, in order, until the last ack."""

    async def publish_one(self, topic: str, value: bytes) -> None:
        """Publish one message and wait for its ack."""

    async def publish_at(self, topic: str, value: bytes, sent: float) -> None:
        """Publish without waiting for the ack. The message carries the time."""

    async def flush(self) -> None:
        """Wait for all acks."""

    async def read(self, topic: str, count: int, on_ready: Callable[[], None], *, is_live: bool) -> Sequence["Read"]:
        """Read this many messages from the start: as they arrive with `is_live`, otherwise as fast as possible."""

    async def count(self, topic: str) -> int:
        """Return the number of stored messages."""


Read = tuple[bytes, float, float]
"""A value, when it was received, and when it was sent (0 if it does not say)."""

_SPEAKERS: Mapping[Kind, Callable[[str], MessagingClient]] = {"nats-py": NatsClient, "sdk": SdkClient}


class MessagingProcess(WorkerProcess[Task, Answer]):
    """Runs this module as a child process."""

    def __init__(self, kind: Kind, url: str) -> None:
        super().__init__(kind, "bench.nats.client", kind, url, answers=Answer)


class _Client:
    def __init__(self, library: MessagingClient) -> None:
        self._speaker = library

    async def do(self, task: AnyTask) -> Answer:
        load = task.load
        match task:
            case CreateTopic():
                await self._speaker.create(load.topic)
                return Done()
            case Produce():
                values = _values(load)
                began = time.perf_counter()
                await self._speaker.publish_all(load.topic, values)
                return Span(began, time.perf_counter())
            case ProduceOneByOne():
                return await self._one_by_one(load)
            case ProduceSteadily():
                return await self._steadily(load, task.per_second)
            case Consume():
                return await self._consume(load)
            case ConsumeSteadily():
                found = await self._speaker.read(load.topic, load.records, _say_ready, is_live=True)
                await self._check(load, found)
                return Delays([came - sent for _, came, sent in found])
            case _:
                return Failed(f"{type(task).__name__} is not for this client")

    async def _one_by_one(self, load: Load) -> Span:
        values = _values(load)
        await self._speaker.flush()
        began = time.perf_counter()
        for value in values:
            await self._speaker.publish_one(load.topic, value)
        return Span(began, time.perf_counter())

    async def _steadily(self, load: Load, per_second: int) -> Span:
        values = _values(load)
        began = time.perf_counter()
        for number, value in enumerate(values):
            ahead = began + number / per_second - time.perf_counter()
            if ahead > 0:
                await asyncio.sleep(ahead)
            await self._speaker.publish_at(load.topic, value, time.perf_counter())
        await self._speaker.flush()
        return Span(began, time.perf_counter())

    async def _consume(self, load: Load) -> Span:
        began = time.perf_counter()
        found = await self._speaker.read(load.topic, load.records, _say_ready, is_live=False)
        await self._check(load, found)
        return Span(began, max(came for _, came, _ in found))

    async def _check(self, load: Load, found: Sequence[Read]) -> None:
        ledger = DeliveryCheck(Numbering(load.record_bytes))
        for value, _, _ in found:
            ledger.tick(0, value)
        ledger.close({Lane(0, 0): load.records})
        # A duplicate at the very end would not have been read otherwise.
        stored = await self._speaker.count(load.topic)
        if stored != load.records:
            raise BadDelivery(f"{load.topic!r} holds {stored} records, and {load.records} were sent")


def _values(load: Load) -> list[bytes]:
    numbering = Numbering(load.record_bytes)
    return [numbering.record(0, number) for number in range(load.records)]


async def _serve(kind: Kind, url: str) -> None:
    library = _SPEAKERS[kind](url)
    await library.open()
    client = _Client(library)
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.buffer.readline):
        task: AnyTask = msgspec.json.decode(line, type=AnyTask)
        try:
            async with asyncio.timeout(_TASK_SECONDS):
                say(await client.do(task))
        except Exception as error:  # noqa: BLE001  each library has its own errors, and all mean that the run counts for nothing
            say(Failed(f"{type(task).__name__} of {task.load.topic!r}: {type(error).__name__}: {error}"))
        gc.collect()


def _say_ready() -> None:
    say(Done())


if __name__ == "__main__":
    gc.disable()  # the collector would scan every record that is kept for the check
    uvloop.run(_serve(sys.argv[1], sys.argv[2]))  # type: ignore[arg-type]
