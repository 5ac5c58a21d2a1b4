"""A command in a session of its own, with what it says in a file, to be killed with all that it has started."""

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.support.eventually import eventually

ROOT = Path(__file__).resolve().parents[2]
_LAST_WORDS = 10_000


class LoggedProcess:
    """`with LoggedProcess(["java", ...], folder / "log") as process:`. What it says is in `output`."""

    def __init__(self, command: Sequence[str], log: Path, environment: Mapping[str, str | None] | None = None) -> None:
        self._log = log
        given = {**os.environ, **(environment or {})}
        with log.open("w") as said:
            self._process = subprocess.Popen(
                command,
                stdout=said,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                env={name: value for name, value in given.items() if value is not None},
                cwd=ROOT,
                start_new_session=True,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.kill()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def output(self) -> str:
        return self._log.read_text()

    @property
    def last_words(self) -> str:
        """The end of what it said, for a message."""
        return self.output[-_LAST_WORDS:]

    @property
    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def await_line(self, text: str, seconds: float = 200.0) -> None:
        eventually(lambda: text in self.output or self.has_ended, f"the line {text!r}", seconds)
        assert text in self.output, f"it ended with {self._process.returncode}: {self.last_words}"

    def wait(self, seconds: float = 200.0) -> int:
        """Its exit code."""
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it still ran after {seconds:g} s: {self.last_words}") from None

    def terminate(self, seconds: float = 100.0) -> int:
        self._process.terminate()
        return self.wait(seconds)

    def kill(self) -> None:
        """SIGKILL for all that it has started, at one moment as far as that is possible."""
        for pid in session_members(self.pid):
            _signal(pid, signal.SIGKILL)
        self._process.wait()

    def members(self, word: str) -> list[int]:
        """The processes of its session with this word in their command line."""
        return [pid for pid in session_members(self.pid) if word in command_line(pid)]


def session_members(session: int) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                # After the name, which may hold spaces: state, parent, group, session.
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[3]) == session and fields[0] != "Z":
                found.append(int(entry.name))
    return found


def command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""


def _signal(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return
