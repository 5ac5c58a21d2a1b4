"""Runs expressions through the analysis and the evaluator alone, without a server: `python -m tests.differential.evaluator`.

The rows are those of `v` in PostgreSQL. Names of subjects after the command limit what is judged.
"""

import json
import sys
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, date, datetime
from typing import Any
from uuid import UUID

import pgparse

from tailrace.sql.analysis.errors import AnalysisError
from tailrace.sql.analysis.expressions import ExpressionAnalyzer
from tailrace.sql.analysis.interval_texts import Interval, interval_text, read_interval
from tailrace.sql.analysis.queries import QueryAnalyzer
from tailrace.sql.analysis.relations import RelationColumn
from tailrace.sql.analysis.scope import Scope, ScopeColumn, ScopeRelation
from tailrace.sql.analysis.tree import ColumnReference
from tailrace.sql.analysis.types import SqlType
from tailrace.sql.evaluation.evaluator import compile_expression
from tailrace.sql.functions.float_texts import float4_text
from tests.differential.answers import Answer, AnswerColumn, Failure, Verdict, comparable, judged, worst
from tests.differential.contexts import expected_expression
from tests.differential.corpus import Case, written_cases
from tests.differential.engine import _sql_type, _type_name
from tests.differential.generated import generated_cases
from tests.differential.postgres import Postgres, running_postgres
from tests.differential.schema import TABLES


class PythonEvaluator:
    """Evaluates expressions over the rows of `v`, whose last item is the time of the statement."""

    def __init__(self, postgres: Postgres) -> None:
        table = TABLES[0]
        self._types = {name: _sql_type(kind) for name, kind in table.columns.items()}
        self._places = {name: at for at, name in enumerate(self._types)}
        names = [f"{name}::text" if one.name == "jsonb" else name for name, one in self._types.items()]
        answer = postgres.run(f"SELECT {', '.join(names)} FROM {table.name} ORDER BY id")
        assert isinstance(answer, Answer)
        types = list(self._types.values())
        self._rows = [[_value(value, one) for value, one in zip(row, types, strict=True)] for row in answer.rows]
        tables = {one.name: [RelationColumn(name, _sql_type(kind)) for name, kind in one.columns.items()] for one in TABLES}
        self._queries = QueryAnalyzer(tables.get)

    def column(self, reference: ColumnReference) -> int:
        return self._places[reference.column]

    def parameter(self, number: int) -> int:
        raise NotImplementedError

    def now(self) -> int:
        return len(self._places)

    def run(self, text: str, ids: Sequence[int] | None = None) -> Answer | Failure:
        try:
            (statement,) = pgparse.parse(f"SELECT {text} AS value")
            (target,) = statement["stmt"]["SelectStmt"]["targetList"]
            columns = [ScopeColumn(name, ColumnReference(one, 1, name)) for name, one in self._types.items()]
            scope = Scope(None, [ScopeRelation(["v"], columns)])
            analyzer = ExpressionAnalyzer((), self._queries)
            expression = analyzer.settle(analyzer.analyze(target["ResTarget"]["val"], scope))
            evaluate = compile_expression(expression, self)
            now = datetime.now(UTC)
            rows = [row for row in self._rows if ids is None or row[0] in ids]
            values = [evaluate([*row, now]) for row in rows]
        except pgparse.PGQueryError as error:
            return Failure("42601", str(error))
        except AnalysisError as error:
            return Failure(error.sqlstate, error.message)
        except Exception as error:  # noqa: BLE001
            return Failure(None, f"{type(error).__name__}: {error}", is_crash=True)
        return Answer(
            [AnswerColumn("value", _type_name(expression.type))], [[shown_value(one, expression.type)] for one in values]
        )


def _value(value: Any, sql_type: SqlType) -> Any:
    match sql_type.name:
        case _ if value is None:
            return None
        case "date":
            return date.fromisoformat(value)
        case "timestamptz":
            return datetime.fromisoformat(value).replace(tzinfo=UTC)
        case "uuid":
            return UUID(value)
        case "interval":
            return read_interval(value)
    return value


def shown_value(value: Any, sql_type: SqlType) -> Any:
    if value is None:
        return None
    if sql_type.is_array:
        return [shown_value(item, sql_type.element) for item in value]
    if sql_type.name in ("json", "jsonb"):
        return json.loads(value)
    if isinstance(value, Interval):
        return interval_text(value)
    if sql_type.name == "float4":
        return float(float4_text(value))
    if sql_type.name == "time":
        text = value.isoformat()
        return text.rstrip("0") if value.microsecond else text
    return comparable(value)


def judge_case(evaluator: PythonEvaluator, postgres: Postgres, case: Case) -> Verdict:
    expected = expected_expression(postgres, case.text)
    verdict = judged(expected.whole, evaluator.run(case.text), ordered=True, names=False)
    ids = expected.answered_ids
    if isinstance(expected.whole, Answer) or not ids:
        return verdict
    answers = [answer for answer in expected.rows if isinstance(answer, Answer)]
    part = Answer(answers[0].columns, [row for answer in answers for row in answer.rows])
    return worst(verdict, judged(part, evaluator.run(case.text, ids), ordered=True, names=False))


def main(subjects: Sequence[str]) -> None:
    """Print what differs and what is refused, of all subjects or of those that are named."""
    with running_postgres() as postgres:
        evaluator = PythonEvaluator(postgres)
        totals: dict[str, Counter[str]] = {}
        for case in [*written_cases(), *generated_cases()]:
            if case.kind == "query" or (subjects and case.subject not in subjects):
                continue
            verdict = judge_case(evaluator, postgres, case)
            totals.setdefault(case.subject, Counter())[verdict.outcome] += 1
            if verdict.outcome in ("DIFFERENT", "refused"):
                sys.stdout.write(f"{verdict}  {case.subject}: {case.text}\n    P {verdict.expected}\n    T {verdict.found}\n")
        for subject, counts in totals.items():
            sys.stdout.write(f"{subject:<20} {dict(counts)}\n")
        sys.stdout.write(f"{'all':<20} {dict(sum(totals.values(), Counter()))}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
