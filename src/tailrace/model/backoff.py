"""The back-off of everything that tries again: pauses that grow up to a bound and are never quite the same."""

import random
from collections.abc import Callable

_LEAST_SHARE = 0.5


class Backoff:
    """Doubles the pause from `first` to `longest` seconds and shortens each at random by up to half.

    The randomness keeps many clients that lost the same server from coming back at the same moment.
    """

    def __init__(self, first: float, longest: float, chance: Callable[[], float] = random.random) -> None:
        self._first = first
        self._longest = max(first, longest)
        self._chance = chance
        self._attempt = 0

    def next_pause(self) -> float:
        """Return the seconds until the next attempt."""
        # 32 doublings exceed every bound; more of them would one day not fit into a float.
        whole = min(self._longest, self._first * (1 << min(self._attempt, 32)))
        self._attempt += 1
        return whole * (_LEAST_SHARE + (1 - _LEAST_SHARE) * self._chance())

    def reset(self) -> None:
        """Begin with the shortest pause again, after a success."""
        self._attempt = 0
