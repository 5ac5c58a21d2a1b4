"""The grammar of expressions: operands with operators between them.

Operands are values, columns, calls and anything in brackets. Functions may have any name and any number of arguments; the
engines check those. The grammar does not know the precedence of operators, only whether each has what it needs.
"""

from abc import ABC, abstractmethod

from tailrace.sql.strict.token_stream import RESERVED, NameGrammar, TokenKind

_RESERVED_FUNCTIONS = frozenset(("LEFT", "RIGHT", "INSERT"))
_PREFIXES = frozenset(("-", "+", "~", "@"))
_TYPES_OF_TEXTS = frozenset(("DATE", "TIME", "TIMESTAMP", "TIMESTAMPTZ", "TIMETZ", "UUID", "JSON", "JSONB", "BOOLEAN", "BYTEA"))
_WITH_WORDS = frozenset(("EXTRACT", "SUBSTRING", "SUBSTR", "TRIM", "LTRIM", "RTRIM", "OVERLAY", "POSITION"))
"""Functions whose arguments may have keywords between them."""
_UNIT_NAMES = """
    MICROSECOND MILLISECOND SECOND MINUTE HOUR DAY WEEK MONTH QUARTER YEAR DECADE CENTURY MILLENNIUM
"""
_UNITS = frozenset(unit + plural for unit in _UNIT_NAMES.split() for plural in ("", "S"))


_NO_OPERATORS = frozenset(("(", ")", "[", "]", "{", "}", ",", ".", ";", ":", "::", "?", ""))
_WORD_OPERATORS = frozenset(("OVERLAPS", "DIV", "GLOB", "REGEXP", "RLIKE"))
_ENDS = frozenset((",", ")", "]", "FROM", "AS", "THEN", "WHEN", "END", "ASC", "DESC"))
_LOGIC = frozenset(("AND", "OR"))
_LIKES = frozenset(("LIKE", "ILIKE", "GLOB", "RLIKE", "REGEXP"))
_NEGATABLE = _LIKES | {"BETWEEN", "IN", "SIMILAR"}


