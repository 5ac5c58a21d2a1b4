"""Conditions of routes: the compiled form answers what their meaning, written out in Python, says."""

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.model.errors import InvalidRequestError
from tailrace.model.limits import DEFAULT_LIMITS
from tailrace.sql.routes.statements import dry_run
from tests.support.route_cases import TABLE, Writer, checked, event, hard_rows, random_row
from tests.support.route_oracle import Images, expected

ROWS = hard_rows()


@given(st.integers(0, 1 << 32))
@settings(max_examples=100, deadline=None)
def test_what_duckdb_answers_is_what_the_condition_means(seed: int) -> None:
    random = Random(seed)
    text = Writer(random, ("OLD.", "NEW.", "")).condition()
    try:
        route = checked(text, operations=("update",))
    except InvalidRequestError:
        return
    images = [Images(random_row(random), row) for row in ROWS]
    outcomes = dry_run(route, TABLE, [event(pair, "update") for pair in images], DEFAULT_LIMITS)
    for pair, outcome in zip(images, outcomes, strict=True):
        meant = expected(route, pair)
        assert (outcome.matches, outcome.failed) == (meant.matches, meant.failed), text
