"""Asks every case in every context that it can stand in, and collects the verdicts."""

import asyncio
from collections.abc import Sequence
from functools import reduce
from typing import Literal, NamedTuple

from tests.differential.answers import Verdict, worst
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
    in_routes: list[tuple[Case, str, ExpectedExpression]] = []
    async with running_contexts(postgres) as tailrace:
        for case in cases:
            if case.kind == "query":
                for context in ("tables", "topic"):
                    if context in contexts:
                        verdict = await tailrace.query(case, touches_topic=context == "topic")
                        found.append(Judgement(case, context, verdict))
                continue
            asked = _asked(case.text, postgres)
            in_routes += [(case, text, expected) for text, expected in asked]
            for context in contexts:
                if context != "route":
                    verdicts = [await _verdict(context, text, expected, tailrace) for text, expected in asked]
                    found.append(Judgement(case, context, reduce(worst, verdicts)))
        if "route" in contexts:
            from tests.differential.route_context import judge_in_routes

            judged = await judge_in_routes(tailrace.client, [(text, expected) for _, text, expected in in_routes])
            by_case: dict[Case, Verdict] = {}
            for (case, _, _), verdict in zip(in_routes, judged, strict=True):
                by_case[case] = worst(by_case.get(case, verdict), verdict)
            found += [Judgement(case, "route", verdict) for case, verdict in by_case.items()]
    return found


def _asked(text: str, postgres: Postgres) -> list[tuple[str, ExpectedExpression]]:
    """Return the expression; if it is JSON, also its text, because an answer has one null for those of SQL and of JSON."""
    expected = expected_expression(postgres, text)
    if expected.type_name != "json":
        return [(text, expected)]
    as_text = f"({text})::text"
    return [(text, expected), (as_text, expected_expression(postgres, as_text))]


async def _verdict(context: Context, text: str, expected: ExpectedExpression, tailrace: TailraceContexts) -> Verdict:
    if context == "update":
        return await tailrace.updated(text, expected)
    return await tailrace.selected(text, expected, touches_topic=context == "topic")
