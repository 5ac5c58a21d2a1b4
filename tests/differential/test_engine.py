"""Queries that are analyzed and written for DuckDB mean what they mean in PostgreSQL."""

from collections.abc import Iterator

import pytest

from tests.differential.corpus import written_cases
from tests.differential.differences import deliberate_differences
from tests.differential.engine import DuckDbEngine, judge_case
from tests.differential.generated import generated_cases
from tests.differential.postgres import Postgres, running_postgres

ANSWERED = 0.97
"""The share of the cases that must be answered, of those that PostgreSQL answers. It may only rise."""
SHORT_STEP = 10
"""Of so many cases the short form asks one."""


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    with running_postgres() as postgres:
        yield postgres


def test_queries_have_the_values_types_and_names_of_postgres(postgres: Postgres, whole: bool) -> None:
    engine = DuckDbEngine(postgres)
    cases = [*written_cases(), *generated_cases()][:: 1 if whole else SHORT_STEP]
    verdicts = {case.text: judge_case(engine, postgres, case) for case in cases}
    different = {text: verdict for text, verdict in verdicts.items() if verdict.outcome == "DIFFERENT"}
    assert {text: verdict for text, verdict in different.items() if text not in deliberate_differences()} == {}
    outcomes = [verdict.outcome for verdict in verdicts.values()]
    assert outcomes.count("equal") >= ANSWERED * (outcomes.count("equal") + outcomes.count("refused"))
