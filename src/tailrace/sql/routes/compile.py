"""Compiles analyzed routes to Spark's SQL, as they are stored, and tells what is left to Python."""

import re
from collections.abc import Sequence
from functools import partial

from tailrace.model.errors import LimitExceededError, UnsupportedSqlError
from tailrace.model.limits import Limits
from tailrace.model.route import RouteInPython, RouteSql
from tailrace.model.source import ABSENT
from tailrace.model.table import Column, Table
from tailrace.sql.analysis.errors import UnsupportedError
from tailrace.sql.analysis.tree import ColumnReference, Expression
from tailrace.sql.analysis.types import digits_of, of_column
from tailrace.sql.grammar.expressions import index_in
from tailrace.sql.routes.check import CheckedRoute, check_supported, columns_of, conjuncts_of, located
from tailrace.sql.routes.evaluation import NEW, OLD
from tailrace.sql.spark.casts import PLAIN_SCALE
from tailrace.sql.spark.render import CompiledExpression, SparkRenderer, any_of, connected, null_if
from tailrace.sql.spark.templates import check_readable, fixed_type, has_fixed_scale, spark_identifier, spark_type

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


def compile_for_spark(checked: CheckedRoute, table: Table, limits: Limits, *, is_captured: bool = False) -> RouteSql:
    """Compile a route. The condition is never true where there is a failure. Raises `SqlError` for what can't be computed.

    What Spark's SQL can't compute is left out, and Python evaluates it: single parts of the condition, or all keys. Rows of a
    captured table may lack values that the route uses: it fails on them.
    """
    renderer = SparkRenderer(column_text, limits.route_sql_bytes)
    condition, left_out = _condition(renderer, checked)
    keys = _keys(renderer, checked)
    failed_keys = None if keys is None else any_of(key.failure for key in keys)
    if failed_keys is not None and left_out:
        # A key counts only where the whole condition is true, which Spark does not know.
        keys = failed_keys = None
    failures = [condition.failure]
    matches = condition.value
    if failed_keys is not None:
        failed_match = f"coalesce({condition.value} AND {failed_keys}, FALSE)"
        failures.append(failed_match)
        matches = null_if(failed_match, condition.value)
    absent = _absent_cells(checked) if is_captured else []
    if absent:
        lacks = f"({' OR '.join(absent)})"
        failures.append(lacks)
        matches = null_if(lacks, matches)
    failure = any_of(failures) or "FALSE"
    key = f"concat('[', {', '.join(_listed([one.value for one in keys]))}, ']')" if keys else None
    if len(matches) + len(failure) + len(key or "") > limits.route_sql_bytes:
        raise LimitExceededError(
            f"the expressions of the route compile to more SQL than route_sql_bytes allows ({limits.route_sql_bytes}); simplify"
            " them"
        )
    python = _in_python(checked, table, left_out, has_own_keys=keys is None)
    row = row_type(table, ABSENT) if is_captured else row_type(table)
    return RouteSql(row=row, condition=matches, failure=failure, key=key, python=python)


def _condition(renderer: SparkRenderer, checked: CheckedRoute) -> tuple[CompiledExpression, tuple[int, ...]]:
    """Return the condition, and the indices of the conjuncts that are left out of it."""
    if checked.where is None:
        return CompiledExpression("TRUE"), ()
    text = checked.texts[-1]
    whole = located(text, partial(_rendered, renderer, checked.where))
    if whole is not None:
        return whole, ()
    parts = [located(text, partial(_rendered, renderer, part)) for part in conjuncts_of(checked.where)]
    left_out = tuple(number for number, part in enumerate(parts) if part is None)
    known = [part for part in parts if part is not None]
    if not known:
        return CompiledExpression("TRUE"), left_out
    value = known[0].value if len(known) == 1 else connected("and", known).value
    # Where it is null, a part that is left out decides between false and failed.
    return CompiledExpression(value, f"({value} IS NULL)"), left_out


def _keys(renderer: SparkRenderer, checked: CheckedRoute) -> list[CompiledExpression] | None:
    """Return the JSON of the partition expressions, or `None` if Spark can't compute one of them."""
    texts = [located(text, partial(_key, renderer, key)) for key, text in zip(checked.keys, checked.texts, strict=False)]
    found = [key for key in texts if key is not None]
    return found if len(found) == len(texts) else None


def _rendered(renderer: SparkRenderer, node: Expression) -> CompiledExpression | None:
    """Return an expression in Spark's SQL, or `None` if Spark can't compute it."""
    try:
        return renderer.render(node)
    except UnsupportedError:
        return None


