"""A real `tailrace serve` in its own process, to be started, killed and started again on the same folder."""

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

import httpx

from tailrace.model.parent_process import ENDS_WITH_PARENT
from tests.support.patience import PATIENCE_SECONDS

READY_LINE = re.compile(r"Tailrace \S+ is ready at (?P<url>https?://\S+), Kafka at (?P<kafka>\S+),")

_ROOT = Path(__file__).resolve().parent.parent.parent


class ServerError(AssertionError):
    """The server did not do what every test takes for granted. The message holds what it wrote to stderr."""


class ServerProcess:
    """`with ServerProcess(folder) as server:` runs it; `server.url` and `server.kafka` are where it listens.

    `module` runs something else than `tailrace` that takes the same arguments, such as `tests.support.failing_sync`. `toml` is
    written to a configuration file beside the folder, and given to it: `'[security]\\nauthentication = "required"'`.
    """

    def __init__(
        self,
        folder: Path,
        *flags: str,
        module: str = "tailrace",
        environment: Mapping[str, str] | None = None,
        toml: str | None = None,
    ) -> None:
        self.folder = folder.absolute()
        if toml is not None:
            file = folder.with_name(folder.name + ".toml")
            file.write_text(toml)
            flags = ("--config", str(file), *flags)
        self.flags = flags
        self.module = module
        self.url = ""
        self.kafka = ""
        self.ready_line = ""
        self._environment = {**os.environ, **(environment or {})}
        self._stderr_file = folder.with_name(folder.name + ".stderr")
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> "ServerProcess":
        return self.start()

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self.kill()

    @property
    def command(self) -> list[str]:
        free = [part for flag in ("--http", "--kafka") if flag not in self.flags for part in (flag, "127.0.0.1:0")]
        return [sys.executable, "-m", self.module, "serve", "--data", str(self.folder), *free, *self.flags]

    @property
    def pid(self) -> int:
        return self._running().pid

    @property
    def stderr(self) -> str:
        return self._stderr_file.read_text() if self._stderr_file.exists() else ""

    def start(self) -> "ServerProcess":
        """Start it and wait for its ready line, and until it answers by HTTP."""
        self.launch()
        self.ready_line = self._first_line()
        match = READY_LINE.match(self.ready_line)
        if match is None:
            self.kill()
            raise ServerError(f"the server's first line is {self.ready_line!r}; on stderr: {self.stderr}")
        self.url = match["url"]
        self.kafka = match["kafka"]
        # The first request loads what answers it, which on a busy machine takes longer than clients wait.
        if self.url.startswith("https:"):
            # It may demand a certificate, and is loaded by the attempt.
            with contextlib.suppress(httpx.TransportError):
                httpx.get(f"{self.url}/api/topics?limit=1", timeout=PATIENCE_SECONDS, verify=False)  # noqa: S501
        else:
            httpx.get(f"{self.url}/api/topics?limit=1", timeout=PATIENCE_SECONDS)
        return self

    def launch(self) -> None:
        """Start it without waiting, for servers that are expected to fail."""
        with self._stderr_file.open("w") as stderr:
            self._process = subprocess.Popen(
                self.command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
                env={**self._environment, **ENDS_WITH_PARENT},
                cwd=_ROOT,
                bufsize=1,
            )

    def kill(self) -> None:
        """SIGKILL: nothing of it runs any more, not even a clean-up."""
        self._running().kill()
        self.wait()

    def terminate(self) -> int:
        """SIGTERM, and the exit code that came of it."""
        self.signal(signal.SIGTERM)
        return self.wait()

    def signal(self, number: signal.Signals) -> None:
        self._running().send_signal(number)

    def wait(self, timeout: float = PATIENCE_SECONDS) -> int:
        process = self._running()
        try:
            code = process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill()
            raise ServerError(f"the server still ran after {timeout:g} s; on stderr: {self.stderr}") from None
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()
        return code

    def _running(self) -> subprocess.Popen[str]:
        if self._process is None:
            raise ServerError("the server was not started")
        return self._process

    def _first_line(self) -> str:
        """The line, or nothing if the process ended without one."""
        stdout = self._running().stdout
        assert stdout is not None
        deadline = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < deadline:
            if select.select([stdout], [], [], deadline - time.monotonic())[0]:
                return stdout.readline()
        self.kill()
        raise ServerError(f"the server was not ready after {PATIENCE_SECONDS:g} s; on stderr: {self.stderr}")
