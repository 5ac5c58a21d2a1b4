"""Measuring two or more sides fairly: in one process, in turn, several times.

What else the machine does changes from minute to minute, so a ratio is taken between two measurements that stand next to
each other, and the median of these ratios is the result. Who goes first changes from round to round.
"""

import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeVar

T = TypeVar("T")

Side = Callable[[int], float]
"""Does so much work and says how it went: a rate or a time."""

_WARM_UP_SHARE = 8


class Samples(NamedTuple):
    """One value per round."""

    values: Sequence[float]

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    @property
    def lowest(self) -> float:
        return min(self.values)

    @property
    def highest(self) -> float:
        return max(self.values)


def alternate(sides: Mapping[str, Side], work: int, rounds: int) -> dict[str, Samples]:
    """Measure each side once a round. Before that each does a part of the work once, which counts for nothing."""
    return {name: Samples(tuple(found)) for name, found in take_turns(sides, work, rounds).items()}


def take_turns(sides: Mapping[str, Callable[[int], T]], work: int, rounds: int) -> dict[str, list[T]]:
    """The same for work of which more than one thing is measured."""
    names = list(sides)
    for name in names:
        sides[name](max(1, work // _WARM_UP_SHARE))
    values: dict[str, list[T]] = {name: [] for name in names}
    for turn in range(rounds):
        first = turn % len(names)
        for name in names[first:] + names[:first]:
            values[name].append(sides[name](work))
    return values


def repeat(side: Side, work: int, rounds: int) -> Samples:
    """Measure one side that is compared with nothing but its bar."""
    return alternate({"": side}, work, rounds)[""]


def ratios(ours: Samples, peer: Samples) -> Samples:
    """Ours to the peer's, round by round."""
    return Samples(tuple(our / its for our, its in zip(ours.values, peer.values, strict=True)))
