"""What is in the log: one record at each offset, nothing twice, nothing that was refused or made up (I3 to I5)."""

from bisect import bisect_right
from collections.abc import Iterator
from typing import Any, NamedTuple

from chaos.checker.evidence import Evidence, ReadRecord, Visibility, WrittenRecord
from chaos.checker.timeline import Op
from chaos.checker.violation import RuleFinding, shown_by
from chaos.history import CopyInspection, RecordLocation, SendCall, label


def inconsistent_offset(evidence: Evidence) -> Iterator[RuleFinding]:
    """Two values at one offset."""
    for one, other in evidence.reads.differing:
        if one.seen.value != other.seen.value:
            yield _two_values(one.seen.location, one.seen.value, other.seen.value, one, other)
    for written in evidence.writes.by_value.values():
        if written.location.offset < 0:
            continue
        first = evidence.writes.at[written.location]
        if first is not written:
            message = f"{label(written.location)} was given to {first.value!r} and to {written.value!r}"
            yield shown_by(message, first.op, written.op, about=(first.value, written.value))
        read = evidence.reads.at.get(written.location)
        if read and read.seen.value != written.value:
            yield shown_by(
                f"{label(written.location)} was given to {written.value!r}, but {read.seen.value!r} was read there",
                written.op,
                read.op,
                about=(written.value, read.seen.value),
            )


def duplicate(evidence: Evidence) -> Iterator[RuleFinding]:
    """One value at two offsets, although it was sent by an idempotent producer."""
    for one, other in evidence.reads.doubled:
        written = evidence.writes.by_value.get(one.seen.value)
        if written and _stored_once(written) and not evidence.table_of(one.seen.location.topic):
            message = (
                f"{one.seen.value!r} was sent once and read at {label(one.seen.location)} and at {label(other.seen.location)}"
            )
            yield shown_by(message, written.op, one.op, other.op, about=(one.seen.value,))
    for written in evidence.writes.by_value.values():
        read = evidence.reads.of_value.get((written.location.topic, written.value))
        if read and written.location.offset >= 0 and _stored_once(written) and read.seen.location != written.location:
            message = f"{written.value!r} was acked at {label(written.location)} and read at {label(read.seen.location)}"
            yield shown_by(message, written.op, read.op, about=(written.value,))


def aborted_read(evidence: Evidence) -> Iterator[RuleFinding]:
    """A record that was refused, or whose transaction was aborted, and that was read all the same."""
    for written in evidence.writes.by_value.values():
        if written.visibility is not Visibility.REFUSED:
            continue
        if written.in_transaction:
            read = evidence.reads.to_committed_readers.get(written.value)
        else:
            read = evidence.reads.of_value.get((written.location.topic, written.value))
        if read:
            what = "whose transaction did not commit," if written.in_transaction else "which was refused,"
            message = f"{written.value!r}, {what} was read at {label(read.seen.location)}"
            yield shown_by(message, written.op, read.op, about=(written.value,))


def never_sent(evidence: Evidence) -> Iterator[RuleFinding]:
    """A record in a topic of the run that nobody sent there."""
    writes = evidence.writes
    for (topic, value), read in evidence.reads.of_value.items():
        if topic not in writes.topics or evidence.table_of(topic):
            continue
        written = writes.by_value.get(value)
        if written is None or written.location.topic != topic:
            yield shown_by(
                f"{value!r} was read at {label(read.seen.location)}, but nobody sent it there",
                read.op,
                about=(value,),
            )


def copied_otherwise(evidence: Evidence) -> Iterator[RuleFinding]:
    """The copy of a topic is another one, or a group would not go on there where it was."""
    for copied in evidence.timeline.others(CopyInspection):
        for finding in copied.findings:
            yield RuleFinding(f"{copied.shadow}: {finding}", at=copied.time)


def _stored_once(written: WrittenRecord) -> bool:
    return not isinstance(written.op.what, SendCall) or written.op.what.idempotent


def _two_values(location: RecordLocation, one_value: str, other_value: str, one: ReadRecord, other: ReadRecord) -> RuleFinding:
    message = f"{label(location)} held {one_value!r} and later {other_value!r}"
    return shown_by(message, one.op, other.op, about=(one_value, other_value))


class MissingRecord(NamedTuple):
    value: str
    location: RecordLocation
    shown_by: tuple[Op[Any], ...]
    passed_by: ReadRecord | None
    """The next record that final reads found in the partition."""


def lost_write(evidence: Evidence) -> Iterator[RuleFinding]:
    """Final reads went past the record."""
    for missing in _missing(evidence):
        if missing.passed_by:
            yield shown_by(
                f"{missing.value!r} was at {label(missing.location)}; final reads went past it, to offset"
                f" {missing.passed_by.seen.location.offset}",
                *missing.shown_by,
                missing.passed_by.op,
                about=(missing.value,),
            )


def unseen(evidence: Evidence) -> Iterator[RuleFinding]:
    """Final reads did not come as far as the record."""
    for missing in _missing(evidence):
        if missing.passed_by:
            continue
        found = evidence.reads.final.get((missing.location.topic, missing.location.partition), {})
        last = found[max(found)] if found else None
        reached = f"ended at offset {last.seen.location.offset}" if last else "found nothing in that partition"
        yield shown_by(
            f"{missing.value!r} was at {label(missing.location)}, but final reads {reached}",
            *missing.shown_by,
            *((last.op,) if last else ()),
            about=(missing.value,),
        )


def _missing(evidence: Evidence) -> Iterator[MissingRecord]:
    if not evidence.has_final_reads:
        return
    reads = evidence.reads
    offsets = {partition: sorted(found) for partition, found in reads.final.items()}
    found = {(partition[0], one.seen.value) for partition, records in reads.final.items() for one in records.values()}
    for written in evidence.writes.by_value.values():
        if (written.location.topic, written.value) in found:
            continue
        read = reads.of_value.get((written.location.topic, written.value)) if reads.is_lasting(written.value) else None
        acked = written.visibility is Visibility.ACKED
        location = read.seen.location if read and written.location.offset < 0 else written.location
        if not (acked or read) or evidence.has_left(location):
            continue
        partition = (location.topic, location.partition)
        above = offsets.get(partition, [])
        index = bisect_right(above, location.offset)
        passed = location.offset >= 0 and index < len(above)
        yield MissingRecord(
            written.value,
            location,
            (written.op, *((read.op,) if read and not acked else ())),
            reads.final[partition][above[index]] if passed else None,
        )
