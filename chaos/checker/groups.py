"""Groups: each partition has one owner in a generation, and committed offsets are kept and move forward only (I9).

A group's offset of a partition is a register: commits, and transactions with offsets, write it.
"""

from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from chaos.checker.evidence import Evidence
from chaos.checker.register import HighestKnown, Register, calls_of
from chaos.checker.timeline import Op, Timeline
from chaos.checker.violation import RuleFinding, shown_by
from chaos.history import CallOutcome, CommitCall, CommittedCall, OwnedCall, TransactionCall

NO_OFFSET = -1


class OffsetKey(NamedTuple):
    group: str
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"group {self.group} in {self.topic}/{self.partition}"


def two_owners(evidence: Evidence) -> Iterator[RuleFinding]:
    owners: dict[tuple[str, int, str, int], Op[OwnedCall]] = {}
    for op in evidence.timeline.of(OwnedCall):
        # Some clients don't tell their generation.
        for location in op.answer.locations if op.what.generation >= 0 else ():
            first = owners.setdefault((op.what.group, op.what.generation, location.topic, location.partition), op)
            if first.what.member != op.what.member:
                yield shown_by(
                    f"{location.topic}/{location.partition} belonged to {first.what.member} and {op.what.member} in generation"
                    f" {op.what.generation} of group {op.what.group}",
                    first,
                    op,
                )


def fenced_commit(evidence: Evidence) -> Iterator[RuleFinding]:
    """A commit of an older generation was accepted after a newer one was known."""
    generations: dict[str, HighestKnown] = defaultdict(HighestKnown)
    for op in evidence.timeline.completed(OwnedCall, CommitCall):
        if isinstance(op.what, OwnedCall | CommitCall) and op.outcome is CallOutcome.OK and op.what.generation >= 0:
            generations[op.what.group].raise_to(op.what.generation, op)
    for commit in evidence.timeline.of(CommitCall):
        mark = generations[commit.what.group].before(commit.begin)
        if mark and commit.outcome is CallOutcome.OK and 0 <= commit.what.generation < mark.number:
            yield shown_by(
                f"a commit of generation {commit.what.generation} of group {commit.what.group} was accepted from"
                f" {commit.worker}, after generation {mark.number} had begun",
                mark.op,
                commit,
            )


def commit_lost(evidence: Evidence) -> Iterator[RuleFinding]:
    """The group's offset was read as something that a later commit had replaced, or that nobody had committed."""
    registers = offset_registers(evidence.timeline)
    for op in evidence.timeline.of(CommittedCall):
        if op.outcome is not CallOutcome.OK:
            continue
        for location in op.answer.locations:
            key = OffsetKey(op.what.group, location.topic, location.partition)
            if not registers[key].allows(location.offset, op):
                later = registers[key].disproof(location.offset, op)
                why = f"{later.value} had been committed since" if later else "nobody had committed that"
                was = f"offset {location.offset}" if location.offset != NO_OFFSET else "no offset"
                yield RuleFinding(f"{key} had {was}, but {why}", (*calls_of([later]), op.call))


def committed_back(evidence: Evidence) -> Iterator[RuleFinding]:
    """The group's offset fell from one read to a later one without a commit that says so."""
    registers = offset_registers(evidence.timeline)
    highest: dict[OffsetKey, HighestKnown] = defaultdict(HighestKnown)
    for op in evidence.timeline.completed(CommittedCall):
        for location in op.answer.locations:
            if not isinstance(op.what, CommittedCall) or op.outcome is not CallOutcome.OK:
                continue
            key = OffsetKey(op.what.group, location.topic, location.partition)
            mark = highest[key].before(op.begin)
            if mark and location.offset < mark.number and not registers[key].written_after(location.offset, mark.op, op):
                yield shown_by(f"{key} had offset {mark.number} and later {location.offset}, without a commit", mark.op, op)
            highest[key].raise_to(location.offset, op)


def commit_back(evidence: Evidence) -> Iterator[RuleFinding]:
    """A commit that was no reset moved the group's offset back: its member had begun at another offset than the group's."""
    highest: dict[OffsetKey, HighestKnown] = defaultdict(HighestKnown)
    resets: dict[OffsetKey, list[Op[CommitCall]]] = defaultdict(list)
    commits = sorted((op for op in evidence.timeline.of(CommitCall) if op.possible), key=lambda op: op.end)
    for op in commits:
        for location in op.what.offsets:
            key = OffsetKey(op.what.group, location.topic, location.partition)
            if op.what.reset:
                resets[key].append(op)
            elif op.outcome is CallOutcome.OK:
                highest[key].raise_to(location.offset, op)
    for op in commits:
        if op.what.reset or op.outcome is not CallOutcome.OK:
            continue
        for location in op.what.offsets:
            key = OffsetKey(op.what.group, location.topic, location.partition)
            mark = highest[key].before(op.begin)
            if mark and location.offset < mark.number and not any(reset.done > mark.op.begin for reset in resets[key]):
                message = f"{op.worker} committed {location.offset} for {key}, after {mark.number} had been committed"
                yield shown_by(message, mark.op, op)


def offset_registers(timeline: Timeline) -> dict[OffsetKey, Register]:
    registers: dict[OffsetKey, Register] = defaultdict(lambda: Register(NO_OFFSET))
    ops: list[Op[CommitCall] | Op[TransactionCall]] = [*timeline.of(CommitCall), *timeline.of(TransactionCall)]
    for op in ops:
        group = op.what.group
        if group is None or not op.possible or (isinstance(op.what, TransactionCall) and op.what.aborted):
            continue
        for location in op.what.offsets:
            registers[OffsetKey(group, location.topic, location.partition)].wrote(location.offset, op)
    return registers
