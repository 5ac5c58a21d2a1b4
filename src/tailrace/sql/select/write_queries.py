"""The queries of INSERT, UPDATE and DELETE: over the rows that their transaction sees, or before it.

A write that reads only tables runs its queries in the writer's thread, within its transaction. An INSERT that reads topics,
`system.*` or nothing runs them before, in a thread of the queries, and then inserts their rows in one transaction.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from tailrace.broker.reading.answers import ReadAnswer
from tailrace.model.errors import TableAlteredError, UnsupportedSqlError, invariant
from tailrace.model.table import Table
from tailrace.sql.analysis.tree import AnalyzedQuery, NamedRelation, parts_of
from tailrace.sql.analysis.write_tree import AnalyzedInsert, AnalyzedWrite
from tailrace.sql.results import Result, RowSink
from tailrace.sql.select.execution import LookedUp, QueryRun, QuerySources, ReadTable, read_stored
from tailrace.sql.select.plan import FoundRelation, QueryPlan, QueryPlanner
from tailrace.sql.select.workers import read_source_rows
from tailrace.sql.statements import Write
from tailrace.sql.tables.assignments import parameter_type, parameter_value
from tailrace.sql.tables.jobs import RowSource
from tailrace.sql.tables.planned_writes import written_columns


class _RowsBefore(NamedTuple):
    """An INSERT whose queries have run before its transaction, with their rows by their roles."""

    write: AnalyzedInsert
    rows: dict[str, list[tuple[Any, ...]]]


class WriteExecution(QueryRun):
    """Runs the queries of one write."""

    def __init__(
        self, write: Write, values: Sequence[object], looked_up: LookedUp, sources: QuerySources, answer: ReadAnswer
    ) -> None:
        super().__init__(looked_up, sources, answer)
        self._write = write
        self._values = values
        self._names = looked_up.names
        self._refused = looked_up.refused
        self._kinds = {relation.kind for relation in looked_up.found.values()} - {"view"}
        if looked_up.reads_changes:
            self._kinds.add("topic")
        target = sources.find_table(write.target)
        self._found: dict[str, FoundRelation] = dict(looked_up.found)
        if target is not None and target.table is not None:
            self._found[write.target] = target._replace(columns=written_columns(target.table))
        self._planner: QueryPlanner | None = None
        self._before: _RowsBefore | None = None

    @property
    def reads_tables(self) -> bool:
        """Whether tables are read, and nothing else."""
        return self._kinds == {"table"}

    def check_in_transaction(self) -> None:
        """Raise if something is read that a transaction can't see."""
        if not self._kinds <= {"table"}:
            raise UnsupportedSqlError(
                "UPDATE, DELETE and transactions can only read tables; query topics outside of the statement",
                self._write.line,
                self._write.column,
            )

    def run(self, on_start: Callable[[], None], out: RowSink | None = None) -> Result:
        """Run the queries of an INSERT before its transaction, in the calling thread, and keep their rows."""
        planner = self._new_planner(self._values)
        write = planner.analyze_write(list(map(parameter_type, self._values)))
        if not isinstance(write, AnalyzedInsert):
            raise UnsupportedSqlError("only INSERT can read something else than tables", self._write.line, self._write.column)
        queries = {"query": write.query, "computed": write.computed}
        plans = {role: planned_query(planner, query) for role, query in queries.items() if query is not None}
        with self._tables(list(plans.values())) as read_table:
            rows = {role: self._rows(plan, read_table, on_start) for role, plan in plans.items()}
        self._before = _RowsBefore(write, rows)
        return Result()

    def analyze(self, parameters: Sequence[object], find: Callable[[str], Table | None]) -> AnalyzedWrite:
        """Return the statement with these parameters. Raises if a table is not the one that was found before."""
        for relation in self._found.values():
            if relation.table is not None and find(relation.name) != relation.table:
                raise TableAlteredError.of(relation.name)
        if self._before is not None:
            return self._before.write
        self._planner = self._new_planner(parameters)
        return self._planner.analyze_write(list(map(parameter_type, parameters)))

    def read(self, query: AnalyzedQuery, role: str, rows: RowSource) -> list[tuple[Any, ...]]:
        """Return the rows of a query over the tables as the transaction sees them. Runs in the writer's thread."""
        if self._before is not None:
            return self._before.rows[role]
        invariant(self._planner is not None, "a write is analyzed before its queries run")
        plan = planned_query(self._planner, query)  # type: ignore[arg-type]
        return self._rows(plan, partial(read_stored, rows), lambda: None, rows.check)

    def _new_planner(self, values: Sequence[object]) -> QueryPlanner:
        given = list(map(parameter_value, values))
        return QueryPlanner(self._write, given, self._found, self._names, self._sources.now(), self._limits, self._refused)

    def _rows(
        self,
        plan: QueryPlan,
        read_table: ReadTable,
        on_start: Callable[[], None],
        check: Callable[[], None] | None = None,
    ) -> list[tuple[Any, ...]]:
        most = self._limits.frame_bytes
        return self._on_worker(
            plan,
            read_table,
            on_start,
            lambda worker, relations: read_source_rows(plan.types, worker.batches(plan.text, relations, check), most),
        )


def planned_query(planner: QueryPlanner, query: AnalyzedQuery) -> QueryPlan:
    """Return the plan of a query of a write."""
    relations = [one for one in parts_of(query) if isinstance(one, NamedRelation)]
    with planner.failures():
        return planner.plan_query(query, relations, None)
