"""Charts as inline SVG: figures beside their bars and peers, and growing costs. The page's style sheet sets the colours."""

import math
from collections.abc import Iterator, Sequence
from html import escape
from itertools import count, groupby
from typing import Literal, NamedTuple

from bench.figures import SLOPE, Curve, Figure, Samples
from bench.report.markdown import Judged, number, with_unit

Anchor = Literal["start", "middle", "end"]

_CHARACTER = 6.4
"""The width of an average character in charts."""


class Drawing:
    def __init__(self, width: float, height: float) -> None:
        self._width = width
        self._height = height
        self._shapes: list[str] = []

    def line(self, x1: float, y1: float, x2: float, y2: float, kind: str) -> None:
        self._shapes.append(f'<line class="{kind}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>')

    def bar(self, x: float, y: float, width: float, height: float, kind: str) -> None:
        self._shapes.append(
            f'<rect class="{kind}" x="{x:.1f}" y="{y:.1f}" width="{max(1.0, width):.1f}" height="{height:.1f}" rx="1.5"/>'
        )

    def path(self, points: Sequence[tuple[float, float]], kind: str) -> None:
        self._shapes.append(f'<polyline class="{kind}" points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in points)}"/>')

    def dot(self, x: float, y: float, kind: str) -> None:
        self._shapes.append(f'<circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="4"/>')

    def diamond(self, x: float, y: float, kind: str) -> None:
        corners = [(x, y - 5), (x + 5, y), (x, y + 5), (x - 5, y)]
        self._shapes.append(f'<polygon class="{kind}" points="{" ".join(f"{a:.1f},{b:.1f}" for a, b in corners)}"/>')

    def text(self, x: float, y: float, said: str, kind: str = "label", anchor: Anchor = "start", room: float = 0) -> None:
        """Add text, cut to a width if one is given. A tooltip then has the whole text."""
        shown = said
        if room and len(said) * _CHARACTER > room:
            shown = said[: int(room / _CHARACTER) - 1].rstrip(" ,") + "…"
        whole = f"<title>{escape(said)}</title>" if shown != said else ""
        self._shapes.append(
            f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{whole}{escape(shown)}</text>'
        )

    def render(self, title: str) -> str:
        """Return the SVG. The title is for screen readers; a table beside it has the figures."""
        return (
            f'<svg viewBox="0 0 {self._width:.0f} {self._height:.0f}" width="{self._width:.0f}" role="img"'
            f' aria-label="{escape(title, quote=True)}">{"".join(self._shapes)}</svg>'
        )


def plain(text: str) -> str:
    """Remove Markdown's marks."""
    return text.replace("`", "").replace("**", "")


def decades(lowest: float, highest: float) -> list[float]:
    """Round numbers (1, 2, 5, 10, ...) from at most the lowest to at least the highest."""
    exponent = -12
    ticks: list[float] = []
    for power in count(exponent):
        for digit in (1, 2, 5):
            tick = digit * 10.0**power
            if tick <= lowest:
                ticks = [tick]
            else:
                ticks.append(tick)
            if tick >= highest and len(ticks) > 1:
                return ticks
    raise AssertionError("there is always a larger number")


_WIDTH = 860
_LABELS = 350
_VALUES = 130
_ROW = 19
_AXIS = 26
_LEAST = 1e-9


def bars_chart(bars: Sequence[Judged]) -> str:
    """Draw every bar as a line at 1, and its figure relative to it. Further right is always better."""
    groups = [(title, list(group)) for title, group in groupby(bars, key=lambda bar: bar.title)]
    height = _AXIS + sum(_ROW * (len(group) + 1) + 6 for _, group in groups)
    drawing = Drawing(_WIDTH, height)
    axis = _Axis(0.1, 100, _LABELS, _WIDTH - 60)
    for tick in (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100):
        drawing.line(axis.at(tick), _AXIS - 8, axis.at(tick), height, "bar-line" if tick == 1 else "grid")
        drawing.text(axis.at(tick), _AXIS - 12, "the bar" if tick == 1 else f"{tick:g}x", "tick", "middle")
    y = float(_AXIS)
    for title, group in groups:
        y += _ROW
        drawing.text(0, y - 5, plain(title), "head", room=_LABELS)
        for bar in group:
            y += _ROW
            _place(drawing, axis, y - 9, bar)
        y += 6
    return drawing.render("How far each figure is from its bar, on a logarithmic axis; right of the line is met")


def _place(drawing: Drawing, axis: "_Axis", y: float, bar: Judged) -> None:
    drawing.text(12, y + 4, plain(bar.figure.name), room=_LABELS - 20)
    reached = _times_the_bar(bar)
    kind = "met" if bar.is_met else "missed"
    drawing.line(axis.at(reached.lowest), y, axis.at(reached.highest), y, f"{kind} range")
    (drawing.dot if bar.is_met else drawing.diamond)(axis.at(reached.median), y, kind)
    drawing.text(_WIDTH, y + 4, f"{number(reached.median)}x", "value", "end")


def _times_the_bar(bar: Judged) -> Samples:
    limit = bar.bar.limit
    if bar.figure.unit == SLOPE:
        # The ratio of what ten times as much may cost to what it costs.
        return Samples(tuple(10 ** (limit - slope) for slope in bar.reached.values))
    if bar.bar.sense == "at least":
        return Samples(tuple(value / limit for value in bar.reached.values))
    return Samples(tuple(limit / max(value, _LEAST) for value in bar.reached.values))


