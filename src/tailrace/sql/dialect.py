"""The SQL dialect for sqlglot: PostgreSQL's, in which `?` and `:name` are only parameters.

sqlglot parses queries and writes; `grammar` reads the other statements token by token. Nesting is
limited before sqlglot gets a text: it parses brackets after the name of a type twice, which doubles its work with each level,
and its compiled code recurses without a limit.
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
from tailrace.sql.strict.statements import check_statement
from tailrace.sql.strict.token_stream import CLAUSES
from tailrace.sql.syntax_trees import TextPosition, position_at, position_of_token

_NUMBER = re.compile(r"\d+(\.\d*)?([eE][+-]?\d+)?|\.\d+([eE][+-]?\d+)?")
_MAX_NESTED_BRACKETS = 50
_MAX_NESTED_TYPES = 6
_MAX_CHAINED_INDEXES = 8
_OPENING = {TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE}
_CLOSING = {TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE}

GrammarCheck = Callable[[Sequence[Token], str], None]


class Tailrace(Postgres):
    class Tokenizer(Postgres.Tokenizer):
        # sqlglot would treat everything after such a keyword as one string.
        COMMANDS: ClassVar[set[TokenType]] = set()


_DIALECT = Tailrace()

# sqlglot logs texts that it can't parse. The client gets the error; texts of users do not belong in the log.
logging.getLogger("sqlglot").setLevel(logging.CRITICAL)


def tokenize(text: str) -> list[Token]:
    """Return the tokens of a text. Raises `SqlSyntaxError` for characters that no token can have."""
    try:
        tokens = _DIALECT.tokenize(text)
    except TokenError as error:
        raise _unreadable(text, error) from error
    if any(token.token_type is TokenType.QDCOLON for token in tokens):
        tokens = list(_with_casts_of_parameters(tokens))
    for token in tokens:
        kind = token.token_type
        if kind is TokenType.UNKNOWN or (kind is TokenType.VAR and "\0" in token.text):
            raise SqlSyntaxError(f"{token.text!r} is not valid in SQL", *position_of_token(token, text))
        if kind is TokenType.NUMBER and not _NUMBER.fullmatch(token.text):
            raise SqlSyntaxError(f"{token.text!r} is not a number", *position_of_token(token, text))
    return tokens


def _with_casts_of_parameters(tokens: Sequence[Token]) -> Iterator[Token]:
    """Split `?::`, which is one token in another dialect, into a parameter and a cast."""
    for token in tokens:
        if token.token_type is TokenType.QDCOLON:
            yield Token(TokenType.PLACEHOLDER, "?", token.line, token.col - 2, token.start, token.start)
            yield Token(TokenType.DCOLON, "::", token.line, token.col, token.start + 1, token.end)
        else:
            yield token


def parse_statement(tokens: Sequence[Token], text: str) -> exp.Expression:
    """Parse a query or a write. Its parameters are placeholders with a name; a `?` is named by its number in the statement."""
    _check_nesting(tokens, text)
    return _parsed(lambda: _DIALECT.parser().parse(_with_numbered_parameters(tokens), text), check_statement, tokens, text)


def _parsed(parse: Callable[[], Sequence[Any]], check: GrammarCheck, tokens: Sequence[Token], text: str) -> exp.Expression:
    try:
        found = parse()
    except ParseError as error:
        # Our own grammar knows better what was expected.
        check(tokens, text)
        raise _syntax_error(tokens, text, error) from error
    except RecursionError as error:
        raise SqlError(
            "the statement is nested too deeply; split it into smaller statements", *position_of_token(tokens[0], text)
        ) from error
    except Exception as error:  # some texts raise errors inside of sqlglot
        check(tokens, text)
        raise SqlSyntaxError(
            "expected a complete statement; a part of this one is missing", *position_of_token(tokens[0], text)
        ) from error
    if len(found) != 1 or not isinstance(found[0], exp.Expression):
        raise SqlSyntaxError("expected one statement or expression", *position_of_token(tokens[0], text))
    return found[0]


def _check_nesting(tokens: Sequence[Token], text: str) -> None:
    """Limit how many brackets are open at once, and how many of them follow the name of a type."""
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
            if indexes > _MAX_CHAINED_INDEXES:
                raise SqlError(
                    f"more than {_MAX_CHAINED_INDEXES} indexes follow each other; use fewer", *position_of_token(token, text)
                )
            of_type = before is not None and before.token_type in types and before.token_type is not TokenType.IDENTIFIER
            opened.append(of_type)
            of_types += of_type
            if len(opened) > _MAX_NESTED_BRACKETS:
                raise SqlError(
                    f"brackets are nested more than {_MAX_NESTED_BRACKETS} levels deep; simplify the statement",
                    *position_of_token(token, text),
                )
            if of_types > _MAX_NESTED_TYPES:
                raise SqlError(
                    f"arrays and types are nested more than {_MAX_NESTED_TYPES} levels deep; simplify the statement",
                    *position_of_token(token, text),
                )
        elif kind in _CLOSING and opened:
            of_types -= opened.pop()
        before = token


def _with_numbered_parameters(tokens: Sequence[Token]) -> list[Token]:
    """Replace each `?` by `:1`, `:2` and so on, because the engines reorder clauses."""
    numbered: list[Token] = []
    number = 0
    for token in tokens:
        if token.token_type is TokenType.PLACEHOLDER:
            number += 1
            position = token.line, token.col, token.start, token.end
            numbered += (Token(TokenType.COLON, ":", *position), Token(TokenType.VAR, str(number), *position))
        else:
            numbered.append(token)
    return numbered


def _unreadable(text: str, error: TokenError) -> SqlSyntaxError:
    # The compiled sqlglot sets the cause, the other one the context.
    message, _, where = str(error.__cause__ or error.__context__ or "").partition(" from ")
    start = where.rpartition(":")[2]
    position = position_at(text, int(start) if start.isdigit() else len(text))
    if message.startswith("Missing "):
        closing = message.removeprefix("Missing ")
        return SqlSyntaxError(f"what starts here is not closed; expected {closing}, found the end of the text", *position)
    if start.isdigit():
        return SqlSyntaxError(f"{message[:1].lower()}{message[1:]}", *position)
    return SqlSyntaxError("expected the end of a comment, found the end of the text", *position)


def _syntax_error(tokens: Sequence[Token], text: str, error: ParseError) -> SqlSyntaxError:
    details = error.errors[0] if error.errors else {}
    line, column = details.get("line"), details.get("col")
    at = next((token for token in tokens if token.line == line and token.col == column), None)
    position = position_of_token(at, text) if at is not None else TextPosition(*position_at(text, tokens[-1].end))
    return SqlSyntaxError(_described(str(details.get("description") or error), at, at is tokens[-1]), *position)


def _described(message: str, at: Token | None, is_last: bool) -> str:
    """Return a message of sqlglot as `expected ..., found ...`."""
    found = f"found {at.text!r}" if at is not None else "found the end of the statement"
    if message.startswith("Expecting "):
        # sqlglot points at the last token when the statement ends too early.
        return f"expected {message.removeprefix('Expecting ')}, {'found the end of the statement' if is_last else found}"
    if message.startswith("Required keyword: "):
        after = f" after {at.text!r}" if at is not None else ""
        return f"expected a value{after}, found the end of the statement" if is_last else f"expected a value, {found}"
    if message.startswith("Invalid expression"):
        hint = did_you_mean(at.text, CLAUSES) if at is not None else ""
        return f"expected an operator, a clause or the end of the statement, {found}{hint}"
    return f"{message[:1].lower()}{message[1:].partition(' but got ')[0]}, {found}"
