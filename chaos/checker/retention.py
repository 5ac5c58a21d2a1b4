"""The start of a partition only rises, never above its end, and not at all where nothing may expire (I11)."""

from collections.abc import Iterator

from chaos.checker.evidence import Evidence
from chaos.checker.places import name
from chaos.checker.violation import Found, shown_by
from chaos.history import Bounds, Poll


def falling_start(evidence: Evidence) -> Iterator[Found]:
    for op in evidence.timeline.of(Bounds):
        for place in op.answer.starts:
            mark = evidence.starts[place.topic, place.partition].before(op.begin)
            if mark and place.offset < mark.number:
                message = f"{place.topic}/{place.partition} began at {mark.number} and later at {place.offset}"
                yield shown_by(message, mark.op, op)


def start_above_end(evidence: Evidence) -> Iterator[Found]:
    for op in evidence.timeline.of(Bounds):
        ends = {(place.topic, place.partition): place.offset for place in op.answer.ends}
        for place in op.answer.starts:
            end = ends.get((place.topic, place.partition), place.offset)
            if place.offset > end:
                yield shown_by(f"{place.topic}/{place.partition} was said to begin at {place.offset} and to end at {end}", op)


def kept_record_gone(evidence: Evidence) -> Iterator[Found]:
    """The start of a partition rose, or a reader was refused its next offset, although the topic has no retention."""
    for partition, frontier in evidence.starts.items():
        mark = frontier.highest
        if mark and mark.number > 0 and evidence.is_kept(partition[0]):
            message = f"{partition[0]}/{partition[1]} begins at {mark.number}, although its topic has no retention"
            yield shown_by(message, mark.op)
    for op in evidence.timeline.of(Poll):
        for place in op.answer.out_of_range:
            if evidence.is_kept(place.topic):
                yield shown_by(f"{op.worker} was refused {name(place)}, although its topic has no retention", op)
