"""Everything that rules may ask of a history: what was written, what was read, and the changes of tables.

`Writes` holds each record that a send or a transaction carried, and whether it must, may or must not be seen. `ReadRecords`
holds, for each offset, the record that readers found there, who read it first, and what is known to be visible to everyone.
`ChangeEvents` holds the changes of tables as they were requested, and as the final reads found them in topics.
"""

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

PartitionName = tuple[str, int]
WriteOp = Op[SendCall] | Op[TransactionCall]


class Visibility(Enum):
    ACKED = "acked"
    POSSIBLE = "possible"
    REFUSED = "refused"
    """Refused by the server, or aborted by its producer."""


class WrittenRecord(NamedTuple):
    value: str
    location: RecordLocation
    """With offset -1 if it is not known."""
    visibility: Visibility
    op: WriteOp

    @property
    def in_transaction(self) -> bool:
        return isinstance(self.op.what, TransactionCall)


class Writes:
    """All records that were sent. Values are unique over a run, so a value identifies its record."""

    def __init__(self, timeline: Timeline) -> None:
        self.by_value: dict[str, WrittenRecord] = {}
        self.at: dict[RecordLocation, WrittenRecord] = {}
        """The first record that was acknowledged at each location."""
        self.topics: set[str] = set()
        self.repeated: list[tuple[WrittenRecord, WrittenRecord]] = []
        """Two records with the same value, which is a defect of the run."""
        self.ops: list[WriteOp] = [*timeline.of(SendCall), *timeline.of(TransactionCall)]
        for op in self.ops:
            self._add(op)

    def of(self, op: WriteOp) -> list[WrittenRecord]:
        return [self.by_value[value] for _, value in op.what.records]

    def _add(self, op: WriteOp) -> None:
        locations = op.answer.locations
        for index, (asked, value) in enumerate(op.what.records):
            location = locations[index] if index < len(locations) else asked
            self.topics.add(asked.topic)
            written = WrittenRecord(value, location, _visibility(op, location), op)
            first = self.by_value.setdefault(value, written)
            if first is not written:
                self.repeated.append((first, written))
            if location.offset >= 0:
                self.at.setdefault(location, written)


def _visibility(op: WriteOp, location: RecordLocation) -> Visibility:
    if op.outcome is CallOutcome.FAILED or (isinstance(op.what, TransactionCall) and op.what.aborted):
        return Visibility.REFUSED
    # A send to many partitions may be acked for some records only; a transaction is acked as a whole.
    if op.outcome is CallOutcome.OK or (isinstance(op.what, SendCall) and location.offset >= 0):
        return Visibility.ACKED
    return Visibility.POSSIBLE


ReadOp = Op[PollCall] | Op[TakeCall]


class ReadRecord(NamedTuple):
    seen: SeenRecord
    op: ReadOp


class ReadRecords:
    """All records that were read."""

    def __init__(self, timeline: Timeline, writes: Writes) -> None:
        self.at: dict[RecordLocation, ReadRecord] = {}
        """The first read of each location."""
        self.of_value: dict[tuple[str, str], ReadRecord] = {}
        """The first read of each value in each topic."""
        self.differing: list[tuple[ReadRecord, ReadRecord]] = []
        """Two reads of one location that differ in value, key or cursor."""
        self.doubled: list[tuple[ReadRecord, ReadRecord]] = []
        """Two reads of one value at different locations of one topic."""
        self.to_committed_readers: dict[str, ReadRecord] = {}
        """For each value, the first read by a reader that sees ended transactions only."""
        self.final: dict[PartitionName, dict[int, ReadRecord]] = defaultdict(dict)
        self._writes = writes
        for read in read_records(timeline):
            self._add(read)
        self.visible: dict[PartitionName, list[int]] = self._visible()
        """The offsets, in order, of the records that every reader that passes them must see."""

    def _add(self, read: ReadRecord) -> None:
        seen, op = read
        location = seen.location
        first = self.at.setdefault(location, read)
        if first.seen != seen and _differ(first.seen, seen):
            self.differing.append((first, read))
        known = self.of_value.setdefault((location.topic, seen.value), read)
        if known.seen.location != location:
            self.doubled.append((known, read))
        if isinstance(op.what, TakeCall) or op.what.committed:
            self.to_committed_readers.setdefault(seen.value, read)
        if isinstance(op.what, PollCall) and op.what.final:
            self.final[location.topic, location.partition].setdefault(location.offset, read)

    def _visible(self) -> dict[PartitionName, list[int]]:
        offsets: dict[PartitionName, set[int]] = defaultdict(set)
        for written in self._writes.by_value.values():
            if written.visibility is Visibility.ACKED and written.location.offset >= 0:
                offsets[written.location.topic, written.location.partition].add(written.location.offset)
        for location, (seen, _) in self.at.items():
            if self.is_lasting(seen.value):
                offsets[location.topic, location.partition].add(location.offset)
        return {partition: sorted(found) for partition, found in offsets.items()}

    def is_lasting(self, value: str) -> bool:
        """Return whether a record that was read must stay visible.

        One that only readers of open transactions saw may still be aborted.
        """
        written = self._writes.by_value.get(value)
        return written is None or not written.in_transaction or value in self.to_committed_readers


