"""Lines that a long-running command prints about itself. It goes on where nobody can read them any more.

A server or a pipeline must not end because its terminal was closed or the disk of its log is full. Loaded by servers, which
do without the libraries of the command line.
"""

import contextlib
import os
import sys
from typing import TextIO


def open_missing_streams() -> None:
    """Lead stdin, stdout and stderr nowhere where the process was started without them.

    Else the next file or socket to be opened has their number, and what anybody writes to stdout goes there.
    """
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            # The lowest number that is free, which is this one.
            os.open(os.devnull, os.O_RDWR)


def print_status(line: str) -> None:
    _write(sys.stdout, line)


def print_error(line: str) -> None:
    """Say it on stderr."""
    _write(sys.stderr, line)


def _write(stream: TextIO | None, line: str) -> None:
    if stream is None:
        # Python has none where the process was started without.
        return
    try:
        stream.write(f"{line}\n")
        stream.flush()
    except BrokenPipeError:
        # Else Python would try once more at its end, and change the exit code.
        with contextlib.suppress(OSError, ValueError):
            _redirect_to_devnull(stream.fileno())
    except (OSError, ValueError):
        return


def _redirect_to_devnull(descriptor: int) -> None:
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, descriptor)
    os.close(nowhere)
