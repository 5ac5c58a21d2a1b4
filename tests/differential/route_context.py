"""Expressions as routes evaluate them: checked and compiled by Tailrace, run by Spark over the change events of `v`.

A hundred expressions are columns of one Spark plan. A route marks a change on which an expression fails, so failures are
compared row by row. What Spark can't compute, or fails on, is evaluated by Python in a task of Spark, as in the pipeline. The
type of a whole number can't be seen in a message, so all of them are one type here.
"""

import pickle
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import Row

from tailrace.model.errors import TailraceError
from tailrace.model.limits import DEFAULT_LIMITS
from tailrace.model.record import Record
from tailrace.model.table import Table
from tailrace.pipeline.session import spark_session
from tailrace.sql.analysis.errors import UnsupportedError
from tailrace.sql.analysis.tree import Expression, NullTest
from tailrace.sql.analysis.types import SqlType
from tailrace.sql.routes.check import check_route
from tailrace.sql.routes.compile import column_text, compile_for_spark, row_type
from tailrace.sql.routes.evaluation import AnalyzedRoute, RouteEvaluator, RouteOutcome
from tailrace.sql.spark.render import CompiledExpression, SparkRenderer
from tailrace.sql.spark.templates import has_fixed_scale
from tailrace.sql.statements import ExpressionText
from tailrace.wire.routing import read_change
from tests.differential.answers import POSTGRES_TYPES, Answer, AnswerColumn, Failure, Verdict, comparable, judged, worst
from tests.differential.contexts import ExpectedExpression
from tests.differential.evaluator import shown_value
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


class RouteExpression(NamedTuple):
    """An expression in the two ways in which routes evaluate it: Spark first, and Python where Spark has no answer."""

    node: Expression
    spark: CompiledExpression | None
    python: AnalyzedRoute | None

    @property
    def type(self) -> str:
        return _type_name(self.node.type)


Outcomes = list[Answer | Failure]


async def judge_in_routes(client: SqlClient, cases: Sequence[tuple[str, ExpectedExpression]]) -> list[Verdict]:
    table = client.broker.tables.find("v")
    assert table is not None
    compiled = [_compiled(text, table) for text, _ in cases]
    events = [
        record.value or b"" for record in await records_of(client.broker, "v") if b'"op":"insert"' in (record.value or b"")
    ]
    expressions = [one for one in compiled if isinstance(one, RouteExpression)]
    session = spark_session("local[2]", name="differential")
    try:
        for name, value in _SETTINGS.items():
            session.conf.set(name, value)
        by_spark = iter(_by_spark(_changes(session, events, table), [one for one in expressions if one.spark is not None]))
        by_python = iter(_by_python(session, events, [one for one in expressions if one.python is not None]))
    finally:
        session.stop()
    answers = (
        _decided(None if one.spark is None else next(by_spark), None if one.python is None else next(by_python))
        for one in expressions
    )
    return [
        _verdict(expected, one if isinstance(one, Failure) else next(answers))
        for (_, expected), one in zip(cases, compiled, strict=True)
    ]


def _decided(by_spark: Outcomes | Failure | None, by_python: Outcomes | None) -> Outcomes | Failure:
    """Return what a route finds: Python decides where Spark fails."""
    if by_spark is None:
        return by_python or []
    if by_python is None or isinstance(by_spark, Failure):
        return by_spark
    return [two if isinstance(one, Failure) else one for one, two in zip(by_spark, by_python, strict=True)]


def _compiled(expression: str, table: Table) -> RouteExpression | Failure:
    """Compile the expression as a part of a condition, where it may have any type."""
    text = ExpressionText(f"({expression}) IS NULL")
    try:
        checked = check_route(text, (), ("insert",), table, DEFAULT_LIMITS)
        assert isinstance(checked.where, NullTest)
        value = checked.where.argument
        assert value is not None
        compile_for_spark(checked, table, DEFAULT_LIMITS)
    except TailraceError as error:
        sqlstate = getattr(error, "sqlstate", None) or ""
        # A route is refused when it is made for a constant that fails on some rows only.
        return Failure(None if sqlstate.startswith("22") else sqlstate, f"{type(error).__name__}: {error}")
    except Exception as error:  # noqa: BLE001  an exception that is no refusal is a difference
        return Failure(None, f"{type(error).__name__}: {error}", is_crash=True)
    columns = {column.name: column.type for column in table.columns}
    spark, python = _in_spark(value), AnalyzedRoute(columns, (), keys=(value,))
    return RouteExpression(value, spark, python if _is_supported(python) else None)


def _in_spark(node: Expression) -> CompiledExpression | None:
    if node.type.name in _INNER_TYPES or not has_fixed_scale(node):
        return None
    try:
        return SparkRenderer(column_text, DEFAULT_LIMITS.route_sql_bytes).render(node)
    except UnsupportedError:
        return None


