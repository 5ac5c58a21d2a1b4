"""Up to where every record's fate is known: the last stable offset of each partition.

An open transaction holds it at its first record. The hold is taken when the append is decided on, before readers can see the
record, and given up when the append fails or when the end of the transaction is durable. So the offset never falls, and never
shows a record too early.
"""

from tailrace.model.changes import Bounds
from tailrace.model.ids import Offset, Partition


class StableOffsets:
    def __init__(self) -> None:
        self._held: dict[Partition, list[Offset]] = {}
        """The same offset may be held twice: by an append that failed a moment ago and by the one that took its place."""

    def hold(self, partition: Partition, first_offset: Offset) -> None:
        self._held.setdefault(partition, []).append(first_offset)

    def release(self, partition: Partition, first_offset: Offset) -> None:
        held = self._held.get(partition)
        if held is not None and first_offset in held:
            held.remove(first_offset)
            if not held:
                del self._held[partition]

    def forget(self, partition: Partition) -> None:
        """The partition is gone."""
        self._held.pop(partition, None)

    def is_held(self, partition: Partition) -> bool:
        return partition in self._held

    def of(self, partition: Partition, bounds: Bounds) -> Offset:
        """For a partition with these settled bounds."""
        held = self._held.get(partition)
        if held is None:
            return bounds.end
        return max(bounds.start, min(bounds.end, *held))
