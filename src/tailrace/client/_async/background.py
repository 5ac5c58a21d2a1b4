"""What a consumer does beside its polls: heartbeats, commits by interval, and commits that nobody waits for.

Heartbeats and commits run apart, so a commit that hangs does not cost the membership. An error is kept until the consumer is
told: by its next poll, commit or close.
"""

import logging
import time
from collections.abc import Callable

from tailrace.client._async.concurrency import AsyncSignal, AsyncWorker
from tailrace.client._async.offsets import AsyncGroupOffsets
from tailrace.client.config import ConsumerConfig
from tailrace.client.retry import is_transient
from tailrace.model.backoff import Backoff
from tailrace.model.errors import TailraceError

_log = logging.getLogger("tailrace.client")


class AsyncAutoCommit:
    def __init__(self, offsets: AsyncGroupOffsets, config: ConsumerConfig) -> None:
        self._offsets = offsets
        self._config = config
        self._pulse = AsyncHeartbeat(offsets, config, self._keep)
        self._committer = AsyncWorker(self._commit_on, f"tailrace commits {config.group_id}")
        self._wake = AsyncSignal()
        self._ending = AsyncSignal()
        self._is_ending = False
        self._commit_is_wanted = False
        self._failure: Exception | None = None

    def start(self) -> None:
        self._pulse.start()
        self._committer.start()

    def polled(self) -> None:
        """The consumer is not stuck."""
        self._pulse.polled()

    def ask_for_commit(self) -> None:
        self._commit_is_wanted = True
        self._wake.set()

    @property
    def owes_commit(self) -> bool:
        """A commit was asked for and is not made yet."""
        return self._commit_is_wanted

    def raise_failure(self) -> None:
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    async def wait(self, seconds: float) -> None:
        """Let time pass, but not beyond the end."""
        await self._ending.wait(seconds)

    async def end_commits(self) -> None:
        """No more commits from here. Heartbeats go on: the last commit is made by a member."""
        self._is_ending = True
        self._ending.set()
        self._wake.set()
        await self._committer.join()

    async def close(self) -> None:
        await self.end_commits()
        await self._pulse.close()

    def _keep(self, error: Exception) -> None:
        self._failure = error

    async def _commit_on(self) -> None:
        interval = self._config.auto_commit_interval.total_seconds()
        while not self._is_ending:
            is_due = not await self._wake.wait(interval if self._config.enable_auto_commit or self._commit_is_wanted else None)
            self._wake.clear()
            wanted, self._commit_is_wanted = self._commit_is_wanted, False
            if wanted or is_due:
                await self._commit(wanted)

    async def _commit(self, wanted: bool) -> None:
        try:
            # Not for longer: the next one says what this one says, and more.
            await self._offsets.commit(self._config.auto_commit_interval.total_seconds())
        except TailraceError as error:
            # What is committed by interval is committed with the next interval, or after the next join.
            if is_transient(error) or (self._offsets.needs_join and not wanted):
                self._commit_is_wanted = wanted or self._commit_is_wanted
                _log.warning("a commit of group %s was not taken and will be tried again: %s", self._config.group_id, error)
            else:
                self._keep(error)
        except Exception as error:  # noqa: BLE001  the top of the worker: the consumer is told at its next poll
            self._keep(error)


class AsyncHeartbeat:
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
