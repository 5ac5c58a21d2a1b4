"""Operands: values, columns, calls, and whatever stands in brackets.

Functions may have any name and any number of arguments; that is for the engines to say.
"""

from abc import ABC, abstractmethod

from tailrace.sql.strict.phrases import RESERVED, Phrases
from tailrace.sql.strict.tape import Kind

_CALLED_ALL_THE_SAME = frozenset(("LEFT", "RIGHT", "INSERT"))
_PREFIXES = frozenset(("-", "+", "~", "@"))
_TYPES_OF_TEXTS = frozenset(("DATE", "TIME", "TIMESTAMP", "TIMESTAMPTZ", "TIMETZ", "UUID", "JSON", "JSONB", "BOOLEAN", "BYTEA"))
_WITH_WORDS = frozenset(("EXTRACT", "SUBSTRING", "SUBSTR", "TRIM", "LTRIM", "RTRIM", "OVERLAY", "POSITION"))
"""Functions whose arguments may have words between them."""
_UNIT_NAMES = """
    MICROSECOND MILLISECOND SECOND MINUTE HOUR DAY WEEK MONTH QUARTER YEAR DECADE CENTURY MILLENNIUM
"""
_UNITS = frozenset(unit + plural for unit in _UNIT_NAMES.split() for plural in ("", "S"))


