"""Writes the history of a run: many workers, one file, one line for each request and each outcome.

It also keeps the few counts that a status line shows. It judges nothing.
"""

import threading
import time
from collections import Counter
from pathlib import Path
from types import TracebackType

from chaos.history import Call, CallAnswer, CallOutcome, Completed, HistoryLine, Invoked, write_lines


class Recorder:
    """`with Recorder(path) as recorder:`; safe to be called from any thread."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("wb")
        self._lock = threading.Lock()
        self._began = time.monotonic()
        self._calls = 0
        self.outcomes: Counter[CallOutcome] = Counter()
        self.last_ok = 0.0
        """When an operation last succeeded."""

    def __enter__(self) -> "Recorder":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        with self._lock:
            self._file.close()

    def now(self) -> float:
        """Seconds since the run began."""
        return round(time.monotonic() - self._began, 6)

    @property
    def calls(self) -> int:
        return self._calls

    def invoke(self, worker: str, surface: str, what: Call) -> int:
        """Record a call before it is made. Return its number, by which it is completed."""
        with self._lock:
            self._calls += 1
            self._write(Invoked(self.now(), worker, self._calls, what, surface))
            return self._calls

    def complete(self, call: int, outcome: CallOutcome, answer: CallAnswer | None = None, error: str = "") -> None:
        with self._lock:
            now = self.now()
            self._write(Completed(now, call, outcome, answer or CallAnswer(), error))
            self.outcomes[outcome] += 1
            if outcome is CallOutcome.OK:
                self.last_ok = now

    def observe(self, began: float, worker: str, surface: str, what: Call, answer: CallAnswer) -> None:
        """Record a read of a client that fetches by itself in the background, which is known only by its records."""
        with self._lock:
            self._calls += 1
            call = self._calls
            self._write(Invoked(began, worker, call, what, surface))
        self.complete(call, CallOutcome.OK, answer)

    def write(self, line: HistoryLine) -> None:
        with self._lock:
            self._write(line)

    def flush(self) -> None:
        with self._lock:
            self._file.flush()

    def _write(self, line: HistoryLine) -> None:
        if not self._file.closed:
            self._file.write(write_lines([line]))
