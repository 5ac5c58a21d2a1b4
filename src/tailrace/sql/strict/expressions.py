"""Expressions: operands with operators between them.

Which operator binds stronger is not asked here, only whether each has what it needs. Functions may have any name and any number
of arguments; that is for the engines to say.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable

from tailrace.sql.strict.tape import Kind, Tape

_RESERVED = """
    ALL AND ANY AS ASC BETWEEN BY CASE CROSS DESC DISTINCT DO ELSE END ESCAPE EXCEPT FETCH FOR FROM FULL GROUP HAVING ILIKE IN
    INNER INSERT INTERSECT INTO IS JOIN LEFT LIKE LIMIT NATURAL NOT ON OR ORDER PLACING QUALIFY RETURNING RIGHT SELECT SET
    SIMILAR SOME THEN UNION USING VALUES WHEN WHERE WINDOW WITH
"""
RESERVED = frozenset(_RESERVED.split())
"""What can't be the name of a column, nor follow it as another name for it."""

_CALLED_ALL_THE_SAME = frozenset(("LEFT", "RIGHT", "INSERT"))
_NO_ALIAS = RESERVED | {
    "OFFSET",
    "COLLATE",
    "ISNULL",
    "NOTNULL",
    "OVERLAPS",
    "FILTER",
    "OVER",
    "WITHIN",
    "AT",
    "NULLS",
    "NULL",
    "TRUE",
    "FALSE",
}
_PREFIXES = frozenset(("-", "+", "~", "@"))
_NO_OPERATORS = frozenset(("(", ")", "[", "]", "{", "}", ",", ".", ";", ":", "::", "?", ""))
_WORD_OPERATORS = frozenset(("OVERLAPS", "DIV", "GLOB", "REGEXP", "RLIKE"))
_ENDS = frozenset((",", ")", "]", "FROM", "AS", "THEN", "WHEN", "END", "ASC", "DESC"))
_LOGIC = frozenset(("AND", "OR"))
_LIKES = frozenset(("LIKE", "ILIKE", "GLOB", "RLIKE", "REGEXP"))
_NEGATABLE = _LIKES | {"BETWEEN", "IN", "SIMILAR"}
_TYPES_OF_TEXTS = frozenset(("DATE", "TIME", "TIMESTAMP", "TIMESTAMPTZ", "TIMETZ", "UUID", "JSON", "JSONB", "BOOLEAN", "BYTEA"))
_WITH_WORDS = frozenset(("EXTRACT", "SUBSTRING", "SUBSTR", "TRIM", "LTRIM", "RTRIM", "OVERLAY", "POSITION"))
"""Functions whose arguments may have words between them."""
_UNIT_NAMES = """
    MICROSECOND MILLISECOND SECOND MINUTE HOUR DAY WEEK MONTH QUARTER YEAR DECADE CENTURY MILLENNIUM
"""
_UNITS = frozenset(unit + plural for unit in _UNIT_NAMES.split() for plural in ("", "S"))


