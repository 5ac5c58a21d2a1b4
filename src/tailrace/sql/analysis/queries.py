"""Analyzes queries: FROM, grouping, set operations, common tables and the names of the result's columns."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from tailrace.sql.analysis.errors import (
    DUPLICATE_ALIAS,
    GROUPING_ERROR,
    INVALID_COLUMN_REFERENCE,
    SYNTAX_ERROR,
    UNDEFINED_COLUMN,
    UNDEFINED_OBJECT,
    UNDEFINED_TABLE,
    AnalysisError,
    UnsupportedError,
)
from tailrace.sql.analysis.expressions import ExpressionAnalyzer, sort_key_of
from tailrace.sql.analysis.function_calls import set_call
from tailrace.sql.analysis.parse_tree import Node
from tailrace.sql.analysis.row_functions import GroupedRowCalls, check_columns, refuse_row_calls
from tailrace.sql.analysis.scope import Scope, ScopeColumn, ScopeRelation, columns_of
from tailrace.sql.analysis.tree import (
    Aggregate,
    AnalyzedQuery,
    Call,
    Coalesce,
    ColumnReference,
    CommonTable,
    Constant,
    CteRelation,
    Expression,
    FromItem,
    FunctionRelation,
    Grouping,
    GroupingOf,
    Join,
    Logical,
    NamedRelation,
    OutputColumn,
    QueryRelation,
    Select,
    SetOperation,
    SortKey,
    Values,
    WindowCall,
)
from tailrace.sql.analysis.types import BOOL, INT8, UNKNOWN, SqlType


class RelationColumn(NamedTuple):
    name: str
    type: SqlType
    is_hidden: bool = False
    is_json_text: bool = False
    is_key: bool = False
    """Whether it belongs to the primary key."""
    unique_keys: Sequence[str] = ()
    """The names of the unique constraints and indexes that it belongs to, with that of the primary key."""
    is_identity: bool = False
    is_generated: bool = False
    """Whether only the table gives it values (GENERATED ALWAYS)."""


class KeyedRelation(NamedTuple):
    """A table or topic that is known under another name than the one that a view calls it by."""

    key: str
    columns: Sequence[RelationColumn]


class ViewQuery(NamedTuple):
    """A view, which stands for its query."""

    name: str
    tree: Mapping[str, Any]
    """The `SelectStmt` of its query."""
    columns: Sequence[str]
    """The names of its columns. The query may have more behind them, which are not seen."""
    find: "FindRelation"
    find_function: "FindFunction"
    """How the names in its query are looked up."""


FindRelation = Callable[[str], "Sequence[RelationColumn] | KeyedRelation | ViewQuery | None"]
"""Returns the columns of a table, topic or system table by its full name, or a view, if there is one."""
FindFunction = Callable[[str, Sequence[Expression]], "tuple[str, Sequence[RelationColumn]] | None"]
"""Returns the name and the columns of the relation that a function of Tailrace's own stands for, such as `table_changes`."""


