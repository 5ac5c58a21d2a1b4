"""The server under test: a real `tailrace serve`, which is started, signalled and started again on one folder.

Its output goes to one file over all restarts. It runs through `chaos.launch`, which only makes the files of the log small, so
that minutes are enough for what otherwise takes days, and adds a known fault for the runs that must be caught.
"""

import contextlib
import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import IO, NamedTuple

import psutil

from tests.support.ports import free_port

READY_LINE = re.compile(r"Tailrace \S+ is ready at ")
READY_SECONDS = 30.0
STOP_SECONDS = 20.0
ROOT = Path(__file__).resolve().parent.parent

CONFIGURATION = """
[broker]
retention_interval_seconds = 1
transaction_interval_seconds = 1
group_min_session_ms = 1000
[limits]
min_free_bytes = 4194304
"""


class ResourceUsage(NamedTuple):
    """The memory, files and threads of the process."""

    rss_bytes: int
    files: int
    threads: int


class ServerError(Exception):
    """The server did not start or did not end. The message holds its last output."""


class ServerProcess:
    """Runs at most one process at a time. `environment` is for all starts; a start may add to it."""

    def __init__(self, folder: Path, log: Path, *, advertise: str = "", environment: Mapping[str, str] | None = None) -> None:
        self.folder = folder
        self.http, self.kafka = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
        self.advertise = advertise
        self.environment = dict(environment or {})
        self.starts = 0
        self._log = log
        self._configuration = log.with_name("tailrace.toml")
        self._configuration.write_text(CONFIGURATION)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://{self.http}"

    @property
    def pid(self) -> int:
        return self._current().pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self, environment: Mapping[str, str] | None = None) -> float:
        """Start the server and wait until it is ready. Return how long that took."""
        began = time.monotonic()
        self.launch(environment)
        process = self._current()
        assert process.stdout is not None
        if not READY_LINE.match(line := _first_line(process.stdout)):
            self.kill()
            raise ServerError(f"the server did not come up; it said {line!r} and in its log: {self._log_tail()}")
        return time.monotonic() - began

    def launch(self, environment: Mapping[str, str] | None = None) -> None:
        """Start the server without waiting."""
        command = [sys.executable, "-m", "chaos.launch", "serve", "--data", str(self.folder), "--http", self.http]
        command += ["--kafka", self.kafka, "--config", str(self._configuration)]
        if self.advertise:
            command += ["--advertise", self.advertise]
        self.starts += 1
        with self._log.open("ab") as log:
            log.write(f"--- start {self.starts} {dict(environment or {}) or ''}\n".encode())
            log.flush()
            self._process = subprocess.Popen(
                command,
                stdout=subprocess.PIPE,
                stderr=log,
                stdin=subprocess.DEVNULL,
                env={**os.environ, **self.environment, **(environment or {})},
                cwd=ROOT,
            )

    def signal(self, number: signal.Signals) -> None:
        self._current().send_signal(number)

    def freeze(self) -> None:
        """Stop the process with SIGSTOP and wait until it has stopped."""
        self.signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self._current().pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def kill(self) -> int:
        self._current().kill()
        return self.wait()

    def terminate(self) -> int:
        self.signal(signal.SIGTERM)
        return self.wait(STOP_SECONDS)

    def wait(self, seconds: float = STOP_SECONDS) -> int:
        """Wait for the end and return the exit code. Raises `ServerError` if it does not end in time."""
        process = self._current()
        try:
            code = process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise ServerError(f"the server still ran after {seconds:g} s; its log says {self._log_tail()}") from None
        if process.stdout is not None:
            process.stdout.close()
        return code

    def usage(self) -> ResourceUsage | None:
        try:
            process = psutil.Process(self._current().pid)
            return ResourceUsage(process.memory_info().rss, _open_files(process.pid), process.num_threads())
        except (psutil.Error, ServerError, OSError):
            return None

    def _current(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise ServerError("the server was not started")
        return self._process

    def _log_tail(self) -> str:
        return self._log.read_text(errors="replace")[-800:]


def _first_line(stdout: IO[bytes]) -> str:
    """Return the first line, or what there is of it when the process ends or the time is up."""
    deadline = time.monotonic() + READY_SECONDS
    while (left := deadline - time.monotonic()) > 0:
        if select.select([stdout], [], [], left)[0]:
            return stdout.readline().decode(errors="replace")
    return ""


def _open_files(pid: int) -> int:
    """Return how many files a process has open, without segments of the log: it keeps as many of these open as
    `open_segments` allows once somebody has read them, which is no leak."""
    folder = Path(f"/proc/{pid}/fd")
    found = 0
    for entry in folder.iterdir():
        # One that is closed meanwhile is none.
        with contextlib.suppress(OSError):
            found += not entry.readlink().name.endswith(".seg")
    return found
