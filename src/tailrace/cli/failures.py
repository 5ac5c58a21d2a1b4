"""What commands that talk to a server raise, each with its exit code.

Not part of the tree in `model/errors/`: that one says what servers refuse, this one what happened to a request on its way.
"""

from collections.abc import Mapping
from typing import Any

from tailrace.cli.exits import Exit

_SERVER_ERROR = 500


class CommandError(Exception):
    """The command can't go on. The message is one line for a person."""

    exit_code = Exit.REFUSED


class UsageError(CommandError):
    """The command line is wrong in a way that only the command itself can see."""

    exit_code = Exit.USAGE


class UnreachableError(CommandError):
    """No server, or none any more. Nothing took effect."""

    exit_code = Exit.UNREACHABLE


class UnknownOutcomeError(CommandError):
    """No answer came to something that may have taken effect."""

    exit_code = Exit.UNKNOWN


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
            self.exit_code = Exit.UNKNOWN

    @property
    def kind(self) -> str:
        """Which error it is, such as `unknown-topic`."""
        return str(self.problem.get("type", "")).rpartition(":")[2]

    @property
    def place(self) -> tuple[int, int] | None:
        """Line and column of the SQL at fault, from 1."""
        line, column = self.problem.get("line"), self.problem.get("column")
        return (line, column) if isinstance(line, int) and isinstance(column, int) else None
