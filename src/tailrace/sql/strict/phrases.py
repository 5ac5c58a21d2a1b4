"""Names, lists and types: what a statement is made of besides its values."""

from collections.abc import Callable

from tailrace.sql.strict.tape import Kind, Tape

_RESERVED = """
    ALL AND ANY AS ASC BETWEEN BY CASE CROSS DESC DISTINCT DO ELSE END ESCAPE EXCEPT FETCH FOR FROM FULL GROUP HAVING ILIKE IN
    INNER INSERT INTERSECT INTO IS JOIN LEFT LIKE LIMIT NATURAL NOT ON OR ORDER PLACING QUALIFY RETURNING RIGHT SELECT SET
    SIMILAR SOME THEN UNION USING VALUES WHEN WHERE WINDOW WITH
"""
RESERVED = frozenset(_RESERVED.split())
"""What can't be the name of a column, nor follow it as another name for it."""

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


class Phrases:
    def __init__(self, tape: Tape) -> None:
        self._tape = tape

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
            self.part()

    def part(self) -> None:
        """What stands behind a dot, where every word is a name."""
        if self._tape.word.kind not in (Kind.WORD, Kind.QUOTED):
            self._tape.fail("a name after the dot")
        self._tape.step()

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

    def type_(self) -> None:
        tape = self._tape
        if tape.word.kind not in (Kind.WORD, Kind.QUOTED) or tape.word.said in RESERVED:
            tape.fail("a type")
        tape.step()
        while tape.take("."):
            self.part()
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
        self.type_()
        if tape.word.kind in (Kind.WORD, Kind.QUOTED):
            self.type_()
