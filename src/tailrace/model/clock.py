"""Clocks. Services ask the clock that they were given for the time, never the operating system."""

import time
from typing import NewType, Protocol

Hlc = NewType("Hlc", int)
"""A hybrid logical timestamp: milliseconds since 1970 in the upper 48 bits, a counter in the lower 16."""

_COUNTER_BITS = 16


class Clock(Protocol):
    def now_ms(self) -> int:
        """Wall-clock milliseconds since 1970. May step back."""

    def monotonic(self) -> float:
        """Seconds that never step back, to measure durations."""


class SystemClock:
    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    monotonic = staticmethod(time.monotonic)
    """Called for every commit, so without a method in between."""


class HybridClock:
    """Gives each frame a timestamp that is close to the wall clock and always rises, even if the wall clock steps back."""

    def __init__(self, clock: Clock, last: Hlc = Hlc(0)) -> None:
        self._clock = clock
        self._last = last

    def next(self) -> Hlc:
        now = self._clock.now_ms() << _COUNTER_BITS
        if now <= self._last:
            now = self._last + 1
        self._last = now  # type: ignore[assignment]
        return now  # type: ignore[return-value]

    def observe(self, seen: Hlc) -> None:
        self._last = max(self._last, seen)


def hlc_millis(stamp: int) -> int:
    return stamp >> _COUNTER_BITS


def hlc_counter(stamp: int) -> int:
    return stamp & ((1 << _COUNTER_BITS) - 1)
