"""Reads the tables of a document: what stands in backquotes in the first column names the row."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
REFERENCE = ROOT / "docs" / "reference"

_ROW_NAME = re.compile(r"^\| `([^`]+)` \|(.*)\|$", re.MULTILINE)


def named_rows(document: Path) -> dict[str, list[str]]:
    """Row name and its other cells."""
    return {name: [cell.strip() for cell in rest.split("|")] for name, rest in _ROW_NAME.findall(document.read_text())}
