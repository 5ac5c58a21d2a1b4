"""A sequence of batches that is known beforehand: the n-th goes to a known partition and is a known batch of the ring."""

from collections.abc import Iterator, Sequence

from bench.batches import TIMESTAMP, Ring
from tailrace.model.commit import Append, Changes
from tailrace.model.ids import Offset, PartitionId
from tailrace.model.record import RawBatch


class Stream:
    """Batches for some partitions in turn. Whoever appends them keeps to the order, so that all can be checked later."""

    def __init__(self, partitions: Sequence[PartitionId], ring: Ring, appended: int = 0) -> None:
        self.partitions = partitions
        self.ring = ring
        self._batches = ring.batches
        self.appended = appended
        """Batches handed out so far."""

    def next(self) -> Changes:
        number = self.appended
        self.appended = number + 1
        partition = self.partitions[number % len(self.partitions)]
        batch = self._batches[number % len(self._batches)]
        return Changes(appends=(Append(partition, batch, self.ring.records, TIMESTAMP),))

    def each(self, count: int) -> Iterator[Changes]:
        """The next so many, each made when it is asked for."""
        return (self.next() for _ in range(count))

    def take(self, count: int) -> list[Changes]:
        """The same made at once, before the clock runs."""
        return list(self.each(count))

    def take_raw(self, topic: str, count: int) -> list[RawBatch]:
        """The same for the broker, which knows topics by name."""
        return [RawBatch(topic, only.partition.number, only.batch) for changes in self.each(count) for only in changes.appends]

    @property
    def records(self) -> int:
        return self.appended * self.ring.records

    @property
    def bytes(self) -> int:
        return self.appended * self.ring.batch_bytes

    def batches_in(self, nth: int) -> int:
        """How many batches the nth partition has got."""
        return (self.appended - nth + len(self.partitions) - 1) // len(self.partitions)

    def offset_of(self, place: int) -> Offset:
        """Base offset of the batch at this place in its partition."""
        return Offset(place * self.ring.records)

    def number_at(self, nth: int, place: int) -> int:
        """Which batch of the ring is at this place in the nth partition."""
        return (nth + place * len(self.partitions)) % len(self.ring.batches)
