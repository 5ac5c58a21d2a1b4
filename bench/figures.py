"""What a benchmark hands to the report: figures with their bars, as data."""

from collections.abc import Sequence
from typing import Literal

import msgspec

from bench.curves import Curve
from bench.measure import Samples, ratios
from bench.profile import Profile


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
