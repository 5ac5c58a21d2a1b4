"""Expressions of routes: PostgreSQL's parser reads them, from the text of the statement that they stand in."""

from collections.abc import Mapping, Sequence
from typing import Any

import pgparse

from tailrace.model.errors import LimitExceededError, SqlError, SqlSyntaxError, UnsupportedSqlError
from tailrace.sql.grammar.lexer import SqlToken
from tailrace.sql.statements import ExpressionText
from tailrace.sql.text_positions import position_at

_HEAD = "SELECT ("
EXPRESSION_START = len(_HEAD)
"""The location of an expression in the text that is parsed."""
_MAX_TOKENS = 20_000
"""PostgreSQL's parser recurses without a limit; so many words and signs fit the stack, however they are nested."""


def expression_text(tokens: Sequence[SqlToken], source: str) -> ExpressionText:
    """Return the expression of these tokens. Raises `SqlError` if it is none, or has parameters."""
    for token in tokens:
        if token.kind == "parameter":
            raise UnsupportedSqlError(
                "a route outlives its statement; write the value instead of a parameter", *position_at(source, token.start)
            )
    first, last = tokens[0], tokens[-1]
    text = ExpressionText(source[first.start : last.end], *position_at(source, first.start), len(tokens))
    parse_tree(text)
    return text


def parse_tree(text: ExpressionText) -> Mapping[str, Any]:
    """Return PostgreSQL's parse tree of one expression. Raises `SqlError` if it is none."""
    if text.tokens > _MAX_TOKENS:
        raise LimitExceededError(f"the expression has {text.tokens} words and signs, more than {_MAX_TOKENS}; simplify it")
    try:
        statements = pgparse.parse(f"{_HEAD}{text.text}\n)")
    except RecursionError as error:
        raise located_error(text, -1, "the expression is nested too deeply; simplify it", sqlstate="54001") from error
    except pgparse.PGQueryError as error:
        end = len(_HEAD) + len(text.text.encode())
        message = error.message if error.position <= end else "syntax error at the end of the expression"
        raise located_error(text, min(error.position - 1, end), message, SqlSyntaxError) from error
    select = statements[0]["stmt"].get("SelectStmt", {}) if len(statements) == 1 else {}
    targets = select.get("targetList", ())
    clauses = set(select) - {"targetList", "limitOption", "op"}
    if len(targets) != 1 or clauses or set(targets[0]["ResTarget"]) - {"val", "location"}:
        raise located_error(text, -1, "expected one expression", SqlSyntaxError)
    node: Mapping[str, Any] = targets[0]["ResTarget"]["val"]
    return node


def located_error(
    text: ExpressionText, location: int, message: str, kind: type[SqlError] = SqlError, sqlstate: str | None = None
) -> SqlError:
    """Return an error at a byte of what was parsed, or at the beginning of the expression."""
    if location < 0:
        return kind(message, text.line, text.column, sqlstate=sqlstate)
    return kind(message, *text.position(index_in(text.text, location)), sqlstate=sqlstate)


def index_in(text: str, location: int) -> int:
    """Return the index of a character, from its place in what was parsed."""
    return len(text.encode()[: max(0, location - len(_HEAD))].decode(errors="ignore"))
