"""The `tailrace` command: it runs a server or another command, and turns errors into one line and an exit code."""

import sys

from tailrace.cli.errors import CommandError, ExitCode, exit_code_of
from tailrace.cli.server_process import read_plain_flags, run_server
from tailrace.cli.status_lines import open_missing_streams, print_error
from tailrace.model.errors import TailraceError


def main() -> None:
    open_missing_streams()
    try:
        _run()
    except (CommandError, TailraceError) as error:
        _end(exit_code_of(error), error)
    except OSError as error:
        _end(ExitCode.REFUSED, f"{error.filename or 'the operating system says'}: {error.strerror}")
    except KeyboardInterrupt:
        sys.exit(ExitCode.INTERRUPTED)


def _run() -> None:
    flags = read_plain_flags(sys.argv[1:])
    if flags is not None:
        run_server(flags)
        return
    # Not above: a server would keep what the command line loads.
    from tailrace.cli.commands import build_app

    build_app()()


def _end(code: ExitCode, why: object) -> None:
    print_error(f"tailrace: {why}")
    sys.exit(code)
