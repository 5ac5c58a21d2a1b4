"""Which writes of a shared value may a read return?

A read may return a write that began before the read ended, unless a third write came after the first and before the read.
A write of unknown outcome may take effect at any later time, or never.

`HighestKnown` does the same for a number that only rises.
"""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator
from functools import cached_property
from itertools import accumulate
from typing import Any, NamedTuple

from chaos.checker.timeline import NEVER, Op


class RegisterWrite(NamedTuple):
    value: Hashable
    begin: int
    done: int
    op: Op[Any] | None
    """`None` for the initial value."""


class Register:
    def __init__(self, at_first: Hashable) -> None:
        self._writes = [RegisterWrite(at_first, -2, -1, None)]

    def wrote(self, value: Hashable, op: Op[Any]) -> None:
        """Add a write by a call that has taken effect, or may have."""
        self._writes.append(RegisterWrite(value, op.begin, op.done, op))

    def explain(self, value: Hashable, read: Op[Any]) -> Iterator[RegisterWrite]:
        """Yield the writes of this value that the read may have returned, the newest first, which is mostly the right one."""
        writes = self._by_value.get(value, [])
        for index in range(bisect_left(writes, read.end, key=lambda write: write.begin) - 1, -1, -1):
            if self._overwritten_by(writes[index]).done > read.begin:
                yield writes[index]

    def allows(self, value: Hashable, read: Op[Any]) -> bool:
        return next(self.explain(value, read), None) is not None

    def disproof(self, value: Hashable, read: Op[Any]) -> RegisterWrite | None:
        """Return the write that rules out this value for the read, if the value was ever written."""
        overwriting = [self._overwritten_by(write) for write in self._by_value.get(value, ()) if write.begin < read.end]
        return max(overwriting, key=lambda write: write.done, default=None)

    def written_after(self, value: Hashable, earlier: Op[Any], read: Op[Any]) -> bool:
        """Return whether a write of this value may have taken effect between two reads."""
        return any(write.begin < read.end and write.done > earlier.begin for write in self._by_value.get(value, ()))

    def _overwritten_by(self, write: RegisterWrite) -> RegisterWrite:
        """Return the write that was done first, of those that began after this one was done."""
        index = bisect_right(self._begins, write.done)
        return self._first_done_from[index] if index < len(self._begins) else _NO_WRITE

    @cached_property
    def _by_value(self) -> dict[Hashable, list[RegisterWrite]]:
        by_value: dict[Hashable, list[RegisterWrite]] = defaultdict(list)
        for write in self._in_order:
            by_value[write.value].append(write)
        return by_value

    @cached_property
    def _in_order(self) -> list[RegisterWrite]:
        return sorted(self._writes, key=lambda write: write.begin)

    @cached_property
    def _begins(self) -> list[int]:
        return [write.begin for write in self._in_order]

    @cached_property
    def _first_done_from(self) -> list[RegisterWrite]:
        return list(accumulate(reversed(self._in_order), _first_done))[::-1]


_NO_WRITE = RegisterWrite(None, NEVER, NEVER, None)


def _first_done(one: RegisterWrite, other: RegisterWrite) -> RegisterWrite:
    return one if one.done <= other.done else other


def calls_of(writes: Iterable[RegisterWrite | None]) -> tuple[int, ...]:
    return tuple(write.op.call for write in writes if write and write.op)


class KnownNumber(NamedTuple):
    number: int
    op: Op[Any]


class HighestKnown:
    """The highest number that was known at each position. Numbers are added in the order of completions."""

    __slots__ = ("_marks", "_positions")

    def __init__(self) -> None:
        self._positions: list[int] = []
        self._marks: list[KnownNumber] = []

    def raise_to(self, number: int, op: Op[Any]) -> None:
        if not self._marks or number > self._marks[-1].number:
            self._positions.append(op.end)
            self._marks.append(KnownNumber(number, op))

    def before(self, position: int) -> KnownNumber | None:
        """Return what calls that were completed before `position` have shown."""
        index = bisect_left(self._positions, position)
        return self._marks[index - 1] if index else None

    @property
    def highest(self) -> KnownNumber | None:
        return self._marks[-1] if self._marks else None
