"""What commands print: tables and messages for people, JSON for scripts, notes and progress bars on stderr.

Control characters in stored data are escaped before they reach a terminal, because a terminal would obey them.
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

import typer

from tailrace.cli.command_line import MessageFormat

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, TaskID
    from rich.text import Text

    from tailrace.api.messages import ReadMessage


_CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""Includes the characters that change the direction of writing, and surrogates."""
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")
_UNIT_STEP = 1024
_BAR_DELAY_SECONDS = 1.0
_LINE_SECONDS = 5.0

GAP = 2
"""Spaces between the columns of a table."""


class Heading(NamedTuple):
    name: str
    is_number: bool = False


def print_json(value: object) -> None:
    """Print the value as one line of JSON."""
    import msgspec

    typer.echo(msgspec.json.encode(value).decode())


def print_table(headings: Sequence[Heading], rows: Iterable[Sequence[str | None]], empty: str = "") -> None:
    """Print a table that is at most as wide as the terminal; long cells are folded. `empty` is printed if there are no rows."""
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
    """Print names and values, one pair a line, without those that have no value."""
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
    """Return standard output. If it is not a terminal, nothing is cut or folded."""
    from rich.console import Console

    is_terminal = sys.stdout.isatty()
    return Console(highlight=False, width=None if is_terminal else 10_000, soft_wrap=False)


def print_note(text: str) -> None:
    """Print a line for a person on stderr, where scripts that read stdout do not see it."""
    typer.echo(text, err=True)


def printable(text: str) -> str:
    """Return the text with control characters escaped, except line breaks."""
    return _CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}" if found[0] != "\t" else "    ", text)


def size(count: int) -> str:
    """Write a number of bytes with a unit: `1536` is `1.5 KiB`."""
    amount = float(count)
    for unit in _UNITS:
        if amount < _UNIT_STEP or unit == _UNITS[-1]:
            break
        amount /= _UNIT_STEP
    return f"{count} B" if unit == "B" else f"{amount:.1f} {unit}"


def confirm(question: str, *, yes: bool) -> None:
    """Ask before something is lost, if there is a person at the terminal and `--yes` was not given."""
    if yes or not (sys.stdin.isatty() and sys.stderr.isatty()):
        return
    if not typer.confirm(f"{question} Continue?", err=True):
        print_note("nothing was changed")
        raise typer.Exit(1)


def note_corrupt_batch(batch: Mapping[str, object]) -> None:
    """Print that a stored batch can't be decoded."""
    print_note(
        f"tailrace: offsets {batch['first_offset']} to {batch['last_offset']} of {batch['topic_name']}, partition"
        f" {batch['partition_id']}, can't be decoded: {batch['reason']}"
    )


