"""What was written: each record that a send or a transaction carried, and whether it must, may or must not be seen."""

from collections import defaultdict
from collections.abc import Iterator
from enum import Enum
from functools import cached_property
from typing import NamedTuple

from chaos.checker.register import HighestKnown
from chaos.checker.timeline import Op, Timeline
from chaos.history import (
    DELETED,
    BoundsCall,
    CallOutcome,
    ChangeCall,
    DeclaredTopic,
    PollCall,
    RecordLocation,
    SeenRecord,
    SendCall,
    TakeCall,
    TransactionCall,
)

PartitionKey = tuple[str, int]
WriteOp = Op[SendCall] | Op[TransactionCall]


class Visibility(Enum):
    ACKED = "acked"
    POSSIBLE = "possible"
    REFUSED = "refused"
    """Refused by the server, or aborted by its producer."""


class WrittenRecord(NamedTuple):
    value: str
    place: RecordLocation
    """With offset -1 when nobody has said it."""
    fate: Visibility
    op: WriteOp

    @property
    def in_transaction(self) -> bool:
        return isinstance(self.op.what, TransactionCall)


class Writes:
    """Values are unique over a run, so a value names its record."""

    def __init__(self, timeline: Timeline) -> None:
        self.by_value: dict[str, WrittenRecord] = {}
        self.at: dict[RecordLocation, WrittenRecord] = {}
        """The first that was given each place."""
        self.topics: set[str] = set()
        self.repeated: list[tuple[WrittenRecord, WrittenRecord]] = []
        """Two records of one value: the run was made wrong."""
        self.ops: list[WriteOp] = [*timeline.of(SendCall), *timeline.of(TransactionCall)]
        for op in self.ops:
            self._add(op)

    def of(self, op: WriteOp) -> list[WrittenRecord]:
        return [self.by_value[value] for _, value in op.what.records]

    def _add(self, op: WriteOp) -> None:
        places = op.answer.places
        for index, (asked, value) in enumerate(op.what.records):
            place = places[index] if index < len(places) else asked
            self.topics.add(asked.topic)
            written = WrittenRecord(value, place, _visibility(op, place), op)
            first = self.by_value.setdefault(value, written)
            if first is not written:
                self.repeated.append((first, written))
            if place.offset >= 0:
                self.at.setdefault(place, written)


def _visibility(op: WriteOp, place: RecordLocation) -> Visibility:
    if op.outcome is CallOutcome.FAILED or (isinstance(op.what, TransactionCall) and op.what.aborted):
        return Visibility.REFUSED
    # Of a send with many partitions some records may be acked while others are not; a transaction is acked as a whole.
    if op.outcome is CallOutcome.OK or (isinstance(op.what, SendCall) and place.offset >= 0):
        return Visibility.ACKED
    return Visibility.POSSIBLE


Reader = Op[PollCall] | Op[TakeCall]


class ReadRecord(NamedTuple):
    seen: SeenRecord
    op: Reader


class ReadRecords:
    def __init__(self, timeline: Timeline, writes: Writes) -> None:
        self.at: dict[RecordLocation, ReadRecord] = {}
        """The first that was seen at each place."""
        self.of_value: dict[tuple[str, str], ReadRecord] = {}
        """The first of each value in each topic."""
        self.differing: list[tuple[ReadRecord, ReadRecord]] = []
        """Two reads of one place that are not the same in value, key or cursor."""
        self.doubled: list[tuple[ReadRecord, ReadRecord]] = []
        """Two places of one value in one topic."""
        self.to_committed_readers: dict[str, ReadRecord] = {}
        """Of each value, the first read by one who sees ended transactions only."""
        self.final: dict[PartitionKey, dict[int, ReadRecord]] = defaultdict(dict)
        self._writes = writes
        for read in read_records(timeline):
            self._add(read)
        self.visible: dict[PartitionKey, list[int]] = self._visible()
        """The offsets, in order, of the records that each reader who passes them must see."""

    def _add(self, read: ReadRecord) -> None:
        seen, op = read
        place = seen.place
        first = self.at.setdefault(place, read)
        if first.seen != seen and _differ(first.seen, seen):
            self.differing.append((first, read))
        known = self.of_value.setdefault((place.topic, seen.value), read)
        if known.seen.place != place:
            self.doubled.append((known, read))
        if isinstance(op.what, TakeCall) or op.what.committed:
            self.to_committed_readers.setdefault(seen.value, read)
        if isinstance(op.what, PollCall) and op.what.final:
            self.final[place.topic, place.partition].setdefault(place.offset, read)

    def _visible(self) -> dict[PartitionKey, list[int]]:
        offsets: dict[PartitionKey, set[int]] = defaultdict(set)
        for written in self._writes.by_value.values():
            if written.fate is Visibility.ACKED and written.place.offset >= 0:
                offsets[written.place.topic, written.place.partition].add(written.place.offset)
        for place, (seen, _) in self.at.items():
            if self.is_lasting(seen.value):
                offsets[place.topic, place.partition].add(place.offset)
        return {partition: sorted(found) for partition, found in offsets.items()}

    def is_lasting(self, value: str) -> bool:
        """It was seen, and not only by those who see open transactions too: such a record may still go away."""
        written = self._writes.by_value.get(value)
        return written is None or not written.in_transaction or value in self.to_committed_readers


