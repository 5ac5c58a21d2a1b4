"""Stored results: one JSON file for each subject, so that the pages can be written again without measuring.

A subject that runs again replaces its file, so results may come from different runs. Each says when it was measured, of which
commit, at which load and on which machine.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from bench.figures import Section

ScaleName = Literal["full", "quick"]


class Circumstances(msgspec.Struct, frozen=True, kw_only=True):
    """The circumstances of a measurement."""

    scale: ScaleName
    began: str
    """Date and minute, in UTC."""
    seconds: float
    commit: str
    load_before: float
    load_after: float
    machine: Mapping[str, str]


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """A section, or the reason why there is none."""

    subject: str
    circumstances: Circumstances
    section: Section | None = None
    failure: str = ""
    """Why it failed: a record was lost, duplicated or out of place, a server did not start, or the time was up."""
    left_out: str = ""
    """What is missing to measure it. This is not a failure."""


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
        """Return the results of these subjects, in this order."""
        return [result for subject in order if (result := self.find(subject)) is not None]

    def _file(self, subject: str) -> Path:
        return self._path / f"{subject}.json"


def read_result(file: Path) -> Result:
    return msgspec.json.decode(file.read_bytes(), type=Result)


def write_result(file: Path, result: Result) -> None:
    """Write a result atomically: a run that is killed leaves the old one."""
    unfinished = file.with_suffix(".unfinished")
    unfinished.write_bytes(msgspec.json.format(msgspec.json.encode(result), indent=1) + b"\n")
    unfinished.replace(file)
