"""Fast path of `parse.parse`: reads INSERTs of plain values by regular expressions, without a parser.

    INSERT INTO name (column, ...) VALUES (1, 'text', NULL), (-2.5, 'it''s', TRUE) ...

Triggered by texts of exactly this form: one INSERT whose values are numbers, strings, TRUE, FALSE or NULL. The statement is
parsed once, with parameters in place of its values, and used as a template for later texts. Such texts are frequent and all
different, so caching them does not help, or they are long. Everything else is left to the parser.
`tests/unit/sql/test_fast_insert.py` holds both equal.
"""

import re
from collections import OrderedDict
from collections.abc import Sequence
from decimal import Decimal
from typing import NamedTuple

import msgspec

from tailrace.model.errors import SqlError
from tailrace.model.limits import Limits
from tailrace.sql.grammar.lexer import read_tokens
from tailrace.sql.grammar.writes import constant_of, plain_rows
from tailrace.sql.parse import parse
from tailrace.sql.statements import Write

_HEAD = re.compile(r'\s*INSERT\s+INTO\s+[\w."]+\s*(?:\([\w\s,"]+\)\s*)?VALUES\s*(?=\()', re.IGNORECASE | re.ASCII)
_CELL = r"\s*(NULL|TRUE|FALSE|-?\d+(?:\.\d+)?(?:E[+-]?\d+)?|'[^']*(?:''[^']*)*')\s*"
_FIRST_CELLS = re.compile(rf"\({_CELL}(?:,{_CELL})*\)", re.IGNORECASE | re.ASCII)
_CELLS = re.compile(_CELL, re.IGNORECASE | re.ASCII)
_END = re.compile(r"\s*;?\s*")
_MAX_HEAD_CHARACTERS = 4096
_MAX_INTEGER_CHARACTERS = 18
_CLAUSES = ("onConflictClause", "returningList", "withClause")


class InsertTemplate(NamedTuple):
    """An INSERT without its values, and where they start in the text."""

    write: Write
    start: int
    row: re.Pattern[str]
    """Matches a row with the comma after it; its cells are the groups."""


class FastInsertParser:
    """Remembers the templates of the `parsed_texts` most recently used INSERTs."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._known: OrderedDict[tuple[str, int], tuple[Write, re.Pattern[str]]] = OrderedDict()

    def template_of(self, text: str) -> InsertTemplate | None:
        """Return the template that the text starts with, or `None` if it can't be an INSERT of plain values."""
        head = _HEAD.match(text)
        if head is None or head.end() > _MAX_HEAD_CHARACTERS:
            return None
        first = _FIRST_CELLS.match(text, head.end())
        if first is None:
            return None
        columns = len(_CELLS.findall(first[0]))
        if columns > self._limits.table_columns:
            return None
        found = self._known.get((head[0], columns))
        if found is None:
            found = self._learn(head[0], columns)
            if found is None:
                return None
        self._known.move_to_end((head[0], columns))
        return InsertTemplate(found[0], head.end(), found[1])

    def _learn(self, head: str, columns: int) -> tuple[Write, re.Pattern[str]] | None:
        try:
            (statement,) = parse(f"{head}({', '.join('?' * columns)})", self._limits)
        except SqlError:
            # The parser reports the error, with its position, when it gets the whole text.
            return None
        if not isinstance(statement, Write):
            return None
        row = re.compile(rf"\s*\({','.join([_CELL] * columns)}\)\s*(,|)", re.IGNORECASE | re.ASCII)
        self._known[head, columns] = statement, row
        if len(self._known) > self._limits.parsed_texts:
            self._known.popitem(last=False)
        return statement, row


def fast_parse_insert(text: str, template: InsertTemplate) -> Write | None:
    """Return the INSERT with its rows, or `None` if the text does not continue as the template expects. Thread-safe."""
    rows: list[Sequence[object]] = []
    at = template.start
    match = template.row.match
    while True:
        found = match(text, at)
        if found is None:
            return None
        *cells, comma = found.groups()
        rows.append(tuple(map(_value, cells)))
        at = found.end()
        if not comma:
            break
    if _END.fullmatch(text, at) is None:
        return None
    return msgspec.structs.replace(template.write, rows=rows)


def with_rows_apart(write: Write, limits: Limits) -> Write | None:
    """Return a parsed INSERT of plain values with its rows moved out of its tree, or `None` for any other statement.

    For an INSERT that is not the only statement of its text.
    """
    fields = write.tree.get("InsertStmt", {})
    cells = plain_rows(fields)
    if cells is None or write.parameters or any(fields.get(clause) for clause in _CLAUSES):
        return None
    if len({len(row) for row in cells}) > 1 or any("SetToDefault" in cell for row in cells for cell in row):
        return None
    (first, *_) = cells[0][0].values()
    before = read_tokens(write.postgres_text.encode()[: first["location"]].decode(errors="ignore"))
    head = write.postgres_text[: next(token.start for token in reversed(before) if token.is_word("values"))]
    (template,) = parse(f"{head}VALUES ({', '.join('?' * len(cells[0]))})", limits)
    if not isinstance(template, Write):
        return None
    rows = [tuple(map(constant_of, row)) for row in cells]
    return msgspec.structs.replace(template, rows=rows, line=write.line, column=write.column)


def _value(written: str) -> object:
    first = written[0]
    if first == "'":
        return written[1:-1].replace("''", "'")
    if first in "-0123456789":
        return int(written) if len(written) <= _MAX_INTEGER_CHARACTERS and written.lstrip("-").isdigit() else Decimal(written)
    return None if first in "nN" else first in "tT"
