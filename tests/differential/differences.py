"""The differences from PostgreSQL that are listed: those that are meant, with a reason, and those that are known today.

`deliberate_differences.txt` has a line for each case that is meant to differ: the case, then `--`, then the reason.
`known_differences.txt` has a line for each other case that differs: in which contexts and how, then the case. It may only get
shorter: `python -m tests.differential.report --record` writes it again.
"""

from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

from tests.differential.judge import Judgement

DELIBERATE = Path(__file__).parent / "deliberate_differences.txt"
KNOWN = Path(__file__).parent / "known_differences.txt"

KnownDifferences = dict[str, dict[str, set[str]]]
"""How a case differs, by its text and context."""


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


def known_differences() -> KnownDifferences:
    found: KnownDifferences = {}
    for line in KNOWN.read_text().splitlines():
        contexts, _, text = line.partition("\t")
        parts = (context.split(":") for context in contexts.split())
        found[text] = {context: set(aspects.split(",")) for context, aspects in parts}
    return found


def new_differences(judgements: Sequence[Judgement]) -> Iterator[Judgement]:
    """Return the cases that differ, or differ in another way, than is listed."""
    deliberate, known = deliberate_differences(), known_differences()
    for judgement in judgements:
        text = judgement.case.text
        if judgement.verdict.outcome != "DIFFERENT" or text in deliberate:
            continue
        if not set(judgement.verdict.aspects) <= known.get(text, {}).get(judgement.context, set()):
            yield judgement


def record(judgements: Sequence[Judgement]) -> int:
    """Write the known differences; return how many cases there are."""
    deliberate = deliberate_differences()
    found: dict[tuple[bool, str, str], list[str]] = {}
    for case, context, verdict in judgements:
        if verdict.outcome == "DIFFERENT" and case.text not in deliberate:
            how = f"{context}:{','.join(verdict.aspects)}"
            found.setdefault((case.is_generated, case.subject, case.text), []).append(how)
    lines = [f"{' '.join(contexts)}\t{text}" for (_, _, text), contexts in sorted(found.items())]
    KNOWN.write_text("".join(f"{line}\n" for line in lines))
    return len(lines)
