"""Expressions as routes evaluate them: checked and compiled by Tailrace, run by Spark over the change events of `v`.

A hundred expressions are columns of one Spark plan. A route marks a change on which an expression fails, so failures are
compared row by row. The type of a whole number can't be seen in a message, so all of them are one type here.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import Row

from tailrace.model.errors import TailraceError
from tailrace.model.limits import DEFAULT_LIMITS
from tailrace.model.table import Table
from tailrace.pipeline.session import spark_session
from tailrace.sql.analysis.tree import NullTest
from tailrace.sql.analysis.types import SqlType
from tailrace.sql.routes.check import check_route, located
from tailrace.sql.routes.compile import column_text, row_type
from tailrace.sql.spark.render import SparkRenderer
from tailrace.sql.spark.templates import has_fixed_scale
from tailrace.sql.statements import ExpressionText
from tests.differential.answers import POSTGRES_TYPES, Answer, AnswerColumn, Failure, Verdict, comparable, judged, worst
from tests.differential.contexts import ExpectedExpression
from tests.support.sql import SqlClient
from tests.support.tables import records_of

AT_ONCE = 100
"""Expressions in one plan."""
_SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
_INNER_TYPES = ("interval", "jsonb")
"""Types of values that conditions can only compare or look into."""
_WHOLE_NUMBERS = ("smallint", "integer")


class CompiledColumn(NamedTuple):
    value: str
    failure: str
    type: str


async def judge_in_routes(client: SqlClient, cases: Sequence[tuple[str, ExpectedExpression]]) -> list[Verdict]:
    table = client.broker.tables.find("v")
    assert table is not None
    compiled = [_compiled(text, table) for text, _ in cases]
    events = [
        record.value or b"" for record in await records_of(client.broker, "v") if b'"op":"insert"' in (record.value or b"")
    ]
    session = spark_session("local[2]", name="differential")
    try:
        for name, value in _SETTINGS.items():
            session.conf.set(name, value)
        answers = _evaluated(
            _changes(session, events, table), [column for column in compiled if isinstance(column, CompiledColumn)]
        )
    finally:
        session.stop()
    found = iter(answers)
    return [
        _verdict(expected, column if isinstance(column, Failure) else next(found))
        for (_, expected), column in zip(cases, compiled, strict=True)
    ]


def _compiled(expression: str, table: Table) -> CompiledColumn | Failure:
    """Compile the expression as a part of a condition, where it may have any type."""
    text = ExpressionText(f"({expression}) IS NULL")
    try:
        checked = check_route(text, (), ("insert",), table, DEFAULT_LIMITS)
        assert isinstance(checked.where, NullTest)
        value = checked.where.argument
        assert value is not None
        if value.type.name in _INNER_TYPES or not has_fixed_scale(value):
            return Failure("0A000", f"a route can't tell the {value.type} itself")
        renderer = SparkRenderer(column_text, DEFAULT_LIMITS.route_sql_bytes)
        compiled = located(text, lambda: renderer.render(value))
    except TailraceError as error:
        return Failure(getattr(error, "sqlstate", None), f"{type(error).__name__}: {error}")
    except Exception as error:  # noqa: BLE001  an exception that is no refusal is a difference
        return Failure(None, f"{type(error).__name__}: {error}", is_crash=True)
    # Python's times in the zone of the machine do not reach as far as Spark's.
    is_time = value.type.name in ("date", "timestamp", "timestamptz")
    sql = f"CAST({compiled.value} AS STRING)" if is_time else compiled.value
    return CompiledColumn(sql, compiled.failure or "FALSE", _type_name(value.type))


def _type_name(sql_type: SqlType) -> str:
    return f"{_type_name(sql_type.element)}[]" if sql_type.is_array else POSTGRES_TYPES[sql_type.name]


def _changes(session: SparkSession, events: Sequence[bytes], table: Table) -> DataFrame:
    row = row_type(table)
    texts = [(at, event.decode()) for at, event in enumerate(events)]
    raw = session.createDataFrame(texts, "number INT, event STRING").coalesce(1)
    parsed = raw.select("number", F.from_json("event", f"old {row}, new {row}").alias("change"))
    return parsed.select("number", "change.old", "change.new").cache()


def _evaluated(changes: DataFrame, columns: Sequence[CompiledColumn]) -> list[list[Answer | Failure] | Failure]:
    """Return for each expression what it is on each row, or why Spark can't evaluate it."""
    found: list[list[Answer | Failure] | Failure] = []
    for start in range(0, len(columns), AT_ONCE):
        found += _evaluated_at_once(changes, columns[start : start + AT_ONCE])
    return found


def _evaluated_at_once(changes: DataFrame, columns: Sequence[CompiledColumn]) -> list[list[Answer | Failure] | Failure]:
    texts = [F.expr(text).alias(f"c{at}") for at, column in enumerate(columns) for text in (column.value, column.failure)]
    try:
        rows: list[Row] = changes.orderBy("number").select(*texts).collect()
    except Exception as error:  # noqa: BLE001  told as the failure of the expression
        if len(columns) == 1:
            return [Failure(None, f"{type(error).__name__}: {str(error).splitlines()[0]}", is_crash=True)]
        middle = len(columns) // 2
        return _evaluated_at_once(changes, columns[:middle]) + _evaluated_at_once(changes, columns[middle:])
    return [[_answer(column, row[2 * at], row[2 * at + 1]) for row in rows] for at, column in enumerate(columns)]


def _answer(column: CompiledColumn, value: Any, failed: bool) -> Answer | Failure:
    if failed:
        return Failure(None, "the expression failed on this row")
    return Answer([AnswerColumn("value", _visible(column.type))], [[comparable(value)]])


def _verdict(expected: ExpectedExpression, found: list[Answer | Failure] | Failure) -> Verdict:
    if isinstance(found, Failure):
        answered = [answer for answer in expected.rows if isinstance(answer, Answer)]
        return judged(answered[0] if answered else expected.whole, found, ordered=True, names=False)
    rows = expected.rows or [expected.whole] * len(found)
    verdicts = [judged(_as_message(one), two, ordered=True, names=False) for one, two in zip(rows, found, strict=True)]
    verdict = verdicts[0]
    for other in verdicts[1:]:
        verdict = worst(verdict, other)
    return verdict


def _as_message(answer: Answer | Failure) -> Answer | Failure:
    if isinstance(answer, Failure):
        return answer
    return Answer([AnswerColumn(column.name, _visible(column.type)) for column in answer.columns], answer.rows)


def _visible(type_: str) -> str:
    return "bigint" if type_ in _WHOLE_NUMBERS else type_
