# Generated from _async/pulse.py by tools/generate_sync.py; change that file, then run it.

"""Heartbeats of a consumer, beside everything else that it does: nothing that takes long holds them up.

A heartbeat has half of what is left of the session to be answered in, so that one that hangs leaves time for another.
"""

import logging
import time
from collections.abc import Callable

from tailrace.client._sync.concurrency import Signal, Worker
from tailrace.client._sync.offsets import GroupOffsets
from tailrace.client.backoff import Backoff
from tailrace.client.config import ConsumerConfig

_log = logging.getLogger("tailrace.client")


class Pulse:
    """`tell` gets every error that does not go away by itself."""

    def __init__(self, offsets: GroupOffsets, config: ConsumerConfig, tell: Callable[[Exception], None]) -> None:
        self._offsets = offsets
        self._config = config
        self._tell = tell
        self._interval = config.heartbeat_interval.total_seconds()
        self._patience = (config.session_timeout.total_seconds() - self._interval) / 2
        self._worker = Worker(self._work, f"tailrace heartbeats {config.group_id}")
        self._ending = Signal()
        self._polled_at = time.monotonic()

    def start(self) -> None:
        self._worker.start()

    def polled(self) -> None:
        """The consumer is not stuck."""
        self._polled_at = time.monotonic()

    def close(self) -> None:
        self._ending.set()
        self._worker.join()

    def _work(self) -> None:
        pauses = Backoff(self._config.retry_backoff.total_seconds(), self._config.retry_backoff_max.total_seconds())
        seconds = self._interval
        while not self._ending.wait(seconds):
            if self._beat():
                pauses.reset()
                seconds = self._interval
            else:
                seconds = min(self._interval, pauses.next_pause())

    def _beat(self) -> bool:
        """False if it was not answered."""
        if time.monotonic() - self._polled_at > self._config.max_poll_interval.total_seconds():
            _log.warning(
                "a consumer of group %s has not polled for longer than max_poll_interval (%s); it gives up its partitions",
                self._config.group_id,
                self._config.max_poll_interval,
            )
            return True
        try:
            return self._offsets.heartbeat(self._patience)
        except Exception as error:  # noqa: BLE001  the top of the worker: the consumer is told at its next poll
            self._tell(error)
            return True