class QueryAnalyzer:
    """Analyzes one statement with all its subqueries."""

    def __init__(
        self,
        find: FindRelation,
        parameter_types: Sequence[SqlType] = (),
        find_function: FindFunction = lambda name, arguments: None,
        max_views: int = 0,
    ) -> None:
        self._find = find
        self._max_views = max_views
        self.views: list[str] = []
        """The views that the statement names itself, once for each place in it."""
        self._view_count = self._view_depth = 0
        self._find_function = find_function
        self.expressions = ExpressionAnalyzer(parameter_types, self)
        self.relations: list[NamedRelation] = []
        """The tables, topics and system tables that the statement reads, once for each place in it."""
        self._numbers = 0
        self._ctes: list[dict[str, CommonTable]] = []
        self._windows: list[Mapping[str, Node]] = []

    def next_number(self) -> int:
        self._numbers += 1
        return self._numbers

    def analyze(self, node: Node, parent: Scope | None = None) -> AnalyzedQuery:
        """Return the query of a `SelectStmt`."""
        fields = node["SelectStmt"]
        if "intoClause" in fields:
            raise UnsupportedError("SELECT INTO is not supported; use CREATE TABLE ... AS")
        if "lockingClause" in fields:
            raise UnsupportedError("FOR UPDATE and FOR SHARE are not supported: transactions run one after another")
        ctes = self._common_tables(fields.get("withClause"), parent)
        try:
            if fields.get("op", "SETOP_NONE") != "SETOP_NONE":
                query = self._set_operation(fields, parent)
            elif "valuesLists" in fields:
                query = self._values(fields, parent)
            else:
                query = self._select(fields, parent)
        finally:
            if ctes is not None:
                self._ctes.pop()
        query.ctes = list(ctes.values()) if ctes else ()
        return query

    def window(self, fields: Node) -> Node:
        """Return the definition of a window that may refer to a named one."""
        name = fields.get("name") or fields.get("refname")
        if not name:
            return fields
        found = self._windows[-1].get(name) if self._windows else None
        if found is None:
            raise AnalysisError(UNDEFINED_OBJECT, f'window "{name}" does not exist', fields.get("location", -1))
        base = self.window({key: value for key, value in found.items() if key != "name"})
        if fields.get("name") and len(fields) <= 3:
            return base
        return {**base, **{key: value for key, value in fields.items() if key != "refname"}}

    # WITH

    @contextmanager
    def common_tables(self, fields: Node | None) -> Iterator[Sequence[CommonTable]]:
        """Return the tables of the WITH before a write, which all its queries see."""
        ctes = self._common_tables(fields, None)
        try:
            yield list(ctes.values()) if ctes else ()
        finally:
            if ctes is not None:
                self._ctes.pop()

    def _common_tables(self, fields: Node | None, parent: Scope | None) -> dict[str, CommonTable] | None:
        if fields is None:
            return None
        known: dict[str, CommonTable] = {}
        self._ctes.append(known)
        for item in fields["ctes"]:
            cte = item["CommonTableExpr"]
            name = cte["ctename"]
            if name in known:
                raise AnalysisError(
                    DUPLICATE_ALIAS, f'WITH query name "{name}" specified more than once', cte.get("location", -1)
                )
            if "SelectStmt" not in cte["ctequery"]:
                raise UnsupportedError("INSERT, UPDATE and DELETE in WITH are not supported", cte.get("location", -1))
            if "search_clause" in cte or "cycle_clause" in cte:
                raise UnsupportedError("SEARCH and CYCLE are not supported", cte.get("location", -1))
            columns = [part["String"]["sval"] for part in cte.get("aliascolnames", ())]
            materialized = {"CTEMaterializeAlways": True, "CTEMaterializeNever": False}.get(cte.get("ctematerialized", ""))
            if fields.get("recursive") and _mentions(cte["ctequery"], name):
                self._recursive(name, cte["ctequery"]["SelectStmt"], columns, known, parent)
                continue
            query = self.analyze(cte["ctequery"], parent)
            query.names = _renamed(query.names, columns, cte.get("location", -1))
            known[name] = CommonTable(self.next_number(), query, False, materialized)
        return known

    def _recursive(
        self, name: str, fields: Node, columns: Sequence[str], known: dict[str, CommonTable], parent: Scope | None
    ) -> None:
        if fields.get("op") != "SETOP_UNION" or "sortClause" in fields or "limitCount" in fields:
            raise AnalysisError(
                "42P19", f'recursive query "{name}" does not have the form non-recursive-term UNION [ALL] recursive-term'
            )
        left = self.analyze({"SelectStmt": fields["larg"]}, parent)
        left.names = _renamed(left.names, columns, -1)
        table = known[name] = CommonTable(self.next_number(), left, True)
        right = self.analyze({"SelectStmt": fields["rarg"]}, parent)
        if len(right.types) != len(left.types):
            raise AnalysisError(SYNTAX_ERROR, "each UNION query must have the same number of columns")
        for at, (one, other) in enumerate(zip(left.types, right.types, strict=True), 1):
            if one.name != other.name:
                raise AnalysisError(
                    "42804",
                    f'recursive query "{name}" column {at} has type {one} in non-recursive term but type {other} overall',
                )
        # The digits of a numeric may change from step to step.
        types = [one if one == other else one.plain for one, other in zip(left.types, right.types, strict=True)]
        table.query = SetOperation(left.names, types, "UNION", bool(fields.get("all")), left, right)

    def _find_cte(self, name: str) -> CommonTable | None:
        return next((known[name] for known in reversed(self._ctes) if name in known), None)

    # Set operations and VALUES

    def _set_operation(self, fields: Node, parent: Scope | None) -> AnalyzedQuery:
        operator = fields["op"].removeprefix("SETOP_")
        left = self.analyze({"SelectStmt": fields["larg"]}, parent)
        right = self.analyze({"SelectStmt": fields["rarg"]}, parent)
        if len(left.types) != len(right.types):
            raise AnalysisError(SYNTAX_ERROR, f"each {operator} query must have the same number of columns")
        types = []
        for at, (one, other) in enumerate(zip(left.types, right.types, strict=True)):
            target, _ = self.expressions.common([_typed(left, at, one), _typed(right, at, other)], operator)
            types.append(target)
            for side in (left, right):
                self._settle(side, at, target)
        query = SetOperation(left.names, types, operator, bool(fields.get("all")), left, right)
        self._order_by_outputs(query, fields)
        self._limits(query, fields, parent)
        return query

    def _settle(self, query: AnalyzedQuery, at: int, target: SqlType) -> None:
        """Give a constant whose type nothing has decided the type of its column in a set operation."""
        if isinstance(query, Select) and (unknown := query.columns[at].unknown) is not None:
            query.columns[at].expression = self.expressions.coerce(unknown, target.plain)
            query.types = [*query.types[:at], query.columns[at].expression.type, *query.types[at + 1 :]]

    def _values(self, fields: Node, parent: Scope | None) -> AnalyzedQuery:
        scope = Scope(parent)
        rows = [self.expressions.analyze_all(row["List"]["items"], scope) for row in fields["valuesLists"]]
        if len({len(row) for row in rows}) > 1:
            raise AnalysisError(SYNTAX_ERROR, "VALUES lists must all be the same length")
        types = []
        columns = []
        for column in zip(*rows, strict=True):
            target, coerced = self.expressions.common(column, "VALUES")
            types.append(target)
            columns.append(coerced)
        query = Values([f"column{at}" for at in range(1, len(types) + 1)], types, list(zip(*columns, strict=True)))
        self._order_by_outputs(query, fields)
        self._limits(query, fields, parent)
        return query

    def _order_by_outputs(self, query: AnalyzedQuery, fields: Node) -> None:
        """Analyze the ORDER BY of a set operation, which may only name its columns."""
        keys = []
        for node in fields.get("sortClause", ()):
            sort = node["SortBy"]
            at = _position(sort["node"], len(query.names)) if "A_Const" in sort["node"] else _named(sort["node"], query.names)
            if at is None:
                raise AnalysisError(
                    "0A000",
                    "ORDER BY of a UNION, INTERSECT, EXCEPT or VALUES can only name its columns",
                    _location_of(sort["node"]),
                )
            keys.append(sort_key_of(ColumnReference(query.types[at], 0, f"c{at + 1}"), sort))
        query.order = keys

    def _limits(self, query: AnalyzedQuery, fields: Node, parent: Scope | None) -> None:
        scope = Scope(parent)
        if fields.get("limitOption") == "LIMIT_OPTION_WITH_TIES":
            raise UnsupportedError("WITH TIES is not supported")
        for name, attribute in (("limitCount", "limit"), ("limitOffset", "offset")):
            if name in fields and not fields[name].get("A_Const", {}).get("isnull"):
                found = self.expressions.analyze(fields[name], scope)
                if any(isinstance(part, ColumnReference) for part in found.walk()):
                    raise AnalysisError(
                        INVALID_COLUMN_REFERENCE, f"argument of {attribute.upper()} must not contain variables", found.location
                    )
                setattr(query, attribute, self.expressions.coerce(found, INT8, "assignment"))

    # SELECT

    def _select(self, fields: Node, parent: Scope | None) -> AnalyzedQuery:
        scope = Scope(parent)
        sources = [self.from_item(node, scope) for node in fields.get("fromClause", ())]
        self._windows.append({window["WindowDef"]["name"]: window["WindowDef"] for window in fields.get("windowClause", ())})
        try:
            where = self.expressions.condition(fields["whereClause"], scope, "WHERE") if "whereClause" in fields else None
            _refuse(where, "WHERE")
            columns = self.output_columns(fields.get("targetList", ()), scope)
            if not columns:
                raise UnsupportedError("SELECT without columns is not supported")
            groups = [self._group(node, scope, columns) for node in fields.get("groupClause", ())]
            having = self.expressions.condition(fields["havingClause"], scope, "HAVING") if "havingClause" in fields else None
            order, hidden = self._order(fields.get("sortClause", ()), scope, columns)
        finally:
            self._windows.pop()
        distinct = fields.get("distinctClause")
        distinct_on = [self._output_or_input(node, scope, columns) for node in distinct or () if node]
        if distinct is not None and not distinct_on and hidden:
            raise AnalysisError(
                INVALID_COLUMN_REFERENCE,
                "for SELECT DISTINCT, ORDER BY expressions must appear in select list",
                hidden[0].location,
            )
        _check_distinct_on(distinct_on, order)
        expressions = [*(column.expression for column in columns), *hidden, *([having] if having is not None else [])]
        for one in (*hidden, having):
            refuse_row_calls(one, "HAVING" if one is having else "ORDER BY unless they are in the list of SELECT")
        check_columns(columns)
        moved = GroupedRowCalls(groups, self.next_number(), same_expression)
        if moved.source is not None:
            sources.append(moved.source)
            moved.rewrite(columns, groups, order)
            expressions = [*(column.expression for column in columns), *hidden, *([having] if having is not None else [])]
        _mark_dependent(groups, expressions, scope)
        is_grouped = bool(groups) or having is not None or any(map(has_aggregate, expressions))
        query = Select(
            [column.name for column in columns],
            [column.expression.type for column in columns],
            columns,
            sources,
            where,
            groups,
            is_grouped,
            having,
            distinct is not None and not distinct_on,
            distinct_on,
            hidden,
            order=order,
        )
        self._limits(query, fields, parent)
        return query

    def output_columns(self, nodes: Iterable[Node], scope: Scope) -> list[OutputColumn]:
        """Return the columns of a list such as that after SELECT or RETURNING."""
        columns: list[OutputColumn] = []
        for node in nodes:
            target = node["ResTarget"]
            value = target["val"]
            if "ColumnRef" in value and "A_Star" in value["ColumnRef"]["fields"][-1]:
                columns += self._star(value["ColumnRef"], scope)
                continue
            found = self.expressions.analyze(value, scope)
            unknown = found if isinstance(found, Constant) and found.type == UNKNOWN else None
            expression = self.expressions.settle(found)
            columns.append(OutputColumn(target.get("name") or column_name(value), expression, unknown))
        return columns

    def _star(self, fields: Node, scope: Scope) -> list[OutputColumn]:
        qualifier = ".".join(part["String"]["sval"] for part in fields["fields"][:-1])
        location = fields.get("location", 0)
        if not qualifier:
            found = list(scope.all_columns())
            if not scope.relations:
                raise AnalysisError(SYNTAX_ERROR, "SELECT * with no tables specified is not valid", location)
        else:
            relation = scope.relation(qualifier)
            if relation is None:
                raise AnalysisError(UNDEFINED_TABLE, f'missing FROM-clause entry for table "{qualifier}"', location)
            found = [column for column in relation.columns if not column.is_hidden]
        return [OutputColumn(column.name, column.expression) for column in found]

    def _group(self, node: Node, scope: Scope, columns: Sequence[OutputColumn]) -> Grouping:
        if "GroupingSet" in node:
            fields = node["GroupingSet"]
            kind = fields["kind"].removeprefix("GROUPING_SET_").lower()
            if kind == "empty":
                return Grouping("simple")
            parts = [self._group(part, scope, columns) for part in fields.get("content", ())]
            return Grouping("sets" if kind == "sets" else kind, (), parts)
        if "RowExpr" in node:
            nodes = node["RowExpr"].get("args", ())
            return Grouping("simple", [self._grouped(part, scope, columns) for part in nodes])
        return Grouping("simple", [self._grouped(node, scope, columns)])

    def _grouped(self, node: Node, scope: Scope, columns: Sequence[OutputColumn]) -> Expression:
        """Return what GROUP BY names: a column of FROM, else one of the result by its name or number."""
        if "A_Const" in node and not node["A_Const"].get("isnull"):
            at = _position(node, len(columns), "GROUP BY")
            found = columns[at].expression  # type: ignore[index]
        else:
            found = self._input_or_output(node, scope, columns)
        if has_aggregate(found):
            raise AnalysisError(GROUPING_ERROR, "aggregate functions are not allowed in GROUP BY", found.location)
        return found

    def _input_or_output(self, node: Node, scope: Scope, columns: Sequence[OutputColumn]) -> Expression:
        try:
            return self.expressions.settle(self.expressions.analyze(node, scope))
        except AnalysisError as error:
            at = _named(node, [column.name for column in columns])
            if error.sqlstate != UNDEFINED_COLUMN or at is None:
                raise
            return columns[at].expression

    def _output_or_input(self, node: Node, scope: Scope, columns: Sequence[OutputColumn]) -> Expression:
        if "A_Const" in node and not node["A_Const"].get("isnull"):
            return columns[_position(node, len(columns)) or 0].expression
        at = _named(node, [column.name for column in columns])
        if at is not None:
            return columns[at].expression
        return self.expressions.settle(self.expressions.analyze(node, scope))

    def _order(
        self, nodes: Iterable[Node], scope: Scope, columns: Sequence[OutputColumn]
    ) -> tuple[list[SortKey], list[Expression]]:
        keys: list[SortKey] = []
        hidden: list[Expression] = []
        for node in nodes:
            sort = node["SortBy"]
            expression = self._output_or_input(sort["node"], scope, columns)
            if not any(expression is column.expression for column in columns):
                same = next((one.expression for one in columns if same_expression(one.expression, expression)), None)
                if same is not None:
                    expression = same
                elif isinstance(expression, Constant):
                    continue
                else:
                    hidden.append(expression)
            keys.append(sort_key_of(expression, sort))
        return keys, hidden

    # FROM

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
        raise UnsupportedError(f"{kind} in FROM is not supported")

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
        if found is None and parts[0] == "public":
            name = ".".join(parts[1:])
            found = self._find(name)
        if found is None:
            raise AnalysisError(UNDEFINED_TABLE, f'relation "{name}" does not exist', location)
        qualifiers = [alias["aliasname"]] if alias else list(dict.fromkeys((name, name.rpartition(".")[2])))
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
            raise UnsupportedError("column definitions of functions in FROM are not supported")
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
            _refuse(condition, "JOIN conditions")
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


