"""What final reads must find: every acked record, and every one that was read, unless retention took it (I1, I2)."""

from bisect import bisect_right
from collections.abc import Iterator
from typing import Any, NamedTuple

from chaos.checker.evidence import Evidence
from chaos.checker.places import name
from chaos.checker.sightings import Sighting
from chaos.checker.timeline import Op
from chaos.checker.violation import Found, shown_by
from chaos.checker.writes import Fate
from chaos.history import Place


class Missing(NamedTuple):
    value: str
    place: Place
    shown_by: tuple[Op[Any], ...]
    passed_by: Sighting | None
    """The next record that final reads found in the partition."""


def lost_write(evidence: Evidence) -> Iterator[Found]:
    """Final reads went past the record."""
    for missing in _missing(evidence):
        if missing.passed_by:
            yield shown_by(
                f"{missing.value!r} was at {name(missing.place)}; final reads went past it, to offset"
                f" {missing.passed_by.seen.place.offset}",
                *missing.shown_by,
                missing.passed_by.op,
                about=(missing.value,),
            )


def unseen(evidence: Evidence) -> Iterator[Found]:
    """Final reads did not come as far as the record."""
    for missing in _missing(evidence):
        if missing.passed_by:
            continue
        found = evidence.sightings.final.get((missing.place.topic, missing.place.partition), {})
        last = found[max(found)] if found else None
        reached = f"ended at offset {last.seen.place.offset}" if last else "found nothing in that partition"
        yield shown_by(
            f"{missing.value!r} was at {name(missing.place)}, but final reads {reached}",
            *missing.shown_by,
            *((last.op,) if last else ()),
            about=(missing.value,),
        )


def _missing(evidence: Evidence) -> Iterator[Missing]:
    if not evidence.has_final_reads:
        return
    sightings = evidence.sightings
    offsets = {partition: sorted(found) for partition, found in sightings.final.items()}
    found = {(partition[0], one.seen.value) for partition, records in sightings.final.items() for one in records.values()}
    for written in evidence.writes.by_value.values():
        if (written.place.topic, written.value) in found:
            continue
        read = sightings.of_value.get((written.place.topic, written.value)) if sightings.is_lasting(written.value) else None
        acked = written.fate is Fate.ACKED
        place = read.seen.place if read and written.place.offset < 0 else written.place
        if not (acked or read) or evidence.has_left(place):
            continue
        partition = (place.topic, place.partition)
        above = offsets.get(partition, [])
        index = bisect_right(above, place.offset)
        passed = place.offset >= 0 and index < len(above)
        yield Missing(
            written.value,
            place,
            (written.op, *((read.op,) if read and not acked else ())),
            sightings.final[partition][above[index]] if passed else None,
        )
