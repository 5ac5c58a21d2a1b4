"""Runs SQL requests and prints their results: as a table for people, as JSON or as CSV.

JSON is one object for each row, each on its own line; CSV has a line of names before the rows. Both print only rows, and all of
them. A table also shows the status and the time, and only the first rows.
"""

import codecs
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Protocol, runtime_checkable

import msgspec
import typer

from tailrace.cli.command_line import RowFormat
from tailrace.cli.display import GAP, Heading, console, note_corrupt_batch, print_note, print_table, printable
from tailrace.cli.errors import CommandError, ExitCode, exit_code_of
from tailrace.cli.server_api import ServerApi
from tailrace.cli.sql.script import SqlRequest, explain_sql_error, is_copy, is_one_query
from tailrace.model.errors import TailraceError
from tailrace.model.text import counted, csv_field, distinct_names

_SHOWN_ROWS = 1_000
_NARROW = 20
"""Cells folded to this width are still readable; with less room, rows are shown vertically."""
_NUMBERS = ("smallint", "integer", "bigint", "double", "decimal")
_NULL = "null"

Row = Sequence[str | None]
Result = dict[str, Any]
"""A result in the response of `POST /api/sql`."""


class ResultPrinter(Protocol):
    def show(self, result: Result, seconds: float | None = None) -> None:
        """Print a result. `seconds` is how long the request took, given with its last result."""


@runtime_checkable
class StreamingResultPrinter(Protocol):
    """Prints the rows of one query as the server sends them in this format, however many."""

    media_type: str

    def show_chunks(self, chunks: Iterable[bytes]) -> None: ...


def printer_for(wanted: RowFormat | None, *, timing: bool = False) -> ResultPrinter:
    """Return the printer for this format; by default a table on a terminal and JSON elsewhere."""
    chosen = wanted or (RowFormat.TABLE if sys.stdout.isatty() else RowFormat.JSON)
    if chosen is RowFormat.TABLE:
        return TablePrinter(timing=timing)
    return JsonPrinter() if chosen is RowFormat.JSON else CsvPrinter()


class TablePrinter:
    def __init__(self, *, timing: bool) -> None:
        self.timing = timing
        self.is_vertical: bool | None = None
        """Whether each row is shown as a list of its values; `None` does so if the columns don't fit."""

    def show(self, result: Result, seconds: float | None = None) -> None:
        names = [printable(column["name"]) for column in result["columns"]]
        took = f", {seconds * 1000:,.1f} ms" if self.timing and seconds is not None else ""
        if not names:
            self._print_status(_outcome(result) + took)
            return
        rows = [[_text(value) for value in row] for row in islice(result["rows"], _SHOWN_ROWS)]
        numbers = [column["type"].startswith(_NUMBERS) for column in result["columns"]]
        self._show_rows(names, numbers, rows)
        total = len(result["rows"])
        affected = result.get("affected")
        shown = "" if total <= _SHOWN_ROWS else f"; the first {_SHOWN_ROWS:,} are shown, --format csv or json writes all"
        self._print_status(f"{counted(total, 'row')}{shown}{took}" if affected is None else f"{_outcome(result)}{took}")

    def _show_rows(self, names: Sequence[str], numbers: Sequence[bool], rows: Sequence[Row]) -> None:
        room = console().width
        if self.is_vertical or (self.is_vertical is None and rows and _width(map(_folded, names), rows) > room):
            self._show_vertical(names, rows)
        else:
            is_wide = _width(names, rows) > room
            print_table(
                [Heading(_folded(name) if is_wide else name, number) for name, number in zip(names, numbers, strict=True)],
                rows,
            )

    def _show_vertical(self, names: Sequence[str], rows: Sequence[Row]) -> None:
        from rich.table import Table
        from rich.text import Text

        out = console()
        for number, row in enumerate(rows, 1):
            out.print(Text(f"row {number}", style="dim"))
            grid = Table.grid(padding=(0, 2))
            grid.add_column(style="bold", no_wrap=True)
            grid.add_column(overflow="fold")
            for name, value in zip(names, row, strict=True):
                grid.add_row(Text(name), Text(_NULL, style="dim") if value is None else Text(value))
            out.print(grid)

    def _print_status(self, text: str) -> None:
        from rich.text import Text

        console().print(Text(text, style="dim"))


class JsonPrinter:
    media_type = "application/x-ndjson"

    def show_chunks(self, chunks: Iterable[bytes]) -> None:
        _write(chunks)

    def show(self, result: Result, seconds: float | None = None) -> None:
        names = distinct_names([column["name"] for column in result["columns"]])
        encode = msgspec.json.Encoder().encode
        sys.stdout.writelines(
            encode(dict(zip(names, row, strict=True))).decode() + "\n" for row in (result["rows"] if names else ())
        )
        sys.stdout.flush()


