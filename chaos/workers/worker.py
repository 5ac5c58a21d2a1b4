"""The base of all workers: a thread, a rate, unique values, and an end.

A worker's choices come from its own seeded source, so they don't depend on what others do. An unexpected error is a defect of
the run, not of the server: it is kept, and the run can't pass.
"""

import random
import sys
import threading
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import NamedTuple, ParamSpec, TypeVar

from chaos.history import RecordLocation, SeenRecord
from chaos.recorder import Recorder


class WorkerContext(NamedTuple):
    """The addresses of the server, behind the faulty network, and the recorder of the history."""

    recorder: Recorder
    kafka: str
    url: str


class RunTopic(NamedTuple):
    name: str
    partitions: int

    @property
    def locations(self) -> list[RecordLocation]:
        return [RecordLocation(self.name, number, -1) for number in range(self.partitions)]


class Worker(ABC):
    """Calls `step` in a loop, `per_second` times on average, and `begin` and `end` once each, in the same thread."""

    surface = ""

    def __init__(self, name: str, context: WorkerContext, seed: int, per_second: float) -> None:
        self.name = name
        self.context = context
        self.choice = random.Random(f"{name}/{seed}")  # noqa: S311
        self.failure: str | None = None
        self._pause_seconds = 1 / per_second
        self._values = 0
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()

    def join(self, seconds: float) -> bool:
        """Wait for the end of the thread. Return whether it has ended."""
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def describe_thread(self) -> str:
        """Return the stack of the thread."""
        frame = sys._current_frames().get(self._thread.ident or 0)
        return "".join(traceback.format_stack(frame, limit=None)[-6:]) if frame else "the thread has ended"

    @property
    def is_stopping(self) -> bool:
        return self._stopping.is_set()

    def begin(self) -> None:  # noqa: B027  most workers need nothing here
        pass

    @abstractmethod
    def step(self) -> None: ...

    def end(self) -> None:  # noqa: B027
        pass

    def pause(self, seconds: float) -> None:
        self._stopping.wait(seconds)

    def new_value(self) -> str:
        self._values += 1
        return f"{self.name}.{self._values}"

    def _run(self) -> None:
        try:
            self.begin()
            while not self._stopping.is_set():
                self.step()
                self._stopping.wait(self.choice.uniform(0, 2 * self._pause_seconds))
            self.end()
        except Exception:  # noqa: BLE001  top of a thread
            self.failure = traceback.format_exc()


def all_locations(topics: Sequence[RunTopic]) -> list[RecordLocation]:
    return [location for topic in topics for location in topic.locations]


def text(value: bytes | str | None) -> str:
    """Return a value as it was sent. Some surfaces send text as JSON."""
    if value is None:
        return ""
    decoded = value.decode(errors="backslashreplace") if isinstance(value, bytes) else value
    return decoded[1:-1] if len(decoded) > 1 and decoded[0] == decoded[-1] == '"' else decoded


def following(seen: Sequence[SeenRecord]) -> dict[tuple[str, int], int]:
    """Return the offset after the last one seen, for each partition."""
    return {(each.location.topic, each.location.partition): each.location.offset + 1 for each in seen}


P = ParamSpec("P")
T = TypeVar("T")


def call_with_timeout(seconds: float, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Make a call in a thread of its own. Raises `TimeoutError` if it does not return in time; then its outcome is unknown."""
    outcome: Future[T] = Future()

    def run() -> None:
        try:
            outcome.set_result(call(*args, **kwargs))
        except BaseException as error:  # noqa: BLE001  raised again in the calling thread
            outcome.set_exception(error)

    threading.Thread(target=run, name=f"within {seconds:g} s", daemon=True).start()
    return outcome.result(seconds)
