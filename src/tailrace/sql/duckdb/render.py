"""Writes analyzed queries in DuckDB's SQL.

Nothing is left to DuckDB's own resolution: FROM items are called `t1`, `t2` and so on and the columns of subqueries `c1`, `c2`,
constants and parameters have their type written out, and each function is one of `functions.py`, which means what PostgreSQL's
does. Where there is none the query is refused, with the place of the call.

A numeric of a fixed scale is a DECIMAL. One whose scale depends on its values is a VARCHAR that holds the number as PostgreSQL
prints it ("loose"); the functions of `numerics.py` compute with those.
"""

# Texts of SQL are made here from analyzed trees; names and constants are quoted where they are written.
# ruff: noqa: S608

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from datetime import UTC, datetime
from types import MappingProxyType
from typing import NamedTuple

from tailrace.sql.analysis.errors import UnsupportedError
from tailrace.sql.analysis.grouping_rules import same_expression
from tailrace.sql.analysis.tree import (
    Aggregate,
    AnalyzedQuery,
    AnyOrAll,
    ArrayItem,
    ArrayOf,
    BooleanTest,
    Call,
    Case,
    Cast,
    Coalesce,
    ColumnReference,
    Constant,
    CteRelation,
    CurrentTime,
    DistinctTest,
    Element,
    Expression,
    Extreme,
    FromItem,
    FunctionRelation,
    Grouping,
    GroupingOf,
    InList,
    Join,
    Logical,
    NamedRelation,
    NullIf,
    NullTest,
    Parameter,
    QueryRelation,
    Select,
    SetOperation,
    Slice,
    SortKey,
    Subquery,
    Values,
    WindowCall,
    WindowFrame,
)
from tailrace.sql.analysis.types import NUMERIC, SqlType
from tailrace.sql.duckdb.constants import cast_text, constant, duckdb_type, parameter_value, quoted
from tailrace.sql.duckdb.functions import AGGREGATES, FUNCTIONS, ROW_FUNCTIONS
from tailrace.sql.duckdb.keys import has_key, key_of
from tailrace.sql.duckdb.repeated_arguments import written
from tailrace.sql.duckdb.templates import AggregateCall, is_loose, only_where
from tailrace.sql.functions.json_paths import PATHS, JsonPath, RecordJson

_SHORT_FRAME = 1_000
_PLAIN_COMPARISONS = frozenset(("=", "<>", "<", "<=", ">", ">="))


class RecordFieldColumns(NamedTuple):
    """Columns of a relation that have fields of the JSON in its column `of`, by their keys."""

    of: str
    columns: Mapping[str, str]
    integers: Mapping[str, str]
    """Columns that have some of these fields as integers, and null where they are not."""
    doubtful: str
    """The column that is true in rows in which the fields are not known."""


