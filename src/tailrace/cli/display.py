"""What commands print: tables for people, JSON for scripts, notes on stderr.

Nothing that comes from a record reaches a terminal unchecked: control characters would make it do things.
"""

import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import typer

if TYPE_CHECKING:
    from rich.console import Console

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
        note(empty)


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


def note(text: str) -> None:
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
        note("nothing was done")
        raise typer.Exit(1)


def note_corrupt(batch: Mapping[str, object]) -> None:
    """Say that a stored batch can't be decoded."""
    note(
        f"tailrace: offsets {batch['first_offset']} to {batch['last_offset']} of {batch['topic_name']}, partition"
        f" {batch['partition_id']}, can't be decoded: {batch['reason']}"
    )
