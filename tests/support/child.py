"""A writer in a process of its own, which a test stops, kills, starves and listens to."""

import os
import select
import signal
import subprocess
import sys
import threading
import time
from array import array
from collections.abc import Callable, Mapping, Sequence
from fcntl import ioctl
from pathlib import Path
from termios import FIONREAD

from tests.support.history import Ack, Event, Failure, Note, decode_event
from tests.support.patience import PATIENCE_SECONDS

ROOT = Path(__file__).resolve().parents[2]

_PIECE_BYTES = 1 << 16


class WriterProcess:
    """Runs `tests.chaos.writer` on a folder and keeps every line that it says."""

    def __init__(
        self,
        folder: Path,
        *options: str,
        environment: Mapping[str, str] | None = None,
        wrapper: Sequence[str] = (),
        module: str = "tests.chaos.writer",
    ) -> None:
        self.events: list[Event] = []
        self._changed = threading.Condition()
        self._process = subprocess.Popen(
            [*wrapper, sys.executable, "-m", module, str(folder), *options],
            cwd=ROOT,
            env={**os.environ, **(environment or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert self._process.stdout is not None
        self._out = self._process.stdout.fileno()
        self._unfinished = b""
        self._said: list[bytes] = []
        self._listeners = [threading.Thread(target=self._listen, daemon=True), threading.Thread(target=self._hear, daemon=True)]
        for listener in self._listeners:
            listener.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def errors(self) -> str:
        """What the process has said on its error stream."""
        return b"".join(self._said).decode(errors="replace")

    def count(self, kind: type[Event]) -> int:
        return sum(isinstance(event, kind) for event in self.events)

    def wait_for_acks(self, count: int) -> None:
        self.wait_until(lambda: self.count(Ack) >= count, f"{count} acks")

    def wait_for_failures(self, count: int) -> None:
        self.wait_until(lambda: self.count(Failure) >= count, f"{count} failed commits")

    def wait_for_note(self, text: str) -> None:
        self.wait_until(lambda: Note(text) in self.events, f"the note {text!r}")

    def wait_until(self, condition: Callable[[], bool], what: str, seconds: float = PATIENCE_SECONDS) -> None:
        deadline = time.monotonic() + seconds
        with self._changed:
            while not condition():
                left = deadline - time.monotonic()
                assert left > 0, f"no {what} within {seconds} s; {self._state()}"
                assert self._process.poll() is None or self._listeners[0].is_alive(), f"ended before {what}; {self._state()}"
                self._changed.wait(min(left, 0.1))

    def kill(self) -> None:
        self._process.kill()
        self._finish()

    def stop(self) -> None:
        """Freeze it between two instructions."""
        os.kill(self.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, self.pid, os.WSTOPPED)

    def drain(self) -> None:
        """Take in everything that it said before it was stopped."""
        while self._unread_bytes():
            time.sleep(0.001)

    def go_on(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def terminate(self) -> int:
        self._process.terminate()
        return self.wait()

    def wait(self, seconds: float = PATIENCE_SECONDS) -> int:
        """Its exit code, once it has ended by itself and all its lines are here."""
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"still there after {seconds} s; {self._state()}") from None
        self._finish()
        return self._process.returncode

    def _unread_bytes(self) -> int:
        with self._changed:
            unread = array("i", [0])
            ioctl(self._out, FIONREAD, unread)
            return unread[0]

    def _finish(self) -> None:
        self._process.wait()
        for listener in self._listeners:
            listener.join()
        for stream in (self._process.stdout, self._process.stderr):
            assert stream is not None
            stream.close()

    def _state(self) -> str:
        return f"{self.count(Ack)} acks so far, exit code {self._process.poll()}, last words: {self.errors[-800:]}"

    def _listen(self) -> None:
        stream = self._out
        while select.select([stream], [], []):
            with self._changed:
                piece = os.read(stream, _PIECE_BYTES)
                if not piece:
                    return
                *lines, self._unfinished = (self._unfinished + piece).split(b"\n")
                self.events += map(decode_event, lines)
                self._changed.notify_all()

    def _hear(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self._said.append(line)
