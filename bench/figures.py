"""Measuring two or more sides fairly: in one process, in turn, several times.

What else the machine does changes from minute to minute, so a ratio is taken between two measurements that stand next to
each other, and the median of these ratios is the result. Who goes first changes from round to round.
"""

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, NamedTuple, TypeVar

import msgspec

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


SLOPE = "slope"
"""The unit of a figure that is one."""


class Point(msgspec.Struct, frozen=True):
    at: float
    """How much there was of what grows."""
    cost: Samples


class Curve(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    """What is done or held."""
    grows: str
    """What there is more and more of."""
    unit: str
    """Of the cost."""
    points: Sequence[Point]
    """At least two, rising."""

    @property
    def slopes(self) -> Samples:
        """One per round. A point at nothing has no place on a logarithmic axis and does not count."""
        counted = [point for point in self.points if point.at > 0]
        rounds = zip(*(point.cost.values for point in counted), strict=True)
        return Samples(tuple(slope([point.at for point in counted], costs) for costs in rounds))


def slope(at: Sequence[float], costs: Sequence[float]) -> float:
    """Of the least squares through the logarithms."""
    return statistics.linear_regression([math.log(x) for x in at], [math.log(y) for y in costs]).slope


class Share(msgspec.Struct, frozen=True):
    """Of all samples, those that were taken in one place itself, not in what it called."""

    name: str
    share: float


class Profile(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    """What was done meanwhile."""
    beside: str
    """The subject whose figures it explains."""
    looks: int
    """How often each process was looked at."""
    samples: int
    """How often a thread was found to hold Python's lock, in all processes together."""
    rooms: Sequence[Share]
    """Largest first; what belongs to no room of Tailrace goes by the name of its package."""
    functions: Sequence[Share]
    """The largest, largest first."""

    @property
    def summary(self) -> str:
        return f"{self.name}: Python's lock was held at {self.samples:,} of {self.looks:,} looks; self time"


class Bar(msgspec.Struct, frozen=True):
    """What a figure has to reach, or its ratio if the figure has a peer."""

    sense: Literal["at least", "at most", "under"]
    limit: float

    def admits(self, value: float) -> bool:
        if self.sense == "at least":
            return value >= self.limit
        return value < self.limit if self.sense == "under" else value <= self.limit


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """One line of a table."""

    name: str
    ours: Samples
    unit: str
    peer: str = ""
    """What it is compared with."""
    peers: Samples | None = None
    bar: Bar | None = None
    """Without one the figure is for information."""
    alone: Samples | None = None
    """What the same client reaches at a server that does nothing, in the same rounds. To compare with, not a bound: it has been
    slower there than at a server that works."""

    @property
    def ratio(self) -> Samples | None:
        return None if self.peers is None else ratios(self.ours, self.peers)

    @property
    def alone_ratio(self) -> Samples | None:
        """The client alone to the peer."""
        return None if self.alone is None or self.peers is None else ratios(self.alone, self.peers)

    @property
    def is_met(self) -> bool | None:
        """Whether the median reaches the bar; `None` without a bar."""
        judged = self.ratio or self.ours
        return None if self.bar is None else self.bar.admits(judged.median)


class Section(msgspec.Struct, frozen=True, kw_only=True):
    """One subject: what was done, the figures, and what else was seen."""

    title: str
    text: str
    figures: Sequence[Figure]
    remarks: Sequence[str] = ()
    curves: Sequence[Curve] = ()
    profiles: Sequence[Profile] = ()


FLAT = Bar("at most", 0.1)
"""For a slope: ten times as many cost no more than a quarter more."""


def curve(name: str, grows: str, unit: str, costs: Mapping[int, Sequence[float]]) -> Curve:
    """Of costs by round, for each count."""
    points = [Point(count, Samples(tuple(values))) for count, values in costs.items()]
    return Curve(name=name, grows=grows, unit=unit, points=points)


def slope_figure(of: Curve, bar: Bar | None = None) -> Figure:
    return Figure(name=f"{of.name} over {of.grows}", ours=of.slopes, unit=SLOPE, bar=bar)
