"""Parses a text into statements. A statement that is not supported is rejected by name; nothing reaches an engine unparsed.

A text has any number of statements, separated by `;`. All of it is parsed before anything runs. PostgreSQL's parser reads
queries, writes and the definitions of tables and views, and `grammar` has the grammar of the other statements. `fast_insert` is
the fast path for INSERTs of plain values.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import msgspec

from tailrace.model.errors import LimitExceededError, SqlSyntaxError
from tailrace.model.limits import DEFAULT_LIMITS, Limits
from tailrace.sql.grammar import alter_table, security, shadows, sources, tables, topics
from tailrace.sql.grammar.defined_queries import defines_by_query, drop_view, parse_defined_query
from tailrace.sql.grammar.explain import explained, without_explain
from tailrace.sql.grammar.lexer import SqlToken, read_tokens
from tailrace.sql.grammar.selects import parse_query, verb_of
from tailrace.sql.grammar.token_reader import TokenReader, Values
from tailrace.sql.grammar.writes import parse_write
from tailrace.sql.statements import (
    BeginStatement,
    CommitStatement,
    Query,
    RollbackStatement,
    SecurityStatement,
    Statement,
    Write,
)
from tailrace.sql.text_positions import position_at

_STATEMENTS = (
    "SELECT, WITH, VALUES, INSERT, UPDATE, DELETE, CREATE, ALTER, TRUNCATE, CLEAR, DROP, CONSUME, ACK, REDRIVE, SHOW, DESCRIBE,"
    " EXPLAIN, GRANT, REVOKE, BEGIN, COMMIT, ROLLBACK"
)
_CAPITAL = re.compile(r"(?<=[a-z])(?=[A-Z])")
_QUERIES = ("select", "values", "table")
_WRITES = ("insert", "update", "delete")
_DEFINED = {"CREATE": ("TABLE", "INDEX", "TYPE"), "ALTER": ("TABLE", "TYPE"), "DROP": ("TABLE", "INDEX", "TYPE")}
"""What PostgreSQL's parser reads of these statements."""


class Unbound(Statement, frozen=True, kw_only=True):
    """A statement that is complete once the values of its parameters are known. See `bind`."""

    build: Callable[[Values], Statement]
    means: type[Statement]


def parse(text: str, limits: Limits = DEFAULT_LIMITS) -> list[Statement]:
    """Return the statements of a text, in order."""
    check_size(text, limits)
    parts = _split(read_tokens(text))
    if not parts:
        raise SqlSyntaxError(f"expected a statement ({_STATEMENTS}), found nothing", 1, 1)
    if len(parts) > limits.statements:
        raise LimitExceededError(
            f"the text has {len(parts)} statements, more than the limit statements allows ({limits.statements}); send it in"
            " parts"
        )
    written = text
    text, parts, prefixes = without_explain(text, parts)
    statements = [_parse_one(part, text, limits) for part in parts]
    return [explained(statement, prefix, written) for statement, prefix in zip(statements, prefixes, strict=True)]


def check_size(text: str, limits: Limits) -> None:
    size = len(text.encode(errors="replace"))
    if size > limits.statement_bytes:
        raise LimitExceededError(
            f"the text has {size} bytes, more than statement_bytes allows ({limits.statement_bytes}); send it in smaller"
            " parts, and values as parameters"
        )


def bind(statement: Statement, values: Values) -> Statement:
    """Return the statement with the values of its parameters. Those within trees are left to the engines."""
    return statement.build(values) if isinstance(statement, Unbound) else statement


def may_be_kept(statement: Statement) -> bool:
    """Return whether a statement may be remembered: it has no password."""
    return not issubclass(_class_of(statement), SecurityStatement)


def kind_of(statement: Statement) -> str:
    """Return the kind of a statement for metrics: `insert`, `select`, `create_topic`."""
    if isinstance(statement, Write):
        return statement.kind
    if isinstance(statement, Query):
        return "select"
    return _CAPITAL.sub("_", _class_of(statement).__name__.removesuffix("Statement")).lower()


def _class_of(statement: Statement) -> type[Statement]:
    return statement.means if isinstance(statement, Unbound) else type(statement)


def _split(tokens: Sequence[SqlToken]) -> Sequence[Sequence[SqlToken]]:
    parts: list[list[SqlToken]] = [[]]
    for token in tokens:
        if token.kind == "end":
            parts.append([])
        else:
            parts[-1].append(token)
    return [part for part in parts if part]


