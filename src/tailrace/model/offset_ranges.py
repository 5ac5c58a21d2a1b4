"""A set of offsets that is kept as ranges: as large as it has gaps, however many offsets it holds."""

from bisect import bisect_right

import msgspec

from tailrace.model.ids import Offset


class OffsetRanges:
    """Ranges in order that neither overlap nor touch. Not safe to use from several threads."""

    __slots__ = ("_ends", "_starts")

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []
        """The offset after the last one of each range."""

    def __contains__(self, offset: int) -> bool:
        at = bisect_right(self._starts, offset) - 1
        return at >= 0 and offset < self._ends[at]

    def __len__(self) -> int:
        """Return the number of ranges, not of offsets."""
        return len(self._starts)

    def add(self, offset: int) -> None:
        self.add_range(offset, offset + 1)

    def add_range(self, start: int, end: int) -> None:
        """Add all offsets from `start` up to but without `end`."""
        if start >= end:
            return
        starts, ends = self._starts, self._ends
        # The first range that overlaps or touches the new one, and the first one after it that does not.
        first = bisect_right(ends, start - 1)
        after = bisect_right(starts, end)
        if first < after:
            start, end = min(start, starts[first]), max(end, ends[after - 1])
        starts[first:after] = [start]
        ends[first:after] = [end]

    def first_missing(self, start: int) -> Offset:
        """Return the first offset from `start` on that is not in the set."""
        at = bisect_right(self._starts, start) - 1
        return Offset(max(start, self._ends[at])) if at >= 0 else Offset(start)

    def forget_below(self, offset: int) -> None:
        """Remove the ranges that end at this offset or before. A range that it lies in stays whole."""
        gone = bisect_right(self._ends, offset)
        del self._starts[:gone], self._ends[:gone]

    def encode(self) -> bytes:
        numbers: list[int] = []
        at = 0
        for start, end in zip(self._starts, self._ends, strict=True):
            numbers += (start - at, end - start)
            at = end
        return msgspec.msgpack.encode(numbers)


def decode_offset_ranges(value: bytes | None) -> OffsetRanges:
    """Return the set that `OffsetRanges.encode` wrote; an empty one for `None`."""
    ranges = OffsetRanges()
    at = 0
    numbers = iter(msgspec.msgpack.decode(value, type=list[int]) if value is not None else ())
    for gap, length in zip(numbers, numbers, strict=True):
        ranges._starts.append(at + gap)
        at += gap + length
        ranges._ends.append(at)
    return ranges
