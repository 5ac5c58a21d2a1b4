"""One thread that appends as fast as the store takes it."""

import threading
import time
from collections.abc import Iterable

from bench.audit import AuditFailure
from tailrace.model.commit import Changes
from tailrace.model.errors import OverloadedError
from tailrace.store.contract import Store, StoreCommit


class Pipeline:
    """Submits without waiting for answers; when the store has no room, it waits until half of what is in flight is done."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._submitted = 0
        self._done = 0
        self._resume_at = -1
        self._resume = threading.Event()
        self._failed: StoreCommit | None = None

    def send(self, work: Iterable[Changes]) -> float:
        """Seconds until the last of it was answered."""
        submit, answered = self._store.submit, self._answered
        began = time.perf_counter()
        for changes in work:
            while True:
                try:
                    submit(changes, answered)
                    break
                except OverloadedError:
                    self._wait_for((self._submitted + self._done) // 2)
            self._submitted += 1
        self._wait_for(self._submitted)
        seconds = time.perf_counter() - began
        if self._failed is not None:
            raise AuditFailure(f"an append failed: {self._failed.error}")
        return seconds

    def _wait_for(self, done: int) -> None:
        self._resume_at = done
        while self._done < done:
            self._resume.wait()
            self._resume.clear()

    def _answered(self, commit: StoreCommit) -> None:
        """Called by the store's thread."""
        self._done = done = self._done + 1
        if commit.error is not None:
            self._failed = commit
        if done == self._resume_at:
            self._resume.set()
