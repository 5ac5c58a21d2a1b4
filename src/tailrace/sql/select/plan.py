"""Plans queries: analyzes them as PostgreSQL does, writes them for DuckDB, and says what they read.

The names in a query are looked up on the event loop (`names_in`); the rest needs no state of the server and runs in the thread
of the query.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from typing import Any, Literal, NamedTuple, TypeVar

import pyarrow as pa

from tailrace.model.errors import LimitExceededError, SqlError, TailraceError, UnknownTableError, UnsupportedSqlError
from tailrace.model.limits import Limits
from tailrace.model.names import without_public
from tailrace.model.suggestions import did_you_mean
from tailrace.model.table import Table
from tailrace.sql.analysis.declared_types import declared_types
from tailrace.sql.analysis.errors import UNDEFINED_TABLE, AnalysisError, UnsupportedError
from tailrace.sql.analysis.queries import QueryAnalyzer
from tailrace.sql.analysis.relations import KeyedRelation, RelationColumn, ViewQuery
from tailrace.sql.analysis.tree import AnalyzedQuery, Constant, Expression, NamedRelation, Parameter
from tailrace.sql.analysis.types import (
    BOOL,
    BYTEA,
    FLOAT8,
    INT4,
    INT8,
    JSONB,
    TEXT,
    TIMESTAMPTZ,
    SqlType,
    of_column,
)
from tailrace.sql.analysis.unique_keys import unique_columns
from tailrace.sql.analysis.write_tree import AnalyzedWrite
from tailrace.sql.analysis.writes import WriteAnalyzer
from tailrace.sql.duckdb.render import DuckDbRenderer, RecordFieldColumns
from tailrace.sql.privileges import refusal
from tailrace.sql.select.changes import META_COLUMNS, TOPIC_COLUMNS_READ, changes_sql
from tailrace.sql.select.json_fields import DOUBTFUL, VALUE, RecordUse, record_uses
from tailrace.sql.select.parameter_types import as_parameter, parameter_type
from tailrace.sql.select.sources import (
    CHANGE_SCAN_COLUMNS,
    SCAN_COLUMNS,
    BoundValues,
    ColumnCondition,
    ScanCondition,
    UnknownValueError,
    is_constant,
    scan_conditions,
    uses_of,
    value_of,
)
from tailrace.sql.select.system import NAMESPACE, SYSTEM_TABLES
from tailrace.sql.statements import PostgresStatement

T = TypeVar("T")
CHANGES_FUNCTION = "table_changes"
_ARROW_TYPES: dict[pa.DataType, SqlType] = {
    pa.bool_(): BOOL,
    pa.int16(): SqlType("int2"),
    pa.int32(): INT4,
    pa.int64(): INT8,
    pa.float64(): FLOAT8,
    pa.string(): TEXT,
    pa.binary(): BYTEA,
    pa.timestamp("us"): TIMESTAMPTZ,
    pa.json_(): JSONB,
    pa.list_(pa.string()): TEXT.array,
}

_TOPIC_KEYS = (("cursor",), ("partition", "offset"))
"""The columns of a topic that are different in every record."""

RelationKind = Literal["topic", "system", "table", "view"]


class FoundRelation(NamedTuple):
    """What a name in FROM refers to."""

    kind: RelationKind
    name: str
    columns: Sequence[RelationColumn]
    table: Table | None = None
    view: "FoundView | None" = None


class FoundView(NamedTuple):
    """A view, and what the names in its query refer to."""

    tree: Mapping[str, Any]
    sources: Mapping[str, tuple[str, Sequence[str] | None]]
    """By the names in the query, the names under which the sources are found now, and the columns that the view sees of them;
    `None` for all."""
    changes: frozenset[str] = frozenset()
    """Those of the names now that are tables whose changes it reads."""


class PlannedScan(NamedTuple):
    """A relation that a query reads, with what it needs of it."""

    name: str
    """What DuckDB calls it."""
    relation: FoundRelation
    changes_of: Table | None
    """The table whose change topic is read."""
    columns: Sequence[str]
    conditions: Sequence[ScanCondition]
    """Conditions that become bounds of a topic."""
    where: Sequence[tuple[ColumnCondition, Sequence[object]]]
    """Conditions on the columns of a table, with the values of their constants."""
    fields: RecordUse | None = None
    """Fields of JSON in the values of a topic, which are read as columns."""


class QueryPlan(NamedTuple):
    text: str
    """The query in DuckDB's SQL."""
    names: Sequence[str]
    types: Sequence[SqlType]
    scans: Sequence[PlannedScan]
    bounds: Sequence[BoundValues]
    """The values of the conditions of each scan."""


