"""Consumers of real clients, each in a process of its own, and what has happened to them."""

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.support.patience import PATIENCE_SECONDS

_ROOT = Path(__file__).resolve().parent.parent.parent


class ConsumerProcess:
    """`with ConsumerProcess(...) as consumer:` runs it; at the end it is killed if it still runs."""

    def __init__(
        self,
        bootstrap: str,
        group: str,
        topic: str,
        *,
        client: str = "confluent",
        session_ms: int | None = 60_000,
        **settings: object,
    ) -> None:
        """`session_ms` is `None` where the server decides on it: in the consumer protocol."""
        self._told = {
            "bootstrap": bootstrap,
            "group": group,
            "topics": [topic],
            "client": client,
            "session_ms": session_ms,
            "settings": {name.replace("__", "."): value for name, value in settings.items()},
        }
        self._changed = threading.Condition()
        self.events: list[tuple[str, Any]] = []

    def __enter__(self) -> "ConsumerProcess":
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.consumer_child"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            cwd=_ROOT,
        )
        self._reader = threading.Thread(target=self._read)
        self._reader.start()
        self.tell(json.dumps(self._told))
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        self._reader.join()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()

    @property
    def owned(self) -> set[int]:
        """The partitions that it has now."""
        owned: set[int] = set()
        for event, value in tuple(self.events):
            if event == "assigned":
                owned |= set(value)
            elif event == "revoked":
                owned -= set(value)
        return owned

    @property
    def records(self) -> list[tuple[int, int]]:
        """Partition and offset of all that it was given, in that order."""
        return [(value[0], value[1]) for event, value in tuple(self.events) if event == "record"]

    @property
    def rebalances(self) -> list[tuple[str, Any]]:
        return [each for each in tuple(self.events) if each[0] in ("assigned", "revoked")]

    def last(self, event: str) -> Any:
        return next((value for name, value in reversed(tuple(self.events)) if name == event), None)

    def tell(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def leave(self) -> None:
        """Close the consumer and wait until it has left the group."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self.until(lambda: self.events[-1][0] == "left")

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def pause(self) -> None:
        """Nothing of it runs, heartbeats included, until it is resumed."""
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def until(self, condition: Callable[[], bool]) -> None:
        """Wait until what has happened to it makes this true."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        with self._changed:
            while not condition():
                left = deadline - time.monotonic()
                assert left > 0, f"not within {PATIENCE_SECONDS:g} s; the last events are {self.events[-8:]}"
                # Conditions may look at other consumers too, whose news do not wake this one.
                self._changed.wait(min(left, 0.05))

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            event, value = json.loads(line)
            with self._changed:
                self.events.append((event, value))
                self._changed.notify_all()
