"""What is asked of a curve."""

from collections.abc import Mapping, Sequence

from bench.curves import SLOPE, Curve, Point
from bench.figures import Bar, Figure
from bench.measure import Samples

FLAT = Bar("at most", 0.1)
"""For a slope: ten times as many cost no more than a quarter more."""


def curve(name: str, grows: str, unit: str, costs: Mapping[int, Sequence[float]]) -> Curve:
    """Of costs by round, for each count."""
    points = [Point(count, Samples(tuple(values))) for count, values in costs.items()]
    return Curve(name=name, grows=grows, unit=unit, points=points)


def slope_figure(of: Curve, bar: Bar | None = None) -> Figure:
    return Figure(name=f"{of.name} over {of.grows}", ours=of.slopes, unit=SLOPE, bar=bar)
