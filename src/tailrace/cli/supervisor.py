"""Processes that run together: one log, one stop.

An essential part that ends takes the others with it. Any other part is started again, after a pause that grows while it keeps
failing. Parts are stopped in the reverse order of their start, each with time to finish.
"""

import queue
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

_STOP_SECONDS = 20.0
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

    def start(self, part: Part, until: str | None = None) -> None:
        """Start it; with `until`, return when a line of it holds that text, or when it has ended."""
        running = _Running(part, self._say, self._ended, until)
        self._running.append(running)
        running.start()
        running.ready.wait()

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
            threading.Timer(pause, self._again, (ended,)).start()
        for running in reversed(self._running):
            running.stop()
        return code

    def _again(self, running: "_Running") -> None:
        if not running.is_stopping:
            running.start()


class _Running:
    def __init__(self, part: Part, say: Say, ended: "queue.Queue[_Running | None]", until: str | None) -> None:
        self.part = part
        self.ready = threading.Event()
        self.is_stopping = False
        self.code = 0
        self._say = say
        self._ended = ended
        self._until = until
        self._started_at = 0.0
        self._pause = _FIRST_PAUSE_SECONDS
        self._process: subprocess.Popen[str] | None = None
        if until is None:
            self.ready.set()

    def start(self) -> None:
        self._started_at = time.monotonic()
        # A session of its own, so that Ctrl-C in the terminal reaches only the supervisor, which stops the parts in order.
        self._process = subprocess.Popen(  # noqa: S603
            self.part.command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
        )
        threading.Thread(target=self._follow, args=(self._process,), daemon=True).start()

    def stop(self) -> None:
        self.is_stopping = True
        process = self._process
        if process is None or process.poll() is not None:
            return
        process.terminate()
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._say(self.part.name, f"not finished after {_STOP_SECONDS:g} s; ended")
            process.kill()
            process.wait()

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
                self.ready.set()
        self.code = process.wait()
        self.ready.set()
        if not self.is_stopping:
            self._ended.put(self)
