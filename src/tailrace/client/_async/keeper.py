"""Keeps records with their consumer for as long as it works on them: asks for more time before theirs is up."""

import logging
import time

from tailrace.client._async.concurrency import AsyncSignal, AsyncWorker
from tailrace.client._async.settler import AsyncSettler
from tailrace.client.config import QueueConfig
from tailrace.client.queue_messages import extend, milliseconds
from tailrace.client.receipts import MOST_AT_ONCE
from tailrace.model.errors import TailraceError

_log = logging.getLogger("tailrace.client")

_TIMES_WITHIN_TIMEOUT = 3
"""How often more time is asked for before it is up, so that one or two lost requests do no harm."""


class AsyncKeeper:
    def __init__(self, settler: AsyncSettler, config: QueueConfig) -> None:
        self._settler = settler
        self._config = config
        self._worker = AsyncWorker(self._work, f"tailrace queue {config.group_id} keeper")
        self._ending = AsyncSignal()
        self._is_ending = False
        self._kept: dict[str, float] = {}
        """By receipt: when it was received."""

    def keep(self, *receipts: str) -> None:
        now = time.monotonic()
        self._kept.update((receipt, now) for receipt in receipts)
        self._worker.start()

    def let_go(self, *receipts: str) -> None:
        for receipt in receipts:
            self._kept.pop(receipt, None)

    async def close(self) -> None:
        self._is_ending = True
        self._ending.set()
        await self._worker.join()

    async def _work(self) -> None:
        interval = self._config.visibility_timeout.total_seconds() / _TIMES_WITHIN_TIMEOUT
        while not self._is_ending:
            if not await self._ending.wait(interval):
                await self._extend()

    async def _extend(self) -> None:
        longest = self._config.max_poll_interval.total_seconds()
        now = time.monotonic()
        kept = list(self._kept.items())
        stuck = [receipt for receipt, since in kept if now - since > longest]
        if stuck:
            _log.warning(
                "a consumer of group %s has %d records for longer than max_poll_interval (%s); others may have them",
                self._config.group_id,
                len(stuck),
                self._config.max_poll_interval,
            )
            self.let_go(*stuck)
        receipts = [receipt for receipt, since in kept if now - since <= longest]
        word = extend(milliseconds(self._config.visibility_timeout.total_seconds()))
        for first in range(0, len(receipts), MOST_AT_ONCE):
            try:
                await self._settler.say(word, receipts[first : first + MOST_AT_ONCE])
            except TailraceError as error:
                # What is late is late: its ack will be refused, and that is told then. Other errors may go away.
                _log.info("some records of group %s could not be kept: %s", self._config.group_id, error)
