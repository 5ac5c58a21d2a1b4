"""Offsets in order: sends, reads, and the start and end of partitions.

Later sends get higher offsets than earlier ones, and the end of a partition never falls (I6, I8). Reads continue where they
were: no step back, no record left out (I7), and no silent jump over what retention deleted. The start of a partition only
rises, never above its end, and not at all without retention (I11).
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Hashable, Iterator
from typing import Any, NamedTuple, cast

from chaos.checker.evidence import Evidence, PartitionName
from chaos.checker.register import HighestKnown
from chaos.checker.timeline import Op
from chaos.checker.violation import RuleFinding, shown_by
from chaos.history import (
    BoundsCall,
    OwnedCall,
    PollCall,
    RecordLocation,
    SendCall,
    TakeCall,
    TransactionCall,
    label,
)


def nonmonotonic_send(evidence: Evidence) -> Iterator[RuleFinding]:
    """A worker's later send was given a lower offset than one that it had finished before."""
    highest: dict[Hashable, HighestKnown] = defaultdict(HighestKnown)
    sends = list(evidence.timeline.completed(SendCall, TransactionCall))
    for op in sends:
        for location in _given(op):
            highest[op.worker, location.topic, location.partition].raise_to(location.offset, op)
    for op in sends:
        for location in _given(op):
            mark = highest[op.worker, location.topic, location.partition].before(op.begin)
            if mark and location.offset <= mark.number:
                yield shown_by(
                    f"{op.worker} had been given offset {mark.number} of {location.topic}/{location.partition}"
                    f" before it sent what got offset {location.offset}",
                    mark.op,
                    op,
                )


def int_nonmonotonic_send(evidence: Evidence) -> Iterator[RuleFinding]:
    """Within one send, a later record of a partition got a lower offset."""
    for op in evidence.timeline.completed(SendCall, TransactionCall):
        last: dict[tuple[str, int], int] = {}
        for location in _given(op):
            before = last.get((location.topic, location.partition), -1)
            if location.offset <= before:
                yield shown_by(f"within one send, {label(location)} came after offset {before}", op)
            last[location.topic, location.partition] = location.offset


def stale_end(evidence: Evidence) -> Iterator[RuleFinding]:
    """What was asked or sent later stands below an end that somebody knew before."""
    ends: dict[tuple[str, int], HighestKnown] = defaultdict(HighestKnown)
    for op in evidence.timeline.completed(SendCall, TransactionCall, PollCall, TakeCall, BoundsCall):
        for location in _given(op):
            ends[location.topic, location.partition].raise_to(location.offset + 1, op)
        for seen in op.answer.seen:
            ends[seen.location.topic, seen.location.partition].raise_to(seen.location.offset + 1, op)
        for location in op.answer.ends:
            ends[location.topic, location.partition].raise_to(location.offset, op)
    for op in evidence.timeline.completed(SendCall, TransactionCall, BoundsCall):
        for location in (*_given(op), *op.answer.ends):
            mark = ends[location.topic, location.partition].before(op.begin)
            if mark and location.offset < mark.number:
                what = "the end was said to be" if isinstance(op.what, BoundsCall) else "a record was given"
                yield shown_by(
                    f"{what} offset {location.offset} of {location.topic}/{location.partition}, when its end was known to be at"
                    f" {mark.number} or above",
                    mark.op,
                    op,
                )


def _given(op: Op[Any]) -> tuple[RecordLocation, ...]:
    """Return the locations that a call was given."""
    if not isinstance(op.what, SendCall | TransactionCall):
        return ()
    return tuple(location for location in op.answer.locations if location.offset >= 0)


class PollStep(NamedTuple):
    """The offset that a reader should have got next, and the one that it got."""

    partition: PartitionName
    expected: int
    got: RecordLocation
    before: Op[PollCall]
    op: Op[PollCall]


def nonmonotonic_poll(evidence: Evidence) -> Iterator[RuleFinding]:
    return (_stepped_back(step) for step in _steps(evidence) if step.got.offset < step.expected and step.before is not step.op)


def int_nonmonotonic_poll(evidence: Evidence) -> Iterator[RuleFinding]:
    """The same, within the answer to one poll."""
    return (_stepped_back(step) for step in _steps(evidence) if step.got.offset < step.expected and step.before is step.op)


def poll_skip(evidence: Evidence) -> Iterator[RuleFinding]:
    for step, skipped in _skips(evidence):
        if not _left_before(evidence, step, skipped):
            yield _skipped(evidence, step, skipped, "left out")


def silent_jump(evidence: Evidence) -> Iterator[RuleFinding]:
    """A reader below the start was carried on to later records, instead of being told."""
    for step, skipped in _skips(evidence):
        if _left_before(evidence, step, skipped):
            yield _skipped(evidence, step, skipped, "was not told of the start above")


