"""Queries whose rows are inserted into a table."""

from collections.abc import Callable

from tailrace.sql.analysis.types import SqlType
from tailrace.sql.results import Result, RowSink
from tailrace.sql.select.execution import QueryExecution, ReadTable
from tailrace.sql.select.plan import QueryPlan


class FillingQuery(QueryExecution):
    """A query that returns JSON as text, which a column takes as it is."""

    def _run(
        self,
        plan: QueryPlan,
        read_table: ReadTable,
        on_start: Callable[[], None],
        out: RowSink | None,
        check: Callable[[], None] | None = None,
    ) -> Result:
        return super()._run(plan._replace(types=[_stored_as(kind) for kind in plan.types]), read_table, on_start, out, check)


def _stored_as(kind: SqlType) -> SqlType:
    if kind.is_array:
        return _stored_as(kind.element).array
    return SqlType("text") if kind.name in ("json", "jsonb") else kind
