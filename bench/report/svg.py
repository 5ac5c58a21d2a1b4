"""Drawings as SVG that stands inside a page: a few shapes with classes, whose colours the page's style sheet decides."""

from collections.abc import Sequence
from html import escape
from itertools import count
from typing import Literal

Anchor = Literal["start", "middle", "end"]

_CHARACTER = 6.4
"""Width of an average character of the size that charts use."""


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
        """Cut to the room, if one is told; the whole text then shows when it is pointed at."""
        shown = said
        if room and len(said) * _CHARACTER > room:
            shown = said[: int(room / _CHARACTER) - 1].rstrip(" ,") + "…"
        whole = f"<title>{escape(said)}</title>" if shown != said else ""
        self._shapes.append(
            f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{whole}{escape(shown)}</text>'
        )

    def render(self, title: str) -> str:
        """The title is for those who don't see it; the figures themselves stand in a table beside."""
        return (
            f'<svg viewBox="0 0 {self._width:.0f} {self._height:.0f}" width="{self._width:.0f}" role="img"'
            f' aria-label="{escape(title, quote=True)}">{"".join(self._shapes)}</svg>'
        )


def plain(text: str) -> str:
    """Without the marks of Markdown."""
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