class QueryOutline(NamedTuple):
    """What is known of a query before it is run."""

    names: Sequence[str]
    types: Sequence[SqlType]
    declared_types: Sequence[SqlType]
    """The types as PostgreSQL declares them, with fewer digits."""
    used: Mapping[str, set[str]]
    """The columns that it uses of each table and topic that it names."""
    views: set[str]
    """The views that it names."""
    key: Sequence[int] | None
    """The places of columns that together are different in every row, if that is known."""


class RefusedNames(NamedTuple):
    """Names in a statement whose relations its principal may not read, or not know of if there are none."""

    principal: str = ""
    names: frozenset[str] = frozenset()


NOTHING_REFUSED = RefusedNames()


class _Changes(NamedTuple):
    table: Table
    given: str
    """What the query calls the table."""
    low: Expression | None
    high: Expression | None


class QueryPlanner:
    """Plans one query with its parameters. `found` has what its names refer to, as far as the principal may read it."""

    def __init__(
        self,
        statement: PostgresStatement,
        parameters: Sequence[object],
        found: Mapping[str, FoundRelation],
        known_names: Sequence[str],
        now: datetime,
        limits: Limits,
        refused: RefusedNames = NOTHING_REFUSED,
    ) -> None:
        self._statement = statement
        self._refused = refused
        self._found = found
        self._known_names = known_names
        self._now = now
        self._max_views = limits.view_uses
        self._changes: dict[str, _Changes] = {}
        _check_size(parameters, limits)
        self._types = [parameter_type(value) for value in parameters]
        self._parameters = [as_parameter(value, kind) for value, kind in zip(parameters, self._types, strict=True)]

    def plan(self, most_rows: int | None) -> QueryPlan:
        """Return the plan. A limit of rows is added to the query if it has none that is lower."""
        return self._analyzed(lambda analyzer, query: self.plan_query(query, analyzer.relations, most_rows))

    def outline(self) -> "QueryOutline":
        """Return the columns of the query, and what it reads."""
        return self._analyzed(self._outline)

    def _analyzed(self, use: Callable[[QueryAnalyzer, AnalyzedQuery], T]) -> T:
        analyzer = QueryAnalyzer(self._columns_of, self._types, self._function, self._max_views)
        with self.failures():
            return use(analyzer, analyzer.analyze(self._statement.tree))

    def analyze_write(self, parameter_types: Sequence[SqlType]) -> AnalyzedWrite:
        """Return the analyzed form of a write, whose target is found too."""
        analyzer = WriteAnalyzer(self._columns_of, parameter_types, self._function, self._max_views)
        with self.failures():
            return analyzer.analyze(self._statement.tree)

    @contextmanager
    def failures(self) -> Iterator[None]:
        """Raise errors of the analysis as those that the client gets."""
        try:
            yield
        except AnalysisError as error:
            raise self._error(error) from error
        except RecursionError as error:
            place = self._statement.line, self._statement.column
            raise SqlError("the query is nested too deeply; split it into smaller ones", *place, sqlstate="54001") from error

    def _outline(self, analyzer: QueryAnalyzer, query: AnalyzedQuery) -> "QueryOutline":
        uses = uses_of(query, analyzer.relations)
        used: dict[str, set[str]] = {}
        for relation in analyzer.relations:
            if not relation.is_in_view:
                changes = self._changes.get(relation.name)
                name = relation.name if changes is None else changes.given
                columns = uses[relation.number].columns
                used.setdefault(name, set()).update(columns)
        key = unique_columns(query, self._keys_of)
        return QueryOutline(query.names, query.types, declared_types(query), used, set(analyzer.views), key)

    def _keys_of(self, relation: NamedRelation) -> Sequence[Sequence[str]]:
        found = self._found.get(relation.name)
        if found is None or relation.name in self._changes:
            return ()
        if found.table is not None:
            return (found.table.primary_key,)
        return _TOPIC_KEYS if found.kind == "topic" else ()

    def plan_query(self, query: AnalyzedQuery, relations: Sequence[NamedRelation], most_rows: int | None) -> QueryPlan:
        """Return the plan of an analyzed query, which reads these relations."""
        uses = uses_of(query, relations)
        topics = [one.number for one in relations if self._is_topic(one)]
        fields = record_uses(query, topics)
        renderer = DuckDbRenderer(self._parameters, self._now)
        scans = []
        sources = {}
        for relation in relations:
            columns, conditions = uses[relation.number]
            changes = self._changes.get(relation.name)
            if changes is None:
                scans.append(self._scan(relation, columns, conditions)._replace(fields=fields.get(relation.number)))
                continue
            scan = self._changes_scan(relation, changes, conditions)
            scans.append(scan)
            cursors = [None if one is None else renderer.expression(one) for one in (changes.low, changes.high)]
            sources[relation.number] = f"({changes_sql(changes.table, scan.name, sorted(columns), *cursors)})"
        columns_of = {
            number: RecordFieldColumns(VALUE, use.columns, use.integer_columns, DOUBTFUL) for number, use in fields.items()
        }
        rendering = DuckDbRenderer(self._parameters, self._now, sources, columns_of)
        text = _limited(query, rendering, most_rows, self._parameters)
        bounds = [BoundValues(scan.conditions, self._parameters, renderer) for scan in scans]
        return QueryPlan(text, query.names, query.types, scans, bounds)

    def _is_topic(self, relation: NamedRelation) -> bool:
        return relation.name not in self._changes and self._relation(relation.name).kind == "topic"

    def _scan(self, relation: NamedRelation, used: set[str], conditions: Sequence[ColumnCondition]) -> PlannedScan:
        found = self._relation(relation.name)
        columns = [column.name for column in found.columns if column.name in used]
        name = f"scan_{relation.number}"
        if found.kind == "topic":
            bounds = scan_conditions(conditions, SCAN_COLUMNS)
            # A column that is known without decoding the records.
            return PlannedScan(name, found, None, columns or ["partition"], bounds, ())
        if found.kind == "table":
            return PlannedScan(name, found, None, columns, (), list(self._known_conditions(conditions)))
        return PlannedScan(name, found, None, columns, (), ())

    def _known_conditions(self, conditions: Sequence[ColumnCondition]) -> Iterator[tuple[ColumnCondition, Sequence[object]]]:
        for condition in conditions:
            try:
                yield condition, [value_of(one, self._parameters) for one in condition.constants]
            except UnknownValueError:
                continue

    def _changes_scan(self, relation: NamedRelation, changes: _Changes, conditions: Sequence[ColumnCondition]) -> PlannedScan:
        bounds = scan_conditions(conditions, CHANGE_SCAN_COLUMNS)
        if changes.low is not None:
            bounds.append(ScanCondition("cursor", ">=", (changes.low,)))
        if changes.high is not None:
            bounds.append(ScanCondition("cursor", "<=", (changes.high,)))
        found = FoundRelation("topic", changes.table.name, ())
        return PlannedScan(f"scan_{relation.number}", found, changes.table, TOPIC_COLUMNS_READ, bounds, ())

    def _relation(self, name: str) -> FoundRelation:
        return self._found[name]

    def _columns_of(self, name: str) -> Sequence[RelationColumn] | ViewQuery | None:
        found = self._found.get(name)
        if found is None or found.view is None:
            return None if found is None else found.columns
        names = [column.name for column in found.columns]
        functions = partial(self._function, within=found.view)
        return ViewQuery(found.name, found.view.tree, names, partial(self._find_in_view, found.view), functions)

    def _find_in_view(self, view: FoundView, name: str) -> Sequence[RelationColumn] | KeyedRelation | ViewQuery | None:
        source = view.sources.get(name)
        if source is None:
            return None
        key, visible = source
        found = self._columns_of(key)
        if isinstance(found, ViewQuery):
            return found if visible is None else found._replace(columns=found.columns[: len(visible)])
        if found is None:
            return None
        return KeyedRelation(key, [one for one in found if visible is None or one.is_hidden or one.name in visible])

    def _function(
        self, name: str, arguments: Sequence[Expression], within: FoundView | None = None
    ) -> tuple[str, Sequence[RelationColumn]] | None:
        if name != CHANGES_FUNCTION:
            return None
        first = arguments[0] if arguments else None
        given = _text_of(first, self._parameters)
        if not 1 <= len(arguments) <= 3 or given is None:
            raise AnalysisError(
                "42883",
                f"the arguments of {CHANGES_FUNCTION} are not valid; write {CHANGES_FUNCTION}('namespace.table' [, from_cursor"
                " [, to_cursor]])",
                -1 if first is None else first.location,
            )
        if not all(map(is_constant, arguments[1:])) or any(one.type.name not in _CURSORS for one in arguments[1:]):
            raise AnalysisError("42P10", f"the cursors of {CHANGES_FUNCTION} must be constants", arguments[1].location)
        if given not in (self._found if within is None else within.sources):
            given = without_public(given)
        known, visible = (given, None) if within is None else within.sources.get(given, (given, None))
        found = self._found.get(known)
        if found is None or found.table is None:
            self._check_not_refused(given, arguments[0].location)
            raise AnalysisError(UNDEFINED_TABLE, f"there is no table {given!r}", arguments[0].location)
        table = found.table
        low, high = [*arguments[1:], None, None][:2]
        key = f"{CHANGES_FUNCTION} {len(self._changes) + 1}"
        self._changes[key] = _Changes(table, given, low, high)
        columns = [
            RelationColumn(column.name, of_column(column.type))
            for column in table.columns
            if visible is None or column.name in visible
        ]
        return key, [*columns, *(RelationColumn(name, kind) for name, kind in META_COLUMNS.items())]

    def _check_not_refused(self, name: str, location: int) -> None:
        if name in self._refused.names:
            raise refusal(self._refused.principal, "select", name, self._statement.position_of(location))

    def _error(self, error: AnalysisError) -> TailraceError:
        """Return the error that the client gets."""
        place = self._statement.position_of(error.location)
        if error.sqlstate == UNDEFINED_TABLE and error.message.startswith("relation "):
            name = error.message.removeprefix('relation "').partition('" does not exist')[0]
            if name in self._refused.names:
                return refusal(self._refused.principal, "select", name, place)
            if name.startswith(f"{NAMESPACE}."):
                listed = ", ".join(f"{NAMESPACE}.{table}" for table in SYSTEM_TABLES)
                return UnknownTableError(f"there is no table {name!r}; use {listed}", *place)
            hint = did_you_mean(name, self._known_names)
            return UnknownTableError(f"there is no table, topic or alias {name!r}{hint}", *place)
        if isinstance(error, UnsupportedError):
            return UnsupportedSqlError(error.message, *place)
        return SqlError(error.message, *place, sqlstate=error.sqlstate)


