"""How a cost grows with something: points of a curve, and its slope.

The slope is that of the straight line through the points on logarithmic axes: 0 means that the cost stays what it is, 1 that
ten times as much costs ten times as much. It is computed for each round by itself, so that it has a spread like every figure.
"""

import math
import statistics
from collections.abc import Sequence

import msgspec

from bench.measure import Samples

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
