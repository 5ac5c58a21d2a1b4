"""Which bytes of a segment belong to which partition: what the cleaner needs to know how much of it is alive.

A partition's bytes are counted over its whole life, so the bytes that a segment holds of it are one span of that count,
and what retention has passed is everything below the count at the partition's start.
"""

from collections.abc import Mapping
from struct import Struct

from tailrace.log.index import PartitionIndex
from tailrace.model.ids import Cursor, Partition, Position

_HEAD = Struct(">IQQ")
_SPAN = Struct(">IIQQ")


class SegmentUsage:
    __slots__ = ("base", "first_cursor", "generation", "size", "spans")

    def __init__(self, base: Position, generation: int, first_cursor: Cursor) -> None:
        self.base = base
        self.generation = generation
        self.first_cursor = first_cursor
        self.size = 0
        """Bytes of the file once it is closed, else 0."""
        self.spans: dict[Partition, list[int]] = {}
        """First and end byte of each partition, in that partition's own count."""

    def live_bytes(self, partitions: Mapping[Partition, PartitionIndex]) -> int:
        live = 0
        for partition, (first, end) in self.spans.items():
            index = partitions.get(partition)
            if index is not None:
                live += max(0, end - max(first, index.start_bytes))
        return live

    def holds_deleted(self, partitions: Mapping[Partition, PartitionIndex]) -> bool:
        return any(partition not in partitions for partition in self.spans)

    def pack(self) -> bytes:
        spans = [_SPAN.pack(*partition, first, end) for partition, (first, end) in self.spans.items()]
        return _HEAD.pack(self.generation, self.first_cursor, self.size) + b"".join(spans)

    @staticmethod
    def was_closed(packed: bytes) -> bool:
        """Whether the segment had its final size when it was packed."""
        return bool(_HEAD.unpack_from(packed)[2])

    @classmethod
    def unpack(cls, base: int, packed: bytes) -> "SegmentUsage":
        generation, first_cursor, size = _HEAD.unpack_from(packed)
        usage = cls(Position(base), generation, Cursor(first_cursor))
        usage.size = size
        for topic_id, number, first, end in _SPAN.iter_unpack(packed[_HEAD.size :]):
            usage.spans[Partition(topic_id, number)] = [first, end]
        return usage
