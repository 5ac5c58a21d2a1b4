"""What was written: each record that a send or a transaction carried, and whether it must, may or must not be seen."""

from enum import Enum
from typing import NamedTuple

from chaos.checker.timeline import Op, Timeline
from chaos.history import Outcome, Place, Send, Transaction

PartitionKey = tuple[str, int]
Writer = Op[Send] | Op[Transaction]


class Fate(Enum):
    ACKED = "acked"
    POSSIBLE = "possible"
    REFUSED = "refused"
    """Refused by the server, or aborted by its producer."""


class Written(NamedTuple):
    value: str
    place: Place
    """With offset -1 when nobody has said it."""
    fate: Fate
    op: Writer

    @property
    def in_transaction(self) -> bool:
        return isinstance(self.op.what, Transaction)


class Writes:
    """Values are unique over a run, so a value names its record."""

    def __init__(self, timeline: Timeline) -> None:
        self.by_value: dict[str, Written] = {}
        self.at: dict[Place, Written] = {}
        """The first that was given each place."""
        self.topics: set[str] = set()
        self.repeated: list[tuple[Written, Written]] = []
        """Two records of one value: the run was made wrong."""
        self.ops: list[Writer] = [*timeline.of(Send), *timeline.of(Transaction)]
        for op in self.ops:
            self._add(op)

    def of(self, op: Writer) -> list[Written]:
        return [self.by_value[value] for _, value in op.what.records]

    def _add(self, op: Writer) -> None:
        places = op.answer.places
        for index, (asked, value) in enumerate(op.what.records):
            place = places[index] if index < len(places) else asked
            self.topics.add(asked.topic)
            written = Written(value, place, _fate(op, place), op)
            first = self.by_value.setdefault(value, written)
            if first is not written:
                self.repeated.append((first, written))
            if place.offset >= 0:
                self.at.setdefault(place, written)


def _fate(op: Writer, place: Place) -> Fate:
    if op.outcome is Outcome.FAILED or (isinstance(op.what, Transaction) and op.what.aborted):
        return Fate.REFUSED
    # Of a send with many partitions some records may be acked while others are not; a transaction is acked as a whole.
    if op.outcome is Outcome.OK or (isinstance(op.what, Send) and place.offset >= 0):
        return Fate.ACKED
    return Fate.POSSIBLE
