"""What commands print: tables for people, JSON for scripts, notes on stderr.

Nothing that comes from a record reaches a terminal unchecked: control characters would make it do things.
"""

import os
import re
import stat
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple, Protocol

import msgspec
import typer

from tailrace.cli.command_line import MessageFormat

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, TaskID
    from rich.text import Text

    from tailrace.api.messages import ReadMessage


_CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""With the marks that turn the direction of writing."""
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")
_STEP = 1024

GAP = 2
"""Between the columns of a table."""


class Heading(NamedTuple):
    name: str
    is_number: bool = False


def print_json(value: object) -> None:
    """One line."""
    import msgspec

    typer.echo(msgspec.json.encode(value).decode())


def print_table(headings: Sequence[Heading], rows: Iterable[Sequence[str | None]], empty: str = "") -> None:
    """As wide as the terminal at most; long cells are folded. `empty` is said where there is no row."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, padding=(0, GAP - 1, 0, 0), pad_edge=False, show_edge=False, header_style="bold")
    for heading in headings:
        table.add_column(Text(heading.name), justify="right" if heading.is_number else "left", overflow="fold", vertical="top")
    for row in rows:
        table.add_row(*(Text("null", style="dim") if value is None else Text(printable(value)) for value in row))
    if table.row_count or not empty:
        console().print(table)
    else:
        print_note(empty)


def print_properties(properties: Iterable[tuple[str, str | int | None]]) -> None:
    """Names and values below each other; those without a value are left out."""
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in properties:
        if value not in (None, ""):
            table.add_row(name, Text(printable(str(value))))
    console().print(table)


def console() -> "Console":
    """Standard output. Where it is no terminal, nothing is cut or folded to some width that nobody sees."""
    from rich.console import Console

    is_terminal = sys.stdout.isatty()
    return Console(highlight=False, width=None if is_terminal else 10_000, soft_wrap=False)


def print_note(text: str) -> None:
    """A word for the person at the terminal; scripts that read stdout do not meet it."""
    typer.echo(text, err=True)


def printable(text: str) -> str:
    """The text with control characters written out, except line breaks."""
    return _CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}" if found[0] != "\t" else "    ", text)


def size(count: int) -> str:
    """`1536` -> `1.5 KiB`."""
    amount = float(count)
    for unit in _UNITS:
        if amount < _STEP or unit == _UNITS[-1]:
            break
        amount /= _STEP
    return f"{count} B" if unit == "B" else f"{amount:.1f} {unit}"


def confirm(question: str, *, yes: bool) -> None:
    """Ask before something is lost, where there is a person to ask. `--yes` has answered already."""
    if yes or not (sys.stdin.isatty() and sys.stderr.isatty()):
        return
    if not typer.confirm(f"{question} Go on?", err=True):
        print_note("nothing was done")
        raise typer.Exit(1)


def note_corrupt_batch(batch: Mapping[str, object]) -> None:
    """Say that a stored batch can't be decoded."""
    print_note(
        f"tailrace: offsets {batch['first_offset']} to {batch['last_offset']} of {batch['topic_name']}, partition"
        f" {batch['partition_id']}, can't be decoded: {batch['reason']}"
    )


