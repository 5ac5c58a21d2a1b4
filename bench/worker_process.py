"""A client in a process of its own, which gets tasks and returns answers as lines of JSON. It may always answer `Failed`."""

import subprocess
import sys
from pathlib import Path
from typing import Any, Generic, Self, TypeVar

import msgspec

from bench.audit import AuditFailure


class Failed(msgspec.Struct, frozen=True, tag=True):
    """A record was lost, duplicated, changed or out of order, or the work could not be done."""

    why: str


def say(answer: msgspec.Struct) -> None:
    line = memoryview(msgspec.json.encode(answer) + b"\n")
    while line:
        # With PYTHONUNBUFFERED, a write may take only a part.
        line = line[sys.stdout.buffer.write(line) :]
    sys.stdout.flush()


_ROOT = Path(__file__).resolve().parents[1]
_Task = TypeVar("_Task", bound=msgspec.Struct)
_Answer = TypeVar("_Answer", bound=msgspec.Struct)
_Expected = TypeVar("_Expected")


class WorkerProcess(Generic[_Task, _Answer]):
    """Runs a module as a child process, which is killed when it is closed. If it fails, the run fails."""

    def __init__(self, side: str, module: str, *arguments: str, answers: Any) -> None:
        """`side` names the client in failures. `answers` are the types of its answers."""
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

    def receive(self) -> _Answer:
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
        return self.receive()

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


def expect(kind: type[_Expected], answer: object) -> _Expected:
    """Return the answer of a process, which must have this type."""
    assert isinstance(answer, kind), answer
    return answer