def column_name(node: Node) -> str:
    """Return the name that PostgreSQL gives to a column without one."""
    return _figured(node)[0] or "?column?"


def _figured(node: Node) -> tuple[str | None, int]:
    """Return the name of an expression and how good it is, from 0 to 2."""
    ((kind, fields),) = node.items()
    match kind:
        case "ColumnRef":
            return next(part["String"]["sval"] for part in reversed(fields["fields"]) if "String" in part), 2
        case "A_Indirection":
            fields_named = [step["String"]["sval"] for step in fields["indirection"] if "String" in step]
            return (fields_named[-1], 2) if fields_named else _figured(fields["arg"])
        case "FuncCall":
            return fields["funcname"][-1]["String"]["sval"], 2
        case "A_Expr" if fields["kind"] == "AEXPR_NULLIF":
            return "nullif", 2
        case "TypeCast":
            name, strength = _figured(fields["arg"])
            return (name, strength) if strength > 1 else (fields["typeName"]["names"][-1]["String"]["sval"], 1)
        case "CollateClause":
            return _figured(fields["arg"])
        case "CaseExpr":
            name, strength = _figured(fields["defresult"]) if "defresult" in fields else (None, 0)
            return (name, strength) if strength > 1 else ("case", 1)
        case "SubLink":
            return _figured_subquery(fields)
        case "SQLValueFunction":
            return fields["op"].removeprefix("SVFOP_").removesuffix("_N").lower(), 2
        case "MinMaxExpr":
            return ("greatest" if fields["op"] == "IS_GREATEST" else "least"), 2
    name = {"CoalesceExpr": "coalesce", "A_ArrayExpr": "array", "RowExpr": "row", "GroupingFunc": "grouping"}.get(kind)
    return name, 2 if name is not None else 0