class OperandGrammar(NameGrammar, ABC):
    @abstractmethod
    def expression(self) -> None:
        """Read operands with operators between them."""

    @abstractmethod
    def order_by(self) -> None:
        """Read ORDER BY if it comes next."""

    @abstractmethod
    def window(self) -> None:
        """Read the content of the brackets of OVER and WINDOW."""

    @abstractmethod
    def query(self) -> None:
        """Read SELECT, WITH, VALUES or one of these in brackets."""

    @abstractmethod
    def more_of_query(self) -> None:
        """Read the rest of a query whose first part, in brackets, was read as a value."""

    def begins_query(self) -> bool:
        return self._stream.current.keyword in ("SELECT", "WITH", "VALUES")

    def operand(self) -> None:
        stream = self._stream
        while stream.take_any(_PREFIXES):
            pass
        token = stream.current
        if token.kind is TokenKind.NUMBER:
            stream.step()
        elif token.kind is TokenKind.TEXT:
            self._text()
        elif token.kind is TokenKind.QUOTED:
            self._named()
        elif token.kind is TokenKind.WORD:
            self._word()
        elif token.keyword == "(":
            self.parenthesised()
        elif token.keyword == "[":
            self._items("[", "]")
        elif token.keyword == "{":
            self._struct()
        elif stream.take(":"):
            if stream.current.kind not in (TokenKind.WORD, TokenKind.NUMBER):
                stream.fail("the name of a parameter")
            stream.step()
        elif not stream.take("?"):
            stream.fail("a value")

    def _text(self) -> None:
        self._stream.step()
        while self._stream.current.kind is TokenKind.TEXT and self._stream.follows_line_break():
            self._stream.step()

    def _word(self) -> None:
        stream = self._stream
        keyword, after = stream.current.keyword, stream.next
        if keyword == "CASE":
            self._case()
        elif keyword in ("CAST", "TRY_CAST") and after.keyword == "(":
            stream.step()
            stream.expect("(")
            self.expression()
            stream.expect("AS")
            self.type_()
            stream.expect(")")
        elif keyword == "EXISTS" and after.keyword == "(":
            stream.step()
            stream.expect("(")
            self.query()
            stream.expect(")")
        elif keyword == "ARRAY" and after.keyword in ("[", "("):
            stream.step()
            self._items("[", "]") if stream.sees("[") else self.parenthesised()
        elif keyword == "MAP" and after.keyword == "{":
            stream.step()
            self._struct()
        elif keyword == "INTERVAL" and (after.kind in (TokenKind.TEXT, TokenKind.NUMBER) or after.keyword in ("(", "?", ":")):
            self._interval()
        elif keyword == "LAMBDA" and after.kind is TokenKind.WORD:
            stream.step()
            self.listed(self.name)
            stream.expect(":")
            self.expression()
        elif keyword in _TYPES_OF_TEXTS and after.kind is TokenKind.TEXT:
            stream.step()
            self._text()
        elif keyword == "TIMESTAMP" and after.keyword in ("WITH", "WITHOUT"):
            self.type_()
            if stream.current.kind is not TokenKind.TEXT:
                stream.fail("a time in quotes")
            stream.step()
        elif keyword in _RESERVED_FUNCTIONS and after.keyword == "(":
            stream.step()
            self._call(keyword)
        elif keyword in RESERVED:
            stream.fail("a value")
        else:
            self._named()

    def _named(self) -> None:
        """Read a column, a constant such as NULL, or a call."""
        stream = self._stream
        keyword = stream.step().keyword
        while stream.take("."):
            if stream.take("*"):
                return
            keyword = stream.current.keyword
            self.part()
        if stream.sees("("):
            self._call(keyword)

    def _call(self, function: str) -> None:
        stream = self._stream
        stream.expect("(")
        if not stream.take("*") and not stream.sees(")"):
            self._arguments(function)
        stream.expect(")")
        if stream.take("WITHIN"):
            stream.expect("GROUP")
            stream.expect("(")
            self.order_by()
            stream.expect(")")
        if stream.take("FILTER"):
            stream.expect("(")
            stream.expect("WHERE")
            self.expression()
            stream.expect(")")
        if stream.take_any(("IGNORE", "RESPECT")):
            stream.expect("NULLS")
        if stream.take("OVER"):
            if stream.take("("):
                self.window()
                stream.expect(")")
            else:
                self.name("the name of a window, or a window in brackets")

    def _arguments(self, function: str) -> None:
        stream = self._stream
        stream.take_any(("DISTINCT", "ALL"))
        if function in _WITH_WORDS:
            is_trimmed = stream.take_any(("BOTH", "LEADING", "TRAILING"))
            if not (is_trimmed and stream.sees("FROM")):
                self.listed(self.expression)
            while stream.take_any(("FROM", "FOR", "PLACING")):
                self.expression()
            return
        self.listed(self._argument)
        self.order_by()
        if stream.take_any(("IGNORE", "RESPECT")):
            stream.expect("NULLS")

    def _argument(self) -> None:
        if self._stream.take("*"):
            return
        self.expression()
        if self._stream.take("AS"):
            self.type_()

    def parenthesised(self) -> None:
        """Read a query, a value or several values in brackets."""
        stream = self._stream
        stream.expect("(")
        if self.begins_query():
            self.query()
        else:
            self.listed(self.expression)
            if stream.current.keyword in ("UNION", "INTERSECT", "EXCEPT"):
                self.more_of_query()
        stream.expect(")")

    def _items(self, opening: str, closing: str) -> None:
        stream = self._stream
        stream.expect(opening)
        if not stream.sees(closing):
            self.listed(self.expression)
        if stream.take("FOR"):
            self.name()
            stream.expect("IN")
            self.expression()
            if stream.take("IF"):
                self.expression()
        stream.expect(closing)

    def _struct(self) -> None:
        stream = self._stream
        stream.expect("{")
        if not stream.sees("}"):
            self.listed(self._field)
        stream.expect("}")

    def _field(self) -> None:
        self.operand()
        self._stream.expect(":")
        self.expression()

    def _case(self) -> None:
        stream = self._stream
        stream.step()
        if not stream.sees("WHEN"):
            self.expression()
        if not stream.sees("WHEN"):
            stream.fail("WHEN")
        while stream.take("WHEN"):
            self.expression()
            stream.expect("THEN")
            self.expression()
        if stream.take("ELSE"):
            self.expression()
        if not stream.take("END"):
            stream.fail("WHEN, ELSE or END")

    def _interval(self) -> None:
        stream = self._stream
        stream.step()
        self.operand()
        if stream.take_any(_UNITS) and stream.take("TO") and not stream.take_any(_UNITS):
            stream.fail("a unit of time")


