"""`tailrace copy`: rows of CSV and Parquet files into tables, and rows of tables and queries into files.

COPY of `tailrace sql` ends here too. How far it is, is shown as a bar at a terminal and as a line now and then elsewhere; what
ends it says how many rows are in and where to go on.
"""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from tailrace.cli.command_line import DEFAULT_SERVER, JsonOption, ServerOption
from tailrace.cli.display import ProgressDisplay, print_json, print_note, printable, size
from tailrace.cli.errors import CommandError, ExitCode, UsageError

if TYPE_CHECKING:
    from tailrace.cli.server_api import ServerApi
    from tailrace.client.values import CopyProgress, CopyResult, RejectedRow
    from tailrace.model.errors import CopyStoppedError

_STDIO = "-"
_SHOWN_REJECTS = 20


class FileFormat(StrEnum):
    CSV = "csv"
    PARQUET = "parquet"


class OnError(StrEnum):
    STOP = "stop"
    SKIP = "skip"


class CopyOrder(NamedTuple):
    """What to copy, and how."""

    source: str
    """A table, or a query."""
    is_from: bool
    file: str
    """`-` is stdin or stdout."""
    columns: tuple[str, ...] | None = None
    format: str | None = None
    header: bool | str = True
    delimiter: str = ","
    quote: str = '"'
    escape: str | None = None
    null: str = ""
    on_error: str = OnError.STOP
    reject_file: str | None = None
    start_line: int = 1


def copy(
    table: Annotated[str, typer.Argument(metavar="TABLE", help="Left out with --query.")],
    way: Annotated[str, typer.Argument(metavar="from|to", help="Which way.")],
    file: Annotated[str | None, typer.Argument(metavar="FILE", help="- is stdin or stdout.")] = None,
    query: Annotated[str | None, typer.Option("--query", metavar="SQL", help="Copy the rows of this query.")] = None,
    format: Annotated[FileFormat | None, typer.Option("--format", help="By default as the name of the file ends.")] = None,
    header: Annotated[
        bool, typer.Option("--header/--no-header", help="Whether the first line of CSV names the columns.")
    ] = True,
    delimiter: Annotated[str, typer.Option("--delimiter", metavar="C", help="Between the fields of CSV; \\t is a tab.")] = ",",
    null: Annotated[str, typer.Option("--null", metavar="TEXT", help="A null in CSV, if it has no quotes.")] = "",
    columns: Annotated[
        str | None, typer.Option("--columns", metavar="A,B", help="The columns of the file, in their order.")
    ] = None,
    on_error: Annotated[OnError, typer.Option("--on-error", help="What a row that can't be stored does.")] = OnError.STOP,
    reject_file: Annotated[
        Path | None, typer.Option("--reject-file", metavar="FILE", help="Where skipped rows are written.")
    ] = None,
    start_line: Annotated[
        int, typer.Option("--start-line", metavar="N", min=1, help="Begin with this line of CSV, or row of Parquet.")
    ] = 1,
    as_json: JsonOption = False,
    server: ServerOption = DEFAULT_SERVER,
) -> None:
    r"""Copy a CSV or Parquet file into a table, or a table or query to a file.

    Rows go in as chunks of up to 20,000, each of them one transaction. A row
    that can't be stored is named by its line; the rows before it are in, and
    --start-line continues. With --on-error skip it is left out.

    [bold]Examples[/]
    tailrace copy shop.orders from orders.csv
    tailrace copy shop.orders from new.csv --on-error skip --reject-file bad.csv
    tailrace copy shop.orders to orders.parquet
    tailrace copy --query 'SELECT id, total FROM shop.orders' to totals.csv
    zcat orders.csv.gz | tailrace copy shop.orders from - --format csv
    """
    order = _order([word for word in (table, way, file) if word is not None], query)._replace(
        columns=None if columns is None else tuple(name.strip() for name in columns.split(",")),
        format=None if format is None else format.value,
        header=header,
        delimiter="\t" if delimiter == "\\t" else delimiter,
        null=null,
        on_error=on_error.value,
        reject_file=None if reject_file is None else str(reject_file),
        start_line=start_line,
    )
    if not order.is_from and (on_error is OnError.SKIP or reject_file is not None or start_line != 1):
        raise UsageError("--on-error, --reject-file and --start-line are for copying from a file")
    if reject_file is not None and on_error is not OnError.SKIP:
        raise UsageError("--reject-file is for rows that are skipped; add --on-error skip")

    from tailrace.cli.server_api import ServerApi

    began = time.monotonic()
    with ServerApi(server) as api:
        try:
            result = copy_from(api, order) if order.is_from else copy_to(api, order)
        except KeyboardInterrupt:
            raise typer.Exit(ExitCode.INTERRUPTED) from None
    seconds = time.monotonic() - began
    if as_json and (order.is_from or order.file != _STDIO):
        print_json({"rows": result.rows, "rejected": result.rejected, "bytes": result.bytes, "seconds": round(seconds, 3)})
    else:
        typer.echo(_summary(order, result, seconds), err=not order.is_from and order.file == _STDIO)


def _order(words: list[str], query: str | None) -> CopyOrder:
    expected = "to FILE" if query is not None else "TABLE from FILE, or TABLE to FILE"
    *source, way, file = ["", "", *words][-3 if query is None else -2 :]
    if len(words) != (3 if query is None else 2) or way.lower() not in ("from", "to"):
        raise UsageError(f"expected {expected}, found {' '.join(words)!r}")
    if query is not None and way.lower() == "from":
        raise UsageError("--query is what to copy to a file; expected to FILE")
    return CopyOrder(query if query is not None else source[0], way.lower() == "from", file)


