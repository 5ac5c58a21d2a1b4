"""The `tailrace` command, and how errors reach the user."""

import sys

from tailrace.cli.errors import CommandError, ExitCode
from tailrace.cli.server_process import handed_over
from tailrace.cli.status_lines import open_missing_streams, print_error
from tailrace.model.errors import StorageFailedError, TailraceError


def main() -> None:
    open_missing_streams()
    try:
        _run()
    except CommandError as error:
        _end(error.exit_code, error)
    except TailraceError as error:
        _end(ExitCode.STORAGE_FAILED if isinstance(error, StorageFailedError) else ExitCode.REFUSED, error)
    except OSError as error:
        _end(ExitCode.REFUSED, f"{error.filename or 'the operating system says'}: {error.strerror}")
    except KeyboardInterrupt:
        sys.exit(ExitCode.INTERRUPTED)


def _run() -> None:
    flags = handed_over()
    if flags is None:
        # Not above: a server that was handed over has no use for a command line.
        from tailrace.cli.commands import build_app

        build_app()()
    else:
        from tailrace.cli.server_process import run_server

        run_server(flags)


def _end(code: ExitCode, why: object) -> None:
    print_error(f"tailrace: {why}")
    sys.exit(code)
