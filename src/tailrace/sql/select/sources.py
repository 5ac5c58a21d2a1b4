"""The sources of a query: tables, topics, system tables and change feeds, with the columns and rows that it can need of them.

Every occurrence of a name becomes a relation of its own in DuckDB (`scan_1`, `scan_2` ...), because each may need other rows.
The tree is changed to name these relations, so that no other table can be reached.

Bounds say which records of a topic a query can need, so that the others are not read. They come from conditions of the WHERE
such as `column = constant`, joined by AND, on `partition`, `offset`, `cursor` and `timestamp`. DuckDB still checks every row,
so bounds may be too wide but never too narrow. DuckDB evaluates the constants in the transaction of the query, so that `now()`
means one time.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

from sqlglot import exp, parse_one

from tailrace.model.errors import SqlError, UnknownTableError
from tailrace.model.suggestions import did_you_mean
from tailrace.model.table import Table
from tailrace.sql.select.tables import META_COLUMNS, TOPIC_COLUMNS_READ, can_push, changes_sql
from tailrace.sql.syntax_trees import is_cte, name_of, position_of

ScanColumn = Literal["partition", "offset", "cursor", "timestamp"]
BoundSide = Literal["low", "high", "one_of"]

_FLIPPED: dict[type[exp.Expr], type[exp.Expr]] = {
    exp.GT: exp.LT,
    exp.GTE: exp.LTE,
    exp.LT: exp.GT,
    exp.LTE: exp.GTE,
    exp.EQ: exp.EQ,
}
_SIDES: dict[type[exp.Expr], tuple[BoundSide, ...]] = {
    exp.GT: ("low",),
    exp.GTE: ("low",),
    exp.LT: ("high",),
    exp.LTE: ("high",),
    exp.EQ: ("low", "high"),
}
_CONSTANT_PARTS = (
    exp.Literal,
    exp.Neg,
    exp.Paren,
    exp.Cast,
    exp.DataType,
    exp.DataTypeParam,
    exp.Interval,
    exp.Var,
    exp.Add,
    exp.Sub,
    exp.Mul,
    exp.CurrentTimestamp,
    exp.CurrentDate,
)


SCAN_COLUMNS: Mapping[str, ScanColumn] = {
    "partition": "partition",
    "offset": "offset",
    "cursor": "cursor",
    "timestamp": "timestamp",
}
"""The columns of a topic for which there are bounds."""
CHANGE_SCAN_COLUMNS: Mapping[str, ScanColumn] = {"_commit_version": "cursor", "_commit_timestamp": "timestamp"}
"""The columns of the changes of a table for which there are bounds."""
CHANGES_FUNCTION = "table_changes"


class ValueRange(NamedTuple):
    """The values from `low` to `high`, both included; `None` means no bound."""

    low: int | None = None
    high: int | None = None


class ScanBounds(NamedTuple):
    """The records that a query can need. Timestamps are in milliseconds."""

    partitions: frozenset[int] | None = None
    offsets: ValueRange = ValueRange()
    cursors: ValueRange = ValueRange()
    timestamps: ValueRange = ValueRange()


class ScanCondition(NamedTuple):
    """A comparison of a column with constants. `one_of` has at least one constant, the others exactly one."""

    column: ScanColumn
    side: BoundSide
    constants: Sequence[exp.Expr]


def scan_conditions(where: exp.Expr, scan_column: Callable[[exp.Column], ScanColumn | None]) -> Iterator[ScanCondition]:
    """Return the conditions that every row of the source must meet.

    `scan_column` returns the scan column of a column, if it is one.
    """
    for term in where.flatten() if isinstance(where, exp.And) else (where,):
        term = term.unnest()
        if isinstance(term, exp.And):
            yield from scan_conditions(term, scan_column)
        elif isinstance(term, exp.Between) and not term.args.get("symmetric"):
            yield from _compared(term.this, ("low",), term.args["low"], scan_column)
            yield from _compared(term.this, ("high",), term.args["high"], scan_column)
        elif isinstance(term, exp.In) and term.expressions and isinstance(term.this, exp.Column):
            column = scan_column(term.this)
            if column is not None and all(map(is_constant, term.expressions)):
                yield ScanCondition(column, "one_of", term.expressions)
        elif type(term) in _SIDES:
            if is_constant(term.expression):
                yield from _compared(term.this, _SIDES[type(term)], term.expression, scan_column)
            else:
                yield from _compared(term.expression, _SIDES[_FLIPPED[type(term)]], term.this, scan_column)


def is_constant(tree: exp.Expr) -> bool:
    """Return whether the expression has the same value for all rows, whenever it is evaluated."""
    return all(isinstance(node, _CONSTANT_PARTS) for node in tree.walk())


def constants_query(found: Sequence[ScanCondition]) -> str:
    """Return a query for the values of all constants of these conditions, in one row; null for those without a value."""
    asked = [_asked(condition.column, constant) for condition in found for constant in condition.constants]
    return f"SELECT {', '.join(asked)}"


def scan_bounds(found: Sequence[ScanCondition], answers: Sequence[int | None]) -> ScanBounds:
    """Return the bounds that all conditions imply together, given the row of `constants_query`."""
    left = iter(answers)
    spans: dict[str, ValueRange] = {}
    partitions: frozenset[int] | None = None
    for condition in found:
        values = [next(left) for _ in condition.constants]
        known = [value for value in values if value is not None]
        if len(known) < len(values):
            continue
        low, high = min(known), max(known)
        if condition.side == "one_of" and condition.column == "partition":
            partitions = frozenset(known) if partitions is None else partitions & frozenset(known)
        spans[condition.column] = _narrowed(
            spans.get(condition.column, ValueRange()),
            low if condition.side in ("low", "one_of") else None,
            high if condition.side in ("high", "one_of") else None,
        )
    return ScanBounds(
        _within(partitions, spans.get("partition", ValueRange())),
        spans.get("offset", ValueRange()),
        spans.get("cursor", ValueRange()),
        _milliseconds(spans.get("timestamp", ValueRange())),
    )


def _compared(
    tree: exp.Expr, sides: Sequence[BoundSide], constant: exp.Expr, scan_column: Callable[[exp.Column], ScanColumn | None]
) -> Iterator[ScanCondition]:
    column = scan_column(tree) if isinstance(tree, exp.Column) else None
    if column is not None and is_constant(constant):
        for side in sides:
            yield ScanCondition(column, side, (constant,))


def _asked(column: ScanColumn, constant: exp.Expr) -> str:
    text = constant.sql(dialect="duckdb")
    return f"TRY(epoch_us(CAST({text} AS TIMESTAMP)))" if column == "timestamp" else f"TRY(CAST({text} AS BIGINT))"


def _narrowed(span: ValueRange, low: int | None, high: int | None) -> ValueRange:
    lows = [bound for bound in (span.low, low) if bound is not None]
    highs = [bound for bound in (span.high, high) if bound is not None]
    return ValueRange(max(lows, default=None), min(highs, default=None))


def _within(partitions: frozenset[int] | None, span: ValueRange) -> frozenset[int] | None:
    """Return the one partition that a range leaves, if it leaves one."""
    if partitions is None and span.low is not None and span.low == span.high:
        return frozenset((span.low,))
    return partitions


def _milliseconds(micros: ValueRange) -> ValueRange:
    return ValueRange(
        None if micros.low is None else micros.low // 1000, None if micros.high is None else -(-micros.high // 1000)
    )


SourceKind = Literal["topic", "system", "table", "changes"]


class NamedSource(NamedTuple):
    """What a name refers to."""

    kind: SourceKind
    name: str
    columns: Sequence[str]
    """The columns of `SELECT *`."""
    hidden: Sequence[str] = ()
    """Columns that `SELECT *` does not return, but a query may name."""
    table: Table | None = None


class QuerySource(NamedTuple):
    relation: str
    named: NamedSource
    columns: Sequence[str]
    """The columns that the query can need; for changes, those of the change topic."""
    conditions: Sequence[ScanCondition]
    """Conditions on scan columns; for changes, on those of the change topic."""
    where: Sequence[exp.Expr]
    """Conditions on columns of a table."""


FindSource = Callable[[str], NamedSource | None]
ListNames = Callable[[], Iterable[str]]
"""Returns the names that a query could use."""


def resolve(tree: exp.Expr, find: FindSource, names: ListNames = lambda: ()) -> list[QuerySource]:
    """Return all sources, and replace them by their relations in the tree."""
    nodes = [node for node in tree.find_all(exp.Table) if not is_cte(node)]
    meant = {id(node): named for node in nodes if (named := _meaning(node, find, names)) is not None}
    mentioned = {node.name.lower() for node in tree.find_all(exp.Identifier)}
    shows_all = _shows_all(tree)
    sources = []
    for number, node in enumerate((node for node in nodes if id(node) in meant), 1):
        named = meant[id(node)]
        alias = node.alias or (node.this.name if isinstance(node.this, exp.Func) else node.name)
        whole = shows_all or alias.lower() in _columns_alone(tree) or bool(node.alias_column_names)
        columns = [name for name in named.columns if whole or name.lower() in mentioned]
        columns += [name for name in named.hidden if name.lower() in mentioned]
        terms = [] if node.alias_column_names else list(_terms(node, alias, named, meant))
        sources.append(_placed(node, f"scan_{number}", alias, named, columns, terms))
    for column in tree.find_all(exp.Column):
        # A qualifier before the table of a column is a namespace, and relations have none.
        column.set("db", None)
        column.set("catalog", None)
    return sources


def _meaning(node: exp.Table, find: FindSource, names: ListNames) -> NamedSource | None:
    """Return what a name in FROM refers to, or `None` for a function of DuckDB."""
    if isinstance(node.this, exp.Func):
        if node.this.name.lower() != CHANGES_FUNCTION:
            return None
        return _changes_of(node.this, find)
    name = name_of(node)
    named = find(name)
    if named is None:
        hint = did_you_mean(name, names())
        raise UnknownTableError(f"there is no table, topic or alias {name!r}{hint}", *(position_of(node) or ()))
    return named


def _changes_of(call: exp.Func, find: FindSource) -> NamedSource:
    arguments = call.expressions
    position = position_of(call) or ()
    if not 1 <= len(arguments) <= 3 or not (isinstance(arguments[0], exp.Literal) and arguments[0].is_string):
        raise SqlError(
            f"the arguments of {CHANGES_FUNCTION} are not valid; write {CHANGES_FUNCTION}('namespace.table' [, from_cursor [,"
            " to_cursor]])",
            *position,
        )
    if not all(map(is_constant, arguments[1:])):
        raise SqlError(f"the cursors of {CHANGES_FUNCTION} must be constants", *position)
    named = find(arguments[0].name)
    if named is None or named.table is None:
        raise SqlError(f"there is no table {arguments[0].name!r}", *position)
    return NamedSource("changes", named.name, (*named.columns, *META_COLUMNS), table=named.table)


def _placed(
    node: exp.Table, relation: str, alias: str, named: NamedSource, columns: Sequence[str], terms: Sequence[exp.Expr]
) -> QuerySource:
    """Replace a name by its relation."""
    given = node.args.get("alias")
    table_alias = exp.TableAlias(
        this=exp.to_identifier(alias, quoted=True), columns=given.args.get("columns") if given is not None else None
    )
    if named.kind == "changes" and named.table is not None:
        low, high = [*node.this.expressions[1:], None, None][:2]
        found = [*_from_cursors(low, high), *_conditions(terms, CHANGE_SCAN_COLUMNS)]
        query = parse_one(changes_sql(named.table, relation, columns, _text(low), _text(high)), dialect="duckdb")
        kept = {key: node.args.get(key) for key in ("joins", "laterals")}
        node.replace(exp.Subquery(this=query, alias=table_alias, **kept))
        return QuerySource(relation, named, TOPIC_COLUMNS_READ, found, ())
    node.set("this", exp.to_identifier(relation, quoted=True))
    node.set("db", None)
    node.set("catalog", None)
    node.set("alias", table_alias)
    if named.kind == "topic":
        return QuerySource(relation, named, columns or ("partition",), list(_conditions(terms, SCAN_COLUMNS)), ())
    if named.kind == "table" and named.table is not None:
        return QuerySource(relation, named, columns, (), _pushed(terms, named.table))
    return QuerySource(relation, named, columns, (), ())


def _from_cursors(low: exp.Expr | None, high: exp.Expr | None) -> Iterator[ScanCondition]:
    if low is not None:
        yield ScanCondition("cursor", "low", (low,))
    if high is not None:
        yield ScanCondition("cursor", "high", (high,))


def _text(constant: exp.Expr | None) -> str | None:
    return None if constant is None else constant.sql(dialect="duckdb")


def _conditions(terms: Sequence[exp.Expr], columns: Mapping[str, ScanColumn]) -> Iterator[ScanCondition]:
    for term in terms:
        yield from scan_conditions(term, lambda column: columns.get(column.name.lower()))


def _pushed(terms: Sequence[exp.Expr], table: Table) -> list[exp.Expr]:
    found = []
    for term in terms:
        names = {column.name.lower() for column in term.find_all(exp.Column)}
        column = next((column for column in table.columns if column.name.lower() in names), None)
        if column is not None and len(names) == 1 and can_push(term, column):
            plain = term.copy()
            for node in plain.find_all(exp.Column):
                node.set("table", None)
            found.append(plain)
    return found


def _terms(node: exp.Table, alias: str, named: NamedSource, meant: Mapping[int, NamedSource]) -> Iterator[exp.Expr]:
    """Return the terms of the WHERE around a source that concern only this source; every row of the result meets them."""
    select = node.find_ancestor(exp.Select)
    where = select.args.get("where") if select is not None else None
    if select is None or where is None or not _is_direct(node, select):
        return
    others = [other for other in _beside(select) if other is not node]
    names = {name.lower() for name in (*named.columns, *named.hidden)}

    def is_ours(column: exp.Column) -> bool:
        if column.table:
            return column.table.lower() == alias.lower()
        return column.name.lower() in names and all(_lacks(other, column.name, meant) for other in others)

    condition = where.this
    for term in condition.flatten() if isinstance(condition, exp.And) else (condition,):
        plain = term.unnest()
        columns = list(plain.find_all(exp.Column))
        if columns and all(map(is_ours, columns)) and plain.find(exp.Query) is None:
            yield plain


def _is_direct(node: exp.Table, select: exp.Select) -> bool:
    return any(node is one for one in _beside(select))


def _beside(select: exp.Select) -> list[exp.Expr]:
    """Return everything in the FROM of a SELECT."""
    first = select.args.get("from_")
    joined = [join.this for join in select.args.get("joins") or ()]
    return [*([first.this] if first is not None else []), *joined, *(select.args.get("laterals") or ())]


def _lacks(other: exp.Expr, name: str, meant: Mapping[int, NamedSource]) -> bool:
    """Return whether a source is known to have no column of that name."""
    named = meant.get(id(other))
    return named is not None and name.lower() not in {column.lower() for column in (*named.columns, *named.hidden)}


def _shows_all(tree: exp.Expr) -> bool:
    """Return whether the query uses columns that it does not name: by a star, by COLUMNS(...) or in a NATURAL JOIN."""
    stars = any(not isinstance(star.parent, exp.Count) for star in tree.find_all(exp.Star))
    natural = any(join.args.get("method") == "NATURAL" for join in tree.find_all(exp.Join))
    return stars or natural or tree.find(exp.Columns) is not None


def _columns_alone(tree: exp.Expr) -> set[str]:
    """Return the column names without a table; one that is the name of a source means its whole row."""
    return {column.name.lower() for column in tree.find_all(exp.Column) if not column.table}