class CsvPrinter:
    """Prints CSV. Null is an empty field and an empty text is `""`, so that the two differ."""

    media_type = "text/csv"

    def __init__(self) -> None:
        self._is_first = True

    def show_chunks(self, chunks: Iterable[bytes]) -> None:
        _write(chunks, "" if self._is_first else "\n")
        self._is_first = False

    def show(self, result: Result, seconds: float | None = None) -> None:
        if not result["columns"]:
            return
        if not self._is_first:
            sys.stdout.write("\n")
        self._is_first = False
        sys.stdout.writelines(self._lines(result))
        sys.stdout.flush()

    def _lines(self, result: Result) -> Iterator[str]:
        yield ",".join(csv_field(column["name"]) for column in result["columns"]) + "\n"
        for row in result["rows"]:
            yield ",".join(map(csv_field, row)) + "\n"


def _write(chunks: Iterable[bytes], before: str = "") -> None:
    decode = codecs.getincrementaldecoder("utf-8")().decode
    sys.stdout.write(before)
    sys.stdout.writelines(map(decode, chunks))
    sys.stdout.flush()


def note_if_truncated(result: Result) -> bool:
    if not result.get("truncated"):
        return False
    limit = "answer_bytes" if result["status"].startswith("CONSUME") else "query_rows"
    print_note(f"tailrace: only the first {len(result['rows']):,} rows are shown; the server's limit {limit} cut off the rest")
    return True


def _width(names: Iterable[str], rows: Sequence[Row]) -> int:
    """Return the width of a table whose cells are folded as far as they stay readable."""
    from rich.cells import cell_len

    widths = [
        min(_NARROW, max(cell_len(line) for cell in cells for line in (cell or _NULL).split("\n")))
        for cells in zip(names, *rows, strict=True)
    ]
    return sum(widths) + GAP * (len(widths) - 1)


def _folded(name: str) -> str:
    """Return a name that can be shown on several lines."""
    return name.replace("_", "_\n")


def _outcome(result: Result) -> str:
    cursor = result.get("cursor")
    return str(result["status"]) if cursor is None else f"{result['status']}, cursor {cursor}"


def _text(value: Any) -> str | None:
    if value is None:
        return None
    return printable(value if isinstance(value, str) else msgspec.json.encode(value).decode())


Parameters = Sequence[object] | Mapping[str, object]


class SqlRunner:
    """Sends requests and prints what comes back, the same way for the prompt and for scripts."""

    def __init__(
        self, server: ServerApi, printer: ResultPrinter, source: str = "", before_output: Callable[[], None] = lambda: None
    ) -> None:
        self._server = server
        self._printer = printer
        self._source = source
        self._before_output = before_output

    def run(self, request: SqlRequest, parameters: Parameters = ()) -> ExitCode:
        """Run a request and print its results or its error. Return the exit code."""
        printer = self._printer
        if is_copy(request.text):
            return self.attempt(request, lambda: self._copy(request.text))
        # Skipped batches are only listed in a response that is not streamed.
        if isinstance(printer, StreamingResultPrinter) and is_one_query(request.text) and not self._server.skips_corrupt:
            return self.attempt(request, lambda: self._stream(printer, request.text, parameters))
        return self.attempt(request, lambda: self._server.sql(request.text, parameters))

    def _stream(self, printer: StreamingResultPrinter, text: str, parameters: Parameters) -> Sequence[Result]:
        """Print all rows of a query as they arrive, and return no results."""
        with self._server.sql_rows(text, parameters, printer.media_type) as chunks:
            self._before_output()
            printer.show_chunks(chunks)
        return ()

    def _copy(self, text: str) -> Sequence[Result]:
        """Run COPY here, because its file is here."""
        from tailrace.cli.copy import copy_from, copy_to
        from tailrace.cli.sql.copy_statement import parse_copy

        order = parse_copy(text)
        self._before_output()
        try:
            if order.is_from:
                rows = copy_from(self._server, order, is_stdin_free=self._source != "stdin").rows
            else:
                rows = copy_to(self._server, order).rows
        except OSError as error:
            raise CommandError(f"{error.filename or order.file}: {error.strerror}") from error
        return [{"columns": [], "rows": [], "status": f"COPY {rows}"}]

    def attempt(self, request: SqlRequest, ask: Callable[[], Sequence[Result]]) -> ExitCode:
        began = time.perf_counter()
        try:
            results = ask()
        except (CommandError, TailraceError) as error:
            self._before_output()
            self._print_error(explain_sql_error(error, request, self._source))
            return exit_code_of(error)
        except KeyboardInterrupt:
            self._before_output()
            # The connection is closed by now, which tells the server to cancel the statement.
            typer.echo(err=True)
            self._print_error("cancelled; a write that was under way may have taken effect")
            return ExitCode.INTERRUPTED
        seconds = time.perf_counter() - began
        self._before_output()
        code = ExitCode.OK
        for number, result in enumerate(results, 1):
            self._printer.show(result, seconds if number == len(results) else None)
            for batch in result.get("corrupt", ()):
                note_corrupt_batch(batch)
            if note_if_truncated(result):
                code = ExitCode.REFUSED
        return code

    def _print_error(self, text: str) -> None:
        mark = typer.style("error:", fg="red", bold=True) if sys.stderr.isatty() else "tailrace:"
        typer.echo(f"{mark} {text}", err=True)
