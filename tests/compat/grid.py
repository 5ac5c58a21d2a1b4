"""The page that a run of everything writes: scenarios down, clients across, and the reason for every cell that is not a yes."""

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

from tests.compat.scenarios import Scenario

Outcome = Literal["works", "fails", "n/a", "not run"]

_HEAD = """\
# Kafka clients

What each client does with a real `tailrace serve`. This page is written by `make compat`, which plays every scenario of
`tests/compat/scenarios/` with every client; nothing on it is written by hand.

"✓" works. "n/a" the client can not express it. "**fails**" does not work today. "?" was not tried.
The notes say why; there "it" is the client.
"""


class Cell(NamedTuple):
    outcome: Outcome
    reason: str = ""


class Column(NamedTuple):
    name: str
    title: str
    version: str


class Grid:
    """Collects cells as the tests end, and renders them."""

    def __init__(self, scenarios: Sequence[Scenario]) -> None:
        self._scenarios = scenarios
        self._cells: dict[tuple[str, str], Cell] = {}

    def enter(self, client: str, scenario: str, cell: Cell) -> None:
        self._cells[client, scenario] = cell

    def is_complete(self, columns: Sequence[Column]) -> bool:
        """Whether the run has been through all of it: then the page may be written."""
        return len(self._cells) == len(columns) * len(self._scenarios)

    def render(self, columns: Sequence[Column], facts: Mapping[str, str]) -> str:
        notes: dict[str, int] = {}
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
            "",
            "## Notes",
            "",
            *(f"{number}. {reason}" for reason, number in notes.items()),
        ]
        return "\n".join(parts) + "\n"

    def _row(self, columns: Sequence[Column], scenario: Scenario, notes: dict[str, int]) -> str:
        cells = []
        for column in columns:
            cell = self._cells.get((column.name, scenario.name), Cell("not run", "Not tried in this run."))
            sign = {"works": "✓", "fails": "**fails**", "n/a": "n/a", "not run": "?"}[cell.outcome]
            if cell.reason:
                sign += f" ({notes.setdefault(_sentence(cell.reason), len(notes) + 1)})"
            cells.append(sign)
        return f"| {scenario.title} | {scenario.apis} | " + " | ".join(cells) + " |"


def _sentence(reason: str) -> str:
    return reason[:1].upper() + reason[1:].rstrip(".") + "."
