"""Runs writes through the analysis and their plans on an SQLite of their own: `python -m tests.differential.writes`.

Each statement of `cases/writes/` is run on fresh tables, and every expression in `UPDATE v ... RETURNING`. What RETURNING
returns and the rows of the table afterwards are those of PostgreSQL. Names of subjects after the command limit what is judged.
"""

import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import apsw
import pgparse

from tailrace.model.errors import TailraceError
from tailrace.model.ids import TableId, TopicId
from tailrace.model.limits import DEFAULT_LIMITS
from tailrace.model.table import Column, ColumnType, Table
from tailrace.sql.analysis.errors import AnalysisError, UnsupportedError
from tailrace.sql.analysis.interval_texts import Interval, interval_text
from tailrace.sql.analysis.relations import RelationColumn
from tailrace.sql.analysis.tree import AnalyzedQuery
from tailrace.sql.analysis.types import SqlType
from tailrace.sql.analysis.writes import WriteAnalyzer
from tailrace.sql.functions.float_texts import float4_text
from tailrace.sql.tables.change_events import TableEvents
from tailrace.sql.tables.change_recorder import ChangeRecorder
from tailrace.sql.tables.collations import register_collations
from tailrace.sql.tables.defaults import TableDefaults
from tailrace.sql.tables.identities import IdentityNumbers
from tailrace.sql.tables.planned_writes import written_columns
from tailrace.sql.tables.schema import create_sql, insert_sql, rows_sql
from tailrace.sql.tables.values import codec_of, stored
from tailrace.sql.tables.write_plans import WriteContext, plan_write
from tests.differential.answers import Answer, AnswerColumn, Failure, Verdict, comparable, judged, worst
from tests.differential.contexts import ExpectedExpression, expected_expression, type_name
from tests.differential.corpus import CASES, statements_of, written_cases
from tests.differential.engine import _type_name
from tests.differential.postgres import Postgres, running_postgres
from tests.differential.schema import RESULT_TYPES, TABLES, result_column

_TARGET = re.compile(r"(?:INTO|UPDATE|FROM)\s+(\w+)")
_DECIMAL = re.compile(r"decimal\((\d+), (\d+)\)")


class WritePlanRunner:
    """Runs statements on the tables of the cases, each in a transaction that is undone."""

    def __init__(self, postgres: Postgres) -> None:
        self._connection = apsw.Connection(":memory:")
        register_collations(self._connection)
        self.tables: dict[str, Table] = {}
        for number, described in enumerate(TABLES, 1):
            keys = tuple(described.key.split(", "))
            columns = tuple(Column(name, _column_type(kind), name not in keys) for name, kind in described.columns.items())
            table = Table(
                id=TableId(number),
                name=described.name,
                columns=columns,
                primary_key=keys,
                changes=TopicId(number),
                created_ms=0,
            )
            self.tables[table.name] = table
            self._connection.execute(create_sql(table))
            names = [f"{one.name}::text" if one.type.kind == "json" else one.name for one in columns]
            answer = postgres.run(f"SELECT {', '.join(names)} FROM {table.name}")
            assert isinstance(answer, Answer)
            for row in answer.rows:
                kept = [stored(_utc(value, one.type), one) for value, one in zip(row, columns, strict=True)]
                self._connection.execute(insert_sql(table), kept)
        self._events = {name: TableEvents(table, DEFAULT_LIMITS) for name, table in self.tables.items()}
        self.recorder = ChangeRecorder(DEFAULT_LIMITS)

    def run(self, text: str, look: Callable[[], Any] = lambda: None) -> tuple[Answer | Failure, Any]:
        """Run a statement and return its answer, with what `look` sees before it is undone."""
        self._connection.execute("BEGIN")
        self.recorder.begin(0, {})
        self.recorder.transaction("t")
        try:
            return self._run(text), look()
        except pgparse.PGQueryError as error:
            return Failure("42601", str(error)), None
        except AnalysisError as error:
            return Failure(error.sqlstate, error.message), None
        except TailraceError as error:
            return Failure(getattr(error, "sqlstate", None), str(error)), None
        except Exception as error:  # noqa: BLE001
            return Failure(None, f"{type(error).__name__}: {error}", is_crash=True), None
        finally:
            self._connection.execute("ROLLBACK")

    def _run(self, text: str) -> Answer:
        (statement,) = pgparse.parse(text)
        write = WriteAnalyzer(self._find).analyze(statement["stmt"])
        table = self.tables[write.table]
        plan = plan_write(write, table)
        context = WriteContext(
            self._connection,
            self._events[table.name],
            self.recorder,
            TableDefaults(table, IdentityNumbers(lambda _: {})),
            lambda _: None,
            lambda: None,
            1 << 20,
            _refuse_query,
        )
        outcome = plan.run(context, (), datetime.now(UTC))
        columns = [AnswerColumn(one.name, _type_name(two)) for one, two in zip(plan.columns, plan.types, strict=True)]
        rows = [[_shown(value, one) for value, one in zip(row, plan.types, strict=True)] for row in outcome.rows]
        return Answer(columns, rows)

    def rows(self, name: str) -> Answer:
        table = self.tables[name]
        loads = [codec_of(column.type).load for column in table.columns]
        found = [
            [None if cell is None else _loaded(load(cell)) for cell, load in zip(row, loads, strict=True)]
            for row in self._connection.execute(rows_sql(table))
        ]
        return Answer([AnswerColumn(column.name, type_name(column.type)) for column in table.columns], found)

    def _find(self, name: str) -> list[RelationColumn] | None:
        table = self.tables.get(name)
        return None if table is None else written_columns(table)


