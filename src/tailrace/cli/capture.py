"""`tailrace capture`: streams the changes of a source's database into the log of a server."""

import logging
import signal
import sys
import threading
from typing import TYPE_CHECKING, Annotated

import typer

from tailrace.cli.command_line import DEFAULT_SERVER, ServerOption
from tailrace.cli.errors import ExitCode
from tailrace.cli.status_lines import print_error, print_status
from tailrace.model.parent_process import end_with_parent_if_asked
from tailrace.model.text import counted

if TYPE_CHECKING:
    from tailrace.model.source import SourceReport

_ORPHAN_SECONDS = 5.0


def capture(
    name: Annotated[str, typer.Argument(metavar="SOURCE", help="The name of the source, as CREATE SOURCE gave it.")],
    server: ServerOption = DEFAULT_SERVER,
) -> None:
    """Stream the changes of a source's database into the log of a server.

    A server captures its sources itself. Use this command where it can't
    reach the database: create the source WITH (captured_by = 'command') and
    run this on a machine that reaches both. Needs psycopg
    (pip install 'tailrace\\[postgres]'). May be stopped or killed at any time:
    the next one continues exactly where the log ends.

    [bold]Examples[/]
    tailrace capture shop
    tailrace capture shop --server http://tailrace:8080
    """
    from tailrace.model.errors import TailraceError

    end_with_parent_if_asked(_ORPHAN_SECONDS)
    logging.basicConfig(level=logging.WARNING, format="tailrace: %(message)s", stream=sys.stderr)
    stopping = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    try:
        from tailrace.capture.capture import Capture
    except ImportError as error:
        print_error(f"tailrace: capturing PostgreSQL needs psycopg ({error}); run: pip install 'tailrace[postgres]'")
        raise typer.Exit(ExitCode.REFUSED) from None
    try:
        Capture(name, server.url, stopping, login=server.source, on_state=StatePrinter(name)).run()
    except TailraceError as error:
        print_error(f"tailrace: {error}")
        raise typer.Exit(ExitCode.REFUSED) from None
    print_status("stopped")


class StatePrinter:
    """Prints each state once."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._last = ""

    def __call__(self, report: "SourceReport") -> None:
        line: str = report.state
        if report.state == "snapshot" and report.snapshot_table is not None:
            line = f"snapshot: {counted(report.snapshot_rows, 'row')} read, now {report.snapshot_table}"
        if line != self._last:
            self._last = line
            print_status(f"{self._name}: {line}")
