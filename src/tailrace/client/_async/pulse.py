"""Heartbeats of a consumer, beside everything else that it does: nothing that takes long holds them up.

A heartbeat has half of what is left of the session to be answered in, so that one that hangs leaves time for another.
"""

import logging
import time
from collections.abc import Callable

from tailrace.client._async.concurrency import AsyncSignal, AsyncWorker
from tailrace.client._async.offsets import AsyncGroupOffsets
from tailrace.client.backoff import Backoff
from tailrace.client.config import ConsumerConfig

_log = logging.getLogger("tailrace.client")


class AsyncPulse:
    """`tell` gets every error that does not go away by itself."""

    def __init__(self, offsets: AsyncGroupOffsets, config: ConsumerConfig, tell: Callable[[Exception], None]) -> None:
        self._offsets = offsets
        self._config = config
        self._tell = tell
        self._interval = config.heartbeat_interval.total_seconds()
        self._patience = (config.session_timeout.total_seconds() - self._interval) / 2
        self._worker = AsyncWorker(self._work, f"tailrace heartbeats {config.group_id}")
        self._ending = AsyncSignal()
        self._polled_at = time.monotonic()

    def start(self) -> None:
        self._worker.start()

    def polled(self) -> None:
        """The consumer is not stuck."""
        self._polled_at = time.monotonic()

    async def close(self) -> None:
        self._ending.set()
        await self._worker.join()

    async def _work(self) -> None:
        pauses = Backoff(self._config.retry_backoff.total_seconds(), self._config.retry_backoff_max.total_seconds())
        seconds = self._interval
        while not await self._ending.wait(seconds):
            if await self._beat():
                pauses.reset()
                seconds = self._interval
            else:
                seconds = min(self._interval, pauses.next_pause())

    async def _beat(self) -> bool:
        """False if it was not answered."""
        if time.monotonic() - self._polled_at > self._config.max_poll_interval.total_seconds():
            _log.warning(
                "a consumer of group %s has not polled for longer than max_poll_interval (%s); it gives up its partitions",
                self._config.group_id,
                self._config.max_poll_interval,
            )
            return True
        try:
            return await self._offsets.heartbeat(self._patience)
        except Exception as error:  # noqa: BLE001  the top of the worker: the consumer is told at its next poll
            self._tell(error)
            return True
