"""Status lines of long-running commands, which never fail because a line can't be printed.

A server or a pipeline must not end because its terminal was closed or the disk with its output is full. Servers import this
module, so it must not import the libraries of the command line.
"""

import contextlib
import os
import sys
from typing import TextIO


def open_missing_streams() -> None:
    """Open `/dev/null` for stdin, stdout and stderr if the process was started without them.

    Otherwise the next file or socket would get their descriptor, and output to stdout would be written into it.
    """
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            # The kernel gives the lowest free descriptor, which is this one.
            os.open(os.devnull, os.O_RDWR)


def print_status(line: str) -> None:
    _write(sys.stdout, line)


def print_error(line: str) -> None:
    """Print a line on stderr."""
    _write(sys.stderr, line)


def _write(stream: TextIO | None, line: str) -> None:
    if stream is None:
        # Python sets it to None if the process was started without it.
        return
    try:
        stream.write(f"{line}\n")
        stream.flush()
    except BrokenPipeError:
        # Otherwise Python would flush once more at exit, and change the exit code.
        with contextlib.suppress(OSError, ValueError):
            _redirect_to_devnull(stream.fileno())
    except (OSError, ValueError):
        return


def _redirect_to_devnull(descriptor: int) -> None:
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, descriptor)
    os.close(nowhere)
