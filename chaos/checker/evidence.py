"""All that rules may ask of a history. Each part is made when it is asked for first."""

from collections import defaultdict
from functools import cached_property

from chaos.checker.change_events import ChangeEvents
from chaos.checker.frontier import Frontier
from chaos.checker.sightings import Sightings
from chaos.checker.timeline import Timeline
from chaos.checker.writes import PartitionKey, Writes
from chaos.history import Bounds, Declared, Outcome, Place, Poll


class Evidence:
    def __init__(self, timeline: Timeline) -> None:
        self.timeline = timeline

    @cached_property
    def writes(self) -> Writes:
        return Writes(self.timeline)

    @cached_property
    def sightings(self) -> Sightings:
        return Sightings(self.timeline, self.writes)

    @cached_property
    def changes(self) -> ChangeEvents:
        return ChangeEvents(self)

    @cached_property
    def declared(self) -> dict[str, Declared]:
        return {line.topic: line for line in self.timeline.others(Declared)}

    def is_kept(self, topic: str) -> bool:
        """It has no retention, as far as anybody has said."""
        declared = self.declared.get(topic)
        return declared is None or declared.kept

    def table_of(self, topic: str) -> str:
        """The table that feeds the topic, or nothing."""
        declared = self.declared.get(topic)
        return declared.table if declared else ""

    @cached_property
    def starts(self) -> dict[PartitionKey, Frontier]:
        """How far the start of each partition was known to have risen."""
        starts: dict[PartitionKey, Frontier] = defaultdict(Frontier)
        for op in self.timeline.completed(Bounds, Poll):
            for place in op.answer.starts:
                starts[place.topic, place.partition].raise_to(place.offset, op)
            for place in op.answer.out_of_range:
                # Where nothing expires, this says that the end has fallen: no excuse for what is missing.
                if not self.is_kept(place.topic):
                    starts[place.topic, place.partition].raise_to(place.offset + 1, op)
        return starts

    def last_start(self, partition: PartitionKey) -> int:
        frontier = self.starts.get(partition)
        mark = frontier.highest if frontier else None
        return mark.number if mark else 0

    def has_left(self, place: Place) -> bool:
        """Retention took the record away, or may have: of one without a known offset nobody can say."""
        return self.last_start((place.topic, place.partition)) > max(place.offset, 0)

    @cached_property
    def has_final_reads(self) -> bool:
        return any(op.what.final and op.outcome is Outcome.OK for op in self.timeline.of(Poll))
