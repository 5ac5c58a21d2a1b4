"""Plans as trees of steps, and the two forms in which EXPLAIN shows them: text like PostgreSQL's, and JSON.

There are no estimates of costs and rows in them, because nothing in Tailrace decides by such estimates.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from tailrace.model.table import ColumnType
from tailrace.sql.results import Result, ResultColumn

_MAX_NODES = 5_000


class PlanNode(NamedTuple):
    """One step of a plan, with the steps whose rows it uses."""

    kind: str
    """What is done: `Scan of table`."""
    relation: str | None = None
    """What it is done with."""
    details: Mapping[str, object] = {}
    """Texts, numbers and lists of texts by their names. Those that are `None` are left out."""
    children: "Sequence[PlanNode]" = ()
    rows: int | None = None
    """How many rows it returned or wrote, if it was run."""
    milliseconds: float | None = None
    """How long it took, if it was run."""
    loops: int | None = None
    """How often it was run, if that was more than once."""


class ExplainedPlan(NamedTuple):
    plan: PlanNode
    planning_ms: float
    execution_ms: float | None = None
    """How long the statement took, if it was run. Both times are shown only then, as in PostgreSQL."""


def text_result(explained: ExplainedPlan, *, timing: bool) -> Result:
    """Return the plan as lines of text."""
    lines = list(_lines(explained.plan, "", timing=timing))
    if explained.execution_ms is not None:
        lines.append(f"Planning Time: {explained.planning_ms:.3f} ms")
        lines.append(f"Execution Time: {explained.execution_ms:.3f} ms")
    return Result([_column("text")], [(line,) for line in lines], "EXPLAIN")


def json_result(explained: ExplainedPlan, *, timing: bool) -> Result:
    """Return the plan as one JSON document."""
    document: dict[str, Any] = {"Plan": _object(explained.plan, timing=timing)}
    if explained.execution_ms is not None:
        document["Planning Time"] = round(explained.planning_ms, 3)
        document["Execution Time"] = round(explained.execution_ms, 3)
    return Result([_column("json")], [([document],)], "EXPLAIN")


def check_size(plan: PlanNode) -> PlanNode:
    """Return the plan, or a shorter one that says so if it has very many steps."""
    waiting, count = [plan], 0
    while waiting:
        count += 1
        waiting.extend(waiting.pop().children)
    if count <= _MAX_NODES:
        return plan
    return plan._replace(children=(), details={**plan.details, "Steps left out": count - 1})


def _column(kind: Any) -> ResultColumn:
    return ResultColumn("QUERY PLAN", ColumnType(kind))


def _lines(node: PlanNode, indent: str, *, timing: bool) -> Iterator[str]:
    name = node.kind if node.relation is None else f"{node.kind} {node.relation}"
    yield f"{indent}{name}{_measured(node, timing=timing)}"
    within = " " * len(indent.replace("->", "  ")) + "  "
    for label, value in node.details.items():
        if value is None:
            continue
        if isinstance(value, list | tuple):
            value = ", ".join(map(str, value))
        first, *more = str(value).splitlines() or [""]
        yield f"{within}{label}: {first}"
        yield from (f"{within}  {line}" for line in more)
    for child in node.children:
        yield from _lines(child, f"{within}->  ", timing=timing)


def _measured(node: PlanNode, *, timing: bool) -> str:
    parts = []
    if node.milliseconds is not None and timing:
        parts.append(f"time={node.milliseconds:.3f} ms")
    if node.rows is not None:
        parts.append(f"rows={node.rows}")
    if node.loops is not None:
        parts.append(f"loops={node.loops}")
    return f"  (actual {' '.join(parts)})" if parts else ""


def _object(node: PlanNode, *, timing: bool) -> dict[str, Any]:
    found: dict[str, Any] = {"Node Type": node.kind}
    if node.relation is not None:
        found["Relation Name"] = node.relation
    found.update((label, value) for label, value in node.details.items() if value is not None)
    if node.rows is not None:
        found["Actual Rows"] = node.rows
    if node.milliseconds is not None and timing:
        found["Actual Total Time"] = round(node.milliseconds, 3)
    if node.loops is not None:
        found["Actual Loops"] = node.loops
    if node.children:
        found["Plans"] = [_object(child, timing=timing) for child in node.children]
    return found


def duckdb_nodes(text: str) -> list[PlanNode]:
    """Return DuckDB's plan, which it writes as JSON."""
    read = msgspec.json.decode(text)
    if isinstance(read, dict):
        read = read.get("operator") or read.get("children") or ()
    return [node for one in read for node in _duckdb_node(one)]


_WRAPPERS = ("RESULT_COLLECTOR", "EXPLAIN_ANALYZE", "QUERY_ROOT")
_ESTIMATES = ("Estimated Cardinality", "Function")


def _duckdb_node(read: Mapping[str, Any]) -> list[PlanNode]:
    name = str(read.get("type") or read.get("name") or read.get("operator_type") or "?").strip()
    children = [node for one in read.get("children") or () for node in _duckdb_node(one)]
    if name in _WRAPPERS:
        return children
    details = {key: value for key, value in (read.get("extra_info") or {}).items() if key not in _ESTIMATES and value != ""}
    seconds = read.get("timing")
    return [
        PlanNode(
            name.replace("PYTHON_ARROW_SCAN", "TABLE_SCAN"),
            None,
            details,
            children,
            rows=read.get("intermediate_rows"),
            milliseconds=None if seconds is None else seconds * 1000,
        )
    ]
