"""What a child tells the one that asked it: a line of JSON on stdout. It may always say that it failed."""

import subprocess
import sys
from pathlib import Path
from typing import Any, Generic, Self, TypeVar

import msgspec

from bench.audit import AuditFailure


class Failed(msgspec.Struct, frozen=True, tag=True):
    """A record was lost, doubled, changed or out of order; or the work could not be done."""

    why: str


def say(answer: msgspec.Struct) -> None:
    line = memoryview(msgspec.json.encode(answer) + b"\n")
    while line:
        # Where PYTHONUNBUFFERED is set, a write takes as much as the pipe does.
        line = line[sys.stdout.buffer.write(line) :]
    sys.stdout.flush()


_ROOT = Path(__file__).resolve().parents[1]
_Task = TypeVar("_Task", bound=msgspec.Struct)
_Answer = TypeVar("_Answer", bound=msgspec.Struct)


class WorkerProcess(Generic[_Task, _Answer]):
    """Gone when it is closed. If it fails, the run is over: its figures would mean nothing."""

    def __init__(self, side: str, module: str, *arguments: str, answers: Any) -> None:
        """`side`: whose client it is, for failures. `answers`: the types of its answers; it may always say `Failed`."""
        self._side = side
        self._answers = answers | Failed
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments], cwd=_ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def begin(self, task: _Task) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(msgspec.json.encode(task) + b"\n")
        self._process.stdin.flush()

    def hear(self) -> _Answer:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise AuditFailure(f"{self._side}: a client ended with code {self._process.wait()} in the middle of its work")
        answer: _Answer | Failed = msgspec.json.decode(line, type=self._answers)
        if isinstance(answer, Failed):
            raise AuditFailure(f"{self._side}: {answer.why}")
        return answer

    def ask(self, task: _Task) -> _Answer:
        self.begin(task)
        return self.hear()

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()
