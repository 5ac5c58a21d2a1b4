"""What a query reads: tables, topics, system tables and change feeds; which of their columns, and which rows it can want.

Every place where a name stands becomes a relation of its own in DuckDB (`scan_1`, `scan_2` ...), because each may want other
rows. The tree is changed to name them, so nothing else can be reached by a name.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

from sqlglot import exp, parse_one

from tailrace.model.errors import SqlError, UnknownTableError
from tailrace.model.table import Table
from tailrace.sql.near_names import did_you_mean
from tailrace.sql.places import is_cte, name_of, place_of
from tailrace.sql.select.bounds import CHANGE_PLACES, PLACES, Condition, Place, conditions, is_constant
from tailrace.sql.select.changes import META_COLUMNS, TOPIC_COLUMNS_READ, changes_sql
from tailrace.sql.select.tables import can_push

CHANGES_FUNCTION = "table_changes"

Kind = Literal["topic", "system", "table", "changes"]


class Named(NamedTuple):
    """What a name means."""

    kind: Kind
    name: str
    columns: Sequence[str]
    """What `SELECT *` shows."""
    hidden: Sequence[str] = ()
    """What it does not show, and a query may name."""
    table: Table | None = None


class Source(NamedTuple):
    relation: str
    named: Named
    columns: Sequence[str]
    """Those that the query can want: of a topic, for changes."""
    conditions: Sequence[Condition]
    """On where a record is: of a topic, for changes."""
    where: Sequence[exp.Expr]
    """On columns of a table."""


Find = Callable[[str], Named | None]
Names = Callable[[], Iterable[str]]
"""What a query could name."""


def resolve(tree: exp.Expr, find: Find, names: Names = lambda: ()) -> list[Source]:
    """Find all sources and put their relations into the tree, which is changed."""
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
        # What stands before a column's table is a namespace, and relations have none.
        column.set("db", None)
        column.set("catalog", None)
    return sources


def _meaning(node: exp.Table, find: Find, names: Names) -> Named | None:
    """`None` for functions of DuckDB's."""
    if isinstance(node.this, exp.Func):
        if node.this.name.lower() != CHANGES_FUNCTION:
            return None
        return _changes_of(node.this, find)
    name = name_of(node)
    named = find(name)
    if named is None:
        hint = did_you_mean(name, names())
        raise UnknownTableError(f"there is no table, topic or alias {name!r}{hint}", *(place_of(node) or ()))
    return named


def _changes_of(call: exp.Func, find: Find) -> Named:
    arguments = call.expressions
    place = place_of(call) or ()
    if not 1 <= len(arguments) <= 3 or not (isinstance(arguments[0], exp.Literal) and arguments[0].is_string):
        raise SqlError(f"write {CHANGES_FUNCTION}('namespace.table' [, from_cursor [, to_cursor]])", *place)
    if not all(map(is_constant, arguments[1:])):
        raise SqlError(f"the cursors of {CHANGES_FUNCTION} must be constants", *place)
    named = find(arguments[0].name)
    if named is None or named.table is None:
        raise SqlError(f"there is no table {arguments[0].name!r}", *place)
    return Named("changes", named.name, (*named.columns, *META_COLUMNS), table=named.table)


def _placed(
    node: exp.Table, relation: str, alias: str, named: Named, columns: Sequence[str], terms: Sequence[exp.Expr]
) -> Source:
    """Put the relation where the name stood."""
    given = node.args.get("alias")
    table_alias = exp.TableAlias(
        this=exp.to_identifier(alias, quoted=True), columns=given.args.get("columns") if given is not None else None
    )
    if named.kind == "changes" and named.table is not None:
        low, high = [*node.this.expressions[1:], None, None][:2]
        found = [*_from_cursors(low, high), *_conditions(terms, CHANGE_PLACES)]
        query = parse_one(changes_sql(named.table, relation, columns, _text(low), _text(high)), dialect="duckdb")
        kept = {key: node.args.get(key) for key in ("joins", "laterals")}
        node.replace(exp.Subquery(this=query, alias=table_alias, **kept))
        return Source(relation, named, TOPIC_COLUMNS_READ, found, ())
    node.set("this", exp.to_identifier(relation, quoted=True))
    node.set("db", None)
    node.set("catalog", None)
    node.set("alias", table_alias)
    if named.kind == "topic":
        return Source(relation, named, columns or ("partition",), list(_conditions(terms, PLACES)), ())
    if named.kind == "table" and named.table is not None:
        return Source(relation, named, columns, (), _pushed(terms, named.table))
    return Source(relation, named, columns, (), ())


def _from_cursors(low: exp.Expr | None, high: exp.Expr | None) -> Iterator[Condition]:
    if low is not None:
        yield Condition("cursor", "low", (low,))
    if high is not None:
        yield Condition("cursor", "high", (high,))


def _text(constant: exp.Expr | None) -> str | None:
    return None if constant is None else constant.sql(dialect="duckdb")


def _conditions(terms: Sequence[exp.Expr], places: Mapping[str, Place]) -> Iterator[Condition]:
    for term in terms:
        yield from conditions(term, lambda column: places.get(column.name.lower()))


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


def _terms(node: exp.Table, alias: str, named: Named, meant: Mapping[int, Named]) -> Iterator[exp.Expr]:
    """The terms of the WHERE around a source that speak of this source alone. They hold of every row that comes through."""
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
    """All that stands in the FROM of a SELECT."""
    first = select.args.get("from_")
    joined = [join.this for join in select.args.get("joins") or ()]
    return [*([first.this] if first is not None else []), *joined, *(select.args.get("laterals") or ())]


def _lacks(other: exp.Expr, name: str, meant: Mapping[int, Named]) -> bool:
    """Whether it is known to have no column of that name."""
    named = meant.get(id(other))
    return named is not None and name.lower() not in {column.lower() for column in (*named.columns, *named.hidden)}


def _shows_all(tree: exp.Expr) -> bool:
    """Whether the query takes columns that it does not name: by a star, by COLUMNS(...) or in a NATURAL JOIN."""
    stars = any(not isinstance(star.parent, exp.Count) for star in tree.find_all(exp.Star))
    natural = any(join.args.get("method") == "NATURAL" for join in tree.find_all(exp.Join))
    return stars or natural or tree.find(exp.Columns) is not None


def _columns_alone(tree: exp.Expr) -> set[str]:
    """Names that stand without a table; one that is the name of a source means its whole row."""
    return {column.name.lower() for column in tree.find_all(exp.Column) if not column.table}
