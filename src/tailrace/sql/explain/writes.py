"""EXPLAIN of INSERT, UPDATE and DELETE: which rows are found how, what is converted and checked, and what is logged."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from tailrace.model.names import topic_form, without_public
from tailrace.model.table import CHANGES_PREFIX, Table
from tailrace.model.text import counted
from tailrace.sql.analysis.errors import AnalysisError, UnsupportedError
from tailrace.sql.analysis.relations import RelationColumn
from tailrace.sql.analysis.tree import Cast, Constant, Expression, Subquery
from tailrace.sql.analysis.types import SqlType
from tailrace.sql.analysis.write_tree import AnalyzedDelete, AnalyzedInsert, AnalyzedUpdate, AnalyzedWrite, Assignment
from tailrace.sql.analysis.writes import WriteAnalyzer
from tailrace.sql.explain.nodes import PlanNode
from tailrace.sql.parameters import Parameters, in_order, is_many
from tailrace.sql.statements import Write
from tailrace.sql.tables.assignments import parameter_type
from tailrace.sql.tables.database import quoted
from tailrace.sql.tables.planned_writes import failure_at, written_columns
from tailrace.sql.tables.pushdown import PushedCondition, pushed_conditions
from tailrace.sql.tables.values import shown

_KINDS = {"insert": "Insert into table", "update": "Update of table", "delete": "Delete from table"}


class SearchPlan:
    """How SQLite finds the rows that a statement changes."""

    def __init__(self, where: Expression | None, table: Table, target: int) -> None:
        pushed, is_whole = pushed_conditions(where, table, target)
        self.count = sum(len(one.values) for one in pushed)
        tests = [one.sql for one in pushed]
        self.sql = f"SELECT * FROM {quoted(table.name)}" + (f" WHERE {' AND '.join(tests)}" if tests else "")  # noqa: S608
        is_point = {f"{quoted(name)} = ?" for name in table.primary_key} <= set(tests)
        self.node = PlanNode(
            "Read by primary key of table" if is_point else "Search of table" if tests else "Scan of table",
            table.name,
            {
                "Conditions": " AND ".join(map(_condition, pushed)) or None,
                "Filter": None if is_whole else "the other conditions, evaluated for each row" + _with_queries(where),
            },
        )


class ExplainedWrite:
    """A statement that is analyzed but not run."""

    def __init__(self, write: Write, params: Parameters, table: Table, analyzed: AnalyzedWrite | None = None) -> None:
        """`analyzed` is the form of a write that has queries."""
        self._table = table
        rows = params if is_many(params, write) or write.rows is not None else [params]
        self._runs = len(rows)
        first = rows[0] if isinstance(rows, Sequence) and len(rows) else ()
        values = in_order(write, first) if isinstance(first, Mapping | Sequence) else ()
        self.search: SearchPlan | None = None
        """How the rows that are changed are found, unless it is an INSERT."""
        if analyzed is None:
            analyzed = _analyzed(write, [parameter_type(value) for value in values], table)
        if isinstance(analyzed, AnalyzedUpdate | AnalyzedDelete) and analyzed.computed is None:
            self.search = SearchPlan(analyzed.where, table, analyzed.target)
        self._kind = _KINDS[write.kind]
        self._details = {
            **self._described(analyzed),
            "Checks": list(checks_of(table)) if write.kind != "delete" else None,
            "Change events": f"one for each row, in topic {CHANGES_PREFIX}{topic_form(table.name)}",
        }

    def node(self, children: Sequence[PlanNode]) -> PlanNode:
        """Return the step of the statement, with the steps that find its rows."""
        return PlanNode(self._kind, self._table.name, self._details, children)

    def _described(self, write: AnalyzedWrite) -> dict[str, object]:
        found: dict[str, object] = {}
        if write.computed is not None and not isinstance(write, AnalyzedInsert):
            found["Rows"] = "found by the query"
        if isinstance(write, AnalyzedInsert):
            rows = len(write.rows) * self._runs
            found["Rows"] = counted(rows, "row") + " of values" if write.query is None else "those of the query"
            found["Columns"] = list(write.columns)
            pairs = zip(write.columns, write.rows[0] if write.rows else write.casts, strict=False)
            found["Casts"] = list(_casts(pairs)) or None
            if write.conflict is not None:
                sets = [one.column for one in write.conflict.assignments]
                target = f" ({', '.join(write.conflict.columns)})" if write.conflict.columns else ""
                found["On conflict"] = f"{target} the row is updated: {', '.join(sets)}".strip() if sets else "nothing is done"
        elif isinstance(write, AnalyzedUpdate):
            found["Sets"] = [one.column for one in write.assignments]
            found["Casts"] = list(_casts(_assigned(write.assignments))) or None
        found["Returning"] = [one.name for one in write.returning] or None
        return found


def checks_of(table: Table) -> Iterator[str]:
    """Yield what every new row of a table is checked for."""
    required = [column.name for column in table.columns if not column.nullable and column.name not in table.primary_key]
    if required:
        yield f"NOT NULL ({', '.join(required)})"
    yield f"PRIMARY KEY ({', '.join(table.primary_key)})"
    for index in table.indexes:
        if index.is_unique:
            yield f"UNIQUE ({', '.join(index.columns)})"
    for check in table.checks:
        yield f"CHECK ({check.expression})"


def _analyzed(write: Write, kinds: Sequence[SqlType], table: Table) -> AnalyzedWrite:
    def columns(name: str) -> list[RelationColumn]:
        if table.name.lower() not in (name.lower(), without_public(name).lower()):
            raise UnsupportedError("the statement reads another table")
        return written_columns(table)

    try:
        return WriteAnalyzer(columns, kinds).analyze(write.tree)
    except UnsupportedError:
        raise
    except AnalysisError as error:
        raise failure_at(error, write) from None


def _assigned(assignments: Iterable[Assignment]) -> Iterator[tuple[str, Expression | None]]:
    return ((one.column, one.value) for one in assignments)


def _casts(values: Iterable[tuple[str, Expression | None]]) -> Iterator[str]:
    for column, value in values:
        if isinstance(value, Cast):
            yield f"{column} from {value.argument.type} to {value.type}"


def _condition(pushed: PushedCondition) -> str:
    first, *others = pushed.sql.split("?")
    values = [shown(value.value) if isinstance(value, Constant) else "?" for value, _ in pushed.values]
    return first + "".join(value + text for value, text in zip(values, others, strict=True))


def _with_queries(where: Expression | None) -> str:
    has_query = where is not None and any(isinstance(part, Subquery) for part in where.walk())
    return ", with subqueries" if has_query else ""
