"""Analyzes FROM: tables, topics, views, subqueries, functions and joins."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence

from tailrace.model.names import without_public
from tailrace.sql.analysis.errors import (
    DUPLICATE_ALIAS,
    UNDEFINED_COLUMN,
    UNDEFINED_TABLE,
    AnalysisError,
    UnsupportedError,
)
from tailrace.sql.analysis.expressions import ExpressionAnalyzer
from tailrace.sql.analysis.function_calls import set_call
from tailrace.sql.analysis.grouping_rules import refuse_aggregates
from tailrace.sql.analysis.parse_tree import Node, location_of
from tailrace.sql.analysis.relations import FindFunction, FindRelation, KeyedRelation, ViewQuery
from tailrace.sql.analysis.scope import Scope, ScopeColumn, ScopeRelation, columns_of, qualifiers_of
from tailrace.sql.analysis.tree import (
    AnalyzedQuery,
    Call,
    Coalesce,
    ColumnReference,
    CommonTable,
    CteRelation,
    Expression,
    FromItem,
    FunctionRelation,
    Join,
    Logical,
    NamedRelation,
    QueryRelation,
)
from tailrace.sql.analysis.types import BOOL, INT8, SqlType

_OTHER_ITEMS = {"RangeTableSample": "TABLESAMPLE", "RangeTableFunc": "XMLTABLE", "JsonTable": "JSON_TABLE"}


class FromAnalyzer(ABC):
    """Analyzes the FROM clauses of one statement with all its subqueries."""

    expressions: ExpressionAnalyzer

    def __init__(self, find: FindRelation, find_function: FindFunction, max_views: int) -> None:
        self._find = find
        self._max_views = max_views
        self.views: list[str] = []
        """The views that the statement names itself, once for each place in it."""
        self._view_count = self._view_depth = 0
        self._find_function = find_function
        self.relations: list[NamedRelation] = []
        """The tables, topics and system tables that the statement reads, once for each place in it."""
        self._numbers = 0
        self._ctes: list[dict[str, CommonTable]] = []
        self._windows: list[Mapping[str, Node]] = []

    def next_number(self) -> int:
        """Return the number of the next item of FROM."""
        self._numbers += 1
        return self._numbers

    @abstractmethod
    def analyze(self, node: Node, parent: Scope | None = None) -> AnalyzedQuery:
        """Return the query of a `SelectStmt`."""

    def from_item(self, node: Node, scope: Scope) -> FromItem:
        """Return an item of FROM, and add its columns to the scope."""
        ((kind, fields),) = node.items()
        if kind == "RangeVar":
            return self._relation(fields, scope)
        if kind == "RangeSubselect":
            return self._subselect(fields, scope)
        if kind == "RangeFunction":
            return self._function(fields, scope)
        if kind == "JoinExpr":
            return self._join(fields, scope)
        raise UnsupportedError(f"{_OTHER_ITEMS.get(kind, kind)} is not supported", location_of(fields))

    def _relation(self, fields: Node, scope: Scope) -> FromItem:
        parts = [fields[part] for part in ("catalogname", "schemaname", "relname") if part in fields]
        name = ".".join(parts)
        location = fields.get("location", 0)
        alias = fields.get("alias", {})
        number = self.next_number()
        cte = self._find_cte(name) if len(parts) == 1 else None
        if cte is not None:
            columns = columns_of(number, cte.query.names, cte.query.types)
            self._add(scope, [alias.get("aliasname", name)], _aliased(columns, alias), location)
            return CteRelation(number, cte.number)
        found = self._find(name)
        if found is None and without_public(name) != name:
            name = without_public(name)
            found = self._find(name)
        if found is None:
            raise AnalysisError(UNDEFINED_TABLE, f'relation "{name}" does not exist', location)
        qualifiers = [alias["aliasname"]] if alias else qualifiers_of(name)
        if isinstance(found, ViewQuery):
            if not self._view_depth:
                self.views.append(name)
            query = self._view(found, location)
            columns = columns_of(number, found.columns, query.types[: len(found.columns)])
            self._add(scope, qualifiers, _aliased(columns, alias), location)
            return QueryRelation(number, query)
        key, found = found if isinstance(found, KeyedRelation) else (name, found)
        source = NamedRelation(number, key, location, is_in_view=self._view_depth > 0)
        self.relations.append(source)
        self.expressions.note_enums(column.type for column in found)
        columns = [
            ScopeColumn(
                column.name,
                ColumnReference(column.type, number, column.name, column.is_json_text),
                column.is_hidden,
                column.is_key,
            )
            for column in found
        ]
        self._add(scope, qualifiers, _aliased(columns, alias), location, source)
        return source

    def _view(self, view: ViewQuery, location: int) -> AnalyzedQuery:
        """Return the query of a view, in which nothing of the statement around it can be seen."""
        self._view_count += 1
        if self._view_count > self._max_views:
            raise AnalysisError(
                "54001",
                f"the query reads more than {self._max_views} views, with those that they read (view_uses); read fewer",
                location,
            )
        around = self._find, self._find_function, self._ctes, self._windows
        self._find, self._find_function, self._ctes, self._windows = view.find, view.find_function, [], []
        self._view_depth += 1
        try:
            query = self.analyze(view.tree)
        except AnalysisError as error:
            if self._view_count > self._max_views:
                raise
            raise AnalysisError(error.sqlstate, f'view "{view.name}": {error.message}', location) from error
        finally:
            self._view_depth -= 1
            self._find, self._find_function, self._ctes, self._windows = around
        return query

    def _subselect(self, fields: Node, scope: Scope) -> FromItem:
        is_lateral = bool(fields.get("lateral"))
        query = self.analyze(fields["subquery"], scope if is_lateral else scope.parent)
        number = self.next_number()
        alias = fields.get("alias", {})
        columns = columns_of(number, query.names, query.types)
        self._add(scope, [alias["aliasname"]] if alias else [], _aliased(columns, alias), -1)
        return QueryRelation(number, query, is_lateral)

    def _function(self, fields: Node, scope: Scope) -> FromItem:
        nodes = [node["List"]["items"] for node in fields["functions"]]
        if "coldeflist" in fields or any(len(node) > 1 and node[1] for node in nodes):
            location = location_of(next(iter(nodes[0][0].values())))
            raise UnsupportedError("column definitions of functions in FROM are not supported", location)
        calls = [node[0] for node in nodes]
        call = calls[0]
        alias = fields.get("alias", {})
        number = self.next_number()
        if any("FuncCall" not in one for one in calls):
            raise UnsupportedError("only functions that return rows can stand in FROM")
        name = call["FuncCall"]["funcname"][-1]["String"]["sval"]
        location = call["FuncCall"].get("location", 0)
        own = (
            self._find_function(name, self.expressions.analyze_all(call["FuncCall"].get("args", ()), scope))
            if _is_own(name)
            else None
        )
        if own is not None:
            source = NamedRelation(number, own[0], location, is_in_view=self._view_depth > 0)
            self.relations.append(source)
            columns = [
                ScopeColumn(one.name, ColumnReference(one.type, number, one.name, one.is_json_text), one.is_hidden)
                for one in own[1]
            ]
            self._add(scope, [alias.get("aliasname", name)], _aliased(columns, alias), location, source)
            return source
        names: list[str] = []
        types: list[SqlType] = []
        found: list[Expression] = []
        for one in calls:
            for part in _each_array(one["FuncCall"]):
                found.append(set_call(self.expressions, part, scope))
                function = part["funcname"][-1]["String"]["sval"]
                # An alias is the name of the only column of a function.
                more = _rows_of(found[-1], alias.get("aliasname", function) if len(calls) == 1 else function)
                names += more[0]
                types += more[1]
        if len(found) > 1 and len(calls) == 1:
            names = [name] * len(names)
        if fields.get("ordinality"):
            names, types = [*names, "ordinality"], [*types, INT8]
        columns = columns_of(number, names, types)
        self._add(scope, [alias.get("aliasname", name)], _aliased(columns, alias), location)
        scope.relations[-1].is_scalar = len(columns) == 1
        return FunctionRelation(number, found, bool(fields.get("ordinality")))

    def _join(self, fields: Node, scope: Scope) -> FromItem:
        kind = fields.get("jointype", "JOIN_INNER").removeprefix("JOIN_").lower()
        outer = len(scope.relations)
        left = self.from_item(fields["larg"], scope)
        middle = len(scope.relations)
        right = self.from_item(fields["rarg"], scope)
        lefts, rights = scope.relations[outer:middle], scope.relations[middle:]
        for relation in (*(lefts if kind in ("right", "full") else ()), *(rights if kind in ("left", "full") else ())):
            relation.is_nullable = True
        condition: Expression | None = None
        location = fields.get("location", -1)
        names = [part["String"]["sval"] for part in fields.get("usingClause", ())]
        if fields.get("isNatural"):
            names = [name for name in _visible(lefts, scope.joined) if name in _visible(rights, ())]
        if names:
            condition = self._using(names, kind, lefts, rights, scope, location)
        elif "quals" in fields:
            inside = Scope(scope.parent, [*lefts, *rights], list(scope.joined))
            condition = self.expressions.condition(fields["quals"], inside, "JOIN/ON")
            refuse_aggregates(condition, "JOIN conditions")
        elif kind == "inner":
            kind = "cross"
        if "alias" in fields:
            raise UnsupportedError("an alias of a join is not supported; name its tables", location)
        return Join(self.next_number(), left, right, kind, condition)

    def _using(
        self,
        names: Sequence[str],
        kind: str,
        lefts: Sequence[ScopeRelation],
        rights: Sequence[ScopeRelation],
        scope: Scope,
        location: int,
    ) -> Expression:
        parts = []
        for name in names:
            mine = next((column for column in scope.joined if column.name == name), None)
            one = mine.expression if mine is not None else _only(name, lefts, "left", location)
            other = _only(name, rights, "right", location)
            parts.append(self.expressions.operator("=", [one, other], location))
            _, (first, second) = self.expressions.common([one, other], "JOIN/USING", location)
            shown = second if kind == "right" else Coalesce(first.type, [first, second]) if kind == "full" else first
            if mine is not None:
                mine.expression = shown
            else:
                scope.joined.append(ScopeColumn(name, shown))
            for relation in (*lefts, *rights):
                relation.merged = relation.merged | {name}
        return parts[0] if len(parts) == 1 else Logical(BOOL, "and", parts, location=location)

    def _add(
        self,
        scope: Scope,
        qualifiers: Sequence[str],
        columns: Sequence[ScopeColumn],
        location: int,
        source: NamedRelation | None = None,
    ) -> None:
        for one in scope.relations:
            if qualifiers and one.qualifiers and qualifiers[0] == one.qualifiers[0]:
                raise AnalysisError(DUPLICATE_ALIAS, f'table name "{qualifiers[0]}" specified more than once', location)
        scope.relations.append(ScopeRelation(qualifiers, columns, source))

    def _find_cte(self, name: str) -> CommonTable | None:
        return next((known[name] for known in reversed(self._ctes) if name in known), None)

    # Set operations and VALUES


def renamed(names: Sequence[str], columns: Sequence[str], location: int) -> list[str]:
    """Return names of columns of which the first are replaced by those of an alias."""
    if len(columns) > len(names):
        raise AnalysisError("42P10", f"{len(names)} columns are available, but {len(columns)} are named", location)
    return [*columns, *names[len(columns) :]]


def _aliased(columns: Sequence[ScopeColumn], alias: Node) -> list[ScopeColumn]:
    names = [part["String"]["sval"] for part in alias.get("colnames", ())]
    new_names = renamed([column.name for column in columns], names, -1)
    return [
        ScopeColumn(name, column.expression, column.is_hidden, column.is_key)
        for name, column in zip(new_names, columns, strict=True)
    ]


def _visible(relations: Sequence[ScopeRelation], joined: Iterable[ScopeColumn]) -> list[str]:
    names = [column.name for column in joined]
    return names + [
        column.name for one in relations for column in one.columns if column.name not in one.merged and not column.is_hidden
    ]


def _only(name: str, relations: Sequence[ScopeRelation], side: str, location: int) -> Expression:
    found = [column for one in relations for column in one.columns if column.name == name and name not in one.merged]
    if not found:
        raise AnalysisError(
            UNDEFINED_COLUMN, f'column "{name}" specified in USING clause does not exist in {side} table', location
        )
    if len(found) > 1:
        raise AnalysisError("42702", f'common column name "{name}" appears more than once in {side} table', location)
    return found[0].expression


def _each_array(fields: Node) -> list[Node]:
    """Return `unnest(a, b)` as `unnest(a)` and `unnest(b)`."""
    arguments = fields.get("args", ())
    if fields["funcname"][-1]["String"]["sval"] != "unnest" or len(arguments) < 2:
        return [fields]
    return [{**fields, "args": [one]} for one in arguments]


def _is_own(name: str) -> bool:
    return name in ("table_changes", "latest")


def _rows_of(call: Expression, alias: str) -> tuple[list[str], list[SqlType]]:
    """Return the names and types of the columns of a function in FROM."""
    if isinstance(call, Call) and call.signature.name in ("jsonb_each", "json_each"):
        return ["key", "value"], [SqlType("text"), SqlType("jsonb")]
    if isinstance(call, Call) and call.signature.name in ("jsonb_each_text", "json_each_text"):
        return ["key", "value"], [SqlType("text"), SqlType("text")]
    if isinstance(call, Call) and call.signature.name in ("jsonb_array_elements", "jsonb_array_elements_text"):
        return ["value"], [call.type]
    return [alias], [call.type]
