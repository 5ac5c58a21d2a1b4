"""A client of NATS or of Tailrace in a process of its own, for the tasks of `bench.kafka.tasks`.

As a program it gets the kind of client and where the server is. Records are made before the clock starts; what is read is
checked when it has stopped.
"""

import asyncio
import gc
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, Protocol

import msgspec
import uvloop

from bench.answers import Failed, say
from bench.kafka.numbered import BadDelivery, Lane, Ledger, Numbering
from bench.kafka.tasks import (
    Answer,
    AnyTask,
    Consume,
    ConsumeSteadily,
    CreateTopic,
    Delays,
    Done,
    Load,
    Produce,
    ProduceOneByOne,
    ProduceSteadily,
    Span,
    Task,
)
from bench.nats.nats_speaker import NatsSpeaker
from bench.nats.sdk_speaker import SdkSpeaker
from bench.worker_process import WorkerProcess

Kind = Literal["nats-py", "sdk"]

_TASK_SECONDS = 120.0


class Speaker(Protocol):
    """What a client library is asked for. It raises whatever goes wrong."""

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def create(self, topic: str) -> None: ...

    async def publish_all(self, topic: str, values: Sequence[bytes]) -> None:
        """As fast as it goes, in order, until the last is acknowledged."""

    async def publish_one(self, topic: str, value: bytes) -> None:
        """Until it is acknowledged."""

    async def publish_at(self, topic: str, value: bytes, sent: float) -> None:
        """Without waiting for the acknowledgement; the time travels with it."""

    async def flush(self) -> None:
        """Until all is acknowledged."""

    async def read(self, topic: str, count: int, on_ready: Callable[[], None], *, is_live: bool) -> Sequence["Read"]:
        """From the start until there are so many. `is_live`: as they come, else as fast as it goes."""

    async def count(self, topic: str) -> int:
        """How many the server has."""


Read = tuple[bytes, float, float]
"""A value, when it came, and when it said that it was sent (0 if it said nothing)."""

_SPEAKERS: Mapping[Kind, Callable[[str], Speaker]] = {"nats-py": NatsSpeaker, "sdk": SdkSpeaker}


class SpeakerProcess(WorkerProcess[Task, Answer]):
    """This module as a child."""

    def __init__(self, kind: Kind, url: str) -> None:
        super().__init__(kind, "bench.nats.client", kind, url, answers=Answer)


class _Client:
    def __init__(self, speaker: Speaker) -> None:
        self._speaker = speaker

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
        ledger = Ledger(Numbering(load.record_bytes))
        for value, _, _ in found:
            ledger.tick(0, value)
        ledger.close({Lane(0, 0): load.records})
        # What came twice at the very end would not have been read.
        stored = await self._speaker.count(load.topic)
        if stored != load.records:
            raise BadDelivery(f"{load.topic!r} holds {stored} records, and {load.records} were sent")


def _values(load: Load) -> list[bytes]:
    numbering = Numbering(load.record_bytes)
    return [numbering.record(0, number) for number in range(load.records)]


async def _serve(kind: Kind, url: str) -> None:
    speaker = _SPEAKERS[kind](url)
    await speaker.open()
    client = _Client(speaker)
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
    gc.disable()  # it would look at every record that is kept for the checking
    uvloop.run(_serve(sys.argv[1], sys.argv[2]))  # type: ignore[arg-type]
