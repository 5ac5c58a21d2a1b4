"""Prints how Tailrace's SQL compares with PostgreSQL's: `python -m tests.differential.report`; `--help` lists its options.

First the verdicts by context and subject and the classes of what differs, then the cases that are answered differently and the
hand-written ones that are refused, by subject.
"""

import argparse
import logging
import re
from collections import Counter
from collections.abc import Iterator, Sequence

from tests.differential.corpus import Case, written_cases
from tests.differential.differences import deliberate_differences
from tests.differential.generated import generated_cases
from tests.differential.judge import CONTEXTS, Judgement, judge
from tests.differential.postgres import running_postgres

OUTCOMES = ("equal", "both fail", "refused", "DIFFERENT", "deliberate")
_MOST_CLASSES = 25
_BRIEF_WIDTH = 70


def lines(judgements: Sequence[Judgement], *, is_brief: bool) -> Iterator[str]:
    written = [judgement for judgement in judgements if not judgement.case.is_generated]
    yield from _table("all cases", judgements)
    yield ""
    yield from _table("hand-written", written)
    yield ""
    yield from _answered(judgements)
    yield ""
    yield from _aspects(judgements)
    yield ""
    yield from _classes(judgements)
    yield from _subjects(judgements)
    details = _brief_details if is_brief else _details
    for outcome, chosen in (("DIFFERENT", written if is_brief else judgements), ("refused", written)):
        yield ""
        yield from details(outcome, chosen)


def answered_share(judgements: Sequence[Judgement], context: str) -> tuple[int, int]:
    """Return how many hand-written cases that PostgreSQL answers are answered equally, and how many such cases there are."""
    verdicts = [
        judgement.verdict
        for judgement in judgements
        if judgement.context == context and not judgement.case.is_generated and judgement.verdict.outcome != "both fail"
    ]
    asked = [verdict for verdict in verdicts if "answered" not in verdict.aspects]
    return sum(verdict.outcome == "equal" for verdict in asked), len(asked)


def _outcome(judgement: Judgement) -> str:
    is_meant = judgement.verdict.outcome == "DIFFERENT" and judgement.case.text in deliberate_differences()
    return "deliberate" if is_meant else judgement.verdict.outcome


def _table(title: str, judgements: Sequence[Judgement]) -> Iterator[str]:
    yield f"{title:<16}" + "".join(f"{outcome:>12}" for outcome in OUTCOMES) + f"{'cases':>12}"
    for context in CONTEXTS:
        counts = Counter(_outcome(judgement) for judgement in judgements if judgement.context == context)
        if counts:
            yield f"  {context:<14}" + "".join(f"{counts[outcome]:>12}" for outcome in OUTCOMES) + f"{counts.total():>12}"


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


def _classes(judgements: Sequence[Judgement]) -> Iterator[str]:
    """Return which types differ, and why cases are refused, most frequent first."""
    for context in CONTEXTS:
        types: Counter[str] = Counter()
        reasons: Counter[str] = Counter()
        for judgement in judgements:
            if judgement.context == context:
                types.update(judgement.verdict.types)
                if judgement.verdict.outcome == "refused":
                    reasons[_reason(judgement.verdict.found)] += 1
        if types:
            yield f"types in {context}: " + ", ".join(f"{pair} {count}" for pair, count in types.most_common())
        if reasons:
            yield f"refused in {context}, the {_MOST_CLASSES} most frequent reasons"
            yield from (f"  {count:>5}  {reason}" for reason, count in reasons.most_common(_MOST_CLASSES))
        if types or reasons:
            yield ""


def _reason(message: str) -> str:
    """Return the message of a refusal without what depends on the case."""
    text = re.sub(r"^error: \w+: |the query can't be run: |line \d+, column \d+: |; docs/.*|You might need.*", "", message)
    text = re.sub(r"'[^']*'|\"[^\"]*\"", lambda found: found.group() if "function" in text else "…", text)
    return re.sub(r"\d+", "N", text)[:110].strip()


def _subjects(judgements: Sequence[Judgement]) -> Iterator[str]:
    yield "by subject: " + " / ".join(OUTCOMES)
    for subject in sorted({judgement.case.subject for judgement in judgements}):
        yield f"  {subject:<20}" + "".join(f"{_counts(judgements, subject, context):>26}" for context in CONTEXTS)


def _counts(judgements: Sequence[Judgement], subject: str, context: str) -> str:
    counts = Counter(
        _outcome(judgement) for judgement in judgements if judgement.context == context and judgement.case.subject == subject
    )
    return f"{context} " + "/".join(str(counts[outcome]) for outcome in OUTCOMES) if counts else ""


def _details(outcome: str, judgements: Sequence[Judgement]) -> Iterator[str]:
    grouped = _grouped(outcome, judgements)
    yield f"{outcome}: {len(grouped)} cases"
    last = ""
    for case, found in grouped.items():
        if case.subject != last:
            last = case.subject
            yield f"== {last}"
        yield f"  {case.text}"
        expected = ""
        for answers, contexts in _by_answer(found).items():
            if answers[0] != expected:
                expected = answers[0]
                yield f"      PostgreSQL: {expected}"
            yield f"      {', '.join(contexts)}: {answers[1]}"


def _brief_details(outcome: str, judgements: Sequence[Judgement]) -> Iterator[str]:
    """Return a line for each case: how it differs, PostgreSQL's answer and the first other one."""
    grouped = _grouped(outcome, judgements)
    yield f"{outcome}: {len(grouped)} hand-written cases: context (what differs) | case | PostgreSQL | Tailrace"
    last = ""
    for case, found in grouped.items():
        if case.subject != last:
            last = case.subject
            yield f"== {last}"
        contexts = " ".join(context for contexts in _by_answer(found).values() for context in contexts)
        first = found[0].verdict
        yield f"  {contexts} | {case.text} | {first.expected[:_BRIEF_WIDTH]} | {first.found[:_BRIEF_WIDTH]}"


def _grouped(outcome: str, judgements: Sequence[Judgement]) -> dict[Case, list[Judgement]]:
    found: dict[Case, list[Judgement]] = {}
    for judgement in sorted(judgements, key=lambda judgement: (judgement.case.is_generated, judgement.case.subject)):
        if _outcome(judgement) == outcome:
            found.setdefault(judgement.case, []).append(judgement)
    return found


def _by_answer(judgements: Sequence[Judgement]) -> dict[tuple[str, str], list[str]]:
    found: dict[tuple[str, str], list[str]] = {}
    for judgement in judgements:
        verdict = judgement.verdict
        aspects = f"({','.join(verdict.aspects)})" if verdict.aspects else ""
        found.setdefault((verdict.expected, verdict.found), []).append(judgement.context + aspects)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description="Compares Tailrace's SQL with PostgreSQL's.")
    parser.add_argument("--context", choices=CONTEXTS, action="append", help="only these contexts")
    parser.add_argument("--subject", action="append", help="only the cases of these subjects")
    parser.add_argument("--written", action="store_true", help="only the cases that are written by hand")
    parser.add_argument("--brief", action="store_true", help="one line for each case that is written by hand")
    parser.add_argument("--failing", action="store_true", help="also list the cases that both refuse")
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    cases = written_cases() if options.written else [*written_cases(), *generated_cases()]
    if options.subject:
        cases = [case for case in cases if case.subject in options.subject]
    with running_postgres() as postgres:
        judgements = judge(cases, postgres, options.context or CONTEXTS)
    for line in lines(judgements, is_brief=options.brief):
        print(line)
    if options.failing:
        for line in _details("both fail", judgements):
            print(line)


if __name__ == "__main__":
    main()
