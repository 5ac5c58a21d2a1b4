"""Our SQL to sqlglot: PostgreSQL's, where `?` and `:name` are parameters and nothing else.

Only queries, writes and the expressions of routes are parsed by it; the statements about topics are read by `grammar`, word by
word. Nesting is bounded before sqlglot sees a text: it tries brackets after the name of a type twice over, which doubles its
work with each level, and its compiled code recurses without a check.
"""

import logging
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar

from sqlglot import exp
from sqlglot.dialects.postgres import Postgres
from sqlglot.errors import ParseError, TokenError
from sqlglot.parsers.postgres import PostgresParser
from sqlglot.tokenizer_core import Token, TokenType

from tailrace.model.errors import SqlError, SqlSyntaxError
from tailrace.model.suggestions import did_you_mean
from tailrace.sql.strict.statements import check_expression, check_statement
from tailrace.sql.strict.token_stream import CLAUSES
from tailrace.sql.syntax_trees import TextPosition, position_at, position_of_token

_NUMBER = re.compile(r"\d+(\.\d*)?([eE][+-]?\d+)?|\.\d+([eE][+-]?\d+)?")
_NESTED_BRACKETS = 50
_NESTED_TYPES = 6
_CHAINED_INDEXES = 8
_OPENING = {TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE}
_CLOSING = {TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE}

GrammarCheck = Callable[[Sequence[Token], str], None]


class Tailrace(Postgres):
    class Tokenizer(Postgres.Tokenizer):
        # sqlglot would take what follows such a word as one piece.
        COMMANDS: ClassVar[set[TokenType]] = set()


_DIALECT = Tailrace()

# Where sqlglot gives up on a text it logs it. Whoever sent it is told; the log is not for what users write.
logging.getLogger("sqlglot").setLevel(logging.CRITICAL)


def tokenize(text: str) -> list[Token]:
    try:
        tokens = _DIALECT.tokenize(text)
    except TokenError as error:
        raise _unreadable(text, error) from error
    if any(token.token_type is TokenType.QDCOLON for token in tokens):
        tokens = list(_with_casts_of_parameters(tokens))
    for token in tokens:
        kind = token.token_type
        if kind is TokenType.UNKNOWN or (kind is TokenType.VAR and "\0" in token.text):
            raise SqlSyntaxError(f"{token.text!r} has no meaning in SQL", *position_of_token(token, text))
        if kind is TokenType.NUMBER and not _NUMBER.fullmatch(token.text):
            raise SqlSyntaxError(f"{token.text!r} is not a number", *position_of_token(token, text))
    return tokens


def _with_casts_of_parameters(tokens: Sequence[Token]) -> Iterator[Token]:
    """`?::`, which another dialect knows as one word, is a parameter and a cast."""
    for token in tokens:
        if token.token_type is TokenType.QDCOLON:
            yield Token(TokenType.PLACEHOLDER, "?", token.line, token.col - 2, token.start, token.start)
            yield Token(TokenType.DCOLON, "::", token.line, token.col, token.start + 1, token.end)
        else:
            yield token


def parse_statement(tokens: Sequence[Token], text: str) -> exp.Expression:
    """A query or a write. Its parameters are placeholders with a name; that of a `?` is its number in the statement."""
    _check_nesting(tokens, text)
    return _parsed(lambda: _DIALECT.parser().parse(_with_numbered_parameters(tokens), text), check_statement, tokens, text)


def parse_expression(tokens: Sequence[Token], text: str) -> exp.Expression:
    """A condition or a value."""
    _check_nesting(tokens, text)
    tree = _parsed(lambda: _DIALECT.parser().parse_into(exp.Condition, list(tokens), text), check_expression, tokens, text)
    check_expression(tokens, text)
    return tree


def _parsed(parse: Callable[[], Sequence[Any]], check: GrammarCheck, tokens: Sequence[Token], text: str) -> exp.Expression:
    try:
        found = parse()
    except ParseError as error:
        # It knows better what was expected.
        check(tokens, text)
        raise _misplaced(tokens, text, error) from error
    except RecursionError as error:
        raise SqlError("the statement is nested too deep; take it apart", *position_of_token(tokens[0], text)) from error
    except Exception as error:  # Some texts make sqlglot stumble over its own types
        check(tokens, text)
        raise SqlSyntaxError(
            "expected a statement that can be read; something is missing in this one", *position_of_token(tokens[0], text)
        ) from error
    if len(found) != 1 or not isinstance(found[0], exp.Expression):
        raise SqlSyntaxError("expected one statement or expression", *position_of_token(tokens[0], text))
    return found[0]


