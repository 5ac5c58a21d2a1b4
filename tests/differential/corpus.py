"""Reads the cases that are written by hand.

A file of `cases/expressions/` has an expression over the row of `v` on each line; a file of `cases/queries/` has queries that
end with `;` at the end of a line. The name of a file is the subject of its cases. Lines that start with `--` are comments.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Literal, NamedTuple

CASES = Path(__file__).parent / "cases"


class Case(NamedTuple):
    kind: Literal["expression", "query"]
    subject: str
    text: str
    is_generated: bool = False


def written_cases() -> list[Case]:
    expressions = [Case("expression", file.stem, text) for file in _files("expressions") for text in _lines(file)]
    queries = [Case("query", file.stem, text) for file in _files("queries") for text in statements_of(file)]
    return [*expressions, *queries]


def _files(folder: str) -> list[Path]:
    return sorted((CASES / folder).glob("*.sql"))


def _lines(file: Path) -> Iterator[str]:
    for line in file.read_text().splitlines():
        if line.strip() and not line.startswith("--"):
            yield line.strip()


def statements_of(file: Path) -> Iterator[str]:
    statement: list[str] = []
    for line in _lines(file):
        statement.append(line.removesuffix(";"))
        if line.endswith(";"):
            yield " ".join(statement)
            statement = []
    assert not statement, f"the last query of {file} does not end with ';'"