class MessagePrinter:
    """`with_topic` is for streams that hold several."""

    def __init__(self, wanted: MessageFormat | None, *, with_topic: bool) -> None:
        self._format = wanted or (MessageFormat.TEXT if sys.stdout.isatty() else MessageFormat.JSON)
        self._with_topic = with_topic
        self._console = console()
        self._encode = msgspec.json.Encoder().encode

    def show(self, message: "ReadMessage") -> None:
        if self._format is MessageFormat.TEXT:
            self._console.print(self._text(message), soft_wrap=True)
        else:
            data = self._json(message) if self._format is MessageFormat.JSON else value_of(message)
            if data is not None:
                _write_whole(data + b"\n")

    def flush(self) -> None:
        """After this, whoever reads the output has it."""
        sys.stdout.flush()

    def _json(self, message: "ReadMessage") -> bytes:
        line: bytes = self._encode(message)
        # The value is as it was written, perhaps over several lines; between the words of JSON they mean nothing.
        return msgspec.json.format(line, indent=-1) if b"\n" in line or b"\r" in line else line

    def _text(self, message: "ReadMessage") -> "Text":
        from rich.text import Text

        moment = datetime.fromtimestamp(message.timestamp_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
        line = Text()
        if self._with_topic:
            line.append(f"{message.cursor}  ", "bold")
            line.append(f"{message.topic_name}[{message.partition_id}]  ", "cyan")
        else:
            line.append(f"{message.partition_id}:{message.offset}  ", "cyan")
        line.append(f"{moment}  ", "dim")
        key = message.key if isinstance(message.key, str) else message.key_base64
        if isinstance(key, str | bytes):
            line.append(f"{_shown(key)}  ", "green")
        value = value_of(message)
        return line.append("no value", "dim") if value is None else line.append(_shown(value))


def value_of(message: "ReadMessage") -> bytes | None:
    """As it was published; `None` for a tombstone."""
    if isinstance(message.value_base64, bytes):
        return message.value_base64
    value = bytes(message.value) if isinstance(message.value, msgspec.Raw) else b"null"
    return None if value == b"null" else value


def _shown(data: str | bytes) -> str:
    text = data if isinstance(data, str) else data.decode(errors="backslashreplace")
    return printable(text).replace("\n", " ")


def _write_whole(data: bytes) -> None:
    left = memoryview(data)
    while left:
        # Where PYTHONUNBUFFERED is set, as images of containers do, a write takes as much as the pipe does.
        left = left[sys.stdout.buffer.write(left) :]


_PATIENCE_SECONDS = 1.0


class ProgressState(NamedTuple):
    """How far the work is, from its beginning."""

    things: int
    """What is counted, such as messages."""
    done: int
    total: int | None
    """`None` where nobody knows it."""


class ProgressBar(Protocol):
    def advance(self, reached: ProgressState) -> None: ...
    def step_aside(self) -> None:
        """Until work advances again."""


@contextmanager
def progress(noun: str, *, is_shown: bool = True) -> Iterator[ProgressBar]:
    """`noun` is what is counted, in the plural. `is_shown`: whether a bar would be in nobody's way."""
    if not is_shown or not sys.stderr.isatty():
        yield _NoBar()
        return
    bar = _DelayedBar(noun)
    try:
        yield bar
    finally:
        bar.step_aside()


def size_of_input(descriptor: int) -> int | None:
    """Of a file; nobody knows how much will come through a pipe."""
    status = os.fstat(descriptor)
    return status.st_size if stat.S_ISREG(status.st_mode) else None


class _NoBar:
    def advance(self, reached: ProgressState) -> None:
        pass

    def step_aside(self) -> None:
        pass


class _DelayedBar:
    def __init__(self, noun: str) -> None:
        self._noun = noun
        self._began = time.monotonic()
        self._made: tuple[Progress, TaskID] | None = None

    def advance(self, reached: ProgressState) -> None:
        if self._made is None:
            if time.monotonic() - self._began < _PATIENCE_SECONDS:
                return
            self._made = self._make(reached.total)
        progress, task = self._made
        progress.update(task, completed=reached.done, total=reached.total, things=f"{reached.things:,}")
        progress.start()

    def step_aside(self) -> None:
        if self._made is not None:
            self._made[0].stop()

    def _make(self, total: int | None) -> "tuple[Progress, TaskID]":
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

        columns = (BarColumn(), TaskProgressColumn(), TimeRemainingColumn()) if total else ()
        progress = Progress(
            TextColumn(f"{{task.fields[things]}} {self._noun}"),
            *columns,
            console=Console(stderr=True),
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        return progress, progress.add_task("", total=total, things="0")
