"""A section of the page: a row for what a test does with a tool, and whether that works in all its cases."""

from collections.abc import Sequence
from typing import NamedTuple

from tests.compat.grid import SIGNS, Cell, Notes
from tests.compat.tools.programs import TOOLS, Tool


class Row(NamedTuple):
    of: Tool
    does: str
    cell: Cell


def render(intro: str, rows: Sequence[Row]) -> str:
    """Return a section, with the tools in the order of their list."""
    notes = Notes()
    lines = [_line(row, notes) for tool in TOOLS for row in _joined(rows) if row.of is tool]
    return "\n".join([f"{intro}\n", "| Tool | Version | What it does | |", "|---|---|---|---|", *lines, *notes.lines()]) + "\n"


def _joined(rows: Sequence[Row]) -> list[Row]:
    """Return a row for the cases of each test. It works if all do."""
    joined: dict[tuple[str, str], Row] = {}
    for row in rows:
        name = row.of.title, row.does
        if name not in joined or joined[name].cell.outcome == "works":
            joined[name] = row
    return list(joined.values())


def _line(row: Row, notes: Notes) -> str:
    sign = SIGNS[row.cell.outcome] + notes.mark(row.cell)
    return f"| {row.of.title} | {row.of.version} | {row.does} | {sign} |"
