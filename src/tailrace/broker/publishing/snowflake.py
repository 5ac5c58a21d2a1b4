"""Message ids: 41 bits of milliseconds, 10 bits of node, 12 bits of sequence.

Ids of one node rise strictly, even if the clock steps back and across restarts: a mark in the store tells up to which
millisecond ids may have been generated. It is moved ahead in the commits of the messages that carry the ids.
"""

from tailrace.model.clock import Clock
from tailrace.model.errors import invariant

EPOCH_MS = 1_704_067_200_000
"""The start of 2024; 41 bits last until 2093."""

MAX_NODE = (1 << 10) - 1

_SEQUENCE_BITS = 12
_NODE_AND_SEQUENCE_BITS = 22
_MAX_SEQUENCE = (1 << _SEQUENCE_BITS) - 1
_AHEAD_MS = 10_000


class Snowflakes:
    """Generates message ids."""

    def __init__(self, clock: Clock, node: int = 0) -> None:
        invariant(0 <= node <= MAX_NODE, f"node {node} is not from 0 to {MAX_NODE}")
        self._clock = clock
        self._node = node << _SEQUENCE_BITS
        self._last_ms = 0
        self._sequence = _MAX_SEQUENCE
        self._mark_ms = 0

    def start_after(self, mark_ms: int) -> None:
        """Generate only ids after the mark of the previous run."""
        self._mark_ms = mark_ms
        self._last_ms = mark_ms
        self._sequence = _MAX_SEQUENCE

    def next(self) -> int:
        """Return a new id."""
        now = self._clock.now_ms() - EPOCH_MS
        if now > self._last_ms:
            self._last_ms = now
            self._sequence = 0
        elif self._sequence < _MAX_SEQUENCE:
            self._sequence += 1
        else:
            # All ids of the millisecond are used, or the clock stepped back: use the next millisecond instead of waiting.
            self._last_ms += 1
            self._sequence = 0
        return self._last_ms << _NODE_AND_SEQUENCE_BITS | self._node | self._sequence

    def due_mark(self) -> int | None:
        """Return the mark to store together with the ids generated so far, or None if the stored one covers them."""
        return self._last_ms + _AHEAD_MS if self._last_ms > self._mark_ms else None

    def marked(self, mark_ms: int) -> None:
        """Record that the mark is durable."""
        self._mark_ms = max(self._mark_ms, mark_ms)
