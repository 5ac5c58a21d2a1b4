"""How long to wait before trying again: longer each time, up to a bound, and never quite the same."""

import random
from collections.abc import Callable

_LEAST_SHARE = 0.5


class Backoff:
    """Pauses that double from `first` to `longest` seconds, each shortened at random by up to half.

    The chance keeps many clients that lost the same server from coming back at the same moment.
    """

    def __init__(self, first: float, longest: float, chance: Callable[[], float] = random.random) -> None:
        self._first = first
        self._longest = max(first, longest)
        self._chance = chance
        self._attempt = 0

    def next_pause(self) -> float:
        """Seconds until the next attempt."""
        # More doublings than this are above any bound, and would not fit into a float for ever.
        whole = min(self._longest, self._first * (1 << min(self._attempt, 32)))
        self._attempt += 1
        return whole * (_LEAST_SHARE + (1 - _LEAST_SHARE) * self._chance())

    def reset(self) -> None:
        """It worked: begin with the shortest pause again."""
        self._attempt = 0