_CURSORS = ("int2", "int4", "int8")


class QueryNames(NamedTuple):
    """The names that a query may look up."""

    relations: set[str]
    changes: set[str]
    """Those of tables whose changes it reads."""


def names_in(statement: PostgresStatement, parameters: Sequence[object]) -> QueryNames:
    """Return the names of relations that a statement reads, in the form in which it looks them up."""
    names: set[str] = set()
    changes: set[str] = set()
    waiting: list[Any] = [statement.tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, dict):
            relation = node.get("RangeVar")
            if relation is not None:
                name = ".".join(relation[part] for part in ("catalogname", "schemaname", "relname") if part in relation)
                names.update((name, without_public(name)))
            call = node.get("FuncCall")
            if call is not None and call["funcname"][-1].get("String", {}).get("sval") == CHANGES_FUNCTION:
                changes.update(form for name in _first_argument(call, parameters) for form in (name, without_public(name)))
            waiting.extend(node.values())
        elif isinstance(node, list):
            waiting.extend(node)
    return QueryNames((names | changes) - {""}, changes)


def _first_argument(call: Mapping[str, Any], parameters: Sequence[object]) -> Iterator[str]:
    for argument in call.get("args", ())[:1]:
        text = argument.get("A_Const", {}).get("sval", {}).get("sval")
        number = argument.get("ParamRef", {}).get("number", 0)
        if 1 <= number <= len(parameters):
            text = parameters[number - 1]
        if isinstance(text, str):
            yield text