class Expressions(ABC):
    def __init__(self, tape: Tape) -> None:
        self._tape = tape

    @abstractmethod
    def query(self) -> None:
        """SELECT, WITH, VALUES or one of these in brackets."""

    def expression(self) -> None:
        self._negations()
        self._operation(with_logic=True)

    def listed(self, item: Callable[[], None]) -> None:
        """At least one, with commas between them."""
        item()
        while self._tape.take(","):
            item()

    def bracketed(self, item: Callable[[], None]) -> None:
        self._tape.expect("(")
        self.listed(item)
        self._tape.expect(")")

    def name(self, what: str = "a name") -> None:
        word = self._tape.word
        if word.kind is Kind.QUOTED or (word.kind is Kind.WORD and word.said not in RESERVED):
            self._tape.step()
        else:
            self._tape.fail(what)

    def dotted(self, what: str) -> None:
        self.name(what)
        while self._tape.take("."):
            self._part()

    def alias(self) -> bool:
        """`[AS] name`, if it is there."""
        tape = self._tape
        if tape.take("AS"):
            if tape.word.kind not in (Kind.WORD, Kind.QUOTED, Kind.TEXT):
                tape.fail("a name after AS")
            tape.step()
            return True
        word = tape.word
        if word.kind is Kind.QUOTED or (word.kind is Kind.WORD and word.said not in _NO_ALIAS):
            tape.step()
            return True
        return False

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
        self._operand()
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
            self._operand()
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
            self._operand()
        elif tape.take("::"):
            self._type()
        elif said == "[":
            self._index()
        elif said == "." and tape.word.kind is Kind.SIGN:
            tape.step()
            self._part()
        elif said in _WORD_OPERATORS or (tape.word.kind is Kind.SIGN and said not in _NO_OPERATORS):
            tape.step()
            if tape.take_any(("ANY", "ALL", "SOME")):
                self._parenthesised()
            else:
                self._operand()
        else:
            return False
        return True

    def _is_what(self) -> None:
        tape = self._tape
        tape.step()
        tape.take("NOT")
        if tape.take("DISTINCT"):
            tape.expect("FROM")
            self._operand()
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
            self._operand()
        elif tape.take("IN"):
            if tape.sees("("):
                self._parenthesised()
            else:
                self._operand()
        else:
            if tape.take("SIMILAR"):
                tape.expect("TO")
            else:
                tape.step()
            if tape.take_any(("ANY", "ALL", "SOME")):
                self._parenthesised()
            else:
                self._operand()
            if tape.take("ESCAPE"):
                self._operand()

    def _operand(self) -> None:
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
            self._parenthesised()
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
            self._type()
            tape.expect(")")
        elif said == "EXISTS" and after.said == "(":
            tape.step()
            tape.expect("(")
            self.query()
            tape.expect(")")
        elif said == "ARRAY" and after.said in ("[", "("):
            tape.step()
            self._items("[", "]") if tape.sees("[") else self._parenthesised()
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
            self._type()
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
            self._part()
        if tape.sees("("):
            self._call(said)

    def _part(self) -> None:
        """What stands behind a dot, where every word is a name."""
        if self._tape.word.kind not in (Kind.WORD, Kind.QUOTED):
            self._tape.fail("a name after the dot")
        self._tape.step()

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
            self._type()

    def begins_query(self) -> bool:
        return self._tape.word.said in ("SELECT", "WITH", "VALUES")

    def _parenthesised(self) -> None:
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

    @abstractmethod
    def more_of_query(self) -> None:
        """The rest of a query whose first part, in brackets, was taken for a value."""

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
        self._operand()
        self._tape.expect(":")
        self.expression()

    def _index(self) -> None:
        tape = self._tape
        tape.expect("[")
        if not tape.sees(":"):
            self.expression()
        while tape.take(":"):
            if not (tape.sees("]") or tape.sees(":")):
                self.expression()
        tape.expect("]")

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
        self._operand()
        if tape.take_any(_UNITS) and tape.take("TO") and not tape.take_any(_UNITS):
            tape.fail("a unit of time")

    def _type(self) -> None:
        tape = self._tape
        if tape.word.kind not in (Kind.WORD, Kind.QUOTED) or tape.word.said in RESERVED:
            tape.fail("a type")
        tape.step()
        while tape.take("."):
            self._part()
        tape.take_any(("PRECISION", "VARYING"))
        if tape.sees("("):
            self._within_type()
        if tape.take("WITH") or tape.take("WITHOUT"):
            tape.take("LOCAL")
            tape.expect("TIME")
            tape.expect("ZONE")
        while tape.take("["):
            if tape.word.kind is Kind.NUMBER:
                tape.step()
            tape.expect("]")
        tape.take("ARRAY")

    def _within_type(self) -> None:
        """Lengths, or the fields of a struct."""
        tape = self._tape
        tape.expect("(")
        self.listed(self._of_type)
        tape.expect(")")

    def _of_type(self) -> None:
        tape = self._tape
        if tape.word.kind is Kind.NUMBER:
            tape.step()
            return
        self._type()
        if tape.word.kind in (Kind.WORD, Kind.QUOTED):
            self._type()