def _figured_subquery(fields: Node) -> tuple[str | None, int]:
    kind = fields["subLinkType"]
    if kind == "EXISTS_SUBLINK":
        return "exists", 2
    if kind == "ARRAY_SUBLINK":
        return "array", 2
    targets = fields["subselect"]["SelectStmt"].get("targetList") if kind == "EXPR_SUBLINK" else None
    if not targets:
        return None, 0
    target = targets[0]["ResTarget"]
    return (target["name"], 2) if target.get("name") else _figured(target["val"])


def has_aggregate(expression: Expression) -> bool:
    """Return whether an aggregate is computed over the rows of the query around the expression."""
    if isinstance(expression, Aggregate | GroupingOf):
        return True
    if isinstance(expression, WindowCall):
        inner = expression.call
        parts: list[Expression] = [*expression.partition, *(key.expression for key in expression.order)]
        if isinstance(inner, Aggregate):
            parts += inner.arguments
        return any(map(has_aggregate, parts))
    return any(map(has_aggregate, expression.children()))


def same_expression(one: Expression, other: Expression) -> bool:
    """Return whether two expressions are written alike."""
    if one is other:
        return True
    if type(one) is not type(other) or one.type != other.type:
        return False
    if isinstance(one, ColumnReference) and isinstance(other, ColumnReference):
        return (one.relation, one.column) == (other.relation, other.column)
    if isinstance(one, Constant) and isinstance(other, Constant):
        return type(one.value) is type(other.value) and one.value == other.value
    if isinstance(one, Call | Aggregate) and isinstance(other, Call | Aggregate) and one.signature != other.signature:
        return False
    mine, theirs = list(one.children()), list(other.children())
    skipped = ("arguments", "type", "location")
    scalars = [
        [
            getattr(each, name)
            for name in each.__dataclass_fields__
            if name not in skipped and isinstance(getattr(each, name), bool | str | int)
        ]
        for each in (one, other)
    ]
    if scalars[0] != scalars[1] or not mine:
        return False
    return len(mine) == len(theirs) and all(map(same_expression, mine, theirs))


