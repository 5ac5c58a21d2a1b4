"""How far a consumer has come in one partition: what it read, what is done with, and what may be committed.

Only what was marked counts as done. `safe_offset` is the offset below which everything is: it is what a commit may say.
Offsets that hold no record for a reader (markers and aborted transactions) count as done once they are stepped over.
"""

from bisect import bisect_right


class Progress:
    """All methods are called by one thread; `safe_offset` and `committed_offset` may be read by another."""

    __slots__ = ("_ends", "_starts", "committed_offset", "safe_offset")

    def __init__(self, begin: int) -> None:
        self.safe_offset = begin
        """Everything below it is done."""
        self.committed_offset = begin
        """What the group has committed, as far as this consumer knows."""
        self._starts: list[int] = []
        self._ends: list[int] = []
        """Ranges beyond `safe_offset` that are done, apart from each other and in order."""

    @property
    def is_ahead(self) -> bool:
        """Whether there is something to commit."""
        return self.safe_offset > self.committed_offset

    @property
    def held_ranges(self) -> int:
        return len(self._starts)

    def mark(self, offset: int) -> None:
        """The record at this offset is done."""
        if offset == self.safe_offset and not self._starts:
            self.safe_offset = offset + 1
        else:
            self.mark_range(offset, offset + 1)

    def mark_range(self, start: int, end: int) -> None:
        """Everything from `start` to before `end` is done."""
        start = max(start, self.safe_offset)
        if start >= end:
            return
        starts, ends = self._starts, self._ends
        # The first range that touches the new one, and the first one behind it that does not.
        first = bisect_right(ends, start - 1)
        behind = bisect_right(starts, end)
        if first < behind:
            start, end = min(start, starts[first]), max(end, ends[behind - 1])
        starts[first:behind] = [start]
        ends[first:behind] = [end]
        if starts[0] <= self.safe_offset:
            # The assignment comes last: another thread reads it at any moment.
            reached = ends[0]
            del starts[0], ends[0]
            self.safe_offset = reached

    def committed(self, offset: int) -> None:
        self.committed_offset = max(self.committed_offset, offset)
