"""Statements that create something from a query, and DROP VIEW.

CREATE TABLE [IF NOT EXISTS] name [(column, ... [, PRIMARY KEY (column, ...)])] AS query [WITH [NO] DATA]
CREATE [OR REPLACE] VIEW name [(column, ...)] AS query
DROP VIEW [IF EXISTS] name [CASCADE]

PostgreSQL's parser reads the query; what stands before it is read here, from PostgreSQL's tokens. Names without quotes are
folded to lower case, as PostgreSQL folds them: ASCII letters only.
"""

from collections.abc import Sequence
from typing import NoReturn

import pgparse

from tailrace.model.errors import SqlError, SqlSyntaxError, UnsupportedSqlError
from tailrace.model.limits import Limits
from tailrace.sql.grammar.lexer import SqlToken
from tailrace.sql.grammar.selects import parse_query, verb_of
from tailrace.sql.grammar.token_reader import TokenReader
from tailrace.sql.statements import CreateTableAsStatement, CreateViewStatement, DropViewStatement, Query, Statement
from tailrace.sql.text_positions import position_at

_UNDEFINED_PARAMETER = "42P02"
_QUERIES = ("select", "values", "table")
_KINDS_OF_VIEWS = ("temp", "temporary", "recursive", "materialized", "local", "global", "unlogged")


def defines_by_query(part: Sequence[SqlToken]) -> bool:
    """Return whether a statement is one of those that create something from a query."""
    words = [token.text.lower() if token.kind == "word" else "" for token in part[:5]]
    if words[:1] != ["create"]:
        return False
    if words[1:2] == ["table"]:
        return _has_query(part)
    after = words[3:] if words[1:3] == ["or", "replace"] else words[1:]
    return "view" in after[:2]


def _has_query(part: Sequence[SqlToken]) -> bool:
    depth = 0
    for token in part:
        depth += (token.text == "(") - (token.text == ")")
        if not depth and token.is_word("as"):
            return True
    return False


def parse_defined_query(part: Sequence[SqlToken], source: str, limits: Limits) -> Statement:
    """Parse a statement for which `defines_by_query` is true."""
    reader = _Reader(part, source)
    reader.expect("create")
    return _create_table_as(reader, limits) if reader.take("table") else _create_view(reader, limits)


def _create_table_as(reader: "_Reader", limits: Limits) -> Statement:
    if_not_exists = reader.take("if")
    if if_not_exists:
        reader.expect("not")
        reader.expect("exists")
    name = reader.name("the name of a table")
    columns: list[str] = []
    key: tuple[str, ...] = ()
    if reader.takes_sign("("):
        columns, key = _elements(reader)
    if reader.sees("with") or reader.sees("using") or reader.sees("on") or reader.sees("tablespace"):
        reader.refuse("options of CREATE TABLE AS are not supported; leave them out")
    reader.expect("as")
    if reader.sees("execute"):
        reader.refuse("EXECUTE is not supported; write the query")
    with_data = not reader.ends_with("with", "no", "data")
    reader.drop_end(*(("with", "data") if with_data else ("with", "no", "data")))
    query = reader.query(limits)
    line, column = reader.start
    return CreateTableAsStatement(
        text=reader.text,
        line=line,
        column=column,
        parameters=query.parameters,
        name=name,
        query=query,
        columns=tuple(columns),
        primary_key=key,
        if_not_exists=if_not_exists,
        with_data=with_data,
    )


def _elements(reader: "_Reader") -> tuple[list[str], tuple[str, ...]]:
    """Read names of columns and the primary key, up to the closing bracket."""
    columns: list[str] = []
    key: tuple[str, ...] = ()
    while True:
        if reader.take("primary"):
            if key:
                reader.fail("one PRIMARY KEY")
            reader.expect("key")
            if not reader.takes_sign("("):
                reader.fail("(")
            key = reader.columns()
        else:
            columns.append(reader.column("the name of a column, or PRIMARY KEY"))
        if reader.takes_sign(")"):
            return columns, key
        if not reader.takes_sign(","):
            reader.fail(", or ); the types of the columns are those of the query")


