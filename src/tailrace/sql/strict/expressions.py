"""Expressions: operands with operators between them.

Which operator binds stronger is not asked here, only whether each has what it needs.
"""

from abc import ABC

from tailrace.sql.strict.operands import Operands
from tailrace.sql.strict.tape import Kind

_NO_OPERATORS = frozenset(("(", ")", "[", "]", "{", "}", ",", ".", ";", ":", "::", "?", ""))
_WORD_OPERATORS = frozenset(("OVERLAPS", "DIV", "GLOB", "REGEXP", "RLIKE"))
_ENDS = frozenset((",", ")", "]", "FROM", "AS", "THEN", "WHEN", "END", "ASC", "DESC"))
_LOGIC = frozenset(("AND", "OR"))
_LIKES = frozenset(("LIKE", "ILIKE", "GLOB", "RLIKE", "REGEXP"))
_NEGATABLE = _LIKES | {"BETWEEN", "IN", "SIMILAR"}


class Expressions(Operands, ABC):
    def expression(self) -> None:
        self._negations()
        self._operation(with_logic=True)

    def ordered(self) -> None:
        self.expression()
        self._tape.take_any(("ASC", "DESC"))
        if self._tape.take("NULLS") and not self._tape.take_any(("FIRST", "LAST")):
            self._tape.fail("FIRST or LAST")

    def order_by(self) -> None:
        if self._tape.take("ORDER"):
            self._tape.expect("BY")
            self.listed(self.ordered)

    def window(self) -> None:
        """What stands in the brackets of OVER and WINDOW."""
        tape = self._tape
        if tape.word.kind in (Kind.WORD, Kind.QUOTED) and tape.word.said not in (
            "PARTITION",
            "ORDER",
            "ROWS",
            "RANGE",
            "GROUPS",
        ):
            self.name()
        if tape.take("PARTITION"):
            tape.expect("BY")
            self.listed(self.expression)
        self.order_by()
        if tape.take_any(("ROWS", "RANGE", "GROUPS")):
            if tape.take("BETWEEN"):
                self._edge()
                tape.expect("AND")
            self._edge()
            if tape.take("EXCLUDE") and not (
                tape.take("CURRENT", "ROW") or tape.take("NO", "OTHERS") or tape.take_any(("GROUP", "TIES"))
            ):
                tape.fail("CURRENT ROW, GROUP, TIES or NO OTHERS")

    def _edge(self) -> None:
        tape = self._tape
        if tape.take("CURRENT", "ROW"):
            return
        if not tape.take("UNBOUNDED"):
            self._operation(with_logic=False)
        if not tape.take_any(("PRECEDING", "FOLLOWING")):
            tape.fail("PRECEDING or FOLLOWING")

    def _negations(self) -> None:
        while self._tape.take("NOT"):
            pass

    def _operation(self, *, with_logic: bool) -> None:
        self.operand()
        while self._goes_on(with_logic):
            pass

    def _goes_on(self, with_logic: bool) -> bool:
        """Read an operator and what belongs to it, if there is one."""
        tape = self._tape
        said = tape.word.said
        if said in _ENDS:
            return False
        if said in _LOGIC:
            if not with_logic:
                return False
            tape.step()
            self._negations()
            self.operand()
        elif said == "IS":
            self._is_what()
        elif said in ("ISNULL", "NOTNULL"):
            tape.step()
        elif said in _NEGATABLE or (said == "NOT" and tape.next.said in _NEGATABLE):
            self._compared_by_word()
        elif tape.take("COLLATE"):
            self.dotted("the name of a collation")
        elif tape.take("AT"):
            tape.expect("TIME")
            tape.expect("ZONE")
            self.operand()
        elif tape.take("::"):
            self.type_()
        elif said == "[":
            self._index()
        elif said == "." and tape.word.kind is Kind.SIGN:
            tape.step()
            self.part()
        elif said in _WORD_OPERATORS or (tape.word.kind is Kind.SIGN and said not in _NO_OPERATORS):
            tape.step()
            if tape.take_any(("ANY", "ALL", "SOME")):
                self.parenthesised()
            else:
                self.operand()
        else:
            return False
        return True

    def _is_what(self) -> None:
        tape = self._tape
        tape.step()
        tape.take("NOT")
        if tape.take("DISTINCT"):
            tape.expect("FROM")
            self.operand()
        elif tape.take("JSON"):
            tape.take_any(("OBJECT", "ARRAY", "SCALAR", "VALUE"))
        elif not tape.take_any(("NULL", "TRUE", "FALSE", "UNKNOWN")):
            tape.fail("NULL, TRUE, FALSE or DISTINCT FROM")

    def _compared_by_word(self) -> None:
        tape = self._tape
        tape.take("NOT")
        if tape.take("BETWEEN"):
            tape.take("SYMMETRIC")
            self._operation(with_logic=False)
            tape.expect("AND")
            self.operand()
        elif tape.take("IN"):
            if tape.sees("("):
                self.parenthesised()
            else:
                self.operand()
        else:
            if tape.take("SIMILAR"):
                tape.expect("TO")
            else:
                tape.step()
            if tape.take_any(("ANY", "ALL", "SOME")):
                self.parenthesised()
            else:
                self.operand()
            if tape.take("ESCAPE"):
                self.operand()

    def _index(self) -> None:
        tape = self._tape
        tape.expect("[")
        if not tape.sees(":"):
            self.expression()
        while tape.take(":"):
            if not (tape.sees("]") or tape.sees(":")):
                self.expression()
        tape.expect("]")
