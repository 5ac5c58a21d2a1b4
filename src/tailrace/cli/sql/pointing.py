"""An error of SQL with the line it is about, and a caret under the place."""

import re

from tailrace.cli.display import printable
from tailrace.cli.failures import CommandError, RefusedError
from tailrace.cli.sql.script import Request

_LINE_BREAK = re.compile(r"\r\n|\r|\n")
_PLACE = re.compile(r"line \d+, column \d+: ")
_SHOWN = 72
"""Characters of a line that are shown; a longer one is cut around the place."""


def explain(error: CommandError, request: Request, source: str = "") -> str:
    """`source` is the name of the file, if there is one; lines are counted in it."""
    place = error.place if isinstance(error, RefusedError) else None
    if place is None:
        return f"{source}, line {_first_line(request)}: {error}" if source else str(error)
    line, column = place
    lines = _LINE_BREAK.split(request.text)
    message = _PLACE.sub("", str(error), count=1)
    shown_line = request.line + line - 1
    shown_column = column + (request.column - 1 if line == 1 else 0)
    where = f"{source}, line {shown_line}" if source else f"line {shown_line}"
    head = f"{where}, column {shown_column}: {message}"
    if not 1 <= line <= len(lines):
        return head
    return f"{head}\n{_pointed(lines[line - 1], column)}"


def _first_line(request: Request) -> int:
    """Of what is not empty."""
    before = request.text[: len(request.text) - len(request.text.lstrip())]
    return request.line + len(_LINE_BREAK.findall(before))


def _pointed(line: str, column: int) -> str:
    from rich.cells import cell_len

    at = min(column - 1, len(line))
    begin = max(0, min(at - _SHOWN // 2, len(line) - _SHOWN))
    before, after = printable(line[begin:at]), printable(line[at : begin + _SHOWN])
    if begin == 0:
        stripped = before.lstrip()
        before = stripped if stripped or not before else ""
    lead = "  ..." if begin else "  "
    tail = "..." if begin + _SHOWN < len(line) else ""
    return f"{lead}{before}{after}{tail}\n{' ' * (len(lead) + cell_len(before))}^"
