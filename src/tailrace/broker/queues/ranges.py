"""A set of offsets as ranges: as small as it has gaps, however many offsets it holds."""

from bisect import bisect_right

import msgspec

from tailrace.model.ids import Offset


class OffsetRanges:
    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []
        """Of each range, the offset after its last."""

    def __contains__(self, offset: int) -> bool:
        at = bisect_right(self._starts, offset) - 1
        return at >= 0 and offset < self._ends[at]

    def __len__(self) -> int:
        """How many ranges."""
        return len(self._starts)

    def first_missing(self, start: int) -> Offset:
        """The first offset from `start` on that is not in the set."""
        at = bisect_right(self._starts, start) - 1
        return Offset(max(start, self._ends[at])) if at >= 0 else Offset(start)

    def add(self, offset: int) -> None:
        if offset in self:
            return
        at = bisect_right(self._starts, offset)
        joins_before = at > 0 and self._ends[at - 1] == offset
        joins_after = at < len(self._starts) and self._starts[at] == offset + 1
        if joins_before and joins_after:
            self._ends[at - 1] = self._ends.pop(at)
            del self._starts[at]
        elif joins_before:
            self._ends[at - 1] = offset + 1
        elif joins_after:
            self._starts[at] = offset
        else:
            self._starts.insert(at, offset)
            self._ends.insert(at, offset + 1)

    def forget_below(self, offset: int) -> None:
        """Ranges that end before it are not asked for any more."""
        gone = bisect_right(self._ends, offset)
        del self._starts[:gone], self._ends[:gone]

    def encode(self) -> bytes:
        numbers: list[int] = []
        at = 0
        for start, end in zip(self._starts, self._ends, strict=True):
            numbers += (start - at, end - start)
            at = end
        return msgspec.msgpack.encode(numbers)


def decode_ranges(value: bytes | None) -> OffsetRanges:
    ranges = OffsetRanges()
    at = 0
    numbers = iter(msgspec.msgpack.decode(value, type=list[int]) if value is not None else ())
    for gap, length in zip(numbers, numbers, strict=True):
        ranges._starts.append(at + gap)
        at += gap + length
        ranges._ends.append(at)
    return ranges
