"""`tailrace pipeline` beside the server: a Spark driver with its workers, killed as a whole and started again."""

import os
import signal
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from chaos.api import RefusedError, RunApi
from chaos.server_process import ServerError
from tests.support.pipeline import CommandProcess

START_SECONDS = 240.0


class PipelineProcess:
    """Runs at most one process at a time, and none unless a workload starts it."""

    def __init__(self, home: Path) -> None:
        self._home = home / "pipeline"
        self._url = ""
        self._flags: Sequence[str] = ()
        self._process: CommandProcess | None = None

    @property
    def is_wanted(self) -> bool:
        return self._process is not None

    def start(self, url: str, *flags: str) -> None:
        self._url = url
        self._flags = flags
        self._process = CommandProcess(self._home, "pipeline", "--server", url, *flags)

    def await_running(self, url: str) -> None:
        """Wait until the server knows the pipeline."""
        deadline = time.monotonic() + START_SECONDS
        with RunApi(url) as api:
            while time.monotonic() < deadline:
                try:
                    if any(each["running"] for each in api.get("/api/pipelines")):
                        return
                except RefusedError:
                    pass
                time.sleep(0.2)
        raise ServerError(f"the pipeline did not start within {START_SECONDS:g} s; look in {self._home}")

    def kill_and_start(self) -> None:
        self.close()
        self.start(self._url, *self._flags)

    def kill_java(self) -> None:
        """Kill Java alone. The driver ends because of it, and is started again."""
        if self._process is not None:
            for pid in self._process.members("java"):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self._process.wait(START_SECONDS)
            self.start(self._url, *self._flags)

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