def _check_nesting(tokens: Sequence[Token], text: str) -> None:
    """Count how many brackets are open at once, and how many of them follow the name of a type."""
    types = PostgresParser.TYPE_TOKENS
    opened: list[bool] = []
    of_types = 0
    indexes = 0
    before: Token | None = None
    for token in tokens:
        kind = token.token_type
        if kind in _OPENING:
            follows_bracket = before is not None and before.token_type is TokenType.R_BRACKET
            indexes = indexes + 1 if follows_bracket else 0
            if indexes > _CHAINED_INDEXES:
                raise SqlError(f"more than {_CHAINED_INDEXES} indexes follow each other", *position_of_token(token, text))
            of_type = before is not None and before.token_type in types and before.token_type is not TokenType.IDENTIFIER
            opened.append(of_type)
            of_types += of_type
            if len(opened) > _NESTED_BRACKETS:
                raise SqlError(f"brackets are nested more than {_NESTED_BRACKETS} deep", *position_of_token(token, text))
            if of_types > _NESTED_TYPES:
                raise SqlError(f"arrays and types are nested more than {_NESTED_TYPES} deep", *position_of_token(token, text))
        elif kind in _CLOSING and opened:
            of_types -= opened.pop()
        before = token


def _with_numbered_parameters(tokens: Sequence[Token]) -> list[Token]:
    """Each `?` as `:1`, `:2` and so on, because engines want clauses in another order than they were written in."""
    numbered: list[Token] = []
    number = 0
    for token in tokens:
        if token.token_type is TokenType.PLACEHOLDER:
            number += 1
            place = token.line, token.col, token.start, token.end
            numbered += (Token(TokenType.COLON, ":", *place), Token(TokenType.VAR, str(number), *place))
        else:
            numbered.append(token)
    return numbered


def _unreadable(text: str, error: TokenError) -> SqlSyntaxError:
    # Compiled, sqlglot tells the cause in one place, else in the other.
    said, _, where = str(error.__cause__ or error.__context__ or "").partition(" from ")
    start = where.rpartition(":")[2]
    place = position_at(text, int(start) if start.isdigit() else len(text))
    if said.startswith("Missing "):
        closing = said.removeprefix("Missing ")
        return SqlSyntaxError(f"what begins here is not closed; expected {closing}, found the end of the text", *place)
    if start.isdigit():
        return SqlSyntaxError(f"{said[:1].lower()}{said[1:]}", *place)
    return SqlSyntaxError("expected the end of a comment, found the end of the text", *place)


def _misplaced(tokens: Sequence[Token], text: str, error: ParseError) -> SqlSyntaxError:
    told = error.errors[0] if error.errors else {}
    line, column = told.get("line"), told.get("col")
    at = next((token for token in tokens if token.line == line and token.col == column), None)
    place = position_of_token(at, text) if at is not None else TextPosition(*position_at(text, tokens[-1].end))
    return SqlSyntaxError(_in_words(str(told.get("description") or error), at, at is tokens[-1]), *place)


def _in_words(said: str, at: Token | None, is_last: bool) -> str:
    """What sqlglot said, as `expected ..., found ...`."""
    found = f"found {at.text!r}" if at is not None else "found the end of the statement"
    if said.startswith("Expecting "):
        # It points at the last word when the statement ends too early.
        return f"expected {said.removeprefix('Expecting ')}, {'found the end of the statement' if is_last else found}"
    if said.startswith("Required keyword: "):
        after = f" after {at.text!r}" if at is not None else ""
        return f"expected a value{after}, found the end of it" if is_last else f"expected a value, {found}"
    if said.startswith("Invalid expression"):
        hint = did_you_mean(at.text, CLAUSES) if at is not None else ""
        return f"expected an operator, a clause or the end of the statement, {found}{hint}"
    return f"{said[:1].lower()}{said[1:].partition(' but got ')[0]}, {found}"
