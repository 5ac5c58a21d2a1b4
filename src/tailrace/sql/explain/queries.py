"""EXPLAIN of queries: what is read of each table and topic, and DuckDB's own plan for what it does with the rows."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime

import pyarrow as pa

from tailrace.model.errors import InvariantError
from tailrace.model.table import ColumnType
from tailrace.model.text import counted
from tailrace.sql.analysis.types import TEXT
from tailrace.sql.analysis.write_tree import AnalyzedInsert, AnalyzedWrite
from tailrace.sql.explain.nodes import ExplainedPlan, PlanNode, check_size, duckdb_nodes
from tailrace.sql.results import Result, ResultColumn, RowSink
from tailrace.sql.select.execution import QueryExecution, QueryRun, ReadTable
from tailrace.sql.select.plan import PlannedScan, QueryPlan
from tailrace.sql.select.sources import ScanBounds, ValueRange
from tailrace.sql.select.tables import ChangedRowsRelation, RowReader, TableRelation
from tailrace.sql.select.topics import TopicRelation
from tailrace.sql.select.worker_protocol import Relation
from tailrace.sql.select.workers import WorkerProcess
from tailrace.sql.select.write_queries import WriteExecution, planned_query
from tailrace.sql.tables.assignments import parameter_type
from tailrace.sql.tables.values import StoredValue, shown

_SHOWN_PARTITIONS = 16
_COLUMNS = tuple(ResultColumn(name, ColumnType("text")) for name in ("explain_key", "explain_value"))
"""What DuckDB returns for an EXPLAIN."""


class MeasuredRun(QueryRun):
    """Runs queries in a way that tells what each step of them reads. Their rows are discarded."""

    is_measured = False
    """Whether queries are run."""
    _scans: "Sequence[tuple[PlannedScan, _MeasuredRelation]]" = ()

    def _explained(
        self, plan: QueryPlan, read_table: ReadTable, on_start: Callable[[], None], check: Callable[[], None] | None = None
    ) -> PlanNode:
        """Return how a query runs; if it is to be measured, run it."""
        options = "ANALYZE, FORMAT JSON" if self.is_measured else "FORMAT JSON"
        text = f"EXPLAIN ({options}) {plan.text}"
        started = time.perf_counter()
        result = self._on_worker(
            plan,
            read_table,
            on_start,
            lambda worker, relations: worker.run(text, relations, _COLUMNS, (TEXT, TEXT), None, self._keep, check),
        )
        took = (time.perf_counter() - started) * 1000
        duckdb = [node for row in result.rows for node in duckdb_nodes(str(row[1]))]
        node = PlanNode(
            "Query by DuckDB",
            None,
            {"Output": [f"{name} {kind}" for name, kind in zip(plan.names, plan.types, strict=True)]},
            [*(self._scan_node(scan, relation) for scan, relation in self._scans), *duckdb],
            rows=duckdb[0].rows if duckdb and self.is_measured else None,
            milliseconds=took if self.is_measured else None,
        )
        return check_size(node)

    def _relations(self, plan: QueryPlan, read_table: ReadTable, worker: WorkerProcess) -> dict[str, Relation]:
        found = super()._relations(plan, read_table, worker)
        self._scans = [(scan, _MeasuredRelation(found[scan.name])) for scan in plan.scans]
        return {scan.name: relation for scan, relation in self._scans}

    def _scan_node(self, scan: PlannedScan, measured: "_MeasuredRelation") -> PlanNode:
        relation = measured.relation
        name = scan.relation.name
        if isinstance(relation, TableRelation):
            node = PlanNode("Scan of table", name, _table_details(relation))
        elif isinstance(relation, ChangedRowsRelation):
            changed = counted(relation.changed_keys, "row")
            details = {"Columns": list(scan.columns), "Changed since": f"{changed}, read from SQLite by key"}
            node = PlanNode("Scan of the columnar copy of table", name, details)
        elif isinstance(relation, TopicRelation):
            kind = "Scan of topic" if scan.changes_of is None else "Scan of the changes of table"
            node = PlanNode(kind, name, {"Columns": list(scan.columns), **_topic_details(relation)})
        elif scan.relation.kind == "system":
            node = PlanNode("Read of system table", name, {"Columns": list(scan.columns)})
        else:
            node = PlanNode("Scan of", name, {"Columns": list(scan.columns)})
        if not self.is_measured:
            return node
        return node._replace(
            rows=measured.rows,
            milliseconds=measured.seconds * 1000,
            loops=measured.loops if measured.loops != 1 else None,
        )


class ExplainedQuery(MeasuredRun, QueryExecution):
    """A query that is planned, and run if it is to be measured."""

    _plan: ExplainedPlan | None = None

    def run(self, on_start: Callable[[], None], out: RowSink | None = None) -> Result:
        self._started = time.perf_counter()
        return super().run(on_start, out)

    def _most_rows(self) -> int | None:
        return None

    def _run(
        self,
        plan: QueryPlan,
        read_table: ReadTable,
        on_start: Callable[[], None],
        out: RowSink | None,
        check: Callable[[], None] | None = None,
    ) -> Result:
        planned = time.perf_counter()
        node = self._explained(plan, read_table, on_start, check)
        took = (time.perf_counter() - planned) * 1000
        self._plan = ExplainedPlan(node, (planned - self._started) * 1000, took if self.is_measured else None)
        return Result()

    def plan(self) -> ExplainedPlan:
        """Return the plan, after `run`."""
        if self._plan is None:
            raise InvariantError("the query was not explained yet")
        return self._plan


class ExplainedWriteQueries(MeasuredRun, WriteExecution):
    """The queries of a write, which are planned but not run."""

    _found_plan: "tuple[AnalyzedWrite, Sequence[PlanNode]] | None" = None

    def run(self, on_start: Callable[[], None], out: RowSink | None = None) -> Result:
        planner = self._new_planner(self._values)
        write = planner.analyze_write(list(map(parameter_type, self._values)))
        queries = [write.query if isinstance(write, AnalyzedInsert) else None, write.computed]
        plans = [planned_query(planner, query) for query in queries if query is not None]
        with self._tables(plans) as read_table:
            self._found_plan = write, [self._explained(plan, read_table, on_start) for plan in plans]
        return Result()

    def explained(self) -> "tuple[AnalyzedWrite, Sequence[PlanNode]]":
        """Return the write in its analyzed form and the plans of its queries, after `run`."""
        if self._found_plan is None:
            raise InvariantError("the write was not explained yet")
        return self._found_plan


class _MeasuredRelation:
    """A relation that counts its rows and the time that reading them takes."""

    def __init__(self, relation: Relation) -> None:
        self.relation = relation
        self.schema: pa.Schema = relation.schema
        self.copy = getattr(relation, "copy", None)
        """The columnar copy that the worker reads beside the rows of this relation."""
        self.rows = 0
        self.seconds = 0.0
        self.loops = 0

    def batches(self) -> Iterator[pa.RecordBatch]:
        self.loops += 1
        source = self.relation.batches()
        while True:
            started = time.perf_counter()
            batch = next(source, None)
            self.seconds += time.perf_counter() - started
            if batch is None:
                return
            self.rows += batch.num_rows
            yield batch


def _table_details(relation: TableRelation) -> Mapping[str, object]:
    columns = [name for name in relation.schema.names if relation.reads_columns]
    return {
        "Columns": columns or "none, the rows are counted",
        "Conditions": conditions_of(relation.sql, relation.values),
        "SQLite": sqlite_plan(relation.reader, relation.sql, relation.values),
    }


def sqlite_plan(reader: RowReader, sql: str, values: Sequence[StoredValue]) -> str:
    """Return how SQLite reads rows, in its own words."""
    return sqlite_steps([row for part in reader.read(f"EXPLAIN QUERY PLAN {sql}", values) for row in part])


def sqlite_steps(rows: Sequence[Sequence[StoredValue]]) -> str:
    """Return the steps of SQLite's EXPLAIN QUERY PLAN."""
    return "; ".join(str(row[3]) for row in rows)


