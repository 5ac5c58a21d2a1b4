"""Prints how Tailrace's SQL compares with PostgreSQL's: `python -m tests.differential.report`; `--help` lists its options.

First the verdicts by context, then the cases that are answered differently and the hand-written ones that are refused.
"""

import argparse
import logging
import sys
from collections import Counter
from collections.abc import Iterator, Sequence

from tests.differential.corpus import Case, written_cases
from tests.differential.differences import known_differences, new_differences, record
from tests.differential.judge import CONTEXTS, Judgement, judge
from tests.differential.postgres import running_postgres

OUTCOMES = ("equal", "both fail", "refused", "DIFFERENT")


def lines(judgements: Sequence[Judgement]) -> Iterator[str]:
    """Return the report, without the generated cases' details."""
    yield from _table("all cases", judgements)
    yield ""
    yield from _table("hand-written", [judgement for judgement in judgements if not judgement.case.is_generated])
    yield ""
    yield from _answered(judgements)
    yield ""
    yield from _aspects(judgements)
    yield ""
    yield from _subjects(judgements)
    yield ""
    yield from _details("DIFFERENT", judgements)
    yield ""
    yield from _details("refused", [judgement for judgement in judgements if not judgement.case.is_generated])


def _table(title: str, judgements: Sequence[Judgement]) -> Iterator[str]:
    yield f"{title:<16}" + "".join(f"{outcome:>12}" for outcome in OUTCOMES) + f"{'cases':>12}"
    for context in CONTEXTS:
        counts = Counter(judgement.verdict.outcome for judgement in judgements if judgement.context == context)
        if counts:
            yield f"  {context:<14}" + "".join(f"{counts[outcome]:>12}" for outcome in OUTCOMES) + f"{counts.total():>12}"  # type: ignore[index]


def answered_share(judgements: Sequence[Judgement], context: str) -> tuple[int, int]:
    """Return how many hand-written cases that PostgreSQL answers are answered equally, and how many such cases there are."""
    outcomes = [
        judgement.verdict
        for judgement in judgements
        if judgement.context == context and not judgement.case.is_generated and judgement.verdict.outcome != "both fail"
    ]
    asked = [verdict for verdict in outcomes if "answered" not in verdict.aspects]
    return sum(verdict.outcome == "equal" for verdict in asked), len(asked)


def _answered(judgements: Sequence[Judgement]) -> Iterator[str]:
    yield "hand-written cases that PostgreSQL answers and Tailrace answers equally"
    for context in CONTEXTS:
        equal, asked = answered_share(judgements, context)
        if asked:
            yield f"  {context:<14}{equal:>6} of {asked:>5}  {equal / asked:6.1%}"


def _aspects(judgements: Sequence[Judgement]) -> Iterator[str]:
    yield "what differs (a case may differ in several ways)"
    for context in CONTEXTS:
        counts = Counter(
            aspect for judgement in judgements if judgement.context == context for aspect in judgement.verdict.aspects
        )
        if counts:
            yield f"  {context:<14}" + ", ".join(f"{aspect} {count}" for aspect, count in counts.most_common())


def _subjects(judgements: Sequence[Judgement]) -> Iterator[str]:
    yield "by subject: equal / both fail / refused / DIFFERENT"
    for subject in sorted({judgement.case.subject for judgement in judgements}):
        yield f"  {subject:<20}" + "".join(f"{_counts(judgements, subject, context):>24}" for context in CONTEXTS)


def _counts(judgements: Sequence[Judgement], subject: str, context: str) -> str:
    counts = Counter(
        judgement.verdict.outcome
        for judgement in judgements
        if judgement.context == context and judgement.case.subject == subject
    )
    return f"{context} " + "/".join(str(counts[outcome]) for outcome in OUTCOMES) if counts else ""  # type: ignore[index]


def _details(outcome: str, judgements: Sequence[Judgement]) -> Iterator[str]:
    chosen = [judgement for judgement in judgements if judgement.verdict.outcome == outcome]
    grouped: dict[Case, list[Judgement]] = {}
    for judgement in chosen:
        grouped.setdefault(judgement.case, []).append(judgement)
    yield f"{outcome}: {len(grouped)} cases"
    last = ""
    for case in sorted(grouped, key=lambda case: (case.is_generated, case.subject)):
        if case.subject != last:
            last = case.subject
            yield f"== {last}"
        yield f"  {case.text}"
        expected = ""
        for answers, contexts in _by_answer(grouped[case]).items():
            if answers[0] != expected:
                expected = answers[0]
                yield f"      PostgreSQL: {expected}"
            yield f"      {', '.join(contexts)}: {answers[1]}"


def _by_answer(judgements: Sequence[Judgement]) -> dict[tuple[str, str], list[str]]:
    found: dict[tuple[str, str], list[str]] = {}
    for judgement in judgements:
        verdict = judgement.verdict
        aspects = f" ({', '.join(verdict.aspects)})" if verdict.aspects else ""
        found.setdefault((verdict.expected, verdict.found), []).append(judgement.context + aspects)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--context", choices=CONTEXTS, action="append", help="only these contexts")
    parser.add_argument("--subject", action="append", help="only the cases of these subjects")
    parser.add_argument("--written", action="store_true", help="only the cases that are written by hand")
    parser.add_argument("--failing", action="store_true", help="also list the cases that both refuse")
    parser.add_argument("--record", action="store_true", help="write the list of known differences; only without other options")
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    cases = written_cases()
    if options.subject:
        cases = [case for case in cases if case.subject in options.subject]
    with running_postgres() as postgres:
        judgements = judge(cases, postgres, options.context or CONTEXTS)
    for line in lines(judgements):
        sys.stdout.write(line + "\n")
    if options.record:
        sys.stderr.write(f"{record(judgements):,} cases are listed as known differences\n")
    else:
        gone = len(known_differences()) - len(
            {judgement.case.text for judgement in judgements if judgement.verdict.outcome == "DIFFERENT"}
        )
        sys.stderr.write(f"{len(list(new_differences(judgements))):,} differences are new, about {max(0, gone):,} are gone\n")
    if options.failing:
        for line in _details("both fail", judgements):
            sys.stdout.write(line + "\n")


if __name__ == "__main__":
    main()