def copy_from(api: "ServerApi", order: CopyOrder, *, is_stdin_free: bool = True) -> "CopyResult":
    """Copy a file into a table, showing how far it is. Errors are printed with what is in the table and where to go on."""
    from tailrace.model.errors import CopyStoppedError

    if order.file == _STDIO and not is_stdin_free:
        raise CommandError("stdin holds the statements; give the script by -f, or the rows in a file")
    shown = _Rejects()
    display = CopyDisplay()
    try:
        with display, _usage():
            return api.copy_into(
                order.source,
                sys.stdin.buffer if order.file == _STDIO else order.file,
                columns=order.columns,
                format=_format(order),
                header=order.header,
                csv=_csv(order),
                on_error=order.on_error,
                reject_file=order.reject_file,
                start_line=order.start_line,
                on_progress=display.show,
                on_rejected=lambda row: shown.add(row, display),
            )
    except CopyStoppedError as error:
        _note_state(order, error.rows, error.next_line, error.unknown_until)
        raise _cause_of(error) from error
    except KeyboardInterrupt:
        state = display.last
        if state is not None:
            _note_state(order, state.rows, state.next_line, state.pending_line)
        raise
    finally:
        shown.finish()


def copy_to(api: "ServerApi", order: CopyOrder) -> "CopyResult":
    """Copy a table or a query to a file, showing how far it is."""
    with CopyDisplay() as display, _usage():
        return api.copy_out(
            order.source,
            sys.stdout.buffer if order.file == _STDIO else order.file,
            columns=order.columns,
            format=_format(order),
            header=bool(order.header),
            csv=_csv(order),
            on_progress=display.show,
        )


def _csv(order: CopyOrder) -> Any:
    from tailrace.client.copying.csv_reader import CsvFormat

    return CsvFormat(delimiter=order.delimiter, quote=order.quote, escape=order.escape, null=order.null)


def _format(order: CopyOrder) -> str | None:
    if order.format is None and order.file == _STDIO:
        raise UsageError("a pipe has no name that tells its format; add --format csv")
    return order.format


@contextmanager
def _usage() -> Iterator[None]:
    """Report settings that don't fit the file as errors of the command line."""
    from tailrace.model.errors import ConfigurationError

    try:
        yield
    except ConfigurationError as error:
        raise UsageError(str(error)) from error


def _cause_of(error: "CopyStoppedError") -> Exception:
    from tailrace.model.errors import InvalidRowError, TailraceError

    cause = error.__cause__
    if isinstance(cause, TailraceError) and not isinstance(cause, InvalidRowError):
        return cause
    return CommandError(error.reason)


def _note_state(order: CopyOrder, rows: int, next_line: int, unknown_until: int | None) -> None:
    from tailrace.model.text import counted

    state = f"{counted(rows, 'row')} {'is' if rows == 1 else 'are'} in {order.source}"
    if unknown_until is None:
        print_note(f"{state}; nothing is in from line {next_line:,} on: go on with --start-line {next_line}")
    else:
        print_note(
            f"{state}; lines {next_line:,} to {unknown_until:,} may be in or not, all or none of them: look for the first, and"
            f" go on with --start-line {unknown_until + 1} or {next_line}"
        )


def _summary(order: CopyOrder, result: "CopyResult", seconds: float) -> str:
    from tailrace.model.text import counted

    rate = f"{seconds:.1f} s, {result.rows / max(seconds, 0.001):,.0f} rows/s"
    if not order.is_from:
        return f"{counted(result.rows, 'row')} copied to {order.file} ({rate})"
    text = f"{counted(result.rows, 'row')} copied into {order.source} ({rate})"
    if result.rejected:
        where = "" if order.reject_file is None else f", written to {order.reject_file}"
        text += f"; {counted(result.rejected, 'row')} rejected{where}"
    return text


class _Rejects:
    """Prints the first rejected rows, and how many more there were."""

    def __init__(self) -> None:
        self._count = 0

    def add(self, row: "RejectedRow", display: "CopyDisplay") -> None:
        self._count += 1
        if self._count <= _SHOWN_REJECTS:
            place = f"{row.source}, line {row.line:,}" + ("" if row.column is None else f", column {row.column}")
            display.hide()
            print_note(printable(f"{place}: {row.reason}"))

    def finish(self) -> None:
        if self._count > _SHOWN_REJECTS:
            print_note(f"... and {self._count - _SHOWN_REJECTS:,} more rejected rows")


class CopyDisplay:
    """Rows, bytes, rate and the time that is left."""

    def __init__(self) -> None:
        self.last: CopyProgress | None = None
        self._began = time.monotonic()
        self._display = ProgressDisplay()

    def __enter__(self) -> "CopyDisplay":
        return self

    def __exit__(self, *_: object) -> None:
        self.hide()

    def show(self, progress: "CopyProgress") -> None:
        self.last = progress
        self._display.show(self._text(progress), progress.bytes, progress.total_bytes)

    def hide(self) -> None:
        """Remove the bar until the next rows are copied, so that something else can be printed."""
        self._display.hide()

    def _text(self, progress: "CopyProgress") -> str:
        seconds = max(time.monotonic() - self._began, 0.001)
        total = "" if progress.total_bytes is None else f" of {size(progress.total_bytes)}"
        text = f"{progress.rows:,} rows, {size(progress.bytes)}{total}, {progress.rows / seconds:,.0f} rows/s"
        if progress.total_bytes and progress.bytes:
            left = seconds * (progress.total_bytes - progress.bytes) / progress.bytes
            text += f", {_duration(left)} left"
        return text + (f", {progress.rejected:,} rejected" if progress.rejected else "")


def _duration(seconds: float) -> str:
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