def conditions_of(sql: str, values: Sequence[StoredValue]) -> str | None:
    """Return the conditions of a statement of SQLite with their values, or `None` if it has none."""
    _, _, where = sql.partition(" WHERE ")
    first, *others = where.split("?")
    pairs = zip([shown(value) for value in values] + ["?"] * len(others), others, strict=False)
    return (first + "".join(value + text for value, text in pairs)) or None


def _topic_details(relation: TopicRelation) -> Mapping[str, object]:
    found = relation.ranges()
    listed = [
        f"{number}: " + (", ".join(f"{start} to {end - 1}" for start, end in ranges if start < end) or "nothing")
        for number, ranges in found[:_SHOWN_PARTITIONS]
    ]
    if len(found) > len(listed):
        listed.append(f"{counted(len(found) - len(listed), 'partition')} more")
    return {
        "Bounds": _bounds(relation.bounds) or "none, all records are read",
        "Partitions": f"{len(found)} of {relation.partition_count}",
        "Offsets": listed or "nothing",
        "Records": sum(max(0, end - start) for _, ranges in found for start, end in ranges),
    }


def _bounds(bounds: ScanBounds) -> list[str]:
    found = []
    if bounds.partitions is not None:
        found.append(f"partition in ({', '.join(map(str, sorted(bounds.partitions)))})")
    found += _range("offset", bounds.offsets, str)
    found += _range("cursor", bounds.cursors, str)
    found += _range("timestamp", bounds.timestamps, _time)
    return found


def _range(name: str, span: ValueRange, show: Callable[[int], str]) -> list[str]:
    low = [] if span.low is None else [f"{name} >= {show(span.low)}"]
    return low if span.high is None else [*low, f"{name} <= {show(span.high)}"]


def _time(milliseconds: int) -> str:
    try:
        return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(sep=" ", timespec="milliseconds")
    except (OverflowError, ValueError, OSError):
        return f"{milliseconds} ms"
