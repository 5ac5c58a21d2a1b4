"""Analyzes INSERT, UPDATE and DELETE: which columns get which values, and what RETURNING returns.

Values are cast to the types of their columns as PostgreSQL does on assignment. `DEFAULT` is `None` in the place of a value.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from tailrace.sql.analysis.errors import (
    DATATYPE_MISMATCH,
    DUPLICATE_ALIAS,
    GROUPING_ERROR,
    INVALID_COLUMN_REFERENCE,
    SYNTAX_ERROR,
    UNDEFINED_OBJECT,
    WINDOWING_ERROR,
    AnalysisError,
    UnsupportedError,
)
from tailrace.sql.analysis.lifting import LiftedColumns, has_subquery
from tailrace.sql.analysis.parse_tree import Node
from tailrace.sql.analysis.queries import QueryAnalyzer
from tailrace.sql.analysis.relations import FindFunction, FindRelation, RelationColumn
from tailrace.sql.analysis.scope import Scope
from tailrace.sql.analysis.tree import (
    Aggregate,
    AnalyzedQuery,
    ColumnReference,
    CommonTable,
    Expression,
    FromItem,
    GroupingOf,
    Join,
    NamedRelation,
    OutputColumn,
    QueryRelation,
    Select,
    Subquery,
    WindowCall,
)
from tailrace.sql.analysis.types import SqlType
from tailrace.sql.analysis.write_scopes import ReturningScope, WriteTarget
from tailrace.sql.analysis.write_tree import (
    AnalyzedDelete,
    AnalyzedInsert,
    AnalyzedUpdate,
    AnalyzedWrite,
    Assignment,
    ConflictAction,
)

DUPLICATE_COLUMN = "42701"
GENERATED_ALWAYS = "428C9"
_CLAUSES_OF_VALUES = ("withClause", "sortClause", "limitCount", "limitOffset")


class WriteAnalyzer:
    """Analyzes one statement that writes to a table."""

    def __init__(
        self,
        find: FindRelation,
        parameter_types: Sequence[SqlType] = (),
        find_function: FindFunction = lambda name, arguments: None,
        max_views: int = 0,
    ) -> None:
        self._find = find
        self._queries = QueryAnalyzer(find, parameter_types, find_function, max_views)
        self._expressions = self._queries.expressions

    def analyze(self, node: Node) -> AnalyzedWrite:
        """Return the analyzed form of an `InsertStmt`, `UpdateStmt` or `DeleteStmt`."""
        ((kind, fields),) = node.items()
        with self._queries.common_tables(fields.get("withClause")) as ctes:
            match kind:
                case "InsertStmt":
                    return self._insert(fields, ctes)
                case "UpdateStmt":
                    return self._update(fields, ctes)
                case "DeleteStmt":
                    return self._delete(fields, ctes)
        raise UnsupportedError(f"{kind} can't write to a table")

    def _target(self, fields: Node) -> WriteTarget:
        target = WriteTarget(self._find, fields["relation"], self._queries.next_number())
        self._expressions.note_enums(column.type for column in target.columns)
        return target

    # The three statements

    def _insert(self, fields: Node, ctes: Sequence[CommonTable]) -> AnalyzedInsert:
        target = self._target(fields)
        columns = [target.column(one["ResTarget"]) for one in fields.get("cols", ())] or list(target.columns)
        _check_once(columns, fields.get("cols", ()))
        overriding = fields.get("override", "OVERRIDING_NOT_SET")
        if overriding == "OVERRIDING_SYSTEM_VALUE":
            columns = [column._replace(is_generated=False) for column in columns]
        is_ignored = [overriding == "OVERRIDING_USER_VALUE" and column.is_identity for column in columns]
        rows: list[Sequence[Expression | None]] = []
        query = None
        number = self._queries.next_number()
        casts: Sequence[Expression] = ()
        source = fields.get("selectStmt", {}).get("SelectStmt")
        if source is None:
            columns, rows = [], [()]
        elif "valuesLists" in source and not any(source.get(name) for name in _CLAUSES_OF_VALUES):
            rows = self._rows(source["valuesLists"], columns, is_ignored, bool(fields.get("cols")))
        else:
            query = self._queries.analyze(fields["selectStmt"])
            query.ctes = [*ctes, *query.ctes]
            if any(is_ignored):
                raise UnsupportedError("OVERRIDING USER VALUE of a query is not supported; leave the column out")
            _check_width(len(query.types), columns, -1, is_named=bool(fields.get("cols")))
            for column in columns[: len(query.types)]:
                _writable(column, fields["selectStmt"])
            casts = [
                self._assigned(_given(query, at, number), column, -1) for at, column in enumerate(columns[: len(query.types)])
            ]
        width = len(casts) if query is not None else len(rows[0])
        lifted = LiftedColumns(self._queries.next_number())
        conflict = self._conflict(fields["onConflictClause"], target) if "onConflictClause" in fields else None
        returned = self._returned(fields, target)
        # A query of an INSERT runs before its rows are there.
        hidden = target.images(returned, conflict)
        write = AnalyzedInsert(
            target.name,
            target.number,
            [column.name for column in columns[:width]],
            [[None if value is None else lifted.lift(value, (), hidden) for value in row] for row in rows],
            query,
            number,
            casts,
            conflict,
            **returned,
        )
        if conflict is not None:
            _lift_assignments(conflict.assignments, lifted, (), hidden)
            conflict.where = None if conflict.where is None else lifted.lift(conflict.where, (), hidden)
        self._lift_returning(write, lifted, (), hidden)
        if lifted.columns:
            self._compute(write, lifted, (), None, ctes)
        return write

    def _update(self, fields: Node, ctes: Sequence[CommonTable]) -> AnalyzedUpdate:
        target = self._target(fields)
        scope, sources = self._from(fields.get("fromClause", ()), target)
        assignments = list(self._assignments(fields["targetList"], target, scope))
        where = self._condition(fields, scope)
        returned = self._returned(fields, target, scope)
        write = AnalyzedUpdate(target.name, target.number, assignments, where, **returned)
        # The row that RETURNING refers to is not there while the query runs, except for what stays as it was.
        assigned = {one.column for one in assignments}
        hidden = {(target.number, name) for name in assigned} | target.images(returned, None, with_target=False)
        self._with_source(write, target, scope, sources, ctes, assignments, hidden)
        return write

    def _delete(self, fields: Node, ctes: Sequence[CommonTable]) -> AnalyzedDelete:
        target = self._target(fields)
        scope, sources = self._from(fields.get("usingClause", ()), target)
        where = self._condition(fields, scope)
        returned = self._returned(fields, target, scope)
        write = AnalyzedDelete(target.name, target.number, where, **returned)
        self._with_source(write, target, scope, sources, ctes, (), target.images(returned, None, with_target=False))
        return write

    # Queries

    def _from(self, nodes: Sequence[Node], target: WriteTarget) -> tuple[Scope, list[FromItem]]:
        """Return the scope of FROM or USING, which do not see the target, with the target before them."""
        scope = Scope()
        sources = [self._queries.from_item(node, scope) for node in nodes]
        mine = target.relation()
        for one in scope.relations:
            if one.qualifiers and one.qualifiers[0] in mine.qualifiers[:1]:
                raise AnalysisError(DUPLICATE_ALIAS, f'table name "{one.qualifiers[0]}" specified more than once')
        scope.relations.insert(0, mine)
        return scope, sources

    def _with_source(
        self,
        write: AnalyzedUpdate | AnalyzedDelete,
        target: WriteTarget,
        scope: Scope,
        sources: Sequence[FromItem],
        ctes: Sequence[CommonTable],
        assignments: Sequence[Assignment],
        hidden: Collection[tuple[int, str]],
    ) -> None:
        """Let a query find the rows if they depend on others."""
        others = {number for one in sources for number in _numbers(one)}
        lifted = LiftedColumns(self._queries.next_number())
        for column in target.columns:
            if column.is_key:
                lifted.add(ColumnReference(column.type, target.number, column.name))
        keys = len(lifted.columns)
        _lift_assignments(assignments, lifted, others, ())
        self._lift_returning(write, lifted, others, hidden)
        if not sources and len(lifted.columns) == keys and not has_subquery(write.where):
            return
        relation = NamedRelation(target.number, target.name)
        self._compute(write, lifted, [relation, *sources], write.where, ctes)
        write.where = None

    def _compute(
        self,
        write: AnalyzedWrite,
        lifted: LiftedColumns,
        sources: Sequence[FromItem],
        where: Expression | None,
        ctes: Sequence[CommonTable],
    ) -> None:
        names = [column.name for column in lifted.columns]
        types = [column.expression.type for column in lifted.columns]
        write.computed = Select(names, types, lifted.columns, sources, where, ctes=ctes)
        write.computed_number = lifted.number

    def _lift_returning(
        self, write: AnalyzedWrite, lifted: LiftedColumns, others: Collection[int], hidden: Collection[tuple[int, str]]
    ) -> None:
        for column in write.returning:
            column.expression = lifted.lift(column.expression, others, hidden)

    # Their parts

    def _rows(
        self, lists: Sequence[Node], columns: Sequence[RelationColumn], is_ignored: Sequence[bool], is_named: bool
    ) -> list[Sequence[Expression | None]]:
        rows = [one["List"]["items"] for one in lists]
        for row in rows[1:]:
            if len(row) != len(rows[0]):
                raise AnalysisError(SYNTAX_ERROR, "VALUES lists must all be the same length", _location(row[0]))
        return [self._row(row, columns, is_ignored, is_named) for row in rows]

    def _row(
        self, nodes: Sequence[Node], columns: Sequence[RelationColumn], is_ignored: Sequence[bool], is_named: bool
    ) -> list[Expression | None]:
        _check_width(len(nodes), columns, _location(nodes[0]), is_named=is_named)
        scope = Scope()
        return [
            None if ignored or "SetToDefault" in node else self._value(node, _writable(column, node), scope, "VALUES")
            for node, column, ignored in zip(nodes, columns, is_ignored, strict=False)
        ]

    def _assignments(self, nodes: Sequence[Node], target: WriteTarget, scope: Scope) -> Iterator[Assignment]:
        columns = [target.column(node["ResTarget"]) for node in nodes]
        _check_once(columns, nodes, "multiple assignments to same column")
        for node, column in zip(nodes, columns, strict=True):
            fields = node["ResTarget"]
            if column.is_generated and "SetToDefault" not in fields["val"]:
                message = f'column "{column.name}" can only be updated to DEFAULT'
                raise AnalysisError(GENERATED_ALWAYS, message, fields.get("location", -1))
            part = fields["val"].get("MultiAssignRef")
            if part is not None and "SubLink" in part["source"]:
                found: Expression = self._part_of_row(part, scope)
                yield Assignment(column.name, self._assigned(found, column, found.location))
                continue
            value = _assigned_node(fields)
            is_default = "SetToDefault" in value
            yield Assignment(column.name, None if is_default else self._value(value, column, scope, "UPDATE"))

    def _part_of_row(self, part: Node, scope: Scope) -> Subquery:
        """Return one column of the row of a subquery, as in `SET (a, b) = (SELECT ...)`."""
        link = part["source"]["SubLink"]
        query = self._queries.analyze(link["subselect"], scope)
        if len(query.types) != part["ncolumns"]:
            raise AnalysisError(SYNTAX_ERROR, "number of columns does not match number of values", link.get("location", -1))
        at, number = part["colno"], self._queries.next_number()
        kind = query.types[at - 1]
        column = OutputColumn(query.names[at - 1], ColumnReference(kind, number, f"c{at}"))
        only = Select([column.name], [kind], [column], [QueryRelation(number, query)])
        return Subquery(kind, "scalar", only, location=link.get("location", -1))

    def _value(self, node: Node, column: RelationColumn, scope: Scope, clause: str) -> Expression:
        found = self._expressions.analyze(node, scope)
        _refuse_aggregates(found, clause)
        return self._assigned(found, column, found.location)

    def _assigned(self, found: Expression, column: RelationColumn, location: int) -> Expression:
        try:
            return self._expressions.coerce(found, column.type, "assignment", location)
        except AnalysisError as error:
            if error.sqlstate != DATATYPE_MISMATCH:
                raise
            raise AnalysisError(
                DATATYPE_MISMATCH,
                f'column "{column.name}" is of type {column.type} but expression is of type {found.type}',
                location,
            ) from None

    def _condition(self, fields: Node, scope: Scope) -> Expression | None:
        if "whereClause" not in fields:
            return None
        found = self._expressions.condition(fields["whereClause"], scope, "WHERE")
        _refuse_aggregates(found, "WHERE")
        return found

    def _conflict(self, fields: Node, target: WriteTarget) -> ConflictAction:
        infer = fields.get("infer", {})
        location = infer.get("location", -1)
        if "whereClause" in infer or any("expr" in one["IndexElem"] for one in infer.get("indexElems", ())):
            raise UnsupportedError("ON CONFLICT names the columns of the key, without conditions", location)
        named = [target.column({"location": location, **one["IndexElem"]}).name for one in infer.get("indexElems", ())]
        keys: dict[str, set[str]] = {}
        for column in target.columns:
            for key in column.unique_keys:
                keys.setdefault(key, set()).add(column.name)
        if "conname" in infer:
            if infer["conname"] not in keys:
                raise AnalysisError(
                    UNDEFINED_OBJECT, f'constraint "{infer["conname"]}" for table "{target.name}" does not exist', location
                )
            named = sorted(keys[infer["conname"]])
        if named and set(named) not in keys.values():
            raise AnalysisError(
                INVALID_COLUMN_REFERENCE,
                "there is no unique or exclusion constraint matching the ON CONFLICT specification",
                location,
            )
        excluded = self._queries.next_number()
        if fields["action"] == "ONCONFLICT_NOTHING":
            return ConflictAction(named, (), None, excluded)
        if not named:
            raise AnalysisError(SYNTAX_ERROR, "ON CONFLICT DO UPDATE requires inference specification or constraint name")
        scope = Scope(None, [target.relation(), target.relation(["excluded"], excluded)])
        # A name without a qualifier is ambiguous here, as it is in PostgreSQL.
        assignments = list(self._assignments(fields["targetList"], target, scope))
        return ConflictAction(named, assignments, self._condition(fields, scope), excluded)

    def _returned(self, fields: Node, target: WriteTarget, source: Scope | None = None) -> Mapping[str, Any]:
        nodes = fields.get("returningList", ())
        if not nodes:
            return {}
        old, new = self._queries.next_number(), self._queries.next_number()
        others, joined = ([], []) if source is None else (source.relations[1:], source.joined)
        images = [target.relation(["old"], old), target.relation(["new"], new)]
        scope = ReturningScope(None, [target.relation(), *images, *others], joined)
        columns = self._queries.output_columns(nodes, scope)
        for column in columns:
            _refuse_aggregates(column.expression, "RETURNING")
        return {"returning": columns, "old": old, "new": new}


def _given(query: AnalyzedQuery, at: int, number: int) -> Expression:
    """Return a column of the query of an INSERT. A constant whose type nothing has decided gets that of the target."""
    if isinstance(query, Select) and (unknown := query.columns[at].unknown) is not None:
        return unknown
    return ColumnReference(query.types[at], number, f"c{at + 1}")


def _lift_assignments(
    assignments: Sequence[Assignment], lifted: LiftedColumns, others: Collection[int], hidden: Collection[tuple[int, str]]
) -> None:
    for one in assignments:
        one.value = None if one.value is None else lifted.lift(one.value, others, hidden)


def _numbers(item: FromItem) -> Iterator[int]:
    yield item.number
    if isinstance(item, Join):
        yield from _numbers(item.left)
        yield from _numbers(item.right)


def _assigned_node(fields: Node) -> Node:
    value: Node = fields["val"]
    if "MultiAssignRef" not in value:
        return value
    part = value["MultiAssignRef"]
    source = part["source"]
    if "RowExpr" not in source:
        raise AnalysisError(
            "0A000",
            "source for a multiple-column UPDATE item must be a sub-SELECT or ROW() expression",
            fields.get("location", -1),
        )
    items = source["RowExpr"].get("args", ())
    if len(items) != part["ncolumns"]:
        raise AnalysisError(SYNTAX_ERROR, "number of columns does not match number of values", fields.get("location", -1))
    return items[part["colno"] - 1]  # type: ignore[no-any-return]


def _check_once(
    columns: Sequence[RelationColumn], nodes: Sequence[Node], message: str = "column specified more than once"
) -> None:
    seen: set[str] = set()
    for column, node in zip(columns, nodes, strict=False):
        if column.name in seen:
            text = f'{message} "{column.name}"' if "multiple" in message else f'column "{column.name}" specified more than once'
            raise AnalysisError(
                SYNTAX_ERROR if "multiple" in message else DUPLICATE_COLUMN, text, node["ResTarget"].get("location", -1)
            )
        seen.add(column.name)


def _check_width(width: int, columns: Sequence[RelationColumn], location: int, *, is_named: bool) -> None:
    if width > len(columns):
        raise AnalysisError(SYNTAX_ERROR, "INSERT has more expressions than target columns", location)
    if width < len(columns) and is_named:
        raise AnalysisError(SYNTAX_ERROR, "INSERT has more target columns than expressions", location)


def _refuse_aggregates(found: Expression, clause: str) -> None:
    for part in found.walk():
        if isinstance(part, Aggregate | GroupingOf):
            raise AnalysisError(GROUPING_ERROR, f"aggregate functions are not allowed in {clause}", part.location)
        if isinstance(part, WindowCall):
            raise AnalysisError(WINDOWING_ERROR, f"window functions are not allowed in {clause}", part.location)


def _writable(column: RelationColumn, node: Node) -> RelationColumn:
    if column.is_generated:
        raise AnalysisError(GENERATED_ALWAYS, f'cannot insert a non-DEFAULT value into column "{column.name}"', _location(node))
    return column


def _location(node: Node) -> int:
    ((_, fields),) = node.items()
    location = fields.get("location", -1)
    return location if isinstance(location, int) else -1
