"""Analyzes queries: outputs, grouping, set operations and common tables."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from tailrace.sql.analysis.column_names import column_name
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
from tailrace.sql.analysis.from_items import FromAnalyzer, renamed
from tailrace.sql.analysis.grouping_rules import (
    check_distinct_on,
    has_aggregate,
    mark_dependent,
    refuse_aggregates,
    same_expression,
)
from tailrace.sql.analysis.parse_tree import Node
from tailrace.sql.analysis.relations import FindFunction, FindRelation
from tailrace.sql.analysis.row_functions import GroupedRowCalls, check_columns, refuse_row_calls
from tailrace.sql.analysis.scope import Scope
from tailrace.sql.analysis.tree import (
    AnalyzedQuery,
    ColumnReference,
    CommonTable,
    Constant,
    Expression,
    Grouping,
    OutputColumn,
    Select,
    SetOperation,
    SortKey,
    Values,
)
from tailrace.sql.analysis.types import INT8, UNKNOWN, SqlType


class QueryAnalyzer(FromAnalyzer):
    """Analyzes one statement with all its subqueries."""

    def __init__(
        self,
        find: FindRelation,
        parameter_types: Sequence[SqlType] = (),
        find_function: FindFunction = lambda name, arguments: None,
        max_views: int = 0,
    ) -> None:
        super().__init__(find, find_function, max_views)
        self.expressions = ExpressionAnalyzer(parameter_types, self)

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
            query.names = renamed(query.names, columns, cte.get("location", -1))
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
        left.names = renamed(left.names, columns, -1)
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
            raise UnsupportedError("WITH TIES is not supported", _location_of(fields["limitCount"]))
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
            refuse_aggregates(where, "WHERE")
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
        check_distinct_on(distinct_on, order)
        expressions = [*(column.expression for column in columns), *hidden, *([having] if having is not None else [])]
        for one in (*hidden, having):
            refuse_row_calls(one, "HAVING" if one is having else "ORDER BY unless they are in the list of SELECT")
        check_columns(columns)
        moved = GroupedRowCalls(groups, self.next_number(), same_expression)
        if moved.source is not None:
            sources.append(moved.source)
            moved.rewrite(columns, groups, order)
            expressions = [*(column.expression for column in columns), *hidden, *([having] if having is not None else [])]
        mark_dependent(groups, expressions, scope)
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
