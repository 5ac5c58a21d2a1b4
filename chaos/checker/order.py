"""Offsets in order of time: later sends lie behind earlier ones, and the end of a partition never falls (I6, I8)."""

from collections import defaultdict
from collections.abc import Hashable, Iterator
from typing import Any

from chaos.checker.evidence import Evidence
from chaos.checker.frontier import Frontier
from chaos.checker.places import name
from chaos.checker.timeline import Op
from chaos.checker.violation import Found, shown_by
from chaos.history import Bounds, Place, Poll, Send, Take, Transaction


def nonmonotonic_send(evidence: Evidence) -> Iterator[Found]:
    """A worker's later send was given a lower offset than one that it had finished before."""
    highest: dict[Hashable, Frontier] = defaultdict(Frontier)
    sends = list(evidence.timeline.completed(Send, Transaction))
    for op in sends:
        for place in _given(op):
            highest[op.worker, place.topic, place.partition].raise_to(place.offset, op)
    for op in sends:
        for place in _given(op):
            mark = highest[op.worker, place.topic, place.partition].before(op.begin)
            if mark and place.offset <= mark.number:
                yield shown_by(
                    f"{op.worker} had been given offset {mark.number} of {place.topic}/{place.partition} before it sent what"
                    f" got offset {place.offset}",
                    mark.op,
                    op,
                )


def int_nonmonotonic_send(evidence: Evidence) -> Iterator[Found]:
    """Within one send, a later record of a partition got a lower offset."""
    for op in evidence.timeline.completed(Send, Transaction):
        last: dict[tuple[str, int], int] = {}
        for place in _given(op):
            before = last.get((place.topic, place.partition), -1)
            if place.offset <= before:
                yield shown_by(f"within one send, {name(place)} came after offset {before}", op)
            last[place.topic, place.partition] = place.offset


def stale_end(evidence: Evidence) -> Iterator[Found]:
    """What was asked or sent later stands below an end that somebody knew before."""
    ends: dict[tuple[str, int], Frontier] = defaultdict(Frontier)
    for op in evidence.timeline.completed(Send, Transaction, Poll, Take, Bounds):
        for place in _given(op):
            ends[place.topic, place.partition].raise_to(place.offset + 1, op)
        for seen in op.answer.seen:
            ends[seen.place.topic, seen.place.partition].raise_to(seen.place.offset + 1, op)
        for place in op.answer.ends:
            ends[place.topic, place.partition].raise_to(place.offset, op)
    for op in evidence.timeline.completed(Send, Transaction, Bounds):
        for place in (*_given(op), *op.answer.ends):
            mark = ends[place.topic, place.partition].before(op.begin)
            if mark and place.offset < mark.number:
                what = "the end was said to be" if isinstance(op.what, Bounds) else "a record was given"
                yield shown_by(
                    f"{what} offset {place.offset} of {place.topic}/{place.partition}, when its end was known to be at"
                    f" {mark.number} or above",
                    mark.op,
                    op,
                )


def _given(op: Op[Any]) -> tuple[Place, ...]:
    """The offsets that a send was given."""
    if not isinstance(op.what, Send | Transaction):
        return ()
    return tuple(place for place in op.answer.places if place.offset >= 0)