def _create_view(reader: "_Reader", limits: Limits) -> Statement:
    or_replace = reader.take("or")
    if or_replace:
        reader.expect("replace")
    if any(reader.sees(kind) for kind in _KINDS_OF_VIEWS):
        reader.refuse("a view is a plain view here; write CREATE [OR REPLACE] VIEW")
    reader.expect("view")
    if reader.sees("if"):
        reader.fail("the name of a view; use CREATE OR REPLACE VIEW if it may exist")
    name = reader.name("the name of a view")
    columns = reader.columns() if reader.takes_sign("(") else ()
    if reader.sees("with"):
        reader.refuse("options of views are not supported; leave them out")
    reader.expect("as")
    query = reader.query(limits)
    if query.parameters:
        raise SqlError("there is no parameter $1: a view can't have parameters", *reader.start, sqlstate=_UNDEFINED_PARAMETER)
    size = len(query.text.encode(errors="replace"))
    if size > limits.view_bytes:
        raise SqlError(
            f"the query of the view has {size} bytes, more than view_bytes allows ({limits.view_bytes}); shorten it",
            *reader.start,
            sqlstate="54000",
        )
    line, column = reader.start
    return CreateViewStatement(
        text=reader.text, line=line, column=column, name=name, query=query, columns=columns, or_replace=or_replace
    )


def drop_view(reader: TokenReader, text: str) -> Statement:
    reader.expect("DROP VIEW")
    if_exists = reader.take("IF EXISTS")
    name = reader.name("the name of a view")
    cascade = reader.take("CASCADE")
    if not cascade:
        reader.take("RESTRICT")
    reader.expect_end("" if cascade else "CASCADE")
    return DropViewStatement(text=text, name=name, if_exists=if_exists, cascade=cascade)


def folded(name: str) -> str:
    """Return a name as PostgreSQL folds it if it has no quotes: ASCII letters to lower case."""
    return "".join(chr(ord(one) + 32) if "A" <= one <= "Z" else one for one in name)


def _is_reserved(word: str) -> bool:
    """Return whether PostgreSQL takes a word only for a keyword."""
    try:
        pgparse.parse(f"CREATE VIEW {word} AS SELECT 1")
    except pgparse.PGQueryError:
        return True
    return False


class _Reader:
    """Reads the tokens before the query."""

    def __init__(self, tokens: Sequence[SqlToken], source: str) -> None:
        self._tokens = tokens
        self._source = source
        self._at = 0
        self.text = source[tokens[0].start : tokens[-1].end]
        self.start = position_at(source, tokens[0].start)

    def sees(self, word: str) -> bool:
        return self._at < len(self._tokens) and self._tokens[self._at].is_word(word)

    def take(self, word: str) -> bool:
        found = self.sees(word)
        self._at += found
        return found

    def expect(self, word: str) -> None:
        if not self.take(word):
            self.fail(word.upper())

    def takes_sign(self, sign: str) -> bool:
        found = self._at < len(self._tokens) and self._tokens[self._at].text == sign
        self._at += found
        return found

    def name(self, what: str) -> str:
        parts = [self._part(what)]
        while self.takes_sign("."):
            parts.append(self._part(f"the rest of {what}", may_be_keyword=True))
        return ".".join(parts)

    def columns(self) -> tuple[str, ...]:
        """Read names up to the closing bracket."""
        found = [self._part("the name of a column")]
        while not self.takes_sign(")"):
            if not self.takes_sign(","):
                self.fail(", or )")
            found.append(self._part("the name of a column"))
        return tuple(found)

    def column(self, what: str) -> str:
        return self._part(what)

    def ends_with(self, *words: str) -> bool:
        """Return whether these are the last words of the statement."""
        last = self._tokens[-len(words) :]
        return len(last) == len(words) and all(token.is_word(word) for token, word in zip(last, words, strict=True))

    def drop_end(self, *words: str) -> None:
        """Leave these words out of the query if they are the last ones."""
        if self.ends_with(*words):
            self._tokens = self._tokens[: -len(words)]

    def query(self, limits: Limits) -> Query:
        left = self._tokens[self._at :]
        if not left or verb_of(left) not in _QUERIES:
            self.fail("a query")
        return parse_query(left, self._source, limits)

    def fail(self, expected: str) -> NoReturn:
        if self._at < len(self._tokens):
            token = self._tokens[self._at]
            found, place = repr(token.text), position_at(self._source, token.start)
        else:
            found, place = "the end of the statement", position_at(self._source, self._tokens[-1].end)
        raise SqlSyntaxError(f"expected {expected}, found {found}", *place)

    def refuse(self, message: str) -> NoReturn:
        raise UnsupportedSqlError(message, *position_at(self._source, self._tokens[self._at].start))

    def _part(self, what: str, *, may_be_keyword: bool = False) -> str:
        token = self._tokens[self._at] if self._at < len(self._tokens) else None
        if token is None or token.kind not in ("word", "quoted") or token.text[:2].lower() == "u&":
            self.fail(what)
        if token.kind == "word" and not may_be_keyword and _is_reserved(token.text):
            self.fail(f'{what}; a keyword that is meant as a name is written in quotes ("{folded(token.text)}")')
        self._at += 1
        return folded(token.text) if token.kind == "word" else token.text[1:-1].replace('""', '"')
