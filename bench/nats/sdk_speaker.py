"""Tailrace through its own client for Python, over HTTP. A topic has one partition."""

import time
from collections.abc import Callable, Sequence
from datetime import timedelta

import httpx

from tailrace.client import AsyncClient, AsyncPublisher

_SILENCE_SECONDS = 20.0
_AT_ONCE = 10_000


class SdkSpeaker:
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
        """The library lets 20,000 wait, and sends up to 2,000 a request."""
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
        """By polls, without commits."""
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
