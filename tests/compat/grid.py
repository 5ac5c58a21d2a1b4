"""The section of the page about clients: scenarios down, clients across, and the reason for every cell that is not a yes."""

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

from tests.compat.scenarios import Scenario

Outcome = Literal["works", "fails", "n/a", "not run"]

SIGNS: Mapping[Outcome, str] = {"works": "✓", "fails": "**fails**", "n/a": "n/a", "not run": "?"}
_HEAD = """\
Each client plays every scenario of `tests/compat/scenarios/`. In the notes "it" is the client.
"""


class Cell(NamedTuple):
    outcome: Outcome
    reason: str = ""


class Column(NamedTuple):
    name: str
    title: str
    version: str


class Notes:
    """The reasons below a table. Equal ones have one number."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def mark(self, cell: Cell) -> str:
        """Return what stands behind a sign."""
        if not cell.reason:
            return ""
        sentence = cell.reason[:1].upper() + cell.reason[1:].rstrip(".") + "."
        return f" ({self._numbers.setdefault(sentence, len(self._numbers) + 1)})"

    def lines(self) -> list[str]:
        if not self._numbers:
            return []
        return ["", "### Notes", "", *(f"{number}. {reason}" for reason, number in self._numbers.items())]


class Grid:
    """Collects cells as the tests end, and renders them."""

    def __init__(self, scenarios: Sequence[Scenario]) -> None:
        self._scenarios = scenarios
        self._cells: dict[tuple[str, str], Cell] = {}

    def enter(self, client: str, scenario: str, cell: Cell) -> None:
        self._cells[client, scenario] = cell

    def is_complete(self, columns: Sequence[Column]) -> bool:
        """Whether the run has been through all of it: then the section may be written."""
        return len(self._cells) == len(columns) * len(self._scenarios)

    def render(self, columns: Sequence[Column], facts: Mapping[str, str]) -> str:
        notes = Notes()
        rows = [self._row(columns, scenario, notes) for scenario in self._scenarios]
        parts = [
            _HEAD,
            "| Client | Version |\n|---|---|",
            *(f"| {column.title} | {column.version} |" for column in columns),
            "",
            *(f"- {name}: {value}" for name, value in facts.items()),
            "",
            "| Scenario | APIs | " + " | ".join(column.title for column in columns) + " |",
            "|---|---|" + "---|" * len(columns),
            *rows,
            *notes.lines(),
        ]
        return "\n".join(parts) + "\n"

    def _row(self, columns: Sequence[Column], scenario: Scenario, notes: Notes) -> str:
        cells = [self._cells.get((column.name, scenario.name), Cell("not run", "Not tried in this run")) for column in columns]
        signs = [SIGNS[cell.outcome] + notes.mark(cell) for cell in cells]
        return f"| {scenario.title} | {scenario.apis} | " + " | ".join(signs) + " |"
