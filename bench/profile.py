"""Where a server's time went, as counted by a sampler: values that stand beside the figures."""

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
    samples: int
    rooms: Sequence[Share]
    """Largest first; what belongs to no room of Tailrace goes by the name of its package."""
    functions: Sequence[Share]
    """The largest, largest first."""
