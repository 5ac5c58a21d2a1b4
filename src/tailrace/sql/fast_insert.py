"""Fast path of `parse.parse`: reads INSERTs of plain values by regular expressions, without sqlglot.

    INSERT INTO name (column, ...) VALUES (1, 'text', NULL), (-2.5, 'it''s', TRUE) ...

Triggered by texts of exactly this form: one INSERT whose values are numbers, strings, TRUE, FALSE or NULL. The statement is
parsed once, with parameters in place of its values, and used as a template for later texts. Such texts are frequent and all
different, so caching them does not help, or they are long, and sqlglot takes a microsecond for each byte. Everything else is
left to the parser. `tests/unit/sql/test_fast_insert.py` holds both equal.
"""

import re
from collections import OrderedDict
from collections.abc import Sequence
from decimal import Decimal
from typing import NamedTuple

import msgspec
from sqlglot import exp

from tailrace.model.errors import SqlError
from tailrace.model.limits import Limits
from tailrace.sql.parse import parse
from tailrace.sql.statements import Write

_HEAD = re.compile(r'\s*INSERT\s+INTO\s+[\w."]+\s*(?:\([\w\s,"]+\)\s*)?VALUES\s*(?=\()', re.IGNORECASE | re.ASCII)
_CELL = r"\s*(NULL|TRUE|FALSE|-?\d+(?:\.\d+)?(?:E[+-]?\d+)?|'[^']*(?:''[^']*)*')\s*"
_FIRST_CELLS = re.compile(rf"\({_CELL}(?:,{_CELL})*\)", re.IGNORECASE | re.ASCII)
_CELLS = re.compile(_CELL, re.IGNORECASE | re.ASCII)
_END = re.compile(r"\s*;?\s*")
_MAX_HEAD_CHARACTERS = 4096
_MAX_INTEGER_CHARACTERS = 18


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
    tree = write.tree
    values = tree.args.get("expression")
    if not isinstance(tree, exp.Insert) or not isinstance(values, exp.Values):
        return None
    if write.parameters or any(given for name, given in tree.args.items() if name not in ("this", "expression")):
        return None
    rows: list[Sequence[object]] = []
    for row in values.expressions:
        cells = [_written(cell) for cell in row.expressions] if isinstance(row, exp.Tuple) else [None]
        if None in cells or (rows and len(cells) != len(rows[0])):
            return None
        rows.append(tuple(_value(cell) for cell in cells if cell is not None))
    columns = ", ".join("?" * len(rows[0]))
    (template,) = parse(f"INSERT INTO {tree.this.sql(dialect='postgres')} VALUES ({columns})", limits)  # noqa: S608  printed from a tree
    if not isinstance(template, Write):
        return None
    return msgspec.structs.replace(template, rows=rows, line=write.line, column=write.column)


def _written(cell: exp.Expr) -> str | None:
    """Return a plain value as it is written, or `None` if it is not plain."""
    if isinstance(cell, exp.Neg) and isinstance(cell.this, exp.Literal) and not cell.this.is_string:
        return f"-{cell.this.this}"
    if isinstance(cell, exp.Literal):
        text = str(cell.this)
        return "'" + text.replace("'", "''") + "'" if cell.is_string else text
    if isinstance(cell, exp.Boolean):
        return "TRUE" if cell.this else "FALSE"
    return "NULL" if isinstance(cell, exp.Null) else None


def _value(written: str) -> object:
    first = written[0]
    if first == "'":
        return written[1:-1].replace("''", "'")
    if first in "-0123456789":
        return int(written) if len(written) <= _MAX_INTEGER_CHARACTERS and written.lstrip("-").isdigit() else Decimal(written)
    return None if first in "nN" else first in "tT"
