"""Asks every case in every context that it can stand in, and collects the verdicts."""

import asyncio
from collections.abc import Sequence
from typing import Literal, NamedTuple

from tests.differential.answers import Verdict
from tests.differential.contexts import ExpectedExpression, TailraceContexts, expected_expression, running_contexts
from tests.differential.corpus import Case
from tests.differential.postgres import Postgres

Context = Literal["tables", "topic", "update", "route"]
CONTEXTS: Sequence[Context] = ("tables", "topic", "update", "route")


class Judgement(NamedTuple):
    case: Case
    context: Context
    verdict: Verdict


def judge(cases: Sequence[Case], postgres: Postgres, contexts: Sequence[Context] = CONTEXTS) -> list[Judgement]:
    return asyncio.run(_judge(cases, postgres, contexts))


async def _judge(cases: Sequence[Case], postgres: Postgres, contexts: Sequence[Context]) -> list[Judgement]:
    found: list[Judgement] = []
    expressions: list[tuple[Case, ExpectedExpression]] = []
    async with running_contexts(postgres) as tailrace:
        for case in cases:
            if case.kind == "query":
                for context in ("tables", "topic"):
                    if context in contexts:
                        verdict = await tailrace.query(case, touches_topic=context == "topic")
                        found.append(Judgement(case, context, verdict))
                continue
            expected = expected_expression(postgres, case.text)
            expressions.append((case, expected))
            found += await _judge_expression(case, expected, tailrace, contexts)
        if "route" in contexts:
            from tests.differential.route_context import judge_in_routes

            verdicts = await judge_in_routes(tailrace.client, [(case.text, expected) for case, expected in expressions])
            found += [Judgement(case, "route", verdict) for (case, _), verdict in zip(expressions, verdicts, strict=True)]
    return found


async def _judge_expression(
    case: Case, expected: ExpectedExpression, tailrace: TailraceContexts, contexts: Sequence[Context]
) -> list[Judgement]:
    found: list[Judgement] = []
    if "tables" in contexts:
        found.append(Judgement(case, "tables", await tailrace.selected(case.text, expected, touches_topic=False)))
    if "topic" in contexts:
        found.append(Judgement(case, "topic", await tailrace.selected(case.text, expected, touches_topic=True)))
    if "update" in contexts:
        found.append(Judgement(case, "update", await tailrace.updated(case.text, expected)))
    return found
