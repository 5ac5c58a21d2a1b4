# Generated from _async/attendant.py by tools/generate_sync.py; change that file, then run it.

"""What a consumer does beside its polls: heartbeats, commits by interval, and commits that nobody waits for.

An error is kept until the consumer is told: by its next poll, commit or close.
"""

import logging
import time

from tailrace.client._sync.concurrency import Signal, Worker
from tailrace.client._sync.offsets import GroupOffsets
from tailrace.client.attempts import is_transient
from tailrace.client.config import ConsumerConfig
from tailrace.model.errors import TailraceError

_log = logging.getLogger("tailrace.client")


class Attendant:
    def __init__(self, offsets: GroupOffsets, config: ConsumerConfig) -> None:
        self._offsets = offsets
        self._config = config
        self._worker = Worker(self._work, f"tailrace consumer {config.group_id}")
        self._wake = Signal()
        self._ending = Signal()
        self._is_ending = False
        self._commit_is_wanted = False
        self._failure: Exception | None = None
        self._polled_at = time.monotonic()

    def start(self) -> None:
        self._worker.start()

    def polled(self) -> None:
        """The consumer is not stuck."""
        self._polled_at = time.monotonic()

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

    def wait(self, seconds: float) -> None:
        """Let time pass, but not beyond the end."""
        self._ending.wait(seconds)

    def close(self) -> None:
        self._is_ending = True
        self._ending.set()
        self._wake.set()
        self._worker.join()

    def _work(self) -> None:
        heartbeat_seconds = self._config.heartbeat_interval.total_seconds()
        commit_seconds = self._config.auto_commit_interval.total_seconds()
        now = time.monotonic()
        heartbeat_at = now + heartbeat_seconds
        commit_at = now + commit_seconds
        while not self._is_ending:
            next_at = min(heartbeat_at, commit_at) if self._config.enable_auto_commit else heartbeat_at
            self._wake.wait(max(0.0, next_at - time.monotonic()))
            self._wake.clear()
            now = time.monotonic()
            wanted, self._commit_is_wanted = self._commit_is_wanted, False
            if wanted or (self._config.enable_auto_commit and now >= commit_at):
                self._commit(wanted)
                commit_at = time.monotonic() + commit_seconds
            if now >= heartbeat_at:
                self._heartbeat(now)
                heartbeat_at = now + heartbeat_seconds

    def _heartbeat(self, now: float) -> None:
        if now - self._polled_at > self._config.max_poll_interval.total_seconds():
            _log.warning(
                "a consumer of group %s has not polled for longer than max_poll_interval (%s); it gives up its partitions",
                self._config.group_id,
                self._config.max_poll_interval,
            )
            return
        try:
            self._offsets.heartbeat()
        except Exception as error:  # noqa: BLE001  the top of the worker: the consumer is told at its next poll
            self._failure = error

    def _commit(self, wanted: bool) -> None:
        try:
            # Not for longer, because heartbeats must not wait for it.
            self._offsets.commit(self._config.heartbeat_interval.total_seconds())
        except TailraceError as error:
            # What is committed by interval is committed with the next interval, or after the next join.
            if is_transient(error) or (self._offsets.needs_join and not wanted):
                self._commit_is_wanted = wanted or self._commit_is_wanted
                _log.warning("a commit of group %s was not taken and will be tried again: %s", self._config.group_id, error)
            else:
                self._failure = error
        except Exception as error:  # noqa: BLE001  the top of the worker: the consumer is told at its next poll
            self._failure = error