def read_records(timeline: Timeline) -> Iterator[ReadRecord]:
    for op in timeline.completed(PollCall, TakeCall):
        for seen in op.answer.seen:
            yield ReadRecord(seen, op)  # type: ignore[arg-type]


def _differ(one: SeenRecord, other: SeenRecord) -> bool:
    """Keys and cursors count where both surfaces tell them."""
    return (
        one.value != other.value
        or (one.cursor >= 0 and other.cursor >= 0 and one.cursor != other.cursor)
        or (one.key is not None and other.key is not None and one.key != other.key)
    )


class RequestedChange(NamedTuple):
    """One row of a change, with `DELETED` as its value for a delete."""

    table: str
    key: str
    value: str
    op: Op[ChangeCall]


class ChangeEvent(NamedTuple):
    key: str
    value: str
    place: RecordLocation
    op: Reader


class ChangeEvents:
    def __init__(self, evidence: "Evidence") -> None:
        self._evidence = evidence

    @cached_property
    def asked(self) -> list[RequestedChange]:
        return [
            RequestedChange(table, key, DELETED if value is None else value, op)
            for op in self._evidence.timeline.of(ChangeCall)
            for table, key, value in op.what.rows
        ]

    @cached_property
    def by_value(self) -> dict[tuple[str, str], RequestedChange]:
        """Values are unique; deletes have none of their own."""
        return {(asked.table, asked.value): asked for asked in self.asked if asked.value != DELETED}

    @cached_property
    def topics(self) -> list[DeclaredTopic]:
        """The topics that tables feed, but those of which retention has taken a part."""
        return [line for line in self._evidence.declared.values() if line.table and not self._is_shortened(line.topic)]

    @cached_property
    def in_topic(self) -> dict[str, dict[str, list[ChangeEvent]]]:
        """Of each topic and key, the events in their order."""
        fed = {line.topic for line in self.topics}
        events: dict[str, dict[str, list[ChangeEvent]]] = {topic: defaultdict(list) for topic in fed}
        for (topic, _), found in self._evidence.reads.final.items():
            for _, (seen, op) in sorted(found.items()) if topic in fed else ():
                key = seen.key or ""
                events[topic][key].append(ChangeEvent(key, seen.value, seen.place, op))
        return events

    def _is_shortened(self, topic: str) -> bool:
        starts = self._evidence.starts
        return any(self._evidence.last_start(partition) > 0 for partition in starts if partition[0] == topic)


class Evidence:
    def __init__(self, timeline: Timeline) -> None:
        self.timeline = timeline

    @cached_property
    def writes(self) -> Writes:
        return Writes(self.timeline)

    @cached_property
    def reads(self) -> ReadRecords:
        return ReadRecords(self.timeline, self.writes)

    @cached_property
    def changes(self) -> ChangeEvents:
        return ChangeEvents(self)

    @cached_property
    def declared(self) -> dict[str, DeclaredTopic]:
        return {line.topic: line for line in self.timeline.others(DeclaredTopic)}

    def is_kept(self, topic: str) -> bool:
        """It has no retention, as far as anybody has said."""
        declared = self.declared.get(topic)
        return declared is None or declared.kept

    def table_of(self, topic: str) -> str:
        """The table that feeds the topic, or nothing."""
        declared = self.declared.get(topic)
        return declared.table if declared else ""

    @cached_property
    def starts(self) -> dict[PartitionKey, HighestKnown]:
        """How far the start of each partition was known to have risen."""
        starts: dict[PartitionKey, HighestKnown] = defaultdict(HighestKnown)
        for op in self.timeline.completed(BoundsCall, PollCall):
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

    def has_left(self, place: RecordLocation) -> bool:
        """Retention took the record away, or may have: of one without a known offset nobody can say."""
        return self.last_start((place.topic, place.partition)) > max(place.offset, 0)

    @cached_property
    def has_final_reads(self) -> bool:
        return any(op.what.final and op.outcome is CallOutcome.OK for op in self.timeline.of(PollCall))
