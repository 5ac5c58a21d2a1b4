"""The grammar of queries and writes, clause by clause.

Clauses that are not supported were rejected before, by name; this grammar checks that each clause is complete.
"""

from collections.abc import Sequence

from sqlglot.tokenizer_core import Token

from tailrace.sql.strict.expressions import ExpressionGrammar
from tailrace.sql.strict.token_stream import TokenKind, TokenStream

_SETS = ("UNION", "INTERSECT", "EXCEPT")
_SIDES = ("LEFT", "RIGHT", "FULL", "SEMI", "ANTI")
_BEFORE_JOIN = ("NATURAL", "ASOF", "POSITIONAL", "CROSS", "INNER", "OUTER", *_SIDES)


def check_statement(tokens: Sequence[Token], text: str) -> None:
    """Raise at the first token of a query or write that does not fit. `text` is the text of the whole request."""
    stream = TokenStream(tokens, text)
    StatementGrammar(stream).statement()
    stream.expect_end()


class StatementGrammar(ExpressionGrammar):
    def statement(self) -> None:
        stream = self._stream
        if stream.sees("WITH"):
            self._ctes()
        if stream.take("INSERT"):
            self._insert()
        elif stream.take("UPDATE"):
            self._update()
        elif stream.take("DELETE"):
            self._delete()
        else:
            self.query()

    def query(self) -> None:
        if self._stream.sees("WITH"):
            self._ctes()
        self._part_of_query()
        self.more_of_query()

    def more_of_query(self) -> None:
        stream = self._stream
        while stream.take_any(_SETS):
            stream.take_any(("ALL", "DISTINCT"))
            stream.take("BY", "NAME")
            self._part_of_query()
        self.order_by()
        for _ in range(2):
            if stream.take("LIMIT"):
                if not stream.take("ALL"):
                    self.expression()
                stream.take("%")
            elif stream.take("OFFSET"):
                self.expression()
                stream.take_any(("ROW", "ROWS"))
        if stream.take("FETCH"):
            self._fetch()

    def _fetch(self) -> None:
        stream = self._stream
        if not stream.take_any(("FIRST", "NEXT")):
            stream.fail("FIRST or NEXT")
        if stream.current.keyword not in ("ROW", "ROWS"):
            self.expression()
        if not stream.take_any(("ROW", "ROWS")):
            stream.fail("ROWS")
        stream.expect("ONLY")

    def _ctes(self) -> None:
        self._stream.expect("WITH")
        self._stream.take("RECURSIVE")
        self.listed(self._cte)

    def _cte(self) -> None:
        stream = self._stream
        self.name("the name of a CTE")
        if stream.sees("("):
            self.bracketed(self.name)
        stream.expect("AS")
        stream.take("NOT")
        stream.take("MATERIALIZED")
        stream.expect("(")
        self.statement()
        stream.expect(")")

    def _part_of_query(self) -> None:
        stream = self._stream
        if stream.take("("):
            self.query()
            stream.expect(")")
        elif stream.take("VALUES"):
            self.listed(self._row)
        elif stream.take("SELECT"):
            self._select()
        else:
            stream.fail("SELECT, VALUES or a query in brackets")

    def _row(self) -> None:
        self.bracketed(self.expression)

    def _select(self) -> None:
        stream = self._stream
        if stream.take("DISTINCT"):
            if stream.take("ON"):
                self.bracketed(self.expression)
        else:
            stream.take("ALL")
        self.listed(self._column)
        if stream.take("FROM"):
            self.listed(self._sources)
        if stream.take("WHERE"):
            self.expression()
        if stream.take("GROUP"):
            stream.expect("BY")
            if not stream.take("ALL"):
                self.listed(self._grouping)
        if stream.take("HAVING"):
            self.expression()
        if stream.take("WINDOW"):
            self.listed(self._named_window)
        if stream.take("QUALIFY"):
            self.expression()

    def _column(self) -> None:
        stream = self._stream
        if stream.take("*"):
            self._but()
            return
        self.expression()
        self._but()
        self.alias()

    def _but(self) -> None:
        """Read the columns that a star excludes, replaces or renames."""
        stream = self._stream
        while stream.current.keyword in ("EXCLUDE", "EXCEPT", "REPLACE", "RENAME") and stream.next.keyword != "SELECT":
            if stream.step().keyword and stream.sees("("):
                self.bracketed(self._aliased)
            else:
                self._aliased()

    def _aliased(self) -> None:
        self.expression()
        self.alias()

    def _grouping(self) -> None:
        stream = self._stream
        if stream.take("GROUPING", "SETS") or (
            stream.current.keyword in ("ROLLUP", "CUBE") and stream.next.keyword == "(" and stream.step()
        ):
            self.bracketed(self._grouping)
        elif not stream.take("(", ")"):
            self.expression()

    def _named_window(self) -> None:
        self.name("the name of a window")
        self._stream.expect("AS")
        self._stream.expect("(")
        self.window()
        self._stream.expect(")")

    def _sources(self) -> None:
        """Read a source and those that are joined with it."""
        stream = self._stream
        self._source()
        while stream.current.keyword in _BEFORE_JOIN or stream.sees("JOIN"):
            needs_condition = stream.current.keyword not in ("NATURAL", "CROSS", "POSITIONAL")
            while stream.take_any(_BEFORE_JOIN):
                pass
            stream.expect("JOIN")
            self._source()
            if stream.take("ON"):
                self.expression()
            elif stream.take("USING"):
                self.bracketed(self.name)
            elif needs_condition and not (stream.current.keyword in _BEFORE_JOIN or stream.sees("JOIN")):
                stream.fail("ON or USING")

    def _source(self) -> None:
        stream = self._stream
        stream.take("LATERAL")
        if stream.take("("):
            if self.begins_query():
                self.query()
            elif stream.sees("("):
                self._nested_source()
            else:
                self.listed(self._sources)
            stream.expect(")")
        else:
            self.dotted("a table, a topic or a query in brackets")
            if stream.sees("("):
                self._call("")
        if stream.take("WITH"):
            stream.expect("ORDINALITY")
        if self.alias() and stream.sees("("):
            self.bracketed(self._alias_column)

    def _nested_source(self) -> None:
        """Read a query or joined sources within two pairs of brackets."""
        self._sources()
        self.more_of_query()

    def _alias_column(self) -> None:
        self.name()
        if self._stream.current.kind is TokenKind.WORD:
            self.type_()

    def _insert(self) -> None:
        stream = self._stream
        stream.expect("INTO")
        self.dotted("the name of a table or topic")
        if stream.sees("AS"):
            self.alias()
        if stream.sees("(") and stream.next.keyword not in ("SELECT", "WITH", "VALUES", "("):
            self.bracketed(self.name)
        if stream.take("DEFAULT"):
            stream.expect("VALUES")
        else:
            self.query()
        if stream.take("ON"):
            self._conflict()
        self._returning()

    def _conflict(self) -> None:
        stream = self._stream
        stream.expect("CONFLICT")
        if stream.sees("("):
            self.bracketed(self.ordered)
            if stream.take("WHERE"):
                self.expression()
        elif stream.take("ON"):
            stream.expect("CONSTRAINT")
            self.name()
        stream.expect("DO")
        if stream.take("NOTHING"):
            return
        stream.expect("UPDATE")
        stream.expect("SET")
        self._assignments()

    def _update(self) -> None:
        stream = self._stream
        self.dotted("the name of a table")
        if not stream.sees("SET"):
            self.alias()
        stream.expect("SET")
        self._assignments(with_sources=True)
        self._returning()

    def _delete(self) -> None:
        self._stream.expect("FROM")
        self.dotted("the name of a table")
        self.alias()
        if self._stream.take("WHERE"):
            self.expression()
        self._returning()

    def _assignments(self, *, with_sources: bool = False) -> None:
        self.listed(self._assignment)
        if with_sources and self._stream.take("FROM"):
            self.listed(self._sources)
        if self._stream.take("WHERE"):
            self.expression()

    def _assignment(self) -> None:
        if self._stream.sees("("):
            self.bracketed(self.name)
        else:
            self.dotted("the name of a column")
        self._stream.expect("=")
        self.expression()

    def _returning(self) -> None:
        if self._stream.take("RETURNING"):
            self.listed(self._column)
