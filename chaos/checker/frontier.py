"""The highest number that was known at each moment, and the call that showed it."""

from bisect import bisect_left
from typing import Any, NamedTuple

from chaos.checker.timeline import Op


class Mark(NamedTuple):
    number: int
    op: Op[Any]


class Frontier:
    """Fed in the order of completions, asked for any position."""

    __slots__ = ("_marks", "_positions")

    def __init__(self) -> None:
        self._positions: list[int] = []
        self._marks: list[Mark] = []

    def raise_to(self, number: int, op: Op[Any]) -> None:
        if not self._marks or number > self._marks[-1].number:
            self._positions.append(op.end)
            self._marks.append(Mark(number, op))

    def before(self, position: int) -> Mark | None:
        """What calls that were completed before `position` have shown."""
        index = bisect_left(self._positions, position)
        return self._marks[index - 1] if index else None

    @property
    def highest(self) -> Mark | None:
        return self._marks[-1] if self._marks else None
