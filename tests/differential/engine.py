"""Runs queries through the analysis and DuckDB alone, without a server: `python -m tests.differential.engine [subject ...]`.

It takes seconds where the whole judge takes minutes, so it is what one works with. The tables are those of PostgreSQL.
"""

import re
import sys
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime

import duckdb
import pgparse
import pyarrow as pa

from tailrace.sql.analysis.errors import AnalysisError
from tailrace.sql.analysis.interval_texts import read_interval
from tailrace.sql.analysis.queries import QueryAnalyzer
from tailrace.sql.analysis.relations import RelationColumn
from tailrace.sql.analysis.types import INTERVAL, SqlType
from tailrace.sql.duckdb.constants import constant, duckdb_type
from tailrace.sql.duckdb.render import DuckDbRenderer
from tailrace.sql.duckdb.session import prepare
from tailrace.sql.duckdb.values import python_values
from tests.differential.answers import POSTGRES_TYPES, Answer, AnswerColumn, Failure, Verdict, comparable, judged, worst
from tests.differential.contexts import expected_expression, is_ordered
from tests.differential.corpus import Case, written_cases
from tests.differential.postgres import Postgres, running_postgres
from tests.differential.schema import TABLES

_NAMES = {
    "boolean": "bool", "smallint": "int2", "integer": "int4", "bigint": "int8", "double": "float8", "bytes": "bytea",
    "timestamp": "timestamptz", "json": "jsonb", "decimal": "numeric",
}  # fmt: skip


class DuckDbEngine:
    def __init__(self, postgres: Postgres) -> None:
        self._connection = duckdb.connect(config={"threads": "1"})
        self._connection.execute("SET TimeZone = 'UTC'")
        prepare(self._connection)
        self._tables: dict[str, list[RelationColumn]] = {}
        for table in TABLES:
            keys = table.key.split(", ")
            columns = [RelationColumn(name, _sql_type(kind), is_key=name in keys) for name, kind in table.columns.items()]
            self.add_table(postgres, table.name, columns)

    def add_table(self, postgres: Postgres, name: str, columns: list[RelationColumn]) -> None:
        """Copy a table of PostgreSQL."""
        self._tables[name] = columns
        described = ", ".join(f'"{column.name}" {duckdb_type(column.type)}' for column in columns)
        self._connection.execute(f"CREATE TABLE {name} ({described})")
        names = [f"{one.name}::text" if one.type.name in ("jsonb", "numeric") else one.name for one in columns]
        answer = postgres.run(f"SELECT {', '.join(names)} FROM {name}")
        assert isinstance(answer, Answer)
        for row in answer.rows:
            # DuckDB does not read the texts of intervals as PostgreSQL writes them.
            spans = [one.type == INTERVAL and value is not None for one, value in zip(columns, row, strict=True)]
            texts = [
                constant(read_interval(one), INTERVAL) if is_span else "?" for one, is_span in zip(row, spans, strict=True)
            ]
            given = [value for value, is_span in zip(row, spans, strict=True) if not is_span]
            self._connection.execute(f"INSERT INTO {name} VALUES ({', '.join(texts)})", given)

    def run(self, text: str) -> Answer | Failure:
        try:
            statements = pgparse.parse(text)
            if len(statements) != 1 or "SelectStmt" not in statements[0]["stmt"]:
                return Failure("0A000", "only queries are judged")
            if "information_schema." in text:
                return Failure("0A000", "the server has these tables, not the engine")
            analyzer = QueryAnalyzer(self._tables.get)
            query = analyzer.analyze(statements[0]["stmt"])
            rendered = DuckDbRenderer(now=datetime.now(UTC)).query(query)
        except pgparse.PGQueryError as error:
            return Failure("42601", str(error))
        except AnalysisError as error:
            return Failure(error.sqlstate, error.message)
        except Exception as error:  # noqa: BLE001
            return Failure(None, f"{type(error).__name__}: {error}", is_crash=True)
        try:
            for relation in analyzer.relations:
                self._connection.execute(f"CREATE OR REPLACE TEMP VIEW scan_{relation.number} AS SELECT * FROM {relation.name}")
            table: pa.Table = self._connection.sql(rendered).to_arrow_table()
        except duckdb.Error as error:
            return Failure(*_error(error, rendered))
        columns = [AnswerColumn(name, _type_name(one)) for name, one in zip(query.names, query.types, strict=True)]
        if not columns:
            return Answer(columns, [[]] * len(table))
        try:
            values = [python_values(column, one) for column, one in zip(table.columns, query.types, strict=True)]
        except AnalysisError as error:
            return Failure(error.sqlstate, error.message)
        return Answer(columns, [[comparable(value) for value in row] for row in zip(*values, strict=True)])


def _sql_type(kind: str) -> SqlType:
    if kind.endswith("[]"):
        return _sql_type(kind[:-2]).array
    found = re.fullmatch(r"decimal\((\d+), (\d+)\)", kind)
    if found is not None:
        return SqlType("numeric", int(found[1]), int(found[2]))
    return SqlType(_NAMES.get(kind, kind))


def _type_name(sql_type: SqlType) -> str:
    return _type_name(sql_type.element) + "[]" if sql_type.is_array else POSTGRES_TYPES[sql_type.name]


def _error(error: duckdb.Error, rendered: str) -> tuple[str | None, str]:
    text = str(error)
    found = re.search(r"\[([0-9A-Z]{5})\] (.*)", text)
    if found is not None:
        return found[1], found[2]
    if isinstance(error, duckdb.OutOfRangeException):
        return "22003", text
    if isinstance(error, duckdb.ConversionException):
        return "22P02", text
    if "must appear in the GROUP BY" in text:
        return "42803", text
    if "More than one row returned by a subquery" in text:
        return "21000", text
    return None, f"{text.splitlines()[0]}   in   {rendered}"


def judge_case(engine: DuckDbEngine, postgres: Postgres, case: Case) -> Verdict:
    if case.kind == "query":
        return judged(postgres.run(case.text), engine.run(case.text), ordered=is_ordered(case.text), names=True)
    expected = expected_expression(postgres, case.text)
    verdict = judged(expected.whole, engine.run(f"SELECT {case.text} AS value FROM v ORDER BY id"), ordered=True, names=False)
    ids = expected.answered_ids
    if isinstance(expected.whole, Answer) or not ids:
        return verdict
    answers = [answer for answer in expected.rows if isinstance(answer, Answer)]
    part = Answer(answers[0].columns, [row for answer in answers for row in answer.rows])
    found = engine.run(f"SELECT {case.text} AS value FROM v WHERE id IN ({', '.join(map(str, ids))}) ORDER BY id")
    return worst(verdict, judged(part, found, ordered=True, names=False))


def main(subjects: Sequence[str]) -> None:
    """Print what differs and what is refused, of all subjects or of those that are named."""
    with running_postgres() as postgres:
        engine = DuckDbEngine(postgres)
        totals: dict[str, Counter[str]] = {}
        for case in written_cases():
            if subjects and case.subject not in subjects:
                continue
            verdict = judge_case(engine, postgres, case)
            totals.setdefault(case.subject, Counter())[verdict.outcome] += 1
            if verdict.outcome in ("DIFFERENT", "refused"):
                sys.stdout.write(f"{verdict}  {case.subject}: {case.text}\n    P {verdict.expected}\n    T {verdict.found}\n")
        for subject, counts in totals.items():
            sys.stdout.write(f"{subject:<20} {dict(counts)}\n")
        total = sum(totals.values(), Counter())
        sys.stdout.write(f"{'all':<20} {dict(total)}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