def _in_python(checked: CheckedRoute, table: Table, left_out: tuple[int, ...], *, has_own_keys: bool) -> RouteInPython | None:
    """Return the route for Python, which has to evaluate what is left out, and decides where Spark fails."""
    if checked.where is None and not checked.keys:
        return None
    try:
        check_supported(checked)
    except UnsupportedSqlError:
        if left_out or has_own_keys:
            raise
        return None
    nodes = [*checked.keys, *([checked.where] if checked.where is not None else [])]
    used = {name for node in nodes for name in columns_of(node)}
    texts = [text.text for text in checked.texts]
    return RouteInPython(
        columns={column.name: column.type for column in table.columns if column.name in used},
        where=texts.pop() if checked.where is not None else None,
        partition_by=tuple(texts),
        conjuncts=left_out,
        has_own_keys=has_own_keys,
    )


def _listed(texts: Sequence[str]) -> list[str]:
    return [part for text in texts for part in ("','", text)][1:]


def _key(renderer: SparkRenderer, node: Expression) -> CompiledExpression | None:
    """Return the JSON of a partition expression, or `None` if Spark can't compute it."""
    kind = fixed_type(node)
    if kind.name not in _KEY_TEXTS:
        raise UnsupportedError(f"can't partition by {kind}: it has no unique text form", node.location)
    found = _rendered(renderer, node)
    if not has_fixed_scale(node) or (found is None and kind.name == "numeric" and digits_of(kind) is None):
        raise UnsupportedError(
            "can't partition by numbers of several scales; cast them, as in x::numeric(12, 2)", node.location
        )
    if (kind.scale or 0) > PLAIN_SCALE:
        raise UnsupportedError(
            f"can't partition by {kind}: it has more than {PLAIN_SCALE} digits after the decimal point; cast it to fewer",
            node.location,
        )
    if found is None:
        return None
    return CompiledExpression(f"coalesce({_KEY_TEXTS[kind.name].format(found.value)}, 'null')", found.failure)


def parts_in_python(checked: CheckedRoute, sql: RouteSql) -> list[str]:
    """Return the expressions that Spark leaves to Python, as they were written."""
    if sql.python is None:
        return []
    parts = [f"PARTITION BY {text}" for text in sql.python.partition_by] if sql.python.has_own_keys else []
    written = _written_conjuncts(checked)
    return [*(written[number] for number in sql.python.conjuncts), *parts]


_LITERAL = re.compile(r"'[^']*'|\"[^\"]*\"")
_JOINT = re.compile(r"[\s(]*\bAND[\s(]*$", re.IGNORECASE)


def _written_conjuncts(checked: CheckedRoute) -> list[str]:
    """Return the texts of the conjuncts: each reaches from its first place to that of the next one."""
    conjuncts = conjuncts_of(checked.where)
    if not conjuncts:
        return []
    text = checked.texts[-1].text
    starts = [min(index_in(text, part.location) for part in one.walk() if part.location >= 0) for one in conjuncts]
    return [_balanced(_JOINT.sub("", text[start:end])) for start, end in zip(starts, [*starts[1:], len(text)], strict=True)]


def _balanced(text: str) -> str:
    """Return the text without brackets at its end that do not open in it, and with those that open before it."""
    text = text.strip()
    bare = _LITERAL.sub("", text)
    for _ in range(bare.count(")") - bare.count("(")):
        text = text[:-1].rstrip() if text.endswith(")") else f"({text}"
    return text


def column_text(column: ColumnReference) -> str:
    """Return a column of `old` or `new`, which are structs with a field for each column, or null if there is no such row."""
    name = spark_identifier(column.column)
    if column.relation in (NEW, OLD):
        return f"{'new' if column.relation == NEW else 'old'}.{name}"
    return f"CASE WHEN new IS NULL THEN old.{name} ELSE new.{name} END"


def _absent_cells(checked: CheckedRoute) -> list[str]:
    """Return conditions that are true where a row does not have a value that the route uses."""
    nodes = [*checked.keys, *([checked.where] if checked.where is not None else [])]
    parts = [part for node in nodes for part in node.walk() if isinstance(part, ColumnReference)]
    found: dict[str, None] = {}
    for part in parts:
        name = "'," + part.column.replace("\\", "\\\\").replace("'", "\\'") + ",'"
        images = {NEW: ("new",), OLD: ("old",)}.get(part.relation, ("new", "old"))
        found.update((f"coalesce(contains({image}.{spark_identifier(ABSENT)}, {name}), FALSE)", None) for image in images)
    return list(found)


def row_type(table: Table, *texts: str) -> str:
    """Return the type of a row. Columns that no route can use are read as texts, and so are those named besides."""
    fields = [f"{spark_identifier(column.name)}: {_column_type(column)}" for column in table.columns]
    fields += [f"{spark_identifier(name)}: STRING" for name in texts]
    return f"STRUCT<{', '.join(fields)}>"


def _column_type(column: Column) -> str:
    try:
        kind = of_column(column.type)
        check_readable(kind)
        return spark_type(kind)
    except UnsupportedError:
        return "STRING"