class ExpressionGrammar(OperandGrammar, ABC):
    def expression(self) -> None:
        self._negations()
        self._operation(with_logic=True)

    def ordered(self) -> None:
        self.expression()
        self._stream.take_any(("ASC", "DESC"))
        if self._stream.take("NULLS") and not self._stream.take_any(("FIRST", "LAST")):
            self._stream.fail("FIRST or LAST")

    def order_by(self) -> None:
        if self._stream.take("ORDER"):
            self._stream.expect("BY")
            self.listed(self.ordered)

    def window(self) -> None:
        """Read the content of the brackets of OVER and WINDOW."""
        stream = self._stream
        if stream.current.kind in (TokenKind.WORD, TokenKind.QUOTED) and stream.current.keyword not in (
            "PARTITION",
            "ORDER",
            "ROWS",
            "RANGE",
            "GROUPS",
        ):
            self.name()
        if stream.take("PARTITION"):
            stream.expect("BY")
            self.listed(self.expression)
        self.order_by()
        if stream.take_any(("ROWS", "RANGE", "GROUPS")):
            if stream.take("BETWEEN"):
                self._edge()
                stream.expect("AND")
            self._edge()
            if stream.take("EXCLUDE") and not (
                stream.take("CURRENT", "ROW") or stream.take("NO", "OTHERS") or stream.take_any(("GROUP", "TIES"))
            ):
                stream.fail("CURRENT ROW, GROUP, TIES or NO OTHERS")

    def _edge(self) -> None:
        stream = self._stream
        if stream.take("CURRENT", "ROW"):
            return
        if not stream.take("UNBOUNDED"):
            self._operation(with_logic=False)
        if not stream.take_any(("PRECEDING", "FOLLOWING")):
            stream.fail("PRECEDING or FOLLOWING")

    def _negations(self) -> None:
        while self._stream.take("NOT"):
            pass

    def _operation(self, *, with_logic: bool) -> None:
        self.operand()
        while self._goes_on(with_logic):
            pass

    def _goes_on(self, with_logic: bool) -> bool:
        """Read an operator and its operand if one comes next, and return whether it did."""
        stream = self._stream
        keyword = stream.current.keyword
        if keyword in _ENDS:
            return False
        if keyword in _LOGIC:
            if not with_logic:
                return False
            stream.step()
            self._negations()
            self.operand()
        elif keyword == "IS":
            self._is_what()
        elif keyword in ("ISNULL", "NOTNULL"):
            stream.step()
        elif keyword in _NEGATABLE or (keyword == "NOT" and stream.next.keyword in _NEGATABLE):
            self._compared_by_word()
        elif stream.take("COLLATE"):
            self.dotted("the name of a collation")
        elif stream.take("AT"):
            stream.expect("TIME")
            stream.expect("ZONE")
            self.operand()
        elif stream.take("::"):
            self.type_()
        elif keyword == "[":
            self._index()
        elif keyword == "." and stream.current.kind is TokenKind.SIGN:
            stream.step()
            self.part()
        elif keyword in _WORD_OPERATORS or (stream.current.kind is TokenKind.SIGN and keyword not in _NO_OPERATORS):
            stream.step()
            if stream.take_any(("ANY", "ALL", "SOME")):
                self.parenthesised()
            else:
                self.operand()
        else:
            return False
        return True

    def _is_what(self) -> None:
        stream = self._stream
        stream.step()
        stream.take("NOT")
        if stream.take("DISTINCT"):
            stream.expect("FROM")
            self.operand()
        elif stream.take("JSON"):
            stream.take_any(("OBJECT", "ARRAY", "SCALAR", "VALUE"))
        elif not stream.take_any(("NULL", "TRUE", "FALSE", "UNKNOWN")):
            stream.fail("NULL, TRUE, FALSE or DISTINCT FROM")

    def _compared_by_word(self) -> None:
        stream = self._stream
        stream.take("NOT")
        if stream.take("BETWEEN"):
            stream.take("SYMMETRIC")
            self._operation(with_logic=False)
            stream.expect("AND")
            self.operand()
        elif stream.take("IN"):
            if stream.sees("("):
                self.parenthesised()
            else:
                self.operand()
        else:
            if stream.take("SIMILAR"):
                stream.expect("TO")
            else:
                stream.step()
            if stream.take_any(("ANY", "ALL", "SOME")):
                self.parenthesised()
            else:
                self.operand()
            if stream.take("ESCAPE"):
                self.operand()

    def _index(self) -> None:
        stream = self._stream
        stream.expect("[")
        if not stream.sees(":"):
            self.expression()
        while stream.take(":"):
            if not (stream.sees("]") or stream.sees(":")):
                self.expression()
        stream.expect("]")
