"""What the exit codes of `tailrace` mean."""

from collections.abc import Mapping
from enum import IntEnum
from typing import Any


class ExitCode(IntEnum):
    OK = 0
    REFUSED = 1
    """What was asked for can't be done, or `fsck` found something wrong. The one line on stderr says what."""
    USAGE = 2
    """The command line itself is wrong."""
    UNREACHABLE = 69
    """No server answers, or it went away in the middle of a read."""
    UNKNOWN = 70
    """It was asked for and no answer came: it may have taken effect or not. Look before you ask again."""
    STORAGE_FAILED = 74
    """The folder can't be opened, or a write or sync failed. What was acknowledged is safe; check the disk and start again."""
    STOP_TIMED_OUT = 75
    """The server did not finish within its stop time and was ended. What was acknowledged is safe."""
    INTERRUPTED = 130
    """Ctrl-C ended it."""


_SERVER_ERROR = 500


class CommandError(Exception):
    """The command can't go on. The message is one line for a person."""

    exit_code = ExitCode.REFUSED


class UsageError(CommandError):
    """The command line is wrong in a way that only the command itself can see."""

    exit_code = ExitCode.USAGE


class UnreachableError(CommandError):
    """No server, or none any more. Nothing took effect."""

    exit_code = ExitCode.UNREACHABLE


class UnknownOutcomeError(CommandError):
    """No answer came to something that may have taken effect."""

    exit_code = ExitCode.UNKNOWN


class RefusedError(CommandError):
    """The server said no, and why."""

    def __init__(self, problem: Mapping[str, Any]) -> None:
        super().__init__(str(problem.get("detail") or problem.get("title")))
        self.problem = problem
        status = problem.get("status")
        # Other refusals may be retriable too, such as a topic that is not there yet; nobody would wait for that.
        self.is_passing = problem.get("retriable") is True and isinstance(status, int) and status >= _SERVER_ERROR
        """The server has no time or stops; it will be all right again by itself."""
        if problem.get("outcome") == "unknown":
            self.exit_code = ExitCode.UNKNOWN

    @property
    def kind(self) -> str:
        """Which error it is, such as `unknown-topic`."""
        return str(self.problem.get("type", "")).rpartition(":")[2]

    @property
    def place(self) -> tuple[int, int] | None:
        """Line and column of the SQL at fault, from 1."""
        line, column = self.problem.get("line"), self.problem.get("column")
        return (line, column) if isinstance(line, int) and isinstance(column, int) else None
