"""Queries and writes, clause by clause.

Clauses that are not supported were refused before, by name; what is read here is whether each clause is whole.
"""

from collections.abc import Sequence

from sqlglot.tokenizer_core import Token

from tailrace.sql.strict.expressions import Expressions
from tailrace.sql.strict.tape import Kind, Tape

_SETS = ("UNION", "INTERSECT", "EXCEPT")
_SIDES = ("LEFT", "RIGHT", "FULL", "SEMI", "ANTI")
_BEFORE_JOIN = ("NATURAL", "ASOF", "POSITIONAL", "CROSS", "INNER", "OUTER", *_SIDES)


def check_statement(tokens: Sequence[Token], text: str) -> None:
    """Raises at the first word of a query or write that does not fit. `text` is that of the whole request."""
    tape = Tape(tokens, text)
    Statements(tape).statement()
    tape.expect_end()


def check_expression(tokens: Sequence[Token], text: str) -> None:
    tape = Tape(tokens, text)
    Statements(tape).expression()
    tape.expect_end()


class Statements(Expressions):
    def statement(self) -> None:
        tape = self._tape
        if tape.sees("WITH"):
            self._ctes()
        if tape.take("INSERT"):
            self._insert()
        elif tape.take("UPDATE"):
            self._update()
        elif tape.take("DELETE"):
            self._delete()
        else:
            self.query()

    def query(self) -> None:
        if self._tape.sees("WITH"):
            self._ctes()
        self._part_of_query()
        self.more_of_query()

    def more_of_query(self) -> None:
        tape = self._tape
        while tape.take_any(_SETS):
            tape.take_any(("ALL", "DISTINCT"))
            tape.take("BY", "NAME")
            self._part_of_query()
        self.order_by()
        for _ in range(2):
            if tape.take("LIMIT"):
                if not tape.take("ALL"):
                    self.expression()
                tape.take("%")
            elif tape.take("OFFSET"):
                self.expression()
                tape.take_any(("ROW", "ROWS"))
        if tape.take("FETCH"):
            self._fetch()

    def _fetch(self) -> None:
        tape = self._tape
        if not tape.take_any(("FIRST", "NEXT")):
            tape.fail("FIRST or NEXT")
        if tape.word.said not in ("ROW", "ROWS"):
            self.expression()
        if not tape.take_any(("ROW", "ROWS")):
            tape.fail("ROWS")
        tape.expect("ONLY")

    def _ctes(self) -> None:
        self._tape.expect("WITH")
        self._tape.take("RECURSIVE")
        self.listed(self._cte)

    def _cte(self) -> None:
        tape = self._tape
        self.name("the name of a CTE")
        if tape.sees("("):
            self.bracketed(self.name)
        tape.expect("AS")
        tape.take("NOT")
        tape.take("MATERIALIZED")
        tape.expect("(")
        self.statement()
        tape.expect(")")

    def _part_of_query(self) -> None:
        tape = self._tape
        if tape.take("("):
            self.query()
            tape.expect(")")
        elif tape.take("VALUES"):
            self.listed(self._row)
        elif tape.take("SELECT"):
            self._select()
        else:
            tape.fail("SELECT, VALUES or a query in brackets")

    def _row(self) -> None:
        self.bracketed(self.expression)

    def _select(self) -> None:
        tape = self._tape
        if tape.take("DISTINCT"):
            if tape.take("ON"):
                self.bracketed(self.expression)
        else:
            tape.take("ALL")
        self.listed(self._column)
        if tape.take("FROM"):
            self.listed(self._sources)
        if tape.take("WHERE"):
            self.expression()
        if tape.take("GROUP"):
            tape.expect("BY")
            if not tape.take("ALL"):
                self.listed(self._grouping)
        if tape.take("HAVING"):
            self.expression()
        if tape.take("WINDOW"):
            self.listed(self._named_window)
        if tape.take("QUALIFY"):
            self.expression()

    def _column(self) -> None:
        tape = self._tape
        if tape.take("*"):
            self._but()
            return
        self.expression()
        self._but()
        self.alias()

    def _but(self) -> None:
        """What a star leaves out or shows otherwise."""
        tape = self._tape
        while tape.word.said in ("EXCLUDE", "EXCEPT", "REPLACE", "RENAME") and tape.next.said != "SELECT":
            if tape.step().said and tape.sees("("):
                self.bracketed(self._aliased)
            else:
                self._aliased()

    def _aliased(self) -> None:
        self.expression()
        self.alias()

    def _grouping(self) -> None:
        tape = self._tape
        if tape.take("GROUPING", "SETS") or (tape.word.said in ("ROLLUP", "CUBE") and tape.next.said == "(" and tape.step()):
            self.bracketed(self._grouping)
        elif not tape.take("(", ")"):
            self.expression()

    def _named_window(self) -> None:
        self.name("the name of a window")
        self._tape.expect("AS")
        self._tape.expect("(")
        self.window()
        self._tape.expect(")")

    def _sources(self) -> None:
        """A source and those that are joined with it."""
        tape = self._tape
        self._source()
        while tape.word.said in _BEFORE_JOIN or tape.sees("JOIN"):
            needs_condition = tape.word.said not in ("NATURAL", "CROSS", "POSITIONAL")
            while tape.take_any(_BEFORE_JOIN):
                pass
            tape.expect("JOIN")
            self._source()
            if tape.take("ON"):
                self.expression()
            elif tape.take("USING"):
                self.bracketed(self.name)
            elif needs_condition and not (tape.word.said in _BEFORE_JOIN or tape.sees("JOIN")):
                tape.fail("ON or USING")

    def _source(self) -> None:
        tape = self._tape
        tape.take("LATERAL")
        if tape.take("("):
            if self.begins_query():
                self.query()
            elif tape.sees("("):
                self._nested_source()
            else:
                self.listed(self._sources)
            tape.expect(")")
        else:
            self.dotted("a table, a topic or a query in brackets")
            if tape.sees("("):
                self._call("")
        if tape.take("WITH"):
            tape.expect("ORDINALITY")
        if self.alias() and tape.sees("("):
            self.bracketed(self._alias_column)

    def _nested_source(self) -> None:
        """In brackets twice: a query, or sources that are joined."""
        self._sources()
        self.more_of_query()

    def _alias_column(self) -> None:
        self.name()
        if self._tape.word.kind is Kind.WORD:
            self.type_()

    def _insert(self) -> None:
        tape = self._tape
        tape.expect("INTO")
        self.dotted("the name of a table or topic")
        if tape.sees("AS"):
            self.alias()
        if tape.sees("(") and tape.next.said not in ("SELECT", "WITH", "VALUES", "("):
            self.bracketed(self.name)
        if tape.take("DEFAULT"):
            tape.expect("VALUES")
        else:
            self.query()
        if tape.take("ON"):
            self._conflict()
        self._returning()

    def _conflict(self) -> None:
        tape = self._tape
        tape.expect("CONFLICT")
        if tape.sees("("):
            self.bracketed(self.ordered)
            if tape.take("WHERE"):
                self.expression()
        elif tape.take("ON"):
            tape.expect("CONSTRAINT")
            self.name()
        tape.expect("DO")
        if tape.take("NOTHING"):
            return
        tape.expect("UPDATE")
        tape.expect("SET")
        self._assignments()

    def _update(self) -> None:
        tape = self._tape
        self.dotted("the name of a table")
        if not tape.sees("SET"):
            self.alias()
        tape.expect("SET")
        self._assignments(with_sources=True)
        self._returning()

    def _delete(self) -> None:
        self._tape.expect("FROM")
        self.dotted("the name of a table")
        self.alias()
        if self._tape.take("WHERE"):
            self.expression()
        self._returning()

    def _assignments(self, *, with_sources: bool = False) -> None:
        self.listed(self._assignment)
        if with_sources and self._tape.take("FROM"):
            self.listed(self._sources)
        if self._tape.take("WHERE"):
            self.expression()

    def _assignment(self) -> None:
        if self._tape.sees("("):
            self.bracketed(self.name)
        else:
            self.dotted("the name of a column")
        self._tape.expect("=")
        self.expression()

    def _returning(self) -> None:
        if self._tape.take("RETURNING"):
            self.listed(self._column)