def _refuse_query(query: AnalyzedQuery, role: str) -> list[tuple[Any, ...]]:
    raise UnsupportedError("a query can't run here")


def _shown(value: Any, sql_type: SqlType) -> Any:
    if sql_type.name == "float4" and value is not None:
        return float(float4_text(value))
    return comparable(value)


def _loaded(value: Any) -> Any:
    return interval_text(value) if isinstance(value, Interval) else comparable(value)


def _utc(value: Any, column_type: ColumnType) -> Any:
    return f"{value}Z" if column_type.kind == "timestamp" and value is not None else value


def _column_type(kind: str) -> ColumnType:
    if kind.endswith("[]"):
        return ColumnType("list", element=_column_type(kind[:-2]))
    found = _DECIMAL.fullmatch(kind)
    return ColumnType("decimal", int(found[1]), int(found[2])) if found else ColumnType(kind)  # type: ignore[arg-type]


def judge_statement(runner: WritePlanRunner, postgres: Postgres, text: str) -> Verdict:
    """Judge a statement: what it returns, and the rows of its table afterwards."""
    target = _TARGET.search(text)
    assert target is not None
    name = target[1] if target[1] in runner.tables else "nothing"
    table = runner.tables[name]
    names = ", ".join(column.name for column in table.columns)
    look = f"SELECT {names} FROM {name} ORDER BY {', '.join(table.primary_key)}"
    expected, after = postgres.run_and_look(text, look)
    found, rows = runner.run(text, lambda: runner.rows(name))
    verdict = judged(expected, found, ordered=False, names=True)
    if isinstance(expected, Failure) or isinstance(found, Failure):
        return verdict
    return worst(verdict, judged(after, rows, ordered=True, names=True))


def judge_expression(runner: WritePlanRunner, postgres: Postgres, text: str) -> Verdict:
    """Judge an expression that UPDATE assigns and returns."""
    expected = expected_expression(postgres, text)
    verdict = _judge_update(runner, postgres, text, expected, "")
    ids = expected.answered_ids
    if isinstance(expected.whole, Answer) or not ids:
        return verdict
    return worst(verdict, _judge_update(runner, postgres, text, expected, f" WHERE id IN ({', '.join(map(str, ids))})"))


def _judge_update(runner: WritePlanRunner, postgres: Postgres, text: str, expected: ExpectedExpression, where: str) -> Verdict:
    kind = expected.type_name
    column = result_column(kind) if kind in RESULT_TYPES else None
    assigned = f"{column} = {text}" if column else "r_text = NULL"
    statement = f"UPDATE v SET {assigned}{where} RETURNING id, {column or 'r_text'}, {text} AS value"
    return judged(postgres.run_and_undo(statement), runner.run(statement)[0], ordered=False, names=False)


def written_statements() -> Iterator[tuple[str, str]]:
    """Yield the statements that are written by hand, with their subjects."""
    for file in sorted((CASES / "writes").glob("*.sql")):
        for text in statements_of(file):
            yield file.stem, text


def _cases() -> Iterator[tuple[str, str, bool]]:
    for subject, text in written_statements():
        yield subject, text, True
    for case in written_cases():
        if case.kind == "expression":
            yield case.subject, case.text, False


def main(subjects: Sequence[str]) -> None:
    """Print what differs and what is refused, of all subjects or of those that are named."""
    with running_postgres() as postgres:
        runner = WritePlanRunner(postgres)
        totals: dict[str, Counter[str]] = {}
        for subject, text, is_statement in _cases():
            if subjects and subject not in subjects:
                continue
            verdict = (judge_statement if is_statement else judge_expression)(runner, postgres, text)
            totals.setdefault(subject, Counter())[verdict.outcome] += 1
            if verdict.outcome in ("DIFFERENT", "refused"):
                sys.stdout.write(f"{verdict}  {subject}: {text}\n    P {verdict.expected}\n    T {verdict.found}\n")
        for subject, counts in totals.items():
            sys.stdout.write(f"{subject:<20} {dict(counts)}\n")
        sys.stdout.write(f"{'all':<20} {dict(sum(totals.values(), Counter()))}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
