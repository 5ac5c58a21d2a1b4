"""Figures and how they are measured: samples of two or more sides in turn, curves of growing costs, profiles, and bars.

The load of the machine changes from minute to minute. So a ratio is taken between two measurements next to each other, and the
result is the median of these ratios. Which side goes first changes from round to round.
"""

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, NamedTuple, TypeVar

import msgspec

T = TypeVar("T")

Side = Callable[[int], float]
"""Does an amount of work and returns a rate or a time."""

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
    """Measure each side once a round. Before that each does a part of the work once to warm up."""
    return {name: Samples(tuple(found)) for name, found in take_turns(sides, work, rounds).items()}


def take_turns(sides: Mapping[str, Callable[[int], T]], work: int, rounds: int) -> dict[str, list[T]]:
    """Run each side once a round, as `alternate` does, and return everything that it measured."""
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
    """Measure one side that is compared only with its bar."""
    return alternate({"": side}, work, rounds)[""]


def ratios(ours: Samples, peer: Samples) -> Samples:
    """Return the ratio of ours to the peer's, round by round."""
    return Samples(tuple(our / its for our, its in zip(ours.values, peer.values, strict=True)))


SLOPE = "slope"
"""The unit of slopes."""


class Point(msgspec.Struct, frozen=True):
    at: float
    """The amount of what grows."""
    cost: Samples


class Curve(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    """What costs something."""
    grows: str
    """What grows."""
    unit: str
    """The unit of the cost."""
    points: Sequence[Point]
    """At least two, in ascending order."""

    @property
    def slopes(self) -> Samples:
        """One slope per round. A point at 0 does not count, because the axes are logarithmic."""
        counted = [point for point in self.points if point.at > 0]
        rounds = zip(*(point.cost.values for point in counted), strict=True)
        return Samples(tuple(slope([point.at for point in counted], costs) for costs in rounds))


def slope(at: Sequence[float], costs: Sequence[float]) -> float:
    """Return the slope of the straight line through the logarithms, by least squares."""
    return statistics.linear_regression([math.log(x) for x in at], [math.log(y) for y in costs]).slope


class Share(msgspec.Struct, frozen=True):
    """The share of samples taken in one function or package itself, without what it calls."""

    name: str
    share: float


class Profile(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    """The work that was sampled."""
    beside: str
    """The subject whose figures it explains."""
    looks: int
    """How often each process was sampled."""
    samples: int
    """How often a thread held Python's lock, in all processes together."""
    rooms: Sequence[Share]
    """By package of Tailrace, or by the name of another package; largest first."""
    functions: Sequence[Share]
    """The largest ones, in descending order."""

    @property
    def summary(self) -> str:
        return f"{self.name}: Python's lock was held at {self.samples:,} of {self.looks:,} looks; self time"


class Bar(msgspec.Struct, frozen=True):
    """The limit for a figure, or for its ratio if the figure has a peer."""

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
    """The name of what it is compared with."""
    peers: Samples | None = None
    bar: Bar | None = None
    """Without a bar the figure is for information."""
    alone: Samples | None = None
    """What the same client reaches at a server that does nothing, in the same rounds. It is no upper bound: a client has been
    slower there than at a real server."""

    @property
    def ratio(self) -> Samples | None:
        return None if self.peers is None else ratios(self.ours, self.peers)

    @property
    def alone_ratio(self) -> Samples | None:
        """The ratio of the client alone to the peer."""
        return None if self.alone is None or self.peers is None else ratios(self.alone, self.peers)

    @property
    def is_met(self) -> bool | None:
        """Whether the median reaches the bar; `None` without a bar."""
        judged = self.ratio or self.ours
        return None if self.bar is None else self.bar.admits(judged.median)


class Section(msgspec.Struct, frozen=True, kw_only=True):
    """The results of one subject: text, figures, remarks, curves and profiles."""

    title: str
    text: str
    figures: Sequence[Figure]
    remarks: Sequence[str] = ()
    curves: Sequence[Curve] = ()
    profiles: Sequence[Profile] = ()


FLAT = Bar("at most", 0.1)
"""A bar for slopes: ten times as many cost at most a quarter more."""


def curve(name: str, grows: str, unit: str, costs: Mapping[int, Sequence[float]]) -> Curve:
    """Make a curve from the costs by round, for each count."""
    points = [Point(count, Samples(tuple(values))) for count, values in costs.items()]
    return Curve(name=name, grows=grows, unit=unit, points=points)


def slope_figure(of: Curve, bar: Bar | None = None) -> Figure:
    return Figure(name=f"{of.name} over {of.grows}", ours=of.slopes, unit=SLOPE, bar=bar)
