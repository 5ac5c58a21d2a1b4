"""A real `tailrace pipeline` or `tailrace up` in a session of its own, with Java and Python workers, to be killed whole."""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from tests.support.eventually import eventually

ROOT = Path(__file__).resolve().parents[2]


class CommandProcess:
    """`with CommandProcess(folder, "pipeline", "--server", url) as process:`. What it says is in `output`."""

    def __init__(
        self,
        folder: Path,
        *arguments: str,
        environment: Mapping[str, str | None] | None = None,
        python: str = sys.executable,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._log = folder / f"{arguments[0]}-{len(list(folder.iterdir()))}.log"
        given = {**os.environ, **(environment or {})}
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                [python, "-m", "tailrace", *arguments],
                stdout=log,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                env={name: value for name, value in given.items() if value is not None},
                cwd=ROOT,
                start_new_session=True,
            )

    def __enter__(self) -> "CommandProcess":
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
    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def await_line(self, text: str, seconds: float = 200.0) -> None:
        eventually(lambda: text in self.output or self.has_ended, f"the line {text!r}", seconds)
        assert text in self.output, f"it ended with {self._process.returncode}: {self.output}"

    def wait(self, seconds: float = 200.0) -> int:
        """Its exit code."""
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it still ran after {seconds:g} s: {self.output}") from None

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