def _steps(evidence: Evidence) -> Iterator[PollStep]:
    """Yield the steps of all readers that do not lead to the next offset."""
    next_of: dict[tuple[str, str, PartitionName], tuple[int, Op[PollCall]]] = {}
    rebalanced: dict[str, int] = {}
    for op in evidence.timeline.completed(PollCall, OwnedCall):
        if isinstance(op.what, OwnedCall):
            rebalanced[op.worker] = op.end
            continue
        poll = cast(Op[PollCall], op)
        moved = rebalanced.get(op.worker, -1) if poll.what.subscribed else -1
        begins = {(location.topic, location.partition): location.offset for location in poll.what.begins}
        for seen in poll.answer.seen:
            location = seen.location
            partition = (location.topic, location.partition)
            reader = (op.worker, poll.what.session, partition)
            expected, before = next_of.get(reader) or (begins.get(partition, -1), poll)
            if expected >= 0 and location.offset != expected and before.begin > moved:
                yield PollStep(partition, expected, location, before, poll)
            next_of[reader] = (location.offset + 1, poll)
        for location in poll.answer.out_of_range:
            next_of.pop((op.worker, poll.what.session, (location.topic, location.partition)), None)


def _skips(evidence: Evidence) -> Iterator[tuple[PollStep, int]]:
    """Yield the steps that skip a visible record, with its offset."""
    for step in _steps(evidence):
        visible = evidence.reads.visible.get(step.partition, [])
        index = bisect_left(visible, step.expected)
        if index < len(visible) and visible[index] < step.got.offset:
            yield step, visible[index]


def _left_before(evidence: Evidence, step: PollStep, skipped: int) -> bool:
    known = evidence.starts.get(step.partition)
    mark = known.before(step.op.end) if known else None
    return mark is not None and skipped < mark.number


def _stepped_back(step: PollStep) -> RuleFinding:
    return shown_by(
        f"{step.op.worker} read offset {step.got.offset} of {step.got.topic}/{step.got.partition}, when offset {step.expected}"
        f" was its next",
        step.before,
        step.op,
    )


def _skipped(evidence: Evidence, step: PollStep, skipped: int, fault: str) -> RuleFinding:
    topic, partition = step.partition
    value, calls = _record_at(evidence, RecordLocation(topic, partition, skipped))
    found = shown_by(
        f"{step.op.worker} went from offset {step.expected - 1} of {topic}/{partition} to {step.got.offset} and {fault}"
        f" offset {skipped}, which holds {value!r}",
        step.before,
        step.op,
        about=(value,),
    )
    return found._replace(calls=(*calls, *found.calls))


def _record_at(evidence: Evidence, location: RecordLocation) -> tuple[str, tuple[int, ...]]:
    """Return the record that is known to be there, and the call that has shown it."""
    read = evidence.reads.at.get(location)
    if read:
        return read.seen.value, (read.op.call,)
    written = evidence.writes.at[location]
    return written.value, (written.op.call,)


def falling_start(evidence: Evidence) -> Iterator[RuleFinding]:
    for op in evidence.timeline.of(BoundsCall):
        for location in op.answer.starts:
            mark = evidence.starts[location.topic, location.partition].before(op.begin)
            if mark and location.offset < mark.number:
                message = f"{location.topic}/{location.partition} began at {mark.number} and later at {location.offset}"
                yield shown_by(message, mark.op, op)


def start_above_end(evidence: Evidence) -> Iterator[RuleFinding]:
    for op in evidence.timeline.of(BoundsCall):
        ends = {(location.topic, location.partition): location.offset for location in op.answer.ends}
        for location in op.answer.starts:
            end = ends.get((location.topic, location.partition), location.offset)
            if location.offset > end:
                yield shown_by(
                    f"{location.topic}/{location.partition} was said to begin at {location.offset} and to end at {end}", op
                )


def kept_record_gone(evidence: Evidence) -> Iterator[RuleFinding]:
    """The start of a partition rose, or a reader was refused its next offset, although the topic has no retention."""
    for partition, known in evidence.starts.items():
        mark = known.highest
        if mark and mark.number > 0 and evidence.is_kept(partition[0]):
            message = f"{partition[0]}/{partition[1]} begins at {mark.number}, although its topic has no retention"
            yield shown_by(message, mark.op)
    for op in evidence.timeline.of(PollCall):
        for location in op.answer.out_of_range:
            if evidence.is_kept(location.topic):
                yield shown_by(f"{op.worker} was refused {label(location)}, although its topic has no retention", op)
