"""INSERT, UPDATE and DELETE: parsed by sqlglot, then checked against a list of clauses and a strict grammar.

Only the clauses listed here are accepted; others that sqlglot knows (INTO, locks, samples, hints, pivots ...) are rejected by
name. The engines check functions and columns.
"""

from collections.abc import Callable, Sequence

from sqlglot import exp
from sqlglot.tokenizer_core import Token

from tailrace.model.errors import SqlError, SqlSyntaxError, UnsupportedSqlError
from tailrace.model.route import Operation
from tailrace.model.table import Table
from tailrace.sql.dialect import parse_statement
from tailrace.sql.statements import Write
from tailrace.sql.strict.statements import check_statement
from tailrace.sql.syntax_trees import TextPosition, is_cte, name_of, position_of, position_of_token

_MAX_DEPTH = 100
_QUERY = frozenset({"with_", "order", "limit", "offset"})
_CLAUSES: dict[type[exp.Expression], frozenset[str]] = {
    exp.Select: _QUERY
    | {"expressions", "distinct", "from_", "joins", "laterals", "where", "group", "having", "windows", "qualify"},
    exp.SetOperation: _QUERY | {"this", "expression", "distinct"},
    exp.Values: _QUERY | {"expressions", "alias"},
    exp.Subquery: _QUERY | {"this", "alias", "joins", "laterals"},
    exp.Insert: frozenset({"with_", "this", "expression", "conflict", "returning", "default"}),
    exp.OnConflict: frozenset({"conflict_keys", "action", "expressions", "where"}),
    exp.Update: frozenset({"with_", "this", "expressions", "from_", "where", "returning"}),
    exp.Delete: frozenset({"with_", "this", "where", "returning"}),
    exp.Table: frozenset({"this", "alias", "db", "catalog", "joins", "laterals", "ordinality"}),
}
_CLAUSE_NAMES = {
    "alternative": "INSERT OR",
    "hint": "a hint",
    "locks": "FOR UPDATE",
    "overwrite": "OVERWRITE",
    "pivots": "PIVOT",
    "sample": "TABLESAMPLE",
    "tables": "DELETE without FROM",
}
_WRITES: dict[type[exp.Expression], Operation] = {exp.Insert: "insert", exp.Update: "update", exp.Delete: "delete"}


def parse_write(tokens: Sequence[Token], text: str, source: str) -> Write:
    """Parse an INSERT, UPDATE or DELETE. `source` is the whole text of the request, to which positions refer."""
    tree = parse_statement(tokens, source)
    position = position_of_token(tokens[0], source)
    _check_depth(tree, position)
    _check_clauses(tree, position)
    check_statement(tokens, source)
    parameters = tuple(dict.fromkeys(sorted((node.name for node in tree.find_all(exp.Placeholder)), key=_by_number)))
    kind = _WRITES.get(type(tree))
    if kind is None:
        raise UnsupportedSqlError(f"{tokens[0].text.upper()} can't be used like this; see docs/reference/sql.md", *position)
    return Write(text=text, kind=kind, target=_target(tree, position), tree=tree, parameters=parameters)


def has_query(write: Write) -> bool:
    """Return whether an INSERT inserts something else than plain values."""
    source = write.tree.expression
    if write.kind != "insert" or not isinstance(source, exp.Expression):
        return False
    return not isinstance(source, exp.Values) or not all(is_plain(cell) for row in source.expressions for cell in cells(row))


def cells(row: exp.Expr) -> Sequence[exp.Expr]:
    """Return the values of a row of VALUES."""
    return row.expressions if isinstance(row, exp.Tuple) else [row]


def is_plain(cell: exp.Expr) -> bool:
    """Return whether a value is a constant or a parameter."""
    if isinstance(cell, exp.Neg):
        return isinstance(cell.this, exp.Literal)
    return isinstance(cell, exp.Literal | exp.Null | exp.Boolean | exp.Placeholder)


def reads_only_tables(write: Write, find: Callable[[str], Table | None]) -> bool:
    """Return whether the query of an INSERT reads tables alone, or nothing."""
    source = write.tree.expression
    named = [table for table in write.tree.find_all(exp.Table) if table is not source and not is_cte(table)]
    return all(not isinstance(table.this, exp.Func) and find(name_of(table)) is not None for table in named)


def _by_number(name: str) -> tuple[int, str]:
    return (int(name), "") if name.isdigit() else (0, name)


def _check_depth(tree: exp.Expression, position: TextPosition) -> None:
    """Limit the depth of a tree, because engines walk it recursively. They walk chains of AND and OR in a loop."""
    waiting: list[tuple[exp.Expr, int]] = [(tree, 1)]
    while waiting:
        node, depth = waiting.pop()
        if depth > _MAX_DEPTH:
            raise SqlError(
                f"the statement is nested more than {_MAX_DEPTH} levels deep; split it into smaller statements",
                *(position_of(node) or position),
            )
        for child in node.iter_expressions():
            is_chain = isinstance(node, exp.Connector) and type(child) is type(node)
            waiting.append((child, depth if is_chain else depth + 1))


def _check_clauses(tree: exp.Expression, position: TextPosition) -> None:
    for node in tree.walk():
        allowed = next((clauses for kind, clauses in _CLAUSES.items() if isinstance(node, kind)), None)
        if allowed is not None:
            for clause, value in node.args.items():
                if value and clause not in allowed:
                    written = _CLAUSE_NAMES.get(clause) or clause.strip("_").replace("_", " ").upper()
                    raise UnsupportedSqlError(f"{written} is not supported here", *(position_of(node) or position))
        if node is not tree and isinstance(node, exp.DML | exp.DDL | exp.Command) and not isinstance(node, exp.Query):
            raise UnsupportedSqlError(
                f"{node.key.upper()} can't be part of another statement; send it by itself", *(position_of(node) or position)
            )
        if isinstance(node, exp.Limit | exp.Offset):
            _check_count(node, position)
        if isinstance(node, exp.Parameter | exp.SessionParameter) or (isinstance(node, exp.Placeholder) and not node.this):
            raise UnsupportedSqlError("parameters must be written ? or :name", *(position_of(node) or position))


def _check_count(node: exp.Limit | exp.Offset, position: TextPosition) -> None:
    """Reject a negative LIMIT or OFFSET, which one of the engines treats as no limit."""
    count = node.expression
    if isinstance(count, exp.Neg) or (isinstance(count, exp.Literal) and not count.is_int):
        raise SqlError(
            f"{node.key.upper()} is {count.sql(dialect='postgres')}; it must be a whole number, 0 or more",
            *(position_of(count) or position),
        )


def _target(tree: exp.Expression, position: TextPosition) -> str:
    target = tree.this.this if isinstance(tree.this, exp.Schema) else tree.this
    if not isinstance(target, exp.Table) or isinstance(target.this, exp.Func):
        raise SqlSyntaxError(f"expected {tree.key.upper()} and the name of a table or topic", *position)
    return name_of(target)
