"""Sends requests and shows what comes back, the same for the prompt and for scripts."""

import sys
import time
from collections.abc import Callable, Mapping, Sequence

import typer

from tailrace.cli.display import note_corrupt
from tailrace.cli.exits import Exit
from tailrace.cli.failures import CommandError
from tailrace.cli.server_api import ServerApi
from tailrace.cli.sql.pointing import explain
from tailrace.cli.sql.results import Printer, Result, StreamPrinter, tell_if_truncated
from tailrace.cli.sql.script import Request, is_one_query

Parameters = Sequence[object] | Mapping[str, object]


class Execution:
    def __init__(
        self, server: ServerApi, printer: Printer, source: str = "", before_output: Callable[[], None] = lambda: None
    ) -> None:
        self._server = server
        self._printer = printer
        self._source = source
        self._before_output = before_output

    def run(self, request: Request, parameters: Parameters = ()) -> Exit:
        """What came of it; an error has been told by then."""
        printer = self._printer
        # What is left out is only named in an answer that comes whole.
        if isinstance(printer, StreamPrinter) and is_one_query(request.text) and not self._server.skips_corrupt:
            return self.attempt(request, lambda: self._stream(printer, request.text, parameters))
        return self.attempt(request, lambda: self._server.sql(request.text, parameters))

    def _stream(self, printer: StreamPrinter, text: str, parameters: Parameters) -> Sequence[Result]:
        """All rows of a query, however many. None is left to be shown."""
        with self._server.sql_rows(text, parameters, printer.media_type) as pieces:
            self._before_output()
            printer.show_pieces(pieces)
        return ()

    def attempt(self, request: Request, ask: Callable[[], Sequence[Result]]) -> Exit:
        began = time.perf_counter()
        try:
            results = ask()
        except CommandError as error:
            self._before_output()
            self._tell(explain(error, request, self._source))
            return error.exit_code
        except KeyboardInterrupt:
            self._before_output()
            # The connection is closed by now, which is how the server learns that nobody waits any more.
            typer.echo(err=True)
            self._tell("cancelled; a write that was on its way may have taken effect")
            return Exit.INTERRUPTED
        seconds = time.perf_counter() - began
        self._before_output()
        code = Exit.OK
        for number, result in enumerate(results, 1):
            self._printer.show(result, seconds if number == len(results) else None)
            for batch in result.get("corrupt", ()):
                note_corrupt(batch)
            if tell_if_truncated(result):
                code = Exit.REFUSED
        return code

    def _tell(self, text: str) -> None:
        mark = typer.style("error:", fg="red", bold=True) if sys.stderr.isatty() else "tailrace:"
        typer.echo(f"{mark} {text}", err=True)