def _check_distinct_on(distinct_on: Sequence[Expression], order: Sequence[SortKey]) -> None:
    left = list(distinct_on)
    for key in order:
        same = next((one for one in left if same_expression(one, key.expression)), None)
        if same is not None:
            left.remove(same)
        elif left and not any(same_expression(one, key.expression) for one in distinct_on):
            raise AnalysisError(
                INVALID_COLUMN_REFERENCE,
                "SELECT DISTINCT ON expressions must match initial ORDER BY expressions",
                key.expression.location,
            )


def _mark_dependent(groups: Sequence[Grouping], expressions: Sequence[Expression], scope: Scope) -> None:
    """Mark columns that are not grouped by but follow from a primary key that is."""
    if not groups or any(group.kind != "simple" for group in groups):
        return
    grouped = {(one.relation, one.column) for group in groups for one in group.expressions if isinstance(one, ColumnReference)}
    numbers = set()
    for relation in scope.relations:
        keys = [column.expression for column in relation.columns if column.is_key]
        if keys and all(isinstance(one, ColumnReference) and (one.relation, one.column) in grouped for one in keys):
            numbers.add(keys[0].relation if isinstance(keys[0], ColumnReference) else 0)
    if numbers:
        for expression in expressions:
            _mark(expression, numbers, grouped)


