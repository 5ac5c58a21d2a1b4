"""The changes of tables, as they were asked for and as final reads found them in topics."""

from collections import defaultdict
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from chaos.checker.sightings import Reader
from chaos.checker.timeline import Op
from chaos.history import DELETED, Change, Declared, Place

if TYPE_CHECKING:
    from chaos.checker.evidence import Evidence


class Asked(NamedTuple):
    """One row of a change, with `DELETED` as its value for a delete."""

    table: str
    key: str
    value: str
    op: Op[Change]


class Event(NamedTuple):
    key: str
    value: str
    place: Place
    op: Reader


class ChangeEvents:
    def __init__(self, evidence: "Evidence") -> None:
        self._evidence = evidence

    @cached_property
    def asked(self) -> list[Asked]:
        return [
            Asked(table, key, DELETED if value is None else value, op)
            for op in self._evidence.timeline.of(Change)
            for table, key, value in op.what.rows
        ]

    @cached_property
    def by_value(self) -> dict[tuple[str, str], Asked]:
        """Values are unique; deletes have none of their own."""
        return {(asked.table, asked.value): asked for asked in self.asked if asked.value != DELETED}

    @cached_property
    def topics(self) -> list[Declared]:
        """The topics that tables feed, but those of which retention has taken a part."""
        return [line for line in self._evidence.declared.values() if line.table and not self._is_shortened(line.topic)]

    @cached_property
    def in_topic(self) -> dict[str, dict[str, list[Event]]]:
        """Of each topic and key, the events in their order."""
        fed = {line.topic for line in self.topics}
        events: dict[str, dict[str, list[Event]]] = {topic: defaultdict(list) for topic in fed}
        for (topic, _), found in self._evidence.sightings.final.items():
            for _, (seen, op) in sorted(found.items()) if topic in fed else ():
                key = seen.key or ""
                events[topic][key].append(Event(key, seen.value, seen.place, op))
        return events

    def _is_shortened(self, topic: str) -> bool:
        starts = self._evidence.starts
        return any(self._evidence.last_start(partition) > 0 for partition in starts if partition[0] == topic)
