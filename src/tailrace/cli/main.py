"""The `tailrace` command, and how errors reach the user."""

import sys

from tailrace.cli.exits import Exit
from tailrace.cli.failures import CommandError
from tailrace.cli.hand_over import handed_over
from tailrace.cli.status_lines import complain, open_missing_streams
from tailrace.model.errors import StorageFailedError, TailraceError


def main() -> None:
    open_missing_streams()
    try:
        _run()
    except CommandError as error:
        _end(error.exit_code, error)
    except TailraceError as error:
        _end(Exit.STORAGE_FAILED if isinstance(error, StorageFailedError) else Exit.REFUSED, error)
    except OSError as error:
        _end(Exit.REFUSED, f"{error.filename or 'the operating system says'}: {error.strerror}")
    except KeyboardInterrupt:
        sys.exit(Exit.INTERRUPTED)


def _run() -> None:
    flags = handed_over()
    if flags is None:
        # Not above: a server that was handed over has no use for a command line.
        from tailrace.cli.commands import build_app

        build_app()()
    else:
        from tailrace.cli.serving import serve

        serve(flags)


def _end(code: Exit, why: object) -> None:
    complain(f"tailrace: {why}")
    sys.exit(code)