class MessagePrinter:
    """Prints messages as a line of text, as JSON, or as the bare value. `with_topic` is for streams of several topics."""

    def __init__(self, wanted: MessageFormat | None, *, with_topic: bool) -> None:
        self._format = wanted or (MessageFormat.TEXT if sys.stdout.isatty() else MessageFormat.JSON)
        self._with_topic = with_topic
        self._console = console()

    def show(self, message: "ReadMessage") -> None:
        if self._format is MessageFormat.TEXT:
            self._console.print(self._text(message), soft_wrap=True)
        else:
            data = _json_line(message) if self._format is MessageFormat.JSON else value_of(message)
            if data is not None:
                _write_whole(data + b"\n")

    def flush(self) -> None:
        """Flush stdout, so that the reader of the output has everything."""
        sys.stdout.flush()

    def _text(self, message: "ReadMessage") -> "Text":
        from rich.text import Text

        written_at = datetime.fromtimestamp(message.timestamp_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
        line = Text()
        if self._with_topic:
            line.append(f"{message.cursor}  ", "bold")
            line.append(f"{message.topic_name}[{message.partition_id}]  ", "cyan")
        else:
            line.append(f"{message.partition_id}:{message.offset}  ", "cyan")
        line.append(f"{written_at}  ", "dim")
        key = message.key if isinstance(message.key, str) else message.key_base64
        if isinstance(key, str | bytes):
            line.append(f"{_shown(key)}  ", "green")
        value = value_of(message)
        return line.append("no value", "dim") if value is None else line.append(_shown(value))


def value_of(message: "ReadMessage") -> bytes | None:
    """Return the value as it was published; `None` for a tombstone."""
    import msgspec

    if isinstance(message.value_base64, bytes):
        return message.value_base64
    value = bytes(message.value) if isinstance(message.value, msgspec.Raw) else b"null"
    return None if value == b"null" else value


def _json_line(message: "ReadMessage") -> bytes:
    import msgspec

    line = msgspec.json.encode(message)
    # The value is stored as it was written, perhaps over several lines. Line breaks between JSON tokens can be removed.
    return msgspec.json.format(line, indent=-1) if b"\n" in line or b"\r" in line else line


def _shown(data: str | bytes) -> str:
    text = data if isinstance(data, str) else data.decode(errors="backslashreplace")
    return printable(text).replace("\n", " ")


def _write_whole(data: bytes) -> None:
    left = memoryview(data)
    while left:
        # With PYTHONUNBUFFERED, which container images often set, a write takes only as much as the pipe does.
        left = left[sys.stdout.buffer.write(left) :]


class ProgressDisplay:
    """Shows a text about the progress, on stderr: beside a bar at a terminal, as a line every few seconds elsewhere."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._next_line = self._began + _LINE_SECONDS
        self._is_terminal = sys.stderr.isatty()
        self._bar: tuple[Progress, TaskID] | None = None

    def __enter__(self) -> "ProgressDisplay":
        return self

    def __exit__(self, *_: object) -> None:
        self.hide()

    def show(self, text: str, done: int, total: int | None) -> None:
        """Show the text, and how much is done of the total; `None` if that is not known."""
        now = time.monotonic()
        if not self._is_terminal:
            if now >= self._next_line:
                self._next_line = now + _LINE_SECONDS
                print_note(text)
        elif self._bar is not None or now - self._began >= _BAR_DELAY_SECONDS:
            if self._bar is None:
                self._bar = self._make()
            bar, task = self._bar
            # update() would take None as no change.
            bar.tasks[0].total = total
            bar.update(task, completed=done, text=text)
            bar.start()

    def hide(self) -> None:
        """Remove the bar until the next progress, so that something else can be printed."""
        if self._bar is not None:
            self._bar[0].stop()

    def _make(self) -> "tuple[Progress, TaskID]":
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

        bar = Progress(
            BarColumn(bar_width=10),
            TaskProgressColumn(),
            TextColumn("{task.fields[text]}", markup=False),
            console=Console(stderr=True),
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        return bar, bar.add_task("", total=None, text="")


class ProgressState(NamedTuple):
    """How far the work has come since its start."""

    items: int
    """How many messages, or other items, are done."""
    done: int
    total: int | None
    """`None` if it is not known."""


class ProgressBar(Protocol):
    def advance(self, state: ProgressState) -> None: ...
    def hide(self) -> None:
        """Remove the bar until the work advances again, so that something else can be printed."""


@contextmanager
def progress(noun: str, *, is_shown: bool = True) -> Iterator[ProgressBar]:
    """Show a bar on stderr if it is a terminal and the work takes longer than a second.

    `noun` is what is counted, in the plural. `is_shown` is whether a bar would not disturb other output.
    """
    if not is_shown or not sys.stderr.isatty():
        yield _NoBar()
        return
    bar = _DelayedBar(noun)
    try:
        yield bar
    finally:
        bar.hide()


def size_of_input(descriptor: int) -> int | None:
    """Return the size of a file, or `None` for a pipe."""
    status = os.fstat(descriptor)
    return status.st_size if stat.S_ISREG(status.st_mode) else None


class _NoBar:
    def advance(self, state: ProgressState) -> None:
        pass

    def hide(self) -> None:
        pass


class _DelayedBar:
    def __init__(self, noun: str) -> None:
        self._noun = noun
        self._began = time.monotonic()
        self._made: tuple[Progress, TaskID] | None = None

    def advance(self, state: ProgressState) -> None:
        if self._made is None:
            if time.monotonic() - self._began < _BAR_DELAY_SECONDS:
                return
            self._made = self._make(state.total)
        progress, task = self._made
        progress.update(task, completed=state.done, total=state.total, items=f"{state.items:,}")
        progress.start()

    def hide(self) -> None:
        if self._made is not None:
            self._made[0].stop()

    def _make(self, total: int | None) -> "tuple[Progress, TaskID]":
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

        columns = (BarColumn(), TaskProgressColumn(), TimeRemainingColumn()) if total else ()
        progress = Progress(
            TextColumn(f"{{task.fields[items]}} {self._noun}"),
            *columns,
            console=Console(stderr=True),
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        return progress, progress.add_task("", total=total, items="0")