def _mark(expression: Expression, numbers: set[int], grouped: set[tuple[int, str]]) -> None:
    if isinstance(expression, ColumnReference):
        if expression.relation in numbers and (expression.relation, expression.column) not in grouped:
            expression.is_dependent = True
    elif not isinstance(expression, Aggregate):
        for child in expression.children():
            _mark(child, numbers, grouped)


def _refuse(condition: Expression | None, clause: str) -> None:
    if condition is None:
        return
    refuse_row_calls(condition, clause)
    for part in condition.walk():
        if isinstance(part, WindowCall):
            raise AnalysisError("42P20", f"window functions are not allowed in {clause}", part.location)
        if isinstance(part, Aggregate):
            raise AnalysisError(GROUPING_ERROR, f"aggregate functions are not allowed in {clause}", part.location)


def _typed(query: AnalyzedQuery, at: int, sql_type: SqlType) -> Expression:
    """Return an expression of the type of a column; a null that was written is of any type."""
    if isinstance(query, Select) and (unknown := query.columns[at].unknown) is not None:
        return unknown
    return ColumnReference(sql_type, 0, f"c{at + 1}")


def _position(node: Node, count: int, clause: str = "ORDER BY") -> int | None:
    value = node["A_Const"].get("ival")
    if value is None:
        raise AnalysisError(SYNTAX_ERROR, f"non-integer constant in {clause}", _location_of(node))
    number = value.get("ival", 0)
    if not 1 <= number <= count:
        raise AnalysisError(INVALID_COLUMN_REFERENCE, f"{clause} position {number} is not in select list", _location_of(node))
    return int(number) - 1


