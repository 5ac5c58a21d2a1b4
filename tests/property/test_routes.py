"""Conditions of routes: what does not matter can't fail, on whichever side it stands."""

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.model.errors import InvalidRequestError
from tailrace.model.limits import DEFAULT_LIMITS
from tailrace.sql.routes.dry_run import dry_run
from tailrace.sql.routes.evaluation import RouteOutcome
from tests.support.route_cases import TABLE, Images, Writer, checked, event, hard_rows, random_row

ROWS = hard_rows()


def outcomes(condition: str, random: Random) -> list[RouteOutcome]:
    route = checked(condition, operations=("update",))
    changes = [event(Images(random_row(random), row), "update") for row in ROWS]
    return dry_run(route, TABLE, changes, DEFAULT_LIMITS)


@given(st.integers(0, 1 << 32))
@settings(max_examples=60, deadline=None)
def test_the_order_of_conditions_does_not_matter(seed: int) -> None:
    writer = Writer(Random(seed), ("OLD.", "NEW.", ""))
    one, two = writer.condition(2), writer.condition(2)
    for word in ("AND", "OR"):
        try:
            forth = outcomes(f"({one}) {word} ({two})", Random(seed))
        except InvalidRequestError:
            return
        assert forth == outcomes(f"({two}) {word} ({one})", Random(seed)), (one, two)
        assert not any(outcome.failed and outcome.matches for outcome in forth)
