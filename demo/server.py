"""The two processes of the demo, and the little of HTTP that it needs."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx

from tailrace.model.parent_process import ENDS_WITH_PARENT

WAIT_SECONDS = 300.0
"""Spark starts in ten seconds on an idle machine, and in minutes on a busy one."""


class Unanswered(Exception):
    """The server was gone before it answered: what was asked for may have happened or not."""


class Api:
    def __init__(self, url: str) -> None:
        self._client = httpx.Client(base_url=url, timeout=30)

    def sql(self, text: str, params: list[object] | None = None) -> list[list[Any]]:
        """The rows of the last statement."""
        answer = self.post("/api/sql", {"sql": text, "params": params or []})
        rows: list[list[Any]] = answer["results"][-1]["rows"] if "results" in answer else answer["rows"]
        return rows

    def post(self, path: str, body: object) -> Any:
        try:
            response = self._client.post(path, json=body)
        except httpx.TransportError as error:
            raise Unanswered from error
        if response.is_error:
            raise SystemExit(f"{path} refused {body}: {response.text}")
        return response.json()


class Pipeline:
    """`with Pipeline(...)` runs `tailrace pipeline` in a process of its own. It outlives the server, and waits for it."""

    def __init__(self, url: str, log: Path) -> None:
        self._log = log.open("w")
        command = [sys.executable, "-m", "tailrace", "pipeline", "--server", url]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=self._log,
            stderr=subprocess.STDOUT,
            env={**os.environ, **ENDS_WITH_PARENT},
        )

    def __enter__(self) -> "Pipeline":
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self._log.close()
        if self._process.stdin is not None:
            self._process.stdin.close()

    def check(self) -> None:
        if self._process.poll() is not None:
            raise SystemExit(f"the pipeline ended: {Path(self._log.name).read_text()[-2000:]}")

    def stop(self) -> int:
        """End it, if it still runs, and say how it ended."""
        self._process.terminate()
        try:
            return self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()


def wait_until(holds: Callable[[], bool], pipeline: Pipeline) -> bool:
    """Whether it came to hold in time."""
    deadline = time.monotonic() + WAIT_SECONDS
    while time.monotonic() < deadline:
        if holds():
            return True
        pipeline.check()
        time.sleep(0.2)
    return False
