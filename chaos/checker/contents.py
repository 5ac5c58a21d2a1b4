"""What is in the log: one record at each offset, nothing twice, nothing that was refused or made up (I3 to I5)."""

from collections.abc import Iterator

from chaos.checker.evidence import Evidence
from chaos.checker.places import name
from chaos.checker.sightings import Sighting
from chaos.checker.violation import Found, shown_by
from chaos.checker.writes import Fate, Written
from chaos.history import Place, Send


def inconsistent_offset(evidence: Evidence) -> Iterator[Found]:
    """Two values at one offset."""
    for one, other in evidence.sightings.differing:
        if one.seen.value != other.seen.value:
            yield _two_values(one.seen.place, one.seen.value, other.seen.value, one, other)
    for written in evidence.writes.by_value.values():
        if written.place.offset < 0:
            continue
        first = evidence.writes.at[written.place]
        if first is not written:
            message = f"{name(written.place)} was given to {first.value!r} and to {written.value!r}"
            yield shown_by(message, first.op, written.op, about=(first.value, written.value))
        sighting = evidence.sightings.at.get(written.place)
        if sighting and sighting.seen.value != written.value:
            yield shown_by(
                f"{name(written.place)} was given to {written.value!r}, but {sighting.seen.value!r} was read there",
                written.op,
                sighting.op,
                about=(written.value, sighting.seen.value),
            )


def duplicate(evidence: Evidence) -> Iterator[Found]:
    """One value at two offsets, although it was sent by an idempotent producer."""
    for one, other in evidence.sightings.doubled:
        written = evidence.writes.by_value.get(one.seen.value)
        if written and _stored_once(written) and not evidence.table_of(one.seen.place.topic):
            message = f"{one.seen.value!r} was sent once and read at {name(one.seen.place)} and at {name(other.seen.place)}"
            yield shown_by(message, written.op, one.op, other.op, about=(one.seen.value,))
    for written in evidence.writes.by_value.values():
        sighting = evidence.sightings.of_value.get((written.place.topic, written.value))
        if sighting and written.place.offset >= 0 and _stored_once(written) and sighting.seen.place != written.place:
            message = f"{written.value!r} was acked at {name(written.place)} and read at {name(sighting.seen.place)}"
            yield shown_by(message, written.op, sighting.op, about=(written.value,))


def aborted_read(evidence: Evidence) -> Iterator[Found]:
    """A record that was refused, or whose transaction was aborted, and that was read all the same."""
    for written in evidence.writes.by_value.values():
        if written.fate is not Fate.REFUSED:
            continue
        if written.in_transaction:
            sighting = evidence.sightings.to_committed_readers.get(written.value)
        else:
            sighting = evidence.sightings.of_value.get((written.place.topic, written.value))
        if sighting:
            what = "whose transaction did not commit," if written.in_transaction else "which was refused,"
            message = f"{written.value!r}, {what} was read at {name(sighting.seen.place)}"
            yield shown_by(message, written.op, sighting.op, about=(written.value,))


def never_sent(evidence: Evidence) -> Iterator[Found]:
    """A record in a topic of the run that nobody sent there."""
    writes = evidence.writes
    for (topic, value), sighting in evidence.sightings.of_value.items():
        if topic not in writes.topics or evidence.table_of(topic):
            continue
        written = writes.by_value.get(value)
        if written is None or written.place.topic != topic:
            yield shown_by(
                f"{value!r} was read at {name(sighting.seen.place)}, but nobody sent it there", sighting.op, about=(value,)
            )


def _stored_once(written: Written) -> bool:
    return not isinstance(written.op.what, Send) or written.op.what.idempotent


def _two_values(place: Place, one_value: str, other_value: str, one: Sighting, other: Sighting) -> Found:
    message = f"{name(place)} held {one_value!r} and later {other_value!r}"
    return shown_by(message, one.op, other.op, about=(one_value, other_value))
