"""Where Python's time went, as counted by a sampler: values that stand beside the figures."""

from collections.abc import Sequence

import msgspec


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
