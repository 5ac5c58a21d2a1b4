"""Tailrace's SQL means what PostgreSQL's means, besides the differences that are meant.

The short form asks a part of the cases; `pytest tests/differential --whole` asks all of them, in routes too.
"""

import logging
from collections import Counter
from collections.abc import Iterator, Sequence

import pytest

from tests.differential.answers import Answer, AnswerColumn, Failure, judged
from tests.differential.contexts import touching_topic
from tests.differential.corpus import Case, written_cases
from tests.differential.differences import deliberate_differences, unmeant_differences
from tests.differential.generated import generated_cases
from tests.differential.judge import CONTEXTS, Context, judge
from tests.differential.postgres import Postgres, running_postgres
from tests.differential.report import answered_share

SHORT_STEP = 5
"""Of so many cases the short form asks one."""
ANSWERED: dict[Context, float] = {"tables": 0.98, "topic": 0.98, "update": 0.98, "route": 0.96}
"""The share of the hand-written cases that must be answered as PostgreSQL answers them. It may only rise."""
SHORT_CONTEXTS: Sequence[Context] = ("tables", "topic", "update")


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    with running_postgres() as postgres:
        yield postgres


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    """Internal errors are found by their answers."""
    caplog.set_level(logging.CRITICAL)


def test_no_case_differs_that_is_not_meant_to(postgres: Postgres, whole: bool) -> None:
    cases = all_cases()
    judgements = judge(cases, postgres) if whole else judge(cases[::SHORT_STEP], postgres, SHORT_CONTEXTS)
    found = [
        f"{context}: {case.text}: {verdict} {verdict.expected} | {verdict.found}"
        for case, context, verdict in unmeant_differences(judgements)
    ]
    assert not found, "\n".join(found)
    assert {judgement.context for judgement in judgements} == set(CONTEXTS if whole else SHORT_CONTEXTS)
    if whole:
        shares = {context: answered_share(judgements, context) for context in CONTEXTS}
        assert {context: share for context, share in shares.items() if share[0] < share[1] * ANSWERED[context]} == {}


def test_postgres_is_the_version_that_cases_are_written_for(postgres: Postgres) -> None:
    answer = postgres.run("SELECT current_setting('server_version_num')::int / 10000")
    assert isinstance(answer, Answer)
    assert answer.rows == [(18,)]


def test_there_are_many_cases_and_each_is_asked_once() -> None:
    cases = all_cases()
    counts = Counter((case.kind, case.text) for case in cases)
    assert [text for text, count in counts.items() if count > 1] == []
    assert len(written_cases()) >= 2_000
    assert len(cases) >= 3_500
    assert cases == all_cases()


def test_differences_are_listed_for_cases_that_exist() -> None:
    texts = {case.text for case in all_cases()}
    assert deliberate_differences().keys() - texts == set()


def test_a_verdict_sees_values_types_names_order_and_scale() -> None:
    expected = answer(("a", "integer"), 1, 2)
    assert str(judged(expected, answer(("a", "integer"), 1, 2), ordered=True, names=True)) == "equal"
    assert str(judged(expected, answer(("a", "integer"), 2, 1), ordered=False, names=True)) == "equal"
    assert str(judged(expected, answer(("a", "integer"), 2, 1), ordered=True, names=True)) == "DIFFERENT (order)"
    assert str(judged(expected, answer(("b", "bigint"), 1, 2), ordered=True, names=True)) == "DIFFERENT (name, type)"
    assert str(judged(expected, answer(("a", "integer"), 1, 3), ordered=True, names=True)) == "DIFFERENT (value)"
    assert str(judged(expected, answer(("a", "boolean"), True, 2), ordered=True, names=True)) == "DIFFERENT (type, value)"
    assert str(judged(expected, Failure(None, "no"), ordered=True, names=True)) == "refused"
    assert str(judged(expected, Failure("0A000", "no"), ordered=True, names=True)) == "refused"
    assert str(judged(expected, Failure("22012", "no"), ordered=True, names=True)) == "DIFFERENT (sqlstate)"
    assert str(judged(Failure("22012", "no"), expected, ordered=True, names=True)) == "DIFFERENT (answered)"
    assert str(judged(Failure("22012", "no"), Failure("22003", "no"), ordered=True, names=True)) == "both fail"
    assert str(judged(Failure("22012", "no"), Failure("42601", "no"), ordered=True, names=True)) == "DIFFERENT (sqlstate)"
    assert (
        str(judged(Failure("22012", "no"), Failure(None, "no", is_crash=True), ordered=True, names=True)) == "DIFFERENT (crash)"
    )
    doubles = answer(("a", "double"), 0.0, float("nan"))
    assert str(judged(doubles, answer(("a", "double"), 0.0, float("nan")), ordered=True, names=True)) == "equal"
    assert str(judged(doubles, answer(("a", "double"), -0.0, float("nan")), ordered=True, names=True)) == "DIFFERENT (value)"


def test_a_query_touches_a_topic_wherever_its_ctes_are() -> None:
    assert touching_topic("SELECT 1") == "WITH touched AS (SELECT 1 FROM events) SELECT 1"
    assert touching_topic("WITH RECURSIVE a AS (b) c") == "WITH RECURSIVE touched AS (SELECT 1 FROM events), a AS (b) c"


def all_cases() -> list[Case]:
    return [*written_cases(), *generated_cases()]


def answer(column: tuple[str, str], *values: object) -> Answer:
    return Answer([AnswerColumn(*column)], [[value] for value in values])
