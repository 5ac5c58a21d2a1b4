"""The differences from PostgreSQL that are meant.

`deliberate_differences.txt` has a line for each case that is meant to differ: the case, then `--`, then the reason.
"""

from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

from tests.differential.judge import Judgement

DELIBERATE = Path(__file__).parent / "deliberate_differences.txt"


@cache
def deliberate_differences() -> dict[str, str]:
    """Return the reasons by the text of the case."""
    found: dict[str, str] = {}
    for line in DELIBERATE.read_text().splitlines():
        if line and not line.startswith("--"):
            case, dashes, reason = line.partition(" -- ")
            assert dashes, f"the difference {line!r} has no reason"
            found[case.strip()] = reason.strip()
    return found


def unmeant_differences(judgements: Sequence[Judgement]) -> Iterator[Judgement]:
    """Return the cases that differ and are not listed."""
    for judgement in judgements:
        if judgement.verdict.outcome == "DIFFERENT" and judgement.case.text not in deliberate_differences():
            yield judgement
