"""Queries, as PostgreSQL's parser reads them."""

from collections.abc import Sequence
from itertools import pairwise

from tailrace.model.errors import LimitExceededError, SqlSyntaxError, UnsupportedSqlError
from tailrace.model.limits import Limits
from tailrace.sql.grammar.latest import with_latest
from tailrace.sql.grammar.lexer import SqlToken, read_tokens
from tailrace.sql.grammar.postgres import ParsedText, count_nodes, moved, parse_text, tokens_within, unusable
from tailrace.sql.statements import Query, TextEdit
from tailrace.sql.text_positions import position_at

_VERBS = ("select", "values", "insert", "update", "delete", "merge", "table")


def verb_of(tokens: Sequence[SqlToken]) -> str:
    """Return the keyword that says what a statement does, in lower case; for one that begins with WITH, the one behind that."""
    first = tokens[0]
    if first.text == "(":
        return "select"
    if not first.is_word("with"):
        return first.text.lower()
    depth = 0
    for before, token in pairwise(tokens):
        depth += (token.text == "(") - (token.text == ")")
        if not depth and before.text == ")" and (token.is_word(*_VERBS) or token.text == "("):
            return "select" if token.text == "(" else token.text.lower()
    return "select"


def parse_query(tokens: Sequence[SqlToken], source: str, limits: Limits) -> Query:
    """Parse a query. `source` is the whole text of the request, in which the tokens are."""
    text = source[tokens[0].start : tokens[-1].end]
    place = position_at(source, tokens[0].start)
    parsed = parse_text(text, tokens_within(tokens), place)
    if "SelectStmt" not in parsed.tree:
        raise unusable(tokens, place)
    return query_of(parsed, text, place, limits)


def parse_condition(head: str, condition: str, tail: str, limits: Limits, line: int, column: int) -> Query:
    """Parse a query that is made around a condition, which was written at this line and column."""
    text = head + condition + tail
    parsed = parse_text(text, read_tokens(text), (1, 1), TextEdit(0, len(head), 0, 0))
    return query_of(parsed, condition, (line, column), limits)


def parse_definition(tokens: Sequence[SqlToken], source: str, limits: Limits) -> Query:
    """Parse a statement that defines something, such as CREATE TABLE. The tree is that of the statement."""
    for token in tokens:
        if token.kind == "parameter":
            raise UnsupportedSqlError(
                "a definition can't have parameters; write the value instead", *position_at(source, token.start)
            )
    text = source[tokens[0].start : tokens[-1].end]
    place = position_at(source, tokens[0].start)
    return query_of(parse_text(text, tokens_within(tokens), place), text, place, limits)


def check_condition(condition: str, place: tuple[int, int]) -> None:
    """Raise for what the condition of a REDRIVE can't have: parameters, queries, and brackets that do not match."""
    depth = 0
    for token in read_tokens(condition):
        depth += (token.text in ("(", "[")) - (token.text in (")", "]"))
        if depth < 0 or token.kind == "end":
            raise SqlSyntaxError(f'syntax error at or near "{token.text}"', *moved(condition, token.start, place))
        if token.kind == "parameter":
            raise UnsupportedSqlError(
                "the condition of REDRIVE can't have parameters; write the values in it", *moved(condition, token.start, place)
            )
        if token.is_word("select", "values", "table"):
            raise UnsupportedSqlError(
                "the condition of REDRIVE can't contain a query; compare with constants", *moved(condition, token.start, place)
            )


def query_of(parsed: ParsedText, text: str, place: tuple[int, int], limits: Limits) -> Query:
    """Return a parsed query. Raises `LimitExceededError` if it is too large."""
    tree = with_latest(parsed.tree)
    check_nodes(count_nodes(tree), place, limits)
    return Query(
        text=text,
        line=place[0],
        column=place[1],
        parameters=parsed.parameters,
        tree=tree,
        postgres_text=parsed.postgres_text,
        edits=parsed.edits,
    )


def check_nodes(nodes: int, place: tuple[int, int], limits: Limits) -> None:
    """Raise if a statement has too many nodes."""
    if nodes > limits.query_nodes:
        raise LimitExceededError(
            f"the statement at line {place[0]}, column {place[1]} has {nodes} names, constants and operators, more than"
            f" query_nodes allows ({limits.query_nodes}); simplify it, or send values as parameters"
        )