def _parse_one(tokens: Sequence[SqlToken], source: str, limits: Limits) -> Statement:
    verb = verb_of(tokens)
    if verb in _QUERIES:
        return parse_query(tokens, source, limits)
    if verb in _WRITES:
        return parse_write(tokens, source, limits)
    if defines_by_query(tokens):
        return parse_defined_query(tokens, source, limits)
    if alter_table.is_alteration(tokens):
        return alter_table.read_alteration(tokens, source, limits)
    if tables.is_definition(tokens):
        return tables.read_definition(tokens, source, limits)
    text = source[tokens[0].start : tokens[-1].end]
    line, column = position_at(source, tokens[0].start)
    reader = TokenReader(tokens, source)
    statement = _read(reader, text, source)
    if reader.parameters:
        names = tuple(dict.fromkeys(reader.parameters))
        build = partial(_bound, text, line, column)
        return Unbound(text=text, line=line, column=column, parameters=names, build=build, means=type(statement))
    return msgspec.structs.replace(statement, line=line, column=column)


def _bound(text: str, line: int, column: int, values: Values) -> Statement:
    """Parse a statement again, now with its values, and with its tokens at their positions in the whole text."""
    source = "\n" * (line - 1) + " " * (column - 1) + text
    bound = _read(TokenReader(read_tokens(source), source, values), text, source)
    return msgspec.structs.replace(bound, line=line, column=column)


def _read(reader: TokenReader, text: str, source: str) -> Statement:
    """Parse a statement that PostgreSQL does not know, chosen by its first keywords."""
    if reader.sees("CREATE"):
        created = {
            "TOPIC": topics.create_topic,
            "SOURCE": sources.create_source,
            "SHADOW": shadows.create_shadow,
            "USER": security.create_user,
            "ROLE": security.create_role,
            "TOKEN": security.create_token,
        }
        return _by_object(reader, "CREATE", created, text)
    if reader.sees("DROP"):
        dropped = {
            "TOPIC": topics.drop_topic,
            "VIEW": drop_view,
            "SOURCE": sources.drop_source,
            "SHADOW": shadows.drop_shadow,
            "USER": security.drop_user,
            "ROLE": security.drop_role,
            "TOKEN": security.drop_token,
        }
        return _by_object(reader, "DROP", dropped, text)
    if reader.sees("ALTER"):
        alter_topic = partial(topics.alter_topic, source=source)
        altered: dict[str, Callable[[TokenReader, str], Statement]] = {
            "TOPIC": alter_topic,
            "PIPELINE": topics.alter_pipeline,
            "SOURCE": sources.alter_source,
            "SHADOW": shadows.alter_shadow,
            "USER": security.alter_user,
            "CLIENT ID": security.alter_client_id,
        }
        return _by_object(reader, "ALTER", altered, text)
    if reader.take("EXPLAIN"):
        if not reader.sees("ALTER TOPIC"):
            reader.fail("TOPIC ... ADD SOURCE, the only kind of ALTER that EXPLAIN supports")
        return topics.alter_topic(reader, text, source=source, explain=True)
    if reader.sees("CLEAR"):
        return topics.clear_topic(reader, text)
    if reader.sees("CONSUME"):
        return topics.consume(reader, text)
    if reader.sees("ACK"):
        return topics.ack(reader, text)
    if reader.sees("REDRIVE"):
        return topics.redrive(reader, text, source)
    if reader.sees("GRANT"):
        return security.grant(reader, text)
    if reader.sees("REVOKE"):
        return security.revoke(reader, text)
    if reader.sees("SHOW GRANTS"):
        return security.show_grants(reader, text)
    if reader.sees("SHOW"):
        return topics.show(reader, text)
    if reader.sees("DESCRIBE") or reader.sees("DESC"):
        return topics.describe(reader, text)
    if reader.take("COPY"):
        reader.reject(
            "COPY reads and writes files of the client, so a client runs it: `tailrace copy`, the prompt of `tailrace sql`, or"
            " copy_into and copy_out of the Python SDK"
        )
    return _transaction(reader, text)


def _transaction(reader: TokenReader, text: str) -> Statement:
    if reader.take("BEGIN") or reader.take("START TRANSACTION"):
        reader.take("WORK") or reader.take("TRANSACTION")
        reader.expect_end()
        return BeginStatement(text=text)
    if reader.take("ROLLBACK"):
        reader.take("WORK") or reader.take("TRANSACTION")
        reader.expect_end()
        return RollbackStatement(text=text)
    if any(reader.ends_with(phrase) for phrase in ("COMMIT", "COMMIT WORK", "COMMIT TRANSACTION")):
        return CommitStatement(text=text)
    if reader.sees("COMMIT"):
        return topics.ack(reader, text)
    reader.unknown(_STATEMENTS)


def _by_object(
    reader: TokenReader, verb: str, readers: Mapping[str, Callable[[TokenReader, str], Statement]], text: str
) -> Statement:
    for noun, read in readers.items():
        if reader.sees(f"{verb} {noun}"):
            return read(reader, text)
    reader.expect(verb)
    reader.unknown(" or ".join((*_DEFINED.get(verb, ()), *readers)), f"{verb} ")
