"""Compiles analyzed routes to Spark's SQL, as they are stored."""

from collections.abc import Sequence
from functools import partial

from tailrace.model.errors import LimitExceededError
from tailrace.model.limits import Limits
from tailrace.model.route import RouteSql
from tailrace.model.table import Column, Table
from tailrace.sql.analysis.errors import UnsupportedError
from tailrace.sql.analysis.tree import ColumnReference, Expression
from tailrace.sql.analysis.types import of_column
from tailrace.sql.routes.check import NEW, OLD, CheckedRoute, located
from tailrace.sql.spark.casts import PLAIN_SCALE
from tailrace.sql.spark.render import CompiledExpression, SparkRenderer, any_of, null_if
from tailrace.sql.spark.templates import fixed_type, has_fixed_scale, spark_identifier, spark_type

_QUOTED = "concat('\"', CAST({0} AS STRING), '\"')"
_KEY_TEXTS = {
    "bool": "CAST({0} AS STRING)",
    "int2": "CAST({0} AS STRING)",
    "int4": "CAST({0} AS STRING)",
    "int8": "CAST({0} AS STRING)",
    "date": _QUOTED,
    "numeric": _QUOTED,
    "timestamp": "concat('\"', date_format({0}, 'yyyy-MM-dd\\'T\\'HH:mm:ss.SSSSSS\\'Z\\''), '\"')",
    "timestamptz": "concat('\"', date_format({0}, 'yyyy-MM-dd\\'T\\'HH:mm:ss.SSSSSS\\'Z\\''), '\"')",
    "text": "substring(to_json(array({0})), 2, length(to_json(array({0}))) - 2)",
    "varchar": "substring(to_json(array({0})), 2, length(to_json(array({0}))) - 2)",
    "uuid": "concat('\"', {0}, '\"')",
}
"""The JSON of values that can be partitioned by."""


def compile_for_spark(checked: CheckedRoute, table: Table, limits: Limits) -> RouteSql:
    """Compile a route. The condition is never true where there is a failure. Raises `SqlError` for what Spark can't compute."""
    renderer = SparkRenderer(column_text, limits.route_sql_bytes)
    keys = [located(text, partial(_key, renderer, key)) for key, text in zip(checked.keys, checked.texts, strict=False)]
    condition = CompiledExpression("TRUE")
    if checked.where is not None:
        condition = located(checked.texts[-1], partial(renderer.render, checked.where))
    failed_keys = any_of(key.failure for key in keys)
    failures = [condition.failure]
    matches = condition.value
    if failed_keys is not None:
        failed_match = f"coalesce({condition.value} AND {failed_keys}, FALSE)"
        failures.append(failed_match)
        matches = null_if(failed_match, condition.value)
    failure = any_of(failures) or "FALSE"
    key = f"concat('[', {', '.join(_listed([one.value for one in keys]))}, ']')" if keys else None
    if len(matches) + len(failure) + len(key or "") > limits.route_sql_bytes:
        raise LimitExceededError(
            f"the expressions of the route compile to more SQL than route_sql_bytes allows ({limits.route_sql_bytes}); simplify"
            " them"
        )
    return RouteSql(row=row_type(table), condition=matches, failure=failure, key=key)


def _listed(texts: Sequence[str]) -> list[str]:
    return [part for text in texts for part in ("','", text)][1:]


def _key(renderer: SparkRenderer, node: Expression) -> CompiledExpression:
    """Return the JSON of a partition expression."""
    kind = fixed_type(node)
    if kind.name not in _KEY_TEXTS:
        raise UnsupportedError(f"can't partition by {kind}: it has no unique text form", node.location)
    if not has_fixed_scale(node):
        raise UnsupportedError(
            "can't partition by numbers of several scales; cast them, as in x::numeric(12, 2)", node.location
        )
    if (kind.scale or 0) > PLAIN_SCALE:
        raise UnsupportedError(
            f"can't partition by {kind}: it has more than {PLAIN_SCALE} digits after the decimal point; cast it to fewer",
            node.location,
        )
    found = renderer.render(node)
    return CompiledExpression(f"coalesce({_KEY_TEXTS[kind.name].format(found.value)}, 'null')", found.failure)


def column_text(column: ColumnReference) -> str:
    """Return a column of `old` or `new`, which are structs with a field for each column, or null if there is no such row."""
    name = spark_identifier(column.column)
    if column.relation in (NEW, OLD):
        return f"{'new' if column.relation == NEW else 'old'}.{name}"
    return f"CASE WHEN new IS NULL THEN old.{name} ELSE new.{name} END"


def row_type(table: Table) -> str:
    """Return the type of a row. Columns that no route can use are read as texts."""
    return f"STRUCT<{', '.join(f'{spark_identifier(column.name)}: {_column_type(column)}' for column in table.columns)}>"


def _column_type(column: Column) -> str:
    try:
        return spark_type(of_column(column.type))
    except UnsupportedError:
        return "STRING"