def _is_supported(route: AnalyzedRoute) -> bool:
    try:
        RouteEvaluator(route)
    except UnsupportedError:
        return False
    return True


def _type_name(sql_type: SqlType) -> str:
    return f"{_type_name(sql_type.element)}[]" if sql_type.is_array else POSTGRES_TYPES[sql_type.name]


def _changes(session: SparkSession, events: Sequence[bytes], table: Table) -> DataFrame:
    row = row_type(table)
    texts = [(at, event.decode()) for at, event in enumerate(events)]
    raw = session.createDataFrame(texts, "number INT, event STRING").coalesce(1)
    parsed = raw.select("number", F.from_json("event", f"old {row}, new {row}").alias("change"))
    return parsed.select("number", "change.old", "change.new").cache()


def _by_spark(changes: DataFrame, expressions: Sequence[RouteExpression]) -> list[Outcomes | Failure]:
    """Return for each expression what it is on each row, or why Spark can't evaluate it."""
    found: list[Outcomes | Failure] = []
    for start in range(0, len(expressions), AT_ONCE):
        found += _by_spark_at_once(changes, expressions[start : start + AT_ONCE])
    return found


def _by_spark_at_once(changes: DataFrame, expressions: Sequence[RouteExpression]) -> list[Outcomes | Failure]:
    texts = [
        F.expr(text).alias(f"c{at}") for at, one in enumerate(expressions) for text in (_spark_value(one), _spark_failure(one))
    ]
    try:
        rows: list[Row] = changes.orderBy("number").select(*texts).collect()
    except Exception as error:  # noqa: BLE001  told as the failure of the expression
        if len(expressions) == 1:
            return [Failure(None, f"{type(error).__name__}: {str(error).splitlines()[0]}", is_crash=True)]
        middle = len(expressions) // 2
        return _by_spark_at_once(changes, expressions[:middle]) + _by_spark_at_once(changes, expressions[middle:])
    return [[_answer(one, row[2 * at], failed=row[2 * at + 1]) for row in rows] for at, one in enumerate(expressions)]


def _spark_value(one: RouteExpression) -> str:
    assert one.spark is not None
    # Python's times in the zone of the machine do not reach as far as Spark's.
    is_time = one.node.type.name in ("date", "timestamp", "timestamptz")
    return f"CAST({one.spark.value} AS STRING)" if is_time else one.spark.value


def _spark_failure(one: RouteExpression) -> str:
    assert one.spark is not None
    return one.spark.failure or "FALSE"


def _by_python(session: SparkSession, events: Sequence[bytes], expressions: Sequence[RouteExpression]) -> list[Outcomes]:
    """Return for each expression what it is on each row, as Spark's tasks find it."""
    routes = [one.python for one in expressions if one.python is not None]
    frame = session.createDataFrame([(event,) for event in events], "event BINARY").coalesce(1)
    (row,) = frame.mapInArrow(_evaluate_in_task(routes), "found BINARY").collect()
    found = pickle.loads(row.found)  # noqa: S301  written by the task
    return [[_python_answer(one, each) for each in outcomes] for one, outcomes in zip(expressions, found, strict=True)]


def _python_answer(one: RouteExpression, outcome: RouteOutcome) -> Answer | Failure:
    value = None if outcome.failed else shown_value(outcome.key_values[0], one.node.type)
    return _answer(one, value, failed=outcome.failed)


def _evaluate_in_task(routes: Sequence[AnalyzedRoute]) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def evaluate(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        changes = [read_change(Record(None, event, [], 0)) for batch in batches for event in batch.column(0).to_pylist()]
        evaluators = map(RouteEvaluator, routes)
        found = [[evaluator.whole(change.old, change.new) for change in changes] for evaluator in evaluators]
        yield pa.RecordBatch.from_pydict({"found": [pickle.dumps(found)]})

    return evaluate


def _answer(one: RouteExpression, value: Any, *, failed: bool) -> Answer | Failure:
    if failed:
        return Failure(None, "the expression failed on this row")
    return Answer([AnswerColumn("value", _visible(one.type))], [[comparable(value)]])


def _verdict(expected: ExpectedExpression, found: list[Answer | Failure] | Failure) -> Verdict:
    if isinstance(found, Failure):
        answered = [answer for answer in expected.rows if isinstance(answer, Answer)]
        return judged(answered[0] if answered else expected.whole, found, ordered=True, names=False)
    if isinstance(expected.whole, Failure) and not expected.rows:
        # It is wrong whatever the row is, but on a null PostgreSQL would not notice.
        failure = next((one for one in found if isinstance(one, Failure)), found[0])
        return judged(expected.whole, failure, ordered=True, names=False)
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
