"""Reads go on where they were: no step back, no record left out (I7), no jump over what retention took away (I11).

Offsets may be missing for good reasons (ends of transactions, aborted records), so only those count that are known to hold a
record which every reader must see. What a rebalance moves is excused, for subscribed reads.
"""

from bisect import bisect_left
from collections.abc import Iterator
from typing import NamedTuple, cast

from chaos.checker.evidence import Evidence
from chaos.checker.timeline import Op
from chaos.checker.violation import Found, shown_by
from chaos.checker.writes import PartitionKey
from chaos.history import Owned, Place, Poll


class Step(NamedTuple):
    """From the offset that a reader was to get next to the one that it got."""

    partition: PartitionKey
    expected: int
    got: Place
    before: Op[Poll]
    op: Op[Poll]


def nonmonotonic_poll(evidence: Evidence) -> Iterator[Found]:
    return (_stepped_back(step) for step in _steps(evidence) if step.got.offset < step.expected and step.before is not step.op)


def int_nonmonotonic_poll(evidence: Evidence) -> Iterator[Found]:
    """The same, within the answer to one poll."""
    return (_stepped_back(step) for step in _steps(evidence) if step.got.offset < step.expected and step.before is step.op)


def poll_skip(evidence: Evidence) -> Iterator[Found]:
    for step, skipped in _skips(evidence):
        if not _left_before(evidence, step, skipped):
            yield _skipped(evidence, step, skipped, "left out")


def silent_jump(evidence: Evidence) -> Iterator[Found]:
    """A reader below the start was carried on to later records, instead of being told."""
    for step, skipped in _skips(evidence):
        if _left_before(evidence, step, skipped):
            yield _skipped(evidence, step, skipped, "was not told of the start above")


def _steps(evidence: Evidence) -> Iterator[Step]:
    """The steps of all readers that don't lead to the very next offset."""
    next_of: dict[tuple[str, str, PartitionKey], tuple[int, Op[Poll]]] = {}
    rebalanced: dict[str, int] = {}
    for op in evidence.timeline.completed(Poll, Owned):
        if isinstance(op.what, Owned):
            rebalanced[op.worker] = op.end
            continue
        poll = cast(Op[Poll], op)
        moved = rebalanced.get(op.worker, -1) if poll.what.subscribed else -1
        begins = {(place.topic, place.partition): place.offset for place in poll.what.begins}
        for seen in poll.answer.seen:
            place = seen.place
            partition = (place.topic, place.partition)
            reader = (op.worker, poll.what.session, partition)
            expected, before = next_of.get(reader) or (begins.get(partition, -1), poll)
            if expected >= 0 and place.offset != expected and before.begin > moved:
                yield Step(partition, expected, place, before, poll)
            next_of[reader] = (place.offset + 1, poll)
        for place in poll.answer.out_of_range:
            next_of.pop((op.worker, poll.what.session, (place.topic, place.partition)), None)


def _skips(evidence: Evidence) -> Iterator[tuple[Step, int]]:
    """Steps over a visible record, and its offset."""
    for step in _steps(evidence):
        visible = evidence.sightings.visible.get(step.partition, [])
        index = bisect_left(visible, step.expected)
        if index < len(visible) and visible[index] < step.got.offset:
            yield step, visible[index]


def _left_before(evidence: Evidence, step: Step, skipped: int) -> bool:
    frontier = evidence.starts.get(step.partition)
    mark = frontier.before(step.op.end) if frontier else None
    return mark is not None and skipped < mark.number


def _stepped_back(step: Step) -> Found:
    return shown_by(
        f"{step.op.worker} read offset {step.got.offset} of {step.got.topic}/{step.got.partition}, when offset {step.expected}"
        f" was its next",
        step.before,
        step.op,
    )


def _skipped(evidence: Evidence, step: Step, skipped: int, fault: str) -> Found:
    topic, partition = step.partition
    value, calls = _record_at(evidence, Place(topic, partition, skipped))
    found = shown_by(
        f"{step.op.worker} went from offset {step.expected - 1} of {topic}/{partition} to {step.got.offset} and {fault}"
        f" offset {skipped}, which holds {value!r}",
        step.before,
        step.op,
        about=(value,),
    )
    return found._replace(calls=(*calls, *found.calls))


def _record_at(evidence: Evidence, place: Place) -> tuple[str, tuple[int, ...]]:
    """What is known to lie there, and the call that has shown it."""
    sighting = evidence.sightings.at.get(place)
    if sighting:
        return sighting.seen.value, (sighting.op.call,)
    written = evidence.writes.at[place]
    return written.value, (written.op.call,)
