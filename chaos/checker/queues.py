"""Queues: what was acked never comes back, is acked once, and nothing is forgotten."""

from collections.abc import Iterator

from chaos.checker.evidence import Evidence, PartitionName, ReadRecord, Visibility
from chaos.checker.timeline import Op
from chaos.checker.violation import RuleFinding, shown_by
from chaos.history import CallOutcome, SettleCall, TakeCall, label

DEAD_LETTERS = "dead_letters"
"""The suffix of the names of dead-letter topics."""


def redelivered(evidence: Evidence) -> Iterator[RuleFinding]:
    """A record came again to the group that had acked it."""
    acked = {(op.what.group, value): op for op in _acks(evidence) for value in op.what.values}
    for op in evidence.timeline.of(TakeCall):
        for seen in op.answer.seen:
            ack = acked.get((op.what.group, seen.value))
            if ack and ack.end < op.begin:
                message = f"{seen.value!r} was acked in group {op.what.group}, and handed out again to {op.worker}"
                yield shown_by(message, ack, op, about=(seen.value,))


def acked_twice(evidence: Evidence) -> Iterator[RuleFinding]:
    """Two acks of one record were accepted."""
    acked: dict[tuple[str, str], Op[SettleCall]] = {}
    for op in _acks(evidence):
        for value in op.what.values:
            first = acked.setdefault((op.what.group, value), op)
            if first is not op:
                message = f"{value!r} was acked in group {op.what.group} by {first.worker} and again by {op.worker}"
                yield shown_by(message, first, op, about=(value,))


def unsettled(evidence: Evidence) -> Iterator[RuleFinding]:
    """A record was taken, never acked, is not among the dead letters, and did not come again."""
    dead = _dead_letters(evidence)
    for group, taken in _taken(evidence).items():
        settled = {
            value
            for op in evidence.timeline.of(SettleCall)
            if op.what.group == group and op.what.acked and op.possible
            for value in op.what.values
        }
        for value, (seen, op) in taken.items():
            if value not in settled and value not in dead and not evidence.has_left(seen.location):
                yield shown_by(
                    f"{value!r} was handed out to {op.worker} in group {group}, and then forgotten", op, about=(value,)
                )


def undelivered(evidence: Evidence) -> Iterator[RuleFinding]:
    """A record was acked by the topic, and the group that takes from there never got it."""
    dead = _dead_letters(evidence)
    for group, taken in _taken(evidence).items():
        first: dict[PartitionName, int] = {}
        for seen, _ in taken.values():
            partition = (seen.location.topic, seen.location.partition)
            first[partition] = min(first.get(partition, seen.location.offset), seen.location.offset)
        for value, written in evidence.writes.by_value.items():
            since = first.get((written.location.topic, written.location.partition))
            if since is None or written.visibility is not Visibility.ACKED or written.location.offset < since:
                continue
            if value not in taken and value not in dead and not evidence.has_left(written.location):
                message = f"{value!r} at {label(written.location)} was never handed out to group {group}"
                yield shown_by(message, written.op, about=(value,))


def _acks(evidence: Evidence) -> list[Op[SettleCall]]:
    return [op for op in evidence.timeline.of(SettleCall) if op.what.acked and op.outcome is CallOutcome.OK]


def _taken(evidence: Evidence) -> dict[str, dict[str, ReadRecord]]:
    """Return what each group received last, for groups that were emptied at the end."""
    emptied = {op.what.group for op in evidence.timeline.of(TakeCall) if op.what.final and op.outcome is CallOutcome.OK}
    taken: dict[str, dict[str, ReadRecord]] = {group: {} for group in emptied}
    for op in evidence.timeline.of(TakeCall):
        if op.what.group in emptied:
            taken[op.what.group].update((seen.value, ReadRecord(seen, op)) for seen in op.answer.seen)
    return taken


def _dead_letters(evidence: Evidence) -> set[str]:
    return {value for topic, value in evidence.reads.of_value if topic.endswith(DEAD_LETTERS)}
