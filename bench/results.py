"""What a run leaves behind: one file of JSON for each subject, so that the page can be written again without running anything.

A subject that runs again replaces its file. Subjects may therefore come from different runs; each result says when it was
taken, of which commit, at which load and on what machine, and the page repeats it.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from bench.figures import Section

ScaleName = Literal["full", "quick"]


class Circumstances(msgspec.Struct, frozen=True, kw_only=True):
    """Under which a subject was measured."""

    scale: ScaleName
    began: str
    """Date and minute, UTC."""
    seconds: float
    commit: str
    load_before: float
    load_after: float
    machine: Mapping[str, str]


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """Either a section, or the reason why there is none."""

    subject: str
    circumstances: Circumstances
    section: Section | None = None
    failure: str = ""
    """A record that was lost, doubled or out of place; a server that did not start; a time limit."""
    left_out: str = ""
    """What is missing here to measure it. No failure."""


class ResultFolder:
    def __init__(self, path: Path) -> None:
        self._path = path

    def keep(self, result: Result) -> None:
        self._path.mkdir(parents=True, exist_ok=True)
        write_result(self._file(result.subject), result)

    def find(self, subject: str) -> Result | None:
        file = self._file(subject)
        return read_result(file) if file.exists() else None

    def all(self, order: Iterable[str]) -> Sequence[Result]:
        """Those of known subjects, in this order."""
        return [result for subject in order if (result := self.find(subject)) is not None]

    def _file(self, subject: str) -> Path:
        return self._path / f"{subject}.json"


def read_result(file: Path) -> Result:
    return msgspec.json.decode(file.read_bytes(), type=Result)


def write_result(file: Path, result: Result) -> None:
    """Whole or not at all: a run that is killed leaves what was there before."""
    unfinished = file.with_suffix(".unfinished")
    unfinished.write_bytes(msgspec.json.format(msgspec.json.encode(result), indent=1) + b"\n")
    unfinished.replace(file)
