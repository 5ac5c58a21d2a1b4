"""Judges a history: runs all rules over its lines and decides on a verdict."""

from collections.abc import Iterable, Iterator
from itertools import islice

from chaos.checker.evidence import Evidence
from chaos.checker.rules import RULES
from chaos.checker.timeline import Timeline
from chaos.checker.violation import Judgement, Rule, RuleFinding, Verdict, Violation
from chaos.history import CallOutcome, ChangeCall, HistoryLine, PollCall, RowsCall, TakeCall

VIOLATIONS_OF_A_RULE = 1000
"""The most violations of a rule that are kept. A run that breaks a rule more often has one fault, not a thousand."""


def judge(lines: Iterable[HistoryLine], rules: Iterable[Rule] = RULES) -> Judgement:
    return judge_timeline(Timeline(lines), rules)


def judge_timeline(timeline: Timeline, rules: Iterable[Rule] = RULES) -> Judgement:
    evidence = Evidence(timeline)
    found = [_violation(timeline, rule, one) for rule in rules for one in islice(rule.check(evidence), VIOLATIONS_OF_A_RULE)]
    violations = tuple(sorted(found, key=lambda violation: (violation.ends, violation.ends - violation.begins)))
    doubts = tuple(_doubts(evidence))
    verdict = Verdict.FAIL if violations else Verdict.UNKNOWN if doubts else Verdict.PASS
    return Judgement(verdict, violations, doubts)


def _violation(timeline: Timeline, rule: Rule, found: RuleFinding) -> Violation:
    ops = [timeline.ops[call] for call in found.calls]
    begins = min((timeline.time_at(op.begin) for op in ops), default=found.at)
    ends = max((timeline.time_at(op.end) for op in ops), default=found.at)
    return Violation(rule.name, rule.invariant, found.message, found.calls, found.about, begins, ends)


def _doubts(evidence: Evidence) -> Iterator[str]:
    """Yield reasons why this history could not have shown a fault."""
    timeline = evidence.timeline
    yield from timeline.defects
    for first, second in evidence.writes.repeated:
        yield f"{first.value!r} was sent by call {first.op.call} and by call {second.op.call}: values must be unique"
    if not any(op.outcome is CallOutcome.OK for op in timeline.ops.values()):
        yield "no call succeeded"
    if evidence.writes.ops and not evidence.has_final_reads:
        yield "records were sent, but there are no final reads"
    finished = {(op.surface, op.what.session) for op in timeline.of(PollCall) if op.what.final and op.outcome is CallOutcome.OK}
    for op in timeline.of(PollCall):
        if op.what.final and (op.surface, op.what.session) not in finished:
            yield f"the final read of call {op.call} by {op.surface} did not succeed"
    last_take = {op.what.group: op for op in timeline.of(TakeCall) if op.what.final}
    for group, take in last_take.items():
        if take.answer.seen or take.outcome is not CallOutcome.OK:
            yield f"the queue of group {group} was not emptied at the end"
    written = {table for op in timeline.of(ChangeCall) for table, _, _ in op.what.rows}
    read = {op.what.table for op in timeline.of(RowsCall) if op.what.final and op.outcome is CallOutcome.OK}
    for table in sorted(written - read):
        yield f"table {table} was written, but not read at the end"
