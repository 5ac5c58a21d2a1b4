"""Expressions that are evaluated row by row, and writes that are planned, mean what they mean in PostgreSQL."""

from collections.abc import Iterator

import pytest

from tests.differential.corpus import written_cases
from tests.differential.differences import deliberate_differences
from tests.differential.evaluator import PythonEvaluator, judge_case
from tests.differential.generated import generated_cases
from tests.differential.postgres import Postgres, running_postgres
from tests.differential.writes import WritePlanRunner, judge_expression, judge_statement, written_statements

ANSWERED = 0.96
"""The share of expressions that must be answered, of those that PostgreSQL answers. It may only rise."""
UPDATE_STEP = 5
"""Of so many expressions one is judged in an UPDATE."""


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    with running_postgres() as postgres:
        yield postgres


def test_evaluated_expressions_have_the_values_and_types_of_postgres(postgres: Postgres) -> None:
    evaluator = PythonEvaluator(postgres)
    cases = [case for case in [*written_cases(), *generated_cases()] if case.kind == "expression"]
    verdicts = {case.text: judge_case(evaluator, postgres, case) for case in cases}
    different = {text: verdict for text, verdict in verdicts.items() if verdict.outcome == "DIFFERENT"}
    assert different.keys() - deliberate_differences().keys() == set()
    outcomes = [verdict.outcome for verdict in verdicts.values()]
    assert outcomes.count("equal") >= ANSWERED * (outcomes.count("equal") + outcomes.count("refused"))


def test_planned_writes_return_and_store_what_postgres_does(postgres: Postgres) -> None:
    runner = WritePlanRunner(postgres)
    verdicts = {text: judge_statement(runner, postgres, text) for _, text in written_statements()}
    assert [(text, str(verdict)) for text, verdict in verdicts.items() if verdict.outcome in ("DIFFERENT", "refused")] == []


def test_expressions_mean_the_same_in_an_update(postgres: Postgres) -> None:
    runner = WritePlanRunner(postgres)
    cases = [case for case in written_cases() if case.kind == "expression"][::UPDATE_STEP]
    verdicts = {case.text: judge_expression(runner, postgres, case.text) for case in cases}
    different = {text for text, verdict in verdicts.items() if verdict.outcome == "DIFFERENT"}
    assert different - deliberate_differences().keys() == set()