def figures_charts(figures: Sequence[Figure]) -> list[str]:
    """Draw one chart for each unit: Tailrace's figures, those of the peers below, and a mark for each bar.

    Slopes are shown by their curves.
    """
    units = dict.fromkeys(figure.unit for figure in figures if figure.unit != SLOPE)
    return [_figures_chart([figure for figure in figures if figure.unit == unit], unit) for unit in units]


def _figures_chart(figures: Sequence[Figure], unit: str) -> str:
    rows = sum(_ROW * (1 if figure.peers is None else 2) + 8 for figure in figures)
    drawing = Drawing(_WIDTH, rows + 6)
    most = max(_LEAST, *(value for figure in figures for value in _shown(figure)))
    share = (_WIDTH - _LABELS - _VALUES) / most
    y = 4.0
    for figure in figures:
        bar_at = 0.0
        if figure.bar is not None and figure.peers is None and figure.bar.limit <= most:
            bar_at = _LABELS + figure.bar.limit * share
            drawing.line(bar_at, y - 1, bar_at, y + _ROW + 1, "bar-line")
        drawing.text(0, y + 13, plain(figure.name), room=_LABELS - 14)
        y = _bar(drawing, y, figure.ours, share, unit, "ours", bar_at)
        if figure.peers is not None:
            drawing.text(_LABELS - 10, y + 13, plain(figure.peer), "peer-name", "end", room=_LABELS - 14)
            y = _bar(drawing, y, figure.peers, share, unit, "peer")
        y += 8
    return drawing.render(f"Tailrace and its peers, {unit}")


def _shown(figure: Figure) -> Iterator[float]:
    """Return the values that a chart must include. A bar far above its figure would make everything else small."""
    yield figure.ours.highest
    if figure.peers is not None:
        yield figure.peers.highest
    elif figure.bar is not None and figure.bar.sense == "at least":
        yield figure.bar.limit


def _bar(drawing: Drawing, y: float, samples: Samples, share: float, unit: str, kind: str, clear_of: float = 0.0) -> float:
    """Draw one bar and return the position of the next."""
    middle = y + _ROW / 2
    drawing.bar(_LABELS, y + 2, samples.median * share, _ROW - 4, kind)
    drawing.line(_LABELS + samples.lowest * share, middle, _LABELS + samples.highest * share, middle, "spread")
    beside = _LABELS + samples.highest * share + 6
    if beside - 6 < clear_of < beside + _VALUES:
        beside = clear_of + 6
    drawing.text(beside, middle + 4, with_unit(number(samples.median), unit), "value")
    return y + _ROW


class _Axis(NamedTuple):
    """A logarithmic axis. Values beyond an end are shown at the end."""

    lowest: float
    highest: float
    begin: float
    end: float

    def at(self, value: float) -> float:
        held = min(max(value, self.lowest), self.highest)
        share = math.log(held / self.lowest) / math.log(self.highest / self.lowest)
        return self.begin + share * (self.end - self.begin)


_CURVE_WIDTH, _CURVE_HEIGHT = 420, 270
_LEFT, _TOP, _BOTTOM = 58, 34, 44
_BEFORE_FIRST = 3.0
"""A point at 0 is drawn at this fraction of the first point, because the axis is logarithmic."""


def curve_chart(curve: Curve) -> str:
    places = [point.at for point in curve.points]
    least = min(place for place in places if place > 0)
    nothing = least / _BEFORE_FIRST
    drawing = Drawing(_CURVE_WIDTH, _CURVE_HEIGHT)
    ticks = decades(min(point.cost.lowest for point in curve.points), max(point.cost.highest for point in curve.points))
    across = _Axis(nothing if 0 in places else least, max(places), _LEFT + 14, _CURVE_WIDTH - 20)
    # The y axis of SVG points down.
    up = _Axis(ticks[0], ticks[-1], _CURVE_HEIGHT - _BOTTOM, _TOP)
    drawing.text(0, 15, f"{plain(curve.name)}, {curve.unit}", "head", room=_CURVE_WIDTH - 90)
    drawing.text(_CURVE_WIDTH - 4, 15, f"slope {curve.slopes.median:.2f}", "slope", "end")
    for tick in _few(ticks):
        drawing.line(_LEFT, up.at(tick), _CURVE_WIDTH - 8, up.at(tick), "grid")
        drawing.text(_LEFT - 6, up.at(tick) + 4, f"{tick:,g}", "tick", "end")
    points = [(across.at(point.at or nothing), up.at(point.cost.median)) for point in curve.points]
    for point, (x, y) in zip(curve.points, points, strict=True):
        drawing.line(x, up.at(point.cost.lowest), x, up.at(point.cost.highest), "spread")
        drawing.text(x, _CURVE_HEIGHT - _BOTTOM + 18, f"{point.at:,g}", "tick", "middle")
        drawing.text(x, y - 9, number(point.cost.median), "value", "middle")
    drawing.path(points, "curve")
    for x, y in points:
        drawing.dot(x, y, "met")
    drawing.text((_LEFT + _CURVE_WIDTH) / 2, _CURVE_HEIGHT - 8, curve.grows, "label", "middle")
    return drawing.render(f"{plain(curve.name)} in {curve.unit} by {curve.grows}, slope {curve.slopes.median:.2f}")


def _few(ticks: Sequence[float]) -> Sequence[float]:
    """Keep only the powers of ten if there would be too many lines."""
    return ticks if len(ticks) <= 8 else [tick for tick in ticks if math.isclose(math.log10(tick) % 1, 0, abs_tol=1e-6)]
