"""The `tailrace` command as scripts run it: no terminal anywhere.

`run` runs the whole command, from its words to its exit code, in this process, because Python takes half a second to load it
anew. `start` runs it in a process of its own, for what must be killed, fed or read while it runs.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple
from unittest import mock

from tailrace.cli.main import main
from tests.support.patience import PATIENCE_SECONDS

ROOT = Path(__file__).resolve().parent.parent.parent.parent
SECONDS = PATIENCE_SECONDS


class Ended(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def objects(self) -> list[Any]:
        """What was printed, a JSON object in each line."""
        return [json.loads(line) for line in self.out.splitlines()]


class Commands:
    def __init__(self, url: str) -> None:
        self.url = url
        self.environment = {**os.environ, "TAILRACE_SERVER": url, "PYTHONUNBUFFERED": "1"}
        self._started: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> "Commands":
        return self

    def __exit__(self, *_: object) -> None:
        """What was started and runs still does not outlive the test."""
        for process in self._started:
            process.kill()
            process.communicate()

    def command(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "tailrace", *words]

    def run(self, *words: str, stdin: str | bytes = b"") -> Ended:
        given = stdin.encode() if isinstance(stdin, str) else stdin
        with _files() as (source, out, err):
            source.write(given)
            source.seek(0)
            with (
                mock.patch.dict(os.environ, TAILRACE_SERVER=self.url),
                mock.patch.object(sys, "argv", ["tailrace", *words]),
                _standing_for(0, "stdin", source),
                _standing_for(1, "stdout", out),
                _standing_for(2, "stderr", err),
            ):
                code = _exit_code()
            out.seek(0)
            err.seek(0)
            return Ended(code, out.read().decode(), err.read().decode())

    def done(self, *words: str, stdin: str | bytes = b"") -> Ended:
        """The same for what must succeed."""
        ended = self.run(*words, stdin=stdin)
        assert ended.code == 0, ended
        return ended

    def start(self, *words: str, stdin: int | None = None) -> "subprocess.Popen[bytes]":
        process = subprocess.Popen(
            self.command(*words),
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=self.environment,
            cwd=ROOT,
        )
        self._started.append(process)
        return process


def _exit_code() -> int:
    try:
        main()
    except SystemExit as ended:
        return int(ended.code or 0)
    return 0


@contextmanager
def _files() -> Iterator[tuple[IO[bytes], IO[bytes], IO[bytes]]]:
    with tempfile.TemporaryFile() as first, tempfile.TemporaryFile() as second, tempfile.TemporaryFile() as third:
        yield first, second, third


@contextmanager
def _standing_for(descriptor: int, name: str, file: IO[bytes]) -> Iterator[None]:
    """The file takes the place of a standard stream, for Python and for the operating system."""
    kept = os.dup(descriptor)
    os.dup2(file.fileno(), descriptor)
    stream = os.fdopen(os.dup(descriptor), "r" if descriptor == 0 else "w", encoding="utf-8")
    try:
        with mock.patch.object(sys, name, stream):
            yield
    finally:
        stream.close()
        os.dup2(kept, descriptor)
        os.close(kept)
