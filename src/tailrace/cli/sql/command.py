"""`tailrace sql`: runs statements from a prompt, a flag, a file or a pipe."""

import os
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from getpass import getpass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from tailrace.cli.command_line import DEFAULT_SERVER, JsonOption, RowFormat, ServerLogin, ServerOption, SkipCorruptOption
from tailrace.cli.errors import CommandError, ExitCode, UsageError

if TYPE_CHECKING:
    from tailrace.cli.server_api import ServerApi


_STDIN = Path("-")
_NAMED_PARAMETER = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)


def sql(
    command: Annotated[str | None, typer.Option("--command", "-c", metavar="TEXT", help="Run this and exit.")] = None,
    file: Annotated[
        Path | None, typer.Option("--file", "-f", metavar="FILE", help="Run this file and exit; - is stdin.")
    ] = None,
    parameters: Annotated[
        list[str] | None,
        typer.Option("--param", "-p", metavar="VALUE", help="A value for a ?, or name=value for :name; JSON, or else text."),
    ] = None,
    shape: Annotated[
        RowFormat | None, typer.Option("--format", help="By default a table on a terminal and JSON elsewhere.")
    ] = None,
    as_json: JsonOption = False,
    skip_corrupt: SkipCorruptOption = False,
    server: ServerOption = DEFAULT_SERVER,
) -> None:
    r"""Run SQL: at a prompt, from the command line, a file or a pipe.

    Statements run one after the other; the first error ends a script with its
    exit code and shows where it is. Statements between BEGIN and COMMIT are
    sent as one request. With parameters the whole text is one request.

    [bold]Examples[/]
    tailrace sql
    tailrace sql -c 'SELECT count(*) FROM shop.orders'
    tailrace sql -c 'SELECT * FROM t WHERE id = :id' -p id=42 --format csv
    tailrace sql -f schema.sql
    """
    if command is not None and file is not None:
        raise UsageError("-c and -f both give the text to run; use one of them")
    is_prompt = command is None and file is None and sys.stdin.isatty()
    if is_prompt and parameters:
        raise UsageError("-p gives values to the text of -c or -f; at the prompt, write them into the statement")
    wanted = RowFormat.JSON if as_json else shape

    from tailrace.cli.server_api import ServerApi

    with ServerApi(server, _asked_password(server)) as api:
        api.skips_corrupt = skip_corrupt
        if is_prompt:
            _prompt(api, wanted)
            return
        with _source(command, file) as source:
            code = _script(api, source, parameters or [], wanted)
    if code is not ExitCode.OK:
        raise typer.Exit(code)


def _asked_password(server: ServerLogin) -> str | None:
    """Ask for the password of a user that is given on a terminal without one."""
    from tailrace.client.credentials import PASSWORD, PASSWORD_FILE

    if server.user is None or server.password_file is not None or not sys.stdin.isatty():
        return None
    if os.environ.get(PASSWORD) or os.environ.get(PASSWORD_FILE):
        return None
    return getpass(f"Password of {server.user}: ")


def _prompt(api: "ServerApi", wanted: RowFormat | None) -> None:
    from tailrace import __version__
    from tailrace.cli.display import print_note
    from tailrace.cli.sql.completion import ServerNames
    from tailrace.cli.sql.prompt import Prompt, history_file, open_history
    from tailrace.cli.sql.results import printer_for

    version = api.get("/health").get("version")
    if version is None:
        # It says no more to whom it does not know; this says what to do.
        api.get("/api/whoami")
    differs = "" if version == __version__ else f" (this prompt is {__version__})"
    print_note(f"Tailrace {version}{differs} at {api.url}. Type \\? for help, \\q to quit.")
    names = ServerNames(api.another)
    Prompt(api, names, printer_for(wanted, timing=True), open_history(history_file())).run()


class _Source(NamedTuple):
    lines: Iterable[str]
    name: str = ""
    """Used in error messages."""
    size: int | None = None


@contextmanager
def _source(command: str | None, file: Path | None) -> Iterator[_Source]:
    """Open the text, line by line."""
    from tailrace.cli.display import size_of_input

    if command is not None:
        yield _Source([command])
    elif file is None or file == _STDIN:
        yield _Source(sys.stdin, "stdin", size_of_input(sys.stdin.fileno()))
    else:
        with file.open(encoding="utf-8", newline="") as opened:
            yield _Source(opened, str(file), size_of_input(opened.fileno()))


def _readable(source: _Source) -> Iterator[str]:
    try:
        yield from source.lines
    except UnicodeDecodeError as error:
        raise CommandError(f"{source.name} is not UTF-8: {error.reason}") from error


def _script(api: "ServerApi", source: _Source, given: list[str], wanted: RowFormat | None) -> ExitCode:
    from tailrace.cli.display import ProgressState, progress
    from tailrace.cli.sql.results import SqlRunner, printer_for
    from tailrace.cli.sql.script import RequestGrouper, SqlRequest, StatementReader

    printer = printer_for(wanted)
    if given:
        return SqlRunner(api, printer, source.name).run(SqlRequest("".join(_readable(source))), read_parameters(given))
    reader, requests = StatementReader(), RequestGrouper()

    def read_requests() -> Iterator[SqlRequest]:
        for line in _readable(source):
            for statement in reader.feed(line):
                yield from requests.add(statement)
        for statement in reader.rest():
            yield from requests.add(statement)
        yield from requests.rest()

    sent = 0
    with progress("statements") as bar:
        runner = SqlRunner(api, printer, source.name, before_output=bar.hide)
        for number, request in enumerate(read_requests(), 1):
            code = runner.run(request)
            if code is not ExitCode.OK:
                return code
            sent += len(request.text.encode())
            bar.advance(ProgressState(number, sent, source.size))
    return ExitCode.OK


def read_parameters(given: Sequence[str]) -> list[Any] | dict[str, Any]:
    """Read the values of `-p`: `-p 42` is for a `?`, `-p id=42` for `:id`.

    A value that is valid JSON is decoded, everything else is text. `-p '"42"'` is a text of two digits.
    """
    named = [_NAMED_PARAMETER.fullmatch(text) for text in given]
    if not any(named):
        return [_value(text) for text in given]
    found: dict[str, Any] = {}
    for text, match in zip(given, named, strict=True):
        if match is None:
            raise UsageError(f"-p {text!r} has no name and others have; give all parameters a name, or none")
        if match[1] in found:
            raise UsageError(f"-p {match[1]} is given twice")
        found[match[1]] = _value(match[2])
    return found


def _value(text: str) -> Any:
    import msgspec

    try:
        return msgspec.json.decode(text.encode(errors="surrogateescape"))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return text
