"""EXPLAIN of queries that need no worker process: a SELECT by primary key, and one of a few rows of one table."""

import time
from collections.abc import Awaitable, Callable, Sequence

from tailrace.model.table import Table
from tailrace.sql.explain.nodes import ExplainedPlan, PlanNode
from tailrace.sql.results import Result
from tailrace.sql.select.fast_point_select import BoundPointSelect
from tailrace.sql.select.fast_row_select import RowSelect
from tailrace.sql.tables.readers import StoredRows
from tailrace.sql.tables.values import StoredValue, shown

ReadStoredRows = Callable[[str, Sequence[StoredValue], Table], Awaitable[StoredRows]]


async def explained_point(point: BoundPointSelect, read: ReadStoredRows, *, analyze: bool) -> ExplainedPlan:
    """Return the plan of a SELECT by key; with `analyze` run it, and measure that."""
    started = time.perf_counter()
    steps = await read(f"EXPLAIN QUERY PLAN {point.sql}", point.values, point.table)
    conditions = [f"{name} = {shown(value)}" for name, value in zip(point.keys, point.values, strict=True)]
    node = PlanNode(
        "Read by primary key of table",
        point.table.name,
        {
            "Columns": [column.name for column in point.columns],
            "Conditions": " AND ".join(conditions),
            "SQLite": "; ".join(str(row[3]) for row in steps),
        },
    )
    planned = time.perf_counter()
    if not analyze:
        return ExplainedPlan(node, (planned - started) * 1000)
    rows = await read(point.sql, point.values, point.table)
    took = (time.perf_counter() - planned) * 1000
    return ExplainedPlan(node._replace(rows=len(rows), milliseconds=took), (planned - started) * 1000, took)


async def explained_rows(plan: RowSelect, read: ReadStoredRows, result: Result | None, seconds: float) -> ExplainedPlan:
    """Return the plan of a SELECT of a few rows. `result` is that of a run, which took so long, if it was run."""
    started = time.perf_counter()
    steps = await read(f"EXPLAIN QUERY PLAN {plan.sql}", [None] * plan.bound_values, plan.table)
    _, _, conditions = plan.sql.partition(" WHERE ")
    node = PlanNode(
        "Scan of table",
        plan.table.name,
        {
            "Computed": "in the server, as long as there are few rows",
            "Conditions": conditions or None,
            "Filter": "the other conditions, evaluated for each row" if plan.has_filter else None,
            "SQLite": "; ".join(str(row[3]) for row in steps),
        },
    )
    planning = (time.perf_counter() - started) * 1000
    if result is None:
        return ExplainedPlan(node, planning)
    return ExplainedPlan(node._replace(rows=len(result.rows), milliseconds=seconds * 1000), planning, seconds * 1000)
