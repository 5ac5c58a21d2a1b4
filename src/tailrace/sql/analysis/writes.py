"""Analyzes INSERT, UPDATE and DELETE: which columns get which values, and what RETURNING returns.

Values are cast to the types of their columns as PostgreSQL does on assignment. `DEFAULT` is `None` in the place of a value.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tailrace.model.suggestions import did_you_mean
from tailrace.sql.analysis.errors import (
    DATATYPE_MISMATCH,
    GROUPING_ERROR,
    INVALID_COLUMN_REFERENCE,
    SYNTAX_ERROR,
    UNDEFINED_COLUMN,
    UNDEFINED_OBJECT,
    UNDEFINED_TABLE,
    WINDOWING_ERROR,
    AnalysisError,
    UnsupportedError,
)
from tailrace.sql.analysis.parse_tree import Node
from tailrace.sql.analysis.queries import FindRelation, KeyedRelation, QueryAnalyzer, RelationColumn, ViewQuery
from tailrace.sql.analysis.scope import Scope, ScopeColumn, ScopeRelation
from tailrace.sql.analysis.tree import (
    Aggregate,
    AnalyzedQuery,
    ColumnReference,
    Expression,
    GroupingOf,
    OutputColumn,
    WindowCall,
)
from tailrace.sql.analysis.types import SqlType

DUPLICATE_COLUMN = "42701"
GENERATED_ALWAYS = "428C9"


@dataclass(slots=True, eq=False)
class AnalyzedWrite:
    table: str
    target: int
    """The number under which expressions refer to the row: as it was, or in RETURNING as it is now."""
    returning: Sequence[OutputColumn] = field(default=(), kw_only=True)
    old: int = field(default=0, kw_only=True)
    new: int = field(default=0, kw_only=True)
    """The numbers under which RETURNING refers to the row before and after the change."""


@dataclass(slots=True, eq=False)
class Assignment:
    column: str
    value: Expression | None
    """`None` for the default."""


@dataclass(slots=True, eq=False)
class ConflictAction:
    """ON CONFLICT. Nothing is done if there are no assignments."""

    columns: Sequence[str]
    assignments: Sequence[Assignment]
    where: Expression | None
    excluded: int
    """The number under which expressions refer to the row that was to be inserted."""


@dataclass(slots=True, eq=False)
class AnalyzedInsert(AnalyzedWrite):
    columns: Sequence[str]
    rows: Sequence[Sequence[Expression | None]]
    query: AnalyzedQuery | None = None
    """What is inserted instead of rows, with the columns in order; they are cast by `casts`."""
    casts: Sequence[Expression] = ()
    conflict: ConflictAction | None = None


@dataclass(slots=True, eq=False)
class AnalyzedUpdate(AnalyzedWrite):
    assignments: Sequence[Assignment]
    where: Expression | None = None


@dataclass(slots=True, eq=False)
class AnalyzedDelete(AnalyzedWrite):
    where: Expression | None = None


class WriteAnalyzer:
    """Analyzes one statement that writes to a table."""

    def __init__(self, find: FindRelation, parameter_types: Sequence[SqlType] = ()) -> None:
        self._find = find
        self._queries = QueryAnalyzer(find, parameter_types)
        self._expressions = self._queries.expressions

    def analyze(self, node: Node) -> AnalyzedWrite:
        """Return the analyzed form of an `InsertStmt`, `UpdateStmt` or `DeleteStmt`."""
        ((kind, fields),) = node.items()
        if "withClause" in fields:
            raise UnsupportedError(f"WITH before {kind.removesuffix('Stmt').upper()} is not supported; use a subquery")
        match kind:
            case "InsertStmt":
                return self._insert(fields)
            case "UpdateStmt":
                return self._update(fields)
            case "DeleteStmt":
                return self._delete(fields)
        raise UnsupportedError(f"{kind} can't write to a table")

    # The three statements

    def _insert(self, fields: Node) -> AnalyzedInsert:
        if fields.get("override", "OVERRIDING_NOT_SET") != "OVERRIDING_NOT_SET":
            raise UnsupportedError("OVERRIDING is not supported")
        target = _Target(self._find, fields["relation"], self._queries.next_number())
        columns = [target.column(one["ResTarget"]) for one in fields.get("cols", ())] or list(target.columns)
        _check_once(columns, fields.get("cols", ()))
        rows: list[Sequence[Expression | None]] = []
        query = None
        casts: Sequence[Expression] = ()
        source = fields.get("selectStmt", {}).get("SelectStmt")
        if source is None:
            columns, rows = [], [()]
        elif "valuesLists" in source and not any(source.get(name) for name in ("sortClause", "limitCount", "limitOffset")):
            rows = [self._row(one["List"]["items"], columns, bool(fields.get("cols"))) for one in source["valuesLists"]]
        else:
            query = self._queries.analyze(fields["selectStmt"])
            _check_width(len(query.types), columns, -1, is_named=bool(fields.get("cols")))
            number = self._queries.next_number()
            given = [ColumnReference(one, number, f"c{at}") for at, one in enumerate(query.types, 1)]
            casts = [self._assigned(one, column, -1) for one, column in zip(given, columns, strict=False)]
        width = len(casts) if query is not None else len(rows[0])
        return AnalyzedInsert(
            target.name,
            target.number,
            [column.name for column in columns[:width]],
            rows,
            query,
            casts,
            self._conflict(fields["onConflictClause"], target) if "onConflictClause" in fields else None,
            **self._returned(fields, target),
        )

    def _update(self, fields: Node) -> AnalyzedUpdate:
        if "fromClause" in fields:
            raise UnsupportedError("UPDATE ... FROM is not supported; use a subquery")
        target = _Target(self._find, fields["relation"], self._queries.next_number())
        scope = Scope(None, [target.relation()])
        assignments = list(self._assignments(fields["targetList"], target, scope))
        where = self._condition(fields, scope)
        return AnalyzedUpdate(target.name, target.number, assignments, where, **self._returned(fields, target))

    def _delete(self, fields: Node) -> AnalyzedDelete:
        if "usingClause" in fields:
            raise UnsupportedError("DELETE ... USING is not supported; use a subquery")
        target = _Target(self._find, fields["relation"], self._queries.next_number())
        where = self._condition(fields, Scope(None, [target.relation()]))
        return AnalyzedDelete(target.name, target.number, where, **self._returned(fields, target))

    # Their parts

    def _row(self, nodes: Sequence[Node], columns: Sequence[RelationColumn], is_named: bool) -> list[Expression | None]:
        _check_width(len(nodes), columns, _location(nodes[0]), is_named=is_named)
        scope = Scope()
        return [
            None if "SetToDefault" in node else self._value(node, _writable(column, node), scope, "VALUES")
            for node, column in zip(nodes, columns, strict=False)
        ]

    def _assignments(self, nodes: Sequence[Node], target: "_Target", scope: Scope) -> Iterator[Assignment]:
        columns = [target.column(node["ResTarget"]) for node in nodes]
        _check_once(columns, nodes, "multiple assignments to same column")
        for node, column in zip(nodes, columns, strict=True):
            value = _assigned_node(node["ResTarget"])
            is_default = "SetToDefault" in value
            if column.is_generated and not is_default:
                location = node["ResTarget"].get("location", -1)
                raise AnalysisError(GENERATED_ALWAYS, f'column "{column.name}" can only be updated to DEFAULT', location)
            yield Assignment(column.name, None if is_default else self._value(value, column, scope, "UPDATE"))

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

    def _conflict(self, fields: Node, target: "_Target") -> ConflictAction:
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

    def _returned(self, fields: Node, target: "_Target") -> Mapping[str, Any]:
        nodes = fields.get("returningList", ())
        if not nodes:
            return {}
        old, new = self._queries.next_number(), self._queries.next_number()
        scope = _ReturningScope(None, [target.relation(), target.relation(["old"], old), target.relation(["new"], new)])
        columns = self._queries.output_columns(nodes, scope)
        for column in columns:
            _refuse_aggregates(column.expression, "RETURNING")
        return {"returning": columns, "old": old, "new": new}


class _Target:
    """The table that is written to."""

    def __init__(self, find: FindRelation, fields: Node, number: int) -> None:
        parts = [fields[part] for part in ("catalogname", "schemaname", "relname") if part in fields]
        self.number = number
        self.name = ".".join(parts)
        found = find(self.name)
        if found is None and parts[0] == "public":
            self.name = ".".join(parts[1:])
            found = find(self.name)
        if found is None:
            raise AnalysisError(UNDEFINED_TABLE, f'relation "{self.name}" does not exist', fields.get("location", 0))
        if isinstance(found, ViewQuery | KeyedRelation):
            raise UnsupportedError(f'"{self.name}" is a view, which can\'t be written to', fields.get("location", 0))
        self.columns = [column for column in found if not column.is_hidden]
        alias = fields.get("alias", {}).get("aliasname")
        self._qualifiers = [alias] if alias else list(dict.fromkeys((self.name, parts[-1])))

    def relation(self, qualifiers: Sequence[str] | None = None, number: int | None = None) -> ScopeRelation:
        """Return the columns of the table under a number."""
        number = self.number if number is None else number
        columns = [
            ScopeColumn(one.name, ColumnReference(one.type, number, one.name), is_key=one.is_key) for one in self.columns
        ]
        return ScopeRelation(qualifiers or self._qualifiers, columns)

    def column(self, fields: Node) -> RelationColumn:
        """Return the column that a `ResTarget` or `IndexElem` names."""
        name, location = fields["name"], fields.get("location", -1)
        if fields.get("indirection"):
            raise UnsupportedError("parts of a column can't be assigned; assign the whole value", location)
        found = [one for one in self.columns if one.name == name] or [one for one in self.columns if one.name.lower() == name]
        if not found:
            hint = did_you_mean(name, [one.name for one in self.columns])
            raise AnalysisError(UNDEFINED_COLUMN, f'column "{name}" of relation "{self.name}" does not exist{hint}', location)
        return found[0]


class _ReturningScope(Scope):
    """The scope of RETURNING: names without a qualifier, and `*`, mean the first relation, not `old` and `new`."""

    def _here(self, name: str, qualifier: str | None) -> list[ScopeColumn]:
        found = super()._here(name, qualifier)
        return found[:1] if qualifier is None else found

    def all_columns(self) -> Iterator[ScopeColumn]:
        yield from self.relations[0].columns


def _assigned_node(fields: Node) -> Node:
    value: Node = fields["val"]
    if "MultiAssignRef" not in value:
        return value
    part = value["MultiAssignRef"]
    source = part["source"]
    if "RowExpr" not in source:
        raise UnsupportedError("several columns can only be assigned from a row such as (1, 2)", fields.get("location", -1))
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
