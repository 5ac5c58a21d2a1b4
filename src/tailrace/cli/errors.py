"""Exit codes of `tailrace`, and the errors that commands raise themselves.

What a server refuses, and what happens to a request on its way, are errors of the tree in `model/errors`; `exit_code_of` gives
them their exit codes.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum

from tailrace.model.errors import ServerUnreachableError, StorageFailedError, TailraceError, TlsError


class ExitCode(IntEnum):
    OK = 0
    REFUSED = 1
    """The request can't be done, or `fsck` found something wrong. The line on stderr says what."""
    USAGE = 2
    """The command line itself is wrong."""
    UNREACHABLE = 69
    """No server answers, or the connection broke during a read."""
    UNKNOWN = 70
    """No answer came to a request that may have taken effect. Check before you send it again."""
    STORAGE_FAILED = 74
    """The folder can't be opened, or a write or sync failed. What was acknowledged is safe; check the disk and start again."""
    STOP_TIMED_OUT = 75
    """The server did not finish within its stop time and was ended by force. What was acknowledged is safe."""
    INTERRUPTED = 130
    """Ctrl-C ended it."""


class CommandError(Exception):
    """A command can't continue. The message is one line for a person."""

    exit_code = ExitCode.REFUSED


class UsageError(CommandError):
    """The command line is wrong in a way that only the command itself can see."""

    exit_code = ExitCode.USAGE


class _StorageError(CommandError):
    exit_code = ExitCode.STORAGE_FAILED


@contextmanager
def storage_failures() -> Iterator[None]:
    """Give failures of this machine's disk their exit code. Those of a server that is asked have that of their outcome."""
    try:
        yield
    except StorageFailedError as error:
        raise _StorageError(str(error)) from error


def exit_code_of(error: CommandError | TailraceError) -> ExitCode:
    if isinstance(error, CommandError):
        return error.exit_code
    if isinstance(error, ServerUnreachableError | TlsError):
        return ExitCode.UNREACHABLE
    return ExitCode.UNKNOWN if error.outcome == "unknown" else ExitCode.REFUSED