def read_records(timeline: Timeline) -> Iterator[ReadRecord]:
    for op in timeline.completed(PollCall, TakeCall):
        for seen in op.answer.seen:
            yield ReadRecord(seen, op)  # type: ignore[arg-type]


def _differ(one: SeenRecord, other: SeenRecord) -> bool:
    """Return whether two reads differ. Keys and cursors count if both surfaces return them."""
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


class SeenChangeEvent(NamedTuple):
    key: str
    value: str
    location: RecordLocation
    op: ReadOp


class ChangeEvents:
    """The changes of tables, requested and found."""

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
        """The requested upserts by table and value. Deletes have no value of their own."""
        return {(asked.table, asked.value): asked for asked in self.asked if asked.value != DELETED}

    @cached_property
    def topics(self) -> list[DeclaredTopic]:
        """The topics that tables feed, except those that retention has shortened."""
        return [line for line in self._evidence.declared.values() if line.table and not self._is_shortened(line.topic)]

    @cached_property
    def in_topic(self) -> dict[str, dict[str, list[SeenChangeEvent]]]:
        """The events of each topic and key, in order."""
        fed = {line.topic for line in self.topics}
        events: dict[str, dict[str, list[SeenChangeEvent]]] = {topic: defaultdict(list) for topic in fed}
        for (topic, _), found in self._evidence.reads.final.items():
            for _, (seen, op) in sorted(found.items()) if topic in fed else ():
                key = seen.key or ""
                events[topic][key].append(SeenChangeEvent(key, seen.value, seen.location, op))
        return events

    def _is_shortened(self, topic: str) -> bool:
        starts = self._evidence.starts
        return any(self._evidence.last_start(partition) > 0 for partition in starts if partition[0] == topic)


class Evidence:
    """What rules may ask of a history. Each part is computed when it is first asked for."""

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
        """Return whether the topic has no retention, as far as it was declared."""
        declared = self.declared.get(topic)
        return declared is None or declared.kept

    def table_of(self, topic: str) -> str:
        """Return the table that feeds the topic, or an empty string."""
        declared = self.declared.get(topic)
        return declared.table if declared else ""

    @cached_property
    def starts(self) -> dict[PartitionName, HighestKnown]:
        """The highest start of each partition that was known at each time."""
        starts: dict[PartitionName, HighestKnown] = defaultdict(HighestKnown)
        for op in self.timeline.completed(BoundsCall, PollCall):
            for location in op.answer.starts:
                starts[location.topic, location.partition].raise_to(location.offset, op)
            for location in op.answer.out_of_range:
                # Without retention this means that the end has fallen, which does not excuse missing records.
                if not self.is_kept(location.topic):
                    starts[location.topic, location.partition].raise_to(location.offset + 1, op)
        return starts

    def last_start(self, partition: PartitionName) -> int:
        known = self.starts.get(partition)
        highest = known.highest if known else None
        return highest.number if highest else 0

    def has_left(self, location: RecordLocation) -> bool:
        """Return whether retention may have deleted the record. Without a known offset, it always may."""
        return self.last_start((location.topic, location.partition)) > max(location.offset, 0)

    @cached_property
    def has_final_reads(self) -> bool:
        return any(op.what.final and op.outcome is CallOutcome.OK for op in self.timeline.of(PollCall))
