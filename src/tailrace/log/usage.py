"""Which bytes of a segment belong to which partition: what the cleaner needs to know how much of it is alive.

A partition's bytes are counted over its whole life, so the bytes that a segment holds of it are one span of that count,
and what retention has passed is everything below the count at the partition's start. In the active segment a span ends where
its partition ends, so an append changes nothing here unless it is the partition's first one.
"""

from collections.abc import Iterator, Mapping
from struct import Struct

from tailrace.log.counters import partition_key, partition_of
from tailrace.log.index import PartitionIndex
from tailrace.model.ids import Cursor, Partition, Position

_HEAD = Struct(">IQQ")
_SPAN = Struct(">8sQQ")


class SegmentUsage:
    __slots__ = ("_growing", "base", "first_cursor", "generation", "size", "spans")

    def __init__(self, base: Position, generation: int, first_cursor: Cursor) -> None:
        self.base = base
        self.generation = generation
        self.first_cursor = first_cursor
        self.size = 0
        """Bytes of the file once it is closed, else 0."""
        self.spans: dict[Partition, tuple[int, int]] = {}
        """First and end byte of each partition that has got nothing since, in that partition's own count."""
        self._growing: list[PartitionIndex] = []

    def enter(self, index: PartitionIndex) -> None:
        """The partition gets its next batch in this segment."""
        first, _ = self.spans.pop(index.partition, (index.end_bytes, 0))
        index.segment, index.span_begin = self.base, first
        self._growing.append(index)

    def close(self, size: int) -> None:
        """The next batches go to another segment."""
        self.size = size
        self.spans = dict(self._all_spans())
        self._growing = []

    def live_bytes(self, partitions: Mapping[Partition, PartitionIndex]) -> int:
        live = 0
        for partition, (first, end) in self._all_spans():
            index = partitions.get(partition)
            if index is not None:
                live += max(0, end - max(first, index.start_bytes))
        return live

    def holds_deleted(self, partitions: Mapping[Partition, PartitionIndex]) -> bool:
        return any(partition not in partitions for partition, _ in self._all_spans())

    def _all_spans(self) -> Iterator[tuple[Partition, tuple[int, int]]]:
        yield from self.spans.items()
        for index in self._growing:
            yield index.partition, (index.span_begin, index.end_bytes)

    def pack(self) -> bytes:
        pack = _SPAN.pack
        spans = [pack(partition_key(partition), first, end) for partition, (first, end) in self.spans.items()]
        spans += [pack(index.key, index.span_begin, index.end_bytes) for index in self._growing]
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
        for key, first, end in _SPAN.iter_unpack(packed[_HEAD.size :]):
            usage.spans[partition_of(key)] = (first, end)
        return usage
