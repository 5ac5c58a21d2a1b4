"""What was read: for each place the record that readers found there, by whom first, and what is known to be visible to all.

One pass over all reads. Where readers differ, both sides are kept as a pair, and rules make of it what they like.
"""

from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from chaos.checker.timeline import Op, Timeline
from chaos.checker.writes import Fate, PartitionKey, Writes
from chaos.history import Place, Poll, Seen, Take

Reader = Op[Poll] | Op[Take]


class Sighting(NamedTuple):
    seen: Seen
    op: Reader


class Sightings:
    def __init__(self, timeline: Timeline, writes: Writes) -> None:
        self.at: dict[Place, Sighting] = {}
        """The first that was seen at each place."""
        self.of_value: dict[tuple[str, str], Sighting] = {}
        """The first of each value in each topic."""
        self.differing: list[tuple[Sighting, Sighting]] = []
        """Two sightings of one place that are not the same in value, key or cursor."""
        self.doubled: list[tuple[Sighting, Sighting]] = []
        """Two places of one value in one topic."""
        self.to_committed_readers: dict[str, Sighting] = {}
        """Of each value, the first sighting by one who sees ended transactions only."""
        self.final: dict[PartitionKey, dict[int, Sighting]] = defaultdict(dict)
        self._writes = writes
        for sighting in read(timeline):
            self._add(sighting)
        self.visible: dict[PartitionKey, list[int]] = self._visible()
        """The offsets, in order, of the records that each reader who passes them must see."""

    def _add(self, sighting: Sighting) -> None:
        seen, op = sighting
        place = seen.place
        first = self.at.setdefault(place, sighting)
        if first.seen != seen and _differ(first.seen, seen):
            self.differing.append((first, sighting))
        known = self.of_value.setdefault((place.topic, seen.value), sighting)
        if known.seen.place != place:
            self.doubled.append((known, sighting))
        if isinstance(op.what, Take) or op.what.committed:
            self.to_committed_readers.setdefault(seen.value, sighting)
        if isinstance(op.what, Poll) and op.what.final:
            self.final[place.topic, place.partition].setdefault(place.offset, sighting)

    def _visible(self) -> dict[PartitionKey, list[int]]:
        offsets: dict[PartitionKey, set[int]] = defaultdict(set)
        for written in self._writes.by_value.values():
            if written.fate is Fate.ACKED and written.place.offset >= 0:
                offsets[written.place.topic, written.place.partition].add(written.place.offset)
        for place, (seen, _) in self.at.items():
            if self.is_lasting(seen.value):
                offsets[place.topic, place.partition].add(place.offset)
        return {partition: sorted(found) for partition, found in offsets.items()}

    def is_lasting(self, value: str) -> bool:
        """It was seen, and not only by those who see open transactions too: such a record may still go away."""
        written = self._writes.by_value.get(value)
        return written is None or not written.in_transaction or value in self.to_committed_readers


def read(timeline: Timeline) -> Iterator[Sighting]:
    for op in timeline.completed(Poll, Take):
        for seen in op.answer.seen:
            yield Sighting(seen, op)  # type: ignore[arg-type]


def _differ(one: Seen, other: Seen) -> bool:
    """Keys and cursors count where both surfaces tell them."""
    return (
        one.value != other.value
        or (one.cursor >= 0 and other.cursor >= 0 and one.cursor != other.cursor)
        or (one.key is not None and other.key is not None and one.key != other.key)
    )
