"""From a text to statements. What is not on the list of statements is refused by its name; nothing is passed on unread.

A text holds any number of statements with `;` between them. All of it is parsed before anything is run. The grammar of each
family of statements is in `grammar`.
"""

import re
from collections.abc import Callable, Sequence
from functools import partial

import msgspec
from sqlglot.tokenizer_core import Token, TokenType

from tailrace.model.errors import LimitExceededError, SqlSyntaxError
from tailrace.model.limits import DEFAULT_LIMITS, Limits
from tailrace.sql.dialect import tokenize
from tailrace.sql.grammar import consuming, redriving, showing, tables, topics
from tailrace.sql.grammar.queries import query_or_write
from tailrace.sql.places import place_of_token
from tailrace.sql.statements import Begin, Commit, Query, Rollback, Statement, Write
from tailrace.sql.words import Values, Words

_STATEMENTS = (
    "SELECT, WITH, VALUES, INSERT, UPDATE, DELETE, CREATE, ALTER, CLEAR, DROP, CONSUME, ACK, REDRIVE, SHOW, DESCRIBE, EXPLAIN,"
    " BEGIN, COMMIT, ROLLBACK"
)
_CAPITAL = re.compile(r"(?<=[a-z])(?=[A-Z])")
_QUERIES = ("SELECT", "WITH", "VALUES", "(", "INSERT", "UPDATE", "DELETE")


class Unbound(Statement, frozen=True, kw_only=True):
    """A statement of our own that is complete once its parameters are known. See `bind`."""

    build: Callable[[Values], Statement]
    means: type[Statement]


def parse(text: str, limits: Limits = DEFAULT_LIMITS) -> list[Statement]:
    """The statements of a text, in order."""
    check_size(text, limits)
    parts = _split(tokenize(text))
    if not parts:
        raise SqlSyntaxError(f"expected a statement ({_STATEMENTS}), found nothing", 1, 1)
    if len(parts) > limits.statements:
        raise LimitExceededError(f"the text has {len(parts)} statements, more than statements allows ({limits.statements})")
    return [_parse_one(tokens, text) for tokens in parts]


def check_size(text: str, limits: Limits) -> None:
    size = len(text.encode(errors="replace"))
    if size > limits.statement_bytes:
        raise LimitExceededError(
            f"the text has {size} bytes, more than statement_bytes allows ({limits.statement_bytes}); send it in parts, and"
            " values as parameters"
        )


def bind(statement: Statement, values: Values) -> Statement:
    """The statement with its parameters in place. Trees keep theirs; the engines fill them in."""
    return statement.build(values) if isinstance(statement, Unbound) else statement


def kind_of(statement: Statement) -> str:
    """What it is, in a word: `insert`, `select`, `create_topic`."""
    if isinstance(statement, Write):
        return statement.kind
    if isinstance(statement, Query):
        return "select"
    means = statement.means if isinstance(statement, Unbound) else type(statement)
    return _CAPITAL.sub("_", means.__name__).lower()


def _split(tokens: Sequence[Token]) -> list[Sequence[Token]]:
    parts: list[list[Token]] = [[]]
    for token in tokens:
        if token.token_type is TokenType.SEMICOLON:
            parts.append([])
        else:
            parts[-1].append(token)
    return [part for part in parts if part]


def _parse_one(tokens: Sequence[Token], source: str) -> Statement:
    text = source[tokens[0].start : tokens[-1].end + 1]
    line, column = place_of_token(tokens[0], source)
    words = Words(tokens, source)
    if any(words.sees(first) for first in _QUERIES):
        statement = query_or_write(tokens, text, source)
        return msgspec.structs.replace(statement, line=line, column=column)

    statement = _read(words, text, source)
    if words.parameters:
        names = tuple(dict.fromkeys(words.parameters))
        build = partial(_bound, text, line, column)
        return Unbound(text=text, line=line, column=column, parameters=names, build=build, means=type(statement))
    return msgspec.structs.replace(statement, line=line, column=column)


def _bound(text: str, line: int, column: int, values: Values) -> Statement:
    """Read a statement of our own again, now with its values, and with its words where they stand in the whole text."""
    source = "\n" * (line - 1) + " " * (column - 1) + text
    bound = _read(Words(tokenize(source), source, values), text, source)
    return msgspec.structs.replace(bound, line=line, column=column)


def _read(words: Words, text: str, source: str) -> Statement:
    """A statement that sqlglot does not know, by its first words."""
    if words.sees("CREATE"):
        return _by_object(words, "CREATE", {"TABLE": tables.create_table, "TOPIC": topics.create_topic}, text)
    if words.sees("DROP"):
        return _by_object(words, "DROP", {"TABLE": tables.drop_table, "TOPIC": topics.drop_topic}, text)
    if words.sees("ALTER"):
        return _by_object(words, "ALTER", {"TOPIC": partial(topics.alter_topic, source=source)}, text)
    if words.take("EXPLAIN"):
        if not words.sees("ALTER TOPIC"):
            words.fail("ALTER TOPIC ... ADD SOURCE, the only statement that can be explained")
        return topics.alter_topic(words, text, source=source, explain=True)
    if words.sees("CLEAR"):
        return topics.clear_topic(words, text)
    if words.sees("CONSUME"):
        return consuming.consume(words, text)
    if words.sees("ACK"):
        return consuming.ack(words, text)
    if words.sees("REDRIVE"):
        return redriving.redrive(words, text, source)
    if words.sees("SHOW"):
        return showing.show(words, text)
    if words.sees("DESCRIBE") or words.sees("DESC"):
        return showing.describe(words, text)
    return _transaction(words, text)


def _transaction(words: Words, text: str) -> Statement:
    if words.take("BEGIN") or words.take("START TRANSACTION"):
        words.take("WORK") or words.take("TRANSACTION")
        words.expect_end()
        return Begin(text=text)
    if words.take("ROLLBACK"):
        words.take("WORK") or words.take("TRANSACTION")
        words.expect_end()
        return Rollback(text=text)
    if any(words.ends_with(phrase) for phrase in ("COMMIT", "COMMIT WORK", "COMMIT TRANSACTION")):
        return Commit(text=text)
    if words.sees("COMMIT"):
        return consuming.ack(words, text)
    words.unknown(_STATEMENTS)


def _by_object(words: Words, verb: str, readers: dict[str, Callable[[Words, str], Statement]], text: str) -> Statement:
    for noun, read in readers.items():
        if words.sees(f"{verb} {noun}"):
            return read(words, text)
    words.expect(verb)
    words.unknown(" or ".join(readers), f"{verb} ")
