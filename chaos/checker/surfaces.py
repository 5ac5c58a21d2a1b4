"""All surfaces show the same log: the same record at a place, in the same order, and all of them (I12)."""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise

from chaos.checker.evidence import Evidence, PartitionKey, ReadRecord
from chaos.checker.violation import RuleFinding, shown_by
from chaos.history import PollCall, describe_location


def surfaces_disagree(evidence: Evidence) -> Iterator[RuleFinding]:
    """Two readers found one place to hold records of other keys, cursors or, on other surfaces, values."""
    for one, other in evidence.sightings.differing:
        if one.seen.value == other.seen.value or one.op.surface != other.op.surface:
            yield shown_by(
                f"{describe_location(one.seen.place)} is {_describe(one)} by {one.op.surface} and {_describe(other)} by {other.op.surface}",
                one.op,
                other.op,
                about=(one.seen.value, other.seen.value),
            )


def cursor_order(evidence: Evidence) -> Iterator[RuleFinding]:
    """One cursor for two places, or cursors that fall while offsets rise."""
    by_cursor: dict[int, ReadRecord] = {}
    partitions: dict[PartitionKey, list[ReadRecord]] = defaultdict(list)
    for place, sighting in evidence.sightings.at.items():
        if sighting.seen.cursor < 0:
            continue
        partitions[place.topic, place.partition].append(sighting)
        first = by_cursor.setdefault(sighting.seen.cursor, sighting)
        if first is not sighting:
            message = f"cursor {sighting.seen.cursor} stands for {describe_location(first.seen.place)} and for {describe_location(place)}"
            yield shown_by(message, first.op, sighting.op, about=(first.seen.value, sighting.seen.value))
    for sightings in partitions.values():
        sightings.sort(key=lambda sighting: sighting.seen.place.offset)
        for one, other in pairwise(sightings):
            if other.seen.cursor < one.seen.cursor:
                yield shown_by(
                    f"{describe_location(one.seen.place)} has cursor {one.seen.cursor}, and {describe_location(other.seen.place)} a lower one,"
                    f" {other.seen.cursor}",
                    one.op,
                    other.op,
                    about=(one.seen.value, other.seen.value),
                )


def hidden_on_surface(evidence: Evidence) -> Iterator[RuleFinding]:
    """The final reads of one surface passed a record that those of another one found."""
    final: dict[tuple[PartitionKey, str], dict[int, ReadRecord]] = defaultdict(dict)
    for op in evidence.timeline.of(PollCall):
        for seen in op.answer.seen if op.what.final else ():
            final[(seen.place.topic, seen.place.partition), op.surface].setdefault(seen.place.offset, ReadRecord(seen, op))
    for (partition, surface), found in final.items():
        visible = evidence.sightings.visible.get(partition, [])
        passed = visible[bisect_left(visible, min(found)) : bisect_right(visible, max(found))]
        elsewhere = evidence.sightings.final[partition]
        hidden = [elsewhere[offset] for offset in passed if offset not in found and offset in elsewhere]
        if hidden:
            first = hidden[0]
            after = min(offset for offset in found if offset > first.seen.place.offset)
            yield shown_by(
                f"{first.op.surface} has {first.seen.value!r} at {describe_location(first.seen.place)}, {surface} passed it"
                f" ({len(hidden)} such records)",
                first.op,
                found[after].op,
                about=(first.seen.value,),
            )


def _describe(sighting: ReadRecord) -> str:
    seen = sighting.seen
    return f"value {seen.value!r}, key {seen.key!r}, cursor {seen.cursor}"
