"""Processes that run together: one log, one stop.

An essential part that ends takes the others with it. Any other part is started again, after a pause that grows while it keeps
failing. Parts are stopped in the reverse order of their start, each with time to finish. When the supervisor itself is killed,
they end by themselves (`model/parent_process.py`).
"""

import contextlib
import os
import queue
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from tailrace.model.parent_process import ENDS_WITH_PARENT

_STOP_SECONDS = 14.0
"""Of one part, so that two are stopped within half a minute."""
_FIRST_PAUSE_SECONDS = 1.0
_LONGEST_PAUSE_SECONDS = 60.0
_STEADY_SECONDS = 60.0
"""A part that ran so long has not failed at its start; the next pause is short again."""

Say = Callable[[str, str], None]


class Part(NamedTuple):
    name: str
    command: Sequence[str]
    is_essential: bool


class Supervisor:
    def __init__(self, say: Say) -> None:
        self._say = say
        self._running: list[_Running] = []
        self._ended: queue.Queue[_Running | None] = queue.Queue()

    def start(self, part: Part, until: str | None = None) -> str | None:
        """Start it. With `until`, wait for the line that holds this text and return it, or `None` when it ended without one."""
        running = _Running(part, self._say, self._ended, until)
        self._running.append(running)
        running.start()
        running.ready.wait()
        return running.ready_line

    def stop(self) -> None:
        """Called by a signal handler: only leaves word."""
        self._ended.put(None)

    def run(self) -> int:
        """Until a stop or the end of an essential part, whose exit code is returned."""
        code = 0
        while True:
            ended = self._ended.get()
            if ended is None:
                break
            if ended.part.is_essential:
                code = ended.code
                self._say(ended.part.name, f"ended with exit code {code}; stopping the rest")
                break
            pause = ended.pause()
            self._say(ended.part.name, f"ended with exit code {ended.code}; starting it again in {pause:g} s")
            again = threading.Timer(pause, ended.start)
            again.daemon = True
            again.start()
        for running in reversed(self._running):
            running.stop()
            # What an essential part says at its end is known only now.
            code = code or (running.code if running.part.is_essential else 0)
        return code


class _Running:
    def __init__(self, part: Part, say: Say, ended: "queue.Queue[_Running | None]", until: str | None) -> None:
        self.part = part
        self.ready = threading.Event()
        self.ready_line: str | None = None
        self.code = 0
        self._say = say
        self._ended = ended
        self._until = until
        self._started_at = 0.0
        self._pause = _FIRST_PAUSE_SECONDS
        self._starting = threading.Lock()
        self._is_stopping = False
        self._process: subprocess.Popen[str] | None = None
        if until is None:
            self.ready.set()

    def start(self) -> None:
        with self._starting:
            if self._is_stopping:
                return
            self._started_at = time.monotonic()
            # A session of its own, so that Ctrl-C in the terminal reaches only the supervisor, which stops the parts in order.
            self._process = subprocess.Popen(  # noqa: S603
                self.part.command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                start_new_session=True,
                env={**os.environ, **ENDS_WITH_PARENT},
            )
        self._following = threading.Thread(target=self._follow, args=(self._process,), daemon=True)
        self._following.start()

    def stop(self) -> None:
        with self._starting:
            self._is_stopping = True
        process = self._process
        if process is None:
            return
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self._say(self.part.name, f"not finished after {_STOP_SECONDS:g} s; ended")
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        # Its last words belong into the log. What it left behind may keep the pipe open, so not for ever.
        self._following.join(1.0)
        self.code = process.returncode

    def pause(self) -> float:
        """How long to wait before the next start."""
        if time.monotonic() - self._started_at > _STEADY_SECONDS:
            self._pause = _FIRST_PAUSE_SECONDS
        pause = self._pause
        self._pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)
        return pause

    def _follow(self, process: "subprocess.Popen[str]") -> None:
        for line in process.stdout or ():
            self._say(self.part.name, line.rstrip("\n"))
            if self._until is not None and self._until in line:
                self.ready_line = line
                self.ready.set()
        self.code = process.wait()
        if process.stdin is not None:
            process.stdin.close()
        self.ready.set()
        if not self._is_stopping:
            self._ended.put(self)
