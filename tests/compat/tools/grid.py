"""The section of the page about tools: a row for each test, with what it does and whether that works."""

from collections.abc import Sequence
from typing import NamedTuple

from tests.compat.grid import SIGNS, Cell, Notes
from tests.compat.tools.programs import TOOLS, Tool

_HEAD = """\
Programs of Kafka's ecosystem. Each row is a test of `tests/compat/tools/`, which looks at the data that went through.
`make compat` plays all of them, `make smoke` a few.
"""


class Row(NamedTuple):
    of: Tool
    does: str
    cell: Cell


def render(rows: Sequence[Row]) -> str:
    """Return the section, with the tools in the order of their list."""
    notes = Notes()
    lines = [_line(row, notes) for tool in TOOLS for row in rows if row.of is tool]
    return "\n".join([_HEAD, "| Tool | Version | What it does | |", "|---|---|---|---|", *lines, *notes.lines()]) + "\n"


def _line(row: Row, notes: Notes) -> str:
    sign = SIGNS[row.cell.outcome] + notes.mark(row.cell)
    return f"| {row.of.title} | {row.of.version} | {row.does} | {sign} |"