class DuckDbRenderer:
    """Writes one statement. `parameters` are the values of `$1`, `$2` and so on.

    A relation is read from `scan_1`, `scan_2` and so on, by its number, unless `sources` has a text for it.
    """

    def __init__(
        self,
        parameters: Sequence[object] = (),
        now: datetime | None = None,
        sources: Mapping[int, str] = MappingProxyType({}),
        record_fields: Mapping[int, RecordFieldColumns] = MappingProxyType({}),
    ) -> None:
        self._parameters = parameters
        self._sources = sources
        self._record_fields = record_fields
        self._now = now or datetime.now(UTC)
        self._items: list[str] = []
        self._is_in_columns = False
        """Whether an item of SELECT is being written, which may be a function that returns rows."""
        self._keyed: list[list[Expression]] = []
        """What each SELECT groups by the key of, innermost last."""
        self._has_sets: list[bool] = []
        """Whether each SELECT has ROLLUP, CUBE or GROUPING SETS."""

    # Queries

    def query(self, query: AnalyzedQuery) -> str:
        """Return the text of a query whose columns are `c1`, `c2` and so on."""
        outer, self._is_in_columns = self._is_in_columns, False
        try:
            return self._query(query)
        finally:
            self._is_in_columns = outer

    def _query(self, query: AnalyzedQuery) -> str:
        head = ""
        if query.ctes:
            tables = []
            for cte in query.ctes:
                columns = ", ".join(f"c{at}" for at in range(1, len(cte.query.types) + 1))
                hint = {True: " MATERIALIZED", False: " NOT MATERIALIZED", None: ""}[cte.materialized]
                tables.append(f"cte_{cte.number}({columns}) AS{hint} ({self.query(cte.query)})")
            recursive = "RECURSIVE " if any(cte.is_recursive for cte in query.ctes) else ""
            head = f"WITH {recursive}{', '.join(tables)} "
        if isinstance(query, Select):
            body = self._select(query)
        elif isinstance(query, SetOperation):
            body = self._set_operation(query)
        elif isinstance(query, Values):
            body = self._values(query)
        else:
            raise UnsupportedError("this query is not supported")
        return head + body + self._tail(query)

    def _tail(self, query: AnalyzedQuery) -> str:
        text = ""
        if query.order:
            text += f" ORDER BY {', '.join(self._ordered(query, key) for key in query.order)}"
        if query.limit is not None:
            text += f" LIMIT {self.expression(query.limit)}"
        if query.offset is not None:
            text += f" OFFSET {self.expression(query.offset)}"
        return text

    def _ordered(self, query: AnalyzedQuery, key: SortKey) -> str:
        if isinstance(query, Select):
            at = next((at for at, column in enumerate(query.columns, 1) if column.expression is key.expression), None)
            text = f"c{at}" if at is not None else self.expression(key.expression)
        else:
            text = key.expression.column if isinstance(key.expression, ColumnReference) else ""
        return self._sorted(text, key)

    def _sorted(self, text: str, key: SortKey) -> str:
        direction = "DESC" if key.is_descending else "ASC"
        nulls = "FIRST" if key.nulls_first else "LAST"
        return f"{self._sortable(text, key.expression)} {direction} NULLS {nulls}"

    def _sortable(self, text: str, expression: Expression) -> str:
        return key_of(text, expression.type)

    def _select(self, query: Select) -> str:
        groups = [one for group in query.groups for one in _members(group)]
        self._keyed.append([one for one in groups if has_key(one.type)])
        self._has_sets.append(any(group.kind != "simple" for group in query.groups))
        try:
            text = self._select_body(query)
        finally:
            self._keyed.pop()
            self._has_sets.pop()
        if query.is_distinct and any(map(has_key, query.types)):
            return _distinct(text, query.types)
        return text

    def _select_body(self, query: Select) -> str:
        columns = [f"{self._output(column.expression)} AS c{at}" for at, column in enumerate(query.columns, 1)]
        distinct = ""
        if query.is_distinct and not any(map(has_key, query.types)):
            distinct = "DISTINCT "
        elif query.distinct_on:
            distinct = f"DISTINCT ON ({', '.join(map(self._comparable, query.distinct_on))}) "
        text = f"SELECT {distinct}{', '.join(columns)}"
        with self._before_grouping():
            if query.sources:
                text += f" FROM {', '.join(map(self._from, query.sources))}"
            if query.where is not None:
                text += f" WHERE {self.expression(query.where)}"
        if query.groups:
            text += f" GROUP BY {', '.join(map(self._grouping, query.groups))}"
        if query.having is not None:
            text += f" HAVING {self.expression(query.having)}"
        return text

    def _output(self, expression: Expression) -> str:
        outer, self._is_in_columns = self._is_in_columns, True
        try:
            return self.expression(expression)
        finally:
            self._is_in_columns = outer

    def _grouping(self, group: Grouping) -> str:
        if group.kind == "simple":
            items = ", ".join(self._group_key(one) for one in group.expressions)
            return items if len(group.expressions) == 1 else f"({items})"
        name = {"rollup": "ROLLUP", "cube": "CUBE", "sets": "GROUPING SETS"}[group.kind]
        return f"{name} ({', '.join(map(self._grouping, group.parts))})"

    def _group_key(self, node: Expression) -> str:
        if not has_key(node.type):
            return self.expression(node)
        with self._before_grouping():
            return self._comparable(node)

    @contextmanager
    def _before_grouping(self) -> Iterator[None]:
        """Write values of single rows, of which groups are made afterwards."""
        if not self._keyed:
            yield
            return
        keyed, self._keyed[-1] = self._keyed[-1], []
        try:
            yield
        finally:
            self._keyed[-1] = keyed

    def _any_of_group(self, node: Expression) -> str:
        """Return a value of a group whose values are equal by their keys; null where GROUPING SETS leave it out."""
        with self._before_grouping():
            found = f"any_value({self.expression(node)})"
            return f"CASE WHEN grouping({self._comparable(node)}) = 0 THEN {found} END" if self._has_sets[-1] else found

    def _set_operation(self, query: SetOperation) -> str:
        sides = [self._as_types(side, query.types) for side in (query.left, query.right)]
        operator = f"{query.operator} ALL" if query.is_all else query.operator
        united = f"{sides[0]} {operator} {sides[1]}"
        if any(map(has_key, query.types)) and not (query.is_all and query.operator == "UNION"):
            if query.operator != "UNION":
                raise UnsupportedError(f"{query.operator} of JSON, or of numerics without a fixed scale, is not supported")
            united = _distinct(f"{sides[0]} UNION ALL {sides[1]}", query.types)
        if not query.order and query.limit is None and query.offset is None:
            return united
        columns = ", ".join(f"c{at}" for at in range(1, len(query.types) + 1))
        # The whole is a subquery, so that ORDER BY sorts by its columns.
        return f"SELECT {columns} FROM ({united}) AS united"

    def _as_types(self, query: AnalyzedQuery, types: Sequence[SqlType]) -> str:
        """Return a side of a set operation with its columns cast to these types."""
        columns = [
            f"{cast_text(f'side.c{at}', mine, wanted)} AS c{at}"
            for at, (mine, wanted) in enumerate(zip(query.types, types, strict=True), 1)
        ]
        return f"(SELECT {', '.join(columns)} FROM ({self.query(query)}) AS side)"

    def _values(self, query: Values) -> str:
        rows = ", ".join(
            f"({', '.join(self._as_type(item, wanted) for item, wanted in zip(row, query.types, strict=True))})"
            for row in query.rows
        )
        columns = ", ".join(f"c{at}" for at in range(1, len(query.types) + 1))
        return f"SELECT {columns} FROM (VALUES {rows}) AS listed({columns})"

    def _as_type(self, item: Expression, wanted: SqlType) -> str:
        return cast_text(self.expression(item), item.type, wanted)

    # FROM

    def _from(self, item: FromItem) -> str:
        match item:
            case NamedRelation():
                return f"{self._sources.get(item.number, f'scan_{item.number}')} AS t{item.number}"
            case CteRelation():
                return f"cte_{item.cte} AS t{item.number}"
            case QueryRelation():
                lateral = "LATERAL " if item.is_lateral else ""
                return f"{lateral}({self.query(item.query)}) AS t{item.number}"
            case FunctionRelation():
                return self._function_relation(item)
            case Join():
                return self._join(item)
        raise UnsupportedError("this item of FROM is not supported")

    def _join(self, join: Join) -> str:
        left, right = self._from(join.left), self._from(join.right)
        right = f"({right})" if isinstance(join.right, Join) else right
        if join.kind == "cross" or join.condition is None:
            return f"{left} CROSS JOIN {right}"
        return f"{left} {join.kind.upper()} JOIN {right} ON {self.expression(join.condition)}"

    def _function_relation(self, item: FunctionRelation) -> str:
        lists = []
        columns: list[str] = []
        for at, call in enumerate(item.calls, 1):
            listed, count = self._listed(call)
            lists.append(f"{listed} AS list_{at}")
            fields = [f"item_{at}.c{field}" for field in range(1, count + 1)] if count > 1 else [f"item_{at}"]
            columns += [f"{field} AS c{len(columns) + place}" for place, field in enumerate(fields, 1)]
        if item.with_ordinality:
            columns.append(f"place AS c{len(columns) + 1}")
        numbers = range(1, len(lists) + 1)
        items = ", ".join(f"unnest(list_{at}) AS item_{at}" for at in numbers)
        longest = f"greatest({', '.join(f'len(list_{at})' for at in numbers)})"
        return (
            f"LATERAL (SELECT {', '.join(columns)} FROM (SELECT {items}, unnest(range(1, {longest} + 1)) AS place"
            f" FROM (SELECT {', '.join(lists)})) ORDER BY place) AS t{item.number}"
        )

    def _listed(self, call: Expression) -> tuple[str, int]:
        """Return the rows of a function as a list, and the number of their columns."""
        if not isinstance(call, Call):
            return f"[{self.expression(call)}]", 1
        rows = ROW_FUNCTIONS.get(call.signature.key)
        if rows is not None:
            return rows.render([self.expression(one) for one in call.arguments], call), rows.columns
        if call.signature.is_set:
            raise UnsupportedError(f"the function {call.signature.name} is not supported", call.location)
        return f"[{self.expression(call)}]", 1

    # Expressions

    def expression(self, node: Expression) -> str:
        """Return the text of an expression. Every result can stand as an operand of anything."""
        if self._keyed and any(same_expression(node, one) for one in self._keyed[-1]):
            return self._any_of_group(node)
        match node:
            case Constant():
                return constant(node.value, node.type)
            case Parameter():
                return self._parameter(node)
            case ColumnReference():
                text = f"t{node.relation}.{quoted(node.column)}"
                return f"any_value({text})" if node.is_dependent else text
            case Call():
                return self._call(node)
            case Cast():
                return self._cast(node)
            case Logical():
                return self._logical(node)
            case NullTest():
                return f"({self._inside(node.argument)} IS {'NOT ' if node.is_negated else ''}NULL)"
            case BooleanTest():
                wanted = {True: "TRUE", False: "FALSE", None: "NULL"}[node.wanted]
                distinct = "IS DISTINCT FROM" if node.is_negated else "IS NOT DISTINCT FROM"
                return f"({self._inside(node.argument)} {distinct} {wanted})"
            case DistinctTest():
                word = "IS NOT DISTINCT FROM" if node.is_negated else "IS DISTINCT FROM"
                left, right = self._distinguishable(node)
                return f"({left} {word} {right})"
            case Case():
                branches = "".join(
                    f" WHEN {self.expression(when)} THEN {self._branch(then, node)}" for when, then in node.branches
                )
                otherwise = f" ELSE {self._branch(node.otherwise, node)}" if node.otherwise is not None else ""
                return f"(CASE{branches}{otherwise} END)"
            case Coalesce():
                return f"coalesce({', '.join(self._branch(one, node) for one in node.arguments)})"
            case Extreme():
                return self._extreme(node)
            case NullIf():
                return f"(CASE WHEN {self._inside(node.equal)} THEN NULL ELSE {self._inside(node.left)} END)"
            case ArrayOf():
                items = ", ".join(self._as_type(one, node.type.element) for one in node.items)
                return f"[{items}]::{duckdb_type(node.type)}"
            case Element():
                return f"array_element({self._inside(node.array)}, {self._inside(node.index)})"
            case Slice():
                array = self._inside(node.array)
                lower = "1" if node.lower is None else self.expression(node.lower)
                upper = f"len({array})" if node.upper is None else self.expression(node.upper)
                return f"array_slice_of({array}, {lower}, {upper})"
            case AnyOrAll():
                return self._any_or_all(node)
            case ArrayItem():
                return self._items[-1]
            case InList():
                tests = " OR ".join(map(self.expression, node.comparisons))
                return f"(NOT ({tests}))" if node.is_negated else f"({tests})"
            case CurrentTime():
                return self._current_time(node.type)
            case Aggregate():
                return self._aggregate(node, "")
            case WindowCall():
                return self._window(node)
            case GroupingOf():
                return f"CAST(grouping({', '.join(map(self._group_key, node.arguments))}) AS INTEGER)"
            case Subquery():
                return self._subquery(node)
        raise UnsupportedError(f"{type(node).__name__} is not supported", node.location)

    def _inside(self, node: Expression | None) -> str:
        return "NULL" if node is None else self.expression(node)

    def _branch(self, node: Expression | None, whole: Expression) -> str:
        return "NULL" if node is None else self._as_type(node, whole.type)

    def _comparable(self, node: Expression | None) -> str:
        """Return an operand in a form in which equal values are equal to DuckDB."""
        text = self._inside(node)
        return text if node is None else self._sortable(text, node)

    def _distinguishable(self, node: DistinctTest) -> tuple[str, str]:
        """Return the operands in forms that DuckDB can compare, of which one may be a numeric that is held as text."""
        sides = [one for one in (node.left, node.right) if one is not None]
        if len(sides) == 2 and is_loose(sides[0].type) != is_loose(sides[1].type):
            left, right = (key_of(cast_text(self._inside(one), one.type, NUMERIC), NUMERIC) for one in sides)
            return left, right
        return self._comparable(node.left), self._comparable(node.right)

    def _call(self, node: Call) -> str:
        if node.signature.is_set:
            return self._row_call(node)
        found = FUNCTIONS.get(node.signature.key)
        if found is None:
            raise UnsupportedError(f"{_shown(node)} is not supported", node.location)
        arguments = [self.expression(one) for one in node.arguments]
        if node.signature.key in PATHS and isinstance(arguments[0], JsonPath | RecordJson):
            return PATHS[node.signature.key](arguments, node)
        return written(lambda texts: found(texts, node) if callable(found) else found.format(*texts), arguments)

    def _row_call(self, node: Call) -> str:
        """Return a function that returns rows, in the list of SELECT: DuckDB lets several advance together, too."""
        if not self._is_in_columns:
            raise UnsupportedError("set-returning functions are not allowed here", node.location)
        listed, count = self._listed(node)
        if count > 1:
            raise UnsupportedError(f"{node.signature.name} returns several columns; call it in FROM", node.location)
        return f"unnest({listed})"

    def _logical(self, node: Logical) -> str:
        if node.operator == "not":
            return f"(NOT {self.expression(node.arguments[0])})"
        return f"({f' {node.operator.upper()} '.join(map(self.expression, node.arguments))})"

    def _extreme(self, node: Extreme) -> str:
        arguments = [self._branch(one, node) for one in node.arguments]
        if is_loose(node.type) or node.type.name == "interval":
            kind = "interval" if node.type.name == "interval" else "numeric"
            return f"{kind}_{'greatest' if node.is_greatest else 'least'}([{', '.join(arguments)}])"
        if has_key(node.type):
            # Of equal values the first is taken.
            place, order = ("-place", "DESC") if node.is_greatest else ("place", "ASC")
            pair = f"{{'key': {key_of('item', node.type)}, 'place': {place}, 'value': item}}"
            present = f"list_filter([{', '.join(arguments)}], lambda item: item IS NOT NULL)"
            return f"list_sort(list_transform({present}, lambda item, place: {pair}), '{order}')[1].value"
        return f"{'greatest' if node.is_greatest else 'least'}({', '.join(arguments)})"

    def _any_or_all(self, node: AnyOrAll) -> str:
        variable = f"item_{len(self._items) + 1}"
        self._items.append(variable)
        try:
            comparison = self._inside(node.comparison)
        finally:
            self._items.pop()
        array = self._inside(node.array)
        if not _has_items(node.array) and not isinstance(node.left, Constant | ColumnReference | Parameter):
            # The left side may fail, and an array without items would not evaluate it.
            array = f"CASE WHEN ({self._inside(node.left)}) IS NULL THEN {array} ELSE {array} END"
        tests = f"list_transform({array}, lambda {variable}: {comparison})"
        return f"{'all_of' if node.is_all else 'any_of'}({tests})"

    def _current_time(self, sql_type: SqlType) -> str:
        return cast_text(constant(self._now, SqlType("timestamptz")), SqlType("timestamptz"), sql_type)

    def _aggregate(self, node: Aggregate, over: str, *, is_short_frame: bool = False) -> str:
        found = AGGREGATES.get(node.signature.key)
        if found is None:
            raise UnsupportedError(f"the function {node.signature.name} is not supported", node.location)
        # A window function is computed after groups are made, any other aggregate of the rows of a group.
        with nullcontext() if over else self._before_grouping():
            condition = self.expression(node.condition) if node.condition is not None else None
            arguments = [self._filtered(one, condition) for one in node.arguments]
            keys = [self._sorted(self._filtered(key.expression, condition), key) for key in node.order]
            within = [self._sorted(self._filtered(key.expression, condition), key) for key in node.within_group]
            sorted_values = [self._filtered(key.expression, condition) for key in node.within_group]
        return found(AggregateCall(node, arguments, keys, within, condition, over, sorted_values, is_short_frame))

    def _filtered(self, node: Expression, condition: str | None) -> str:
        """Return an argument of an aggregate, which is not evaluated on rows that FILTER leaves out."""
        text = self.expression(node)
        is_constant = not any(isinstance(part, ColumnReference) for part in node.walk())
        return text if is_constant or isinstance(node, ColumnReference) else only_where(condition, text)

    def _window(self, node: WindowCall) -> str:
        parts = []
        if node.partition:
            parts.append(f"PARTITION BY {', '.join(self._comparable(one) for one in node.partition)}")
        if node.order:
            parts.append(f"ORDER BY {', '.join(self._sorted(self.expression(key.expression), key) for key in node.order)}")
        if node.frame is not None:
            parts.append(self._frame(node.frame))
        if not isinstance(node.call, Aggregate):
            raise UnsupportedError("this window function is not supported", node.location)
        return self._aggregate(node.call, f" OVER ({' '.join(parts)})", is_short_frame=_is_short(node.frame))

    def _frame(self, frame: WindowFrame) -> str:
        start = f"{self.expression(frame.start_offset)} {frame.start}" if frame.start_offset is not None else frame.start
        end = f"{self.expression(frame.end_offset)} {frame.end}" if frame.end_offset is not None else frame.end
        exclude = f" EXCLUDE {frame.exclude}" if frame.exclude else ""
        return f"{frame.mode} BETWEEN {start} AND {end}{exclude}"

    def _subquery(self, node: Subquery) -> str:
        if node.query is None:
            raise UnsupportedError("this subquery is not supported", node.location)
        text = self.query(node.query)
        match node.kind:
            case "exists":
                return f"EXISTS ({text})"
            case "scalar":
                return f"({text})"
            case "array":
                return f"(SELECT coalesce(list(c1), []) FROM ({text}) AS listed)"
        name = "ALL" if node.kind == "all" else "ANY"
        plain = node.comparison
        if (
            isinstance(plain, Call)
            and plain.signature.name in _PLAIN_COMPARISONS
            and not any(has_key(one.type) for one in plain.arguments)
        ):
            left, right = map(self.expression, plain.arguments)
            return f"({left} {plain.signature.name} {name} (SELECT {right} FROM ({text}) AS t{node.relation}))"
        tests = f"SELECT coalesce(list({self._inside(plain)}), []) FROM ({text}) AS t{node.relation}"
        return f"{'all_of' if node.kind == 'all' else 'any_of'}(({tests}))"

    # Casts and constants

    def _cast(self, node: Cast) -> str:
        source = node.argument
        if source.type.name == "text" and node.type.name == "jsonb" and not node.is_explicit:
            return self._record_json(source)
        return cast_text(self.expression(source), source.type, node.type, is_explicit=node.is_explicit)

    def _record_json(self, source: Expression) -> RecordJson:
        """Return a record's text as JSON, with the columns of its relation that have fields of it."""
        found = self._record_fields.get(source.relation) if isinstance(source, ColumnReference) else None
        if not isinstance(source, ColumnReference) or found is None or source.column != found.of or source.is_dependent:
            return RecordJson.of(self.expression(source))
        table = f"t{source.relation}"
        columns, integers = (
            {key: f"{table}.{quoted(name)}" for key, name in names.items()} for names in (found.columns, found.integers)
        )
        return RecordJson.of(self.expression(source), columns, integers, f"{table}.{quoted(found.doubtful)}")

    def _parameter(self, node: Parameter) -> str:
        return constant(parameter_value(self._parameters[node.number - 1], node.type, node.location), node.type)