def _named(node: Node, names: Sequence[str]) -> int | None:
    """Return the place of the column that a bare name means in a result."""
    fields: Any = node.get("ColumnRef", {}).get("fields", ())
    if len(fields) != 1 or "String" not in fields[0]:
        return None
    name = fields[0]["String"]["sval"]
    return names.index(name) if name in names else None


def _location_of(node: Node) -> int:
    ((_, fields),) = node.items()
    return fields.get("location", 0) if isinstance(fields, Mapping) else -1


def _mentions(node: object, name: str) -> bool:
    """Return whether a parse tree reads a relation of this name."""
    if isinstance(node, Mapping):
        if "RangeVar" in node and node["RangeVar"].get("relname") == name and "schemaname" not in node["RangeVar"]:
            return True
        return any(_mentions(value, name) for value in node.values())
    return isinstance(node, list) and any(_mentions(item, name) for item in node)


def _renamed(names: Sequence[str], columns: Sequence[str], location: int) -> list[str]:
    if len(columns) > len(names):
        raise AnalysisError("42P10", f"{len(names)} columns are available, but {len(columns)} are named", location)
    return [*columns, *names[len(columns) :]]


def _aliased(columns: Sequence[ScopeColumn], alias: Node) -> list[ScopeColumn]:
    names = [part["String"]["sval"] for part in alias.get("colnames", ())]
    renamed = _renamed([column.name for column in columns], names, -1)
    return [
        ScopeColumn(name, column.expression, column.is_hidden, column.is_key)
        for name, column in zip(renamed, columns, strict=True)
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
