"""What comes out of the plan, for whoever reads it in a task: two bits for each route, in words of some routes each."""

from typing import NamedTuple

TAKEN, FAILED = 1, 2
"""A change takes the route; the route can't be evaluated for it."""
ROUTES_A_WORD = 31
"""The sign is left alone."""


class Verdict(NamedTuple):
    """Where a route's two bits are."""

    word: str
    shift: int
    key: str | None
    """The column with the keys of its records, if the route chooses them."""


def verdict_at(number: int, has_key: bool) -> Verdict:
    """Of the route that is so many routes behind the first."""
    return Verdict(f"word_{number // ROUTES_A_WORD}", 2 * (number % ROUTES_A_WORD), f"key_{number}" if has_key else None)