class Operands(Phrases, ABC):
    @abstractmethod
    def expression(self) -> None:
        """Operands with operators between them."""

    @abstractmethod
    def order_by(self) -> None:
        """ORDER BY, if it is there."""

    @abstractmethod
    def window(self) -> None:
        """What stands in the brackets of OVER and WINDOW."""

    @abstractmethod
    def query(self) -> None:
        """SELECT, WITH, VALUES or one of these in brackets."""

    @abstractmethod
    def more_of_query(self) -> None:
        """The rest of a query whose first part, in brackets, was taken for a value."""

    def begins_query(self) -> bool:
        return self._tape.word.said in ("SELECT", "WITH", "VALUES")

    def operand(self) -> None:
        tape = self._tape
        while tape.take_any(_PREFIXES):
            pass
        word = tape.word
        if word.kind is Kind.NUMBER:
            tape.step()
        elif word.kind is Kind.TEXT:
            self._text()
        elif word.kind is Kind.QUOTED:
            self._named()
        elif word.kind is Kind.WORD:
            self._word()
        elif word.said == "(":
            self.parenthesised()
        elif word.said == "[":
            self._items("[", "]")
        elif word.said == "{":
            self._struct()
        elif tape.take(":"):
            if tape.word.kind not in (Kind.WORD, Kind.NUMBER):
                tape.fail("the name of a parameter")
            tape.step()
        elif not tape.take("?"):
            tape.fail("a value")

    def _text(self) -> None:
        self._tape.step()
        while self._tape.word.kind is Kind.TEXT and self._tape.follows_line_break():
            self._tape.step()

    def _word(self) -> None:
        tape = self._tape
        said, after = tape.word.said, tape.next
        if said == "CASE":
            self._case()
        elif said in ("CAST", "TRY_CAST") and after.said == "(":
            tape.step()
            tape.expect("(")
            self.expression()
            tape.expect("AS")
            self.type_()
            tape.expect(")")
        elif said == "EXISTS" and after.said == "(":
            tape.step()
            tape.expect("(")
            self.query()
            tape.expect(")")
        elif said == "ARRAY" and after.said in ("[", "("):
            tape.step()
            self._items("[", "]") if tape.sees("[") else self.parenthesised()
        elif said == "MAP" and after.said == "{":
            tape.step()
            self._struct()
        elif said == "INTERVAL" and (after.kind in (Kind.TEXT, Kind.NUMBER) or after.said in ("(", "?", ":")):
            self._interval()
        elif said == "LAMBDA" and after.kind is Kind.WORD:
            tape.step()
            self.listed(self.name)
            tape.expect(":")
            self.expression()
        elif said in _TYPES_OF_TEXTS and after.kind is Kind.TEXT:
            tape.step()
            self._text()
        elif said == "TIMESTAMP" and after.said in ("WITH", "WITHOUT"):
            self.type_()
            if tape.word.kind is not Kind.TEXT:
                tape.fail("a time in quotes")
            tape.step()
        elif said in _CALLED_ALL_THE_SAME and after.said == "(":
            tape.step()
            self._call(said)
        elif said in RESERVED:
            tape.fail("a value")
        else:
            self._named()

    def _named(self) -> None:
        """A column, a constant such as NULL, or a call."""
        tape = self._tape
        said = tape.step().said
        while tape.take("."):
            if tape.take("*"):
                return
            said = tape.word.said
            self.part()
        if tape.sees("("):
            self._call(said)

    def _call(self, function: str) -> None:
        tape = self._tape
        tape.expect("(")
        if not tape.take("*") and not tape.sees(")"):
            self._arguments(function)
        tape.expect(")")
        if tape.take("WITHIN"):
            tape.expect("GROUP")
            tape.expect("(")
            self.order_by()
            tape.expect(")")
        if tape.take("FILTER"):
            tape.expect("(")
            tape.expect("WHERE")
            self.expression()
            tape.expect(")")
        if tape.take_any(("IGNORE", "RESPECT")):
            tape.expect("NULLS")
        if tape.take("OVER"):
            if tape.take("("):
                self.window()
                tape.expect(")")
            else:
                self.name("the name of a window, or a window in brackets")

    def _arguments(self, function: str) -> None:
        tape = self._tape
        tape.take_any(("DISTINCT", "ALL"))
        if function in _WITH_WORDS:
            is_trimmed = tape.take_any(("BOTH", "LEADING", "TRAILING"))
            if not (is_trimmed and tape.sees("FROM")):
                self.listed(self.expression)
            while tape.take_any(("FROM", "FOR", "PLACING")):
                self.expression()
            return
        self.listed(self._argument)
        self.order_by()
        if tape.take_any(("IGNORE", "RESPECT")):
            tape.expect("NULLS")

    def _argument(self) -> None:
        if self._tape.take("*"):
            return
        self.expression()
        if self._tape.take("AS"):
            self.type_()

    def parenthesised(self) -> None:
        """A query, a value or several in brackets."""
        tape = self._tape
        tape.expect("(")
        if self.begins_query():
            self.query()
        else:
            self.listed(self.expression)
            if tape.word.said in ("UNION", "INTERSECT", "EXCEPT"):
                self.more_of_query()
        tape.expect(")")

    def _items(self, opening: str, closing: str) -> None:
        tape = self._tape
        tape.expect(opening)
        if not tape.sees(closing):
            self.listed(self.expression)
        if tape.take("FOR"):
            self.name()
            tape.expect("IN")
            self.expression()
            if tape.take("IF"):
                self.expression()
        tape.expect(closing)

    def _struct(self) -> None:
        tape = self._tape
        tape.expect("{")
        if not tape.sees("}"):
            self.listed(self._field)
        tape.expect("}")

    def _field(self) -> None:
        self.operand()
        self._tape.expect(":")
        self.expression()

    def _case(self) -> None:
        tape = self._tape
        tape.step()
        if not tape.sees("WHEN"):
            self.expression()
        if not tape.sees("WHEN"):
            tape.fail("WHEN")
        while tape.take("WHEN"):
            self.expression()
            tape.expect("THEN")
            self.expression()
        if tape.take("ELSE"):
            self.expression()
        if not tape.take("END"):
            tape.fail("WHEN, ELSE or END")

    def _interval(self) -> None:
        tape = self._tape
        tape.step()
        self.operand()
        if tape.take_any(_UNITS) and tape.take("TO") and not tape.take_any(_UNITS):
            tape.fail("a unit of time")
