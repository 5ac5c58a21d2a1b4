"""NATS through nats-py, its client for Python. A topic is a stream with one subject of the same name, kept in files."""

import asyncio
import time
from collections.abc import Callable, Sequence

import nats
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js import JetStreamContext
from nats.js.api import PubAck, StorageType

_SILENCE_SECONDS = 20.0
_SENT = "sent"


class NatsSpeaker:
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
        """The library lets 4,000 wait for their acknowledgement."""
        publish = self._streams.publish_async
        self._waiting += [await publish(topic, value) for value in values]
        await self.flush()

    async def publish_one(self, topic: str, value: bytes) -> None:
        await self._streams.publish(topic, value)

    async def publish_at(self, topic: str, value: bytes, sent: float) -> None:
        self._waiting.append(await self._streams.publish_async(topic, value, headers={_SENT: str(sent)}))

    async def flush(self) -> None:
        """Raises if one was refused."""
        waiting, self._waiting = self._waiting, []
        await asyncio.gather(*waiting)

    async def read(
        self, topic: str, count: int, on_ready: Callable[[], None], *, is_live: bool
    ) -> list[tuple[bytes, float, float]]:
        """Pushed by the server in order, without acknowledgements."""
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