def _text_of(expression: Expression | None, parameters: Sequence[object]) -> str | None:
    value: object = None
    if isinstance(expression, Constant):
        value = expression.value
    elif isinstance(expression, Parameter):
        value = parameters[expression.number - 1]
    return value if isinstance(value, str) else None


def sql_type_of(arrow: pa.DataType) -> SqlType:
    """Return the type of a column of a topic or system table."""
    return _ARROW_TYPES[arrow]


def _check_size(parameters: Sequence[object], limits: Limits) -> None:
    """Limit the number of values: each item of a list becomes a part of the query, as if it were written in the text."""
    items = 0
    waiting: list[Sequence[object]] = [parameters]
    while waiting:
        for value in waiting.pop():
            items += 1
            if items > limits.query_nodes:
                raise LimitExceededError(
                    f"the parameters of the query have more than {limits.query_nodes} values (query_nodes); send fewer, or"
                    " insert them into a table and join it"
                )
            if isinstance(value, list | tuple):
                waiting.append(value)


def _limited(query: AnalyzedQuery, renderer: DuckDbRenderer, most_rows: int | None, parameters: Sequence[object]) -> str:
    """Return the text of the query with a limit of rows."""
    if most_rows is None:
        return renderer.query(query)
    if query.limit is None:
        query.limit = Constant(INT8, most_rows)
        return renderer.query(query)
    try:
        value = value_of(query.limit, parameters)
    except UnknownValueError:
        value = None
    if isinstance(value, int) and value >= 0:
        query.limit = Constant(INT8, min(value, most_rows))
        return renderer.query(query)
    return f"SELECT * FROM ({renderer.query(query)}) AS found LIMIT {most_rows}"  # noqa: S608