def _distinct(text: str, types: Sequence[SqlType]) -> str:
    """Return a query without rows that are equal to others, by the keys of their columns."""
    columns = [f"c{at}" for at in range(1, len(types) + 1)]
    keys = [key_of(name, one) for name, one in zip(columns, types, strict=True)]
    shown = [f"any_value({name}) AS {name}" if has_key(one) else name for name, one in zip(columns, types, strict=True)]
    return f"SELECT {', '.join(shown)} FROM ({text}) AS listed GROUP BY {', '.join(keys)}"


def _members(group: Grouping) -> list[Expression]:
    return [*group.expressions, *(one for part in group.parts for one in _members(part))]


def _has_items(array: Expression | None) -> bool:
    return bool(array.value if isinstance(array, Constant) else isinstance(array, ArrayOf) and array.items)


def _is_short(frame: WindowFrame | None) -> bool:
    """Return whether a frame has few rows, whatever the partition has."""
    if frame is None or frame.mode != "ROWS" or "UNBOUNDED" in frame.start + frame.end:
        return False
    offsets = [one.argument if isinstance(one, Cast) else one for one in (frame.start_offset, frame.end_offset)]
    sizes = [one.value if isinstance(one, Constant) else None for one in offsets if one is not None]
    return all(isinstance(size, int) and size <= _SHORT_FRAME for size in sizes)


def _shown(node: Call) -> str:
    name = node.signature.name
    types = [str(one.type) for one in node.arguments]
    if name.isidentifier():
        return f"the function {name}({', '.join(types)})"
    return f"the operator {types[0]} {name} {types[1]}" if len(types) == 2 else f"the operator {name} {types[0]}"
