"""The description of a run: `run.json` beside its `history.jsonl`, written before the run and read by the report.

It does not say how the run went: that is judged from the history, at any time. A run of a server that was broken on purpose is
a run like any other, and names its `Mutant`.
"""

from pathlib import Path

import msgspec

HISTORY_FILE = "history.jsonl"
RECORD_FILE = "run.json"


class Mutant(msgspec.Struct, frozen=True):
    """A server that was broken on purpose: what is wrong with it, and the rules of which one must notice."""

    name: str
    breaks: str
    shows_as: tuple[str, ...]


class RunRecord(msgspec.Struct, frozen=True, kw_only=True):
    seed: int
    profile: str
    workloads: tuple[str, ...]
    minutes: float
    faults: tuple[str, ...]
    """The kinds that the schedule could choose from. What was done is in the history."""
    began: str
    """In UTC, such as 2026-01-31T23:59:00Z."""
    commit: str
    """Of the repository; followed by `+` if files had been changed since."""
    versions: dict[str, str]
    """Of Python, of the kernel, and of each client and engine that took part."""
    machine: str
    """Such as `2 cores, 8 GiB, ext4`."""
    durability: str = "fsync"
    mutant: Mutant | None = None


def write_record(folder: Path, record: RunRecord) -> None:
    (folder / RECORD_FILE).write_bytes(msgspec.json.format(msgspec.json.encode(record), indent=2) + b"\n")


def read_record(folder: Path) -> RunRecord:
    return msgspec.json.decode((folder / RECORD_FILE).read_bytes(), type=RunRecord)
