"""COPY ... FROM: rows of one request, as an Arrow IPC stream, inserted into a table in one transaction.

The client reads the file (`client/copying`), and sends it in chunks. A chunk is in the table as a whole or not at all. If one
of its rows can't be stored, `InvalidRowError` names it; or, with `skip`, the rows that can't be stored are left out and
returned. These are rows with a value that is invalid for its column, and rows that break a constraint of the table.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple

from tailrace.broker.broker import Broker
from tailrace.model.errors import (
    ConstraintError,
    InvalidRequestError,
    InvalidRowError,
    LimitExceededError,
    QueryLimitError,
    SqlError,
    SqlForbiddenError,
    TailraceError,
    UnknownTableError,
)
from tailrace.model.ids import Cursor
from tailrace.model.limits import Limits
from tailrace.model.suggestions import did_you_mean
from tailrace.model.table import Column, Table
from tailrace.sql.privileges import Privileges, visible_tables
from tailrace.sql.results import Result, RowConflict
from tailrace.sql.schema_names import found_name
from tailrace.wire.arrow_stream import InvalidStreamError, MessageSplitter

_UNIQUE = "23505"
_MAX_ITEMS = 10_000_000
"""Items of the lists of one request: nulls take no bytes in Arrow, but some as values."""
_OR_NOTHING = " ON CONFLICT DO NOTHING"
_MOST_ATTEMPTS = 100
"""How many times a request is tried. Rows that break a check are found together, unless a default of a column is to blame."""


class LeftOutRow(NamedTuple):
    """A row that was left out."""

    row: int
    """Counted from 0."""
    column: str | None
    value: str | None
    reason: str
    sqlstate: str


class CopiedRows(NamedTuple):
    rows: int
    cursor: Cursor | None
    rejected: Sequence[LeftOutRow]


class _Rows(NamedTuple):
    """The rows of a request, as values for the columns."""

    columns: Sequence[Column]
    values: Sequence[Sequence[Any]]
    """The values of each column."""
    rejected: dict[int, LeftOutRow]
    """What is known to be wrong, the first fault of each row."""
    size: int
    """How many rows there are."""


class CopyHandler:
    def __init__(
        self,
        broker: Broker,
        execute: Callable[[str, Sequence[Any]], Awaitable[list[Result]]],
        privileges: Privileges,
        limits: Limits,
    ) -> None:
        self._broker = broker
        self._execute = execute
        self._privileges = privileges
        self._limits = limits

    async def insert(self, name: str, data: bytes, *, skip: bool) -> CopiedRows:
        """Insert the rows of an Arrow IPC stream whose columns have the names of the table's. With `skip` leave out what
        can't be stored; otherwise raise `InvalidRowError` for the first such row."""
        table = self._table(name)
        rows = await asyncio.to_thread(_read_rows, data, table, self._limits)
        text = _insert_text(table, rows.columns)
        for _ in range(_MOST_ATTEMPTS):
            if rows.rejected and not skip:
                raise _error_of(rows.rejected[min(rows.rejected)])
            left = [row for row in range(rows.size) if row not in rows.rejected] if rows.rejected else range(rows.size)
            if not left:
                return CopiedRows(0, None, _in_order(rows))
            given = await asyncio.to_thread(_rows_at, rows, left)
            try:
                (result,) = await self._execute(text, given)
            except ConstraintError as error:
                broken = error.rows or ([] if error.row is None else [error.row])
                if not skip or not broken:
                    raise _constraint_error(error, left) from error
                if error.sqlstate == _UNIQUE and not text.endswith(_OR_NOTHING):
                    text += _OR_NOTHING
                    continue
                for number in broken:
                    rows.rejected[left[number]] = LeftOutRow(left[number], None, None, str(error), error.sqlstate)
            except SqlError as error:
                before = len(rows.rejected)
                await asyncio.to_thread(_add_invalid, rows, left)
                if len(rows.rejected) == before:
                    raise error
            else:
                for conflict in result.conflicts:
                    rows.rejected[left[conflict.row]] = _left_out(conflict, rows, left[conflict.row])
                return CopiedRows(len(left) - len(result.conflicts), result.cursor, _in_order(rows))
        raise QueryLimitError(f"more than {_MOST_ATTEMPTS} rows break constraints that depend on defaults; send fewer rows")

    def _table(self, name: str) -> Table:
        name = found_name(name, self._broker)
        try:
            self._privileges.check_target("insert", name)
        except SqlForbiddenError as error:
            self._privileges.note(error)
            raise
        table = self._broker.tables.find(name)
        if table is not None:
            return table
        if self._broker.topics.find(name) is not None:
            raise UnknownTableError(f"{name!r} is a topic, not a table; publish to it")
        raise UnknownTableError(f"there is no table {name!r}{did_you_mean(name, visible_tables(self._broker))}")


def _read_rows(data: bytes, table: Table, limits: Limits) -> _Rows:
    from tailrace.sql.arrow_values import read_column

    batches = _read_stream(data, limits)
    columns = _columns(table, batches.schema.names)
    found = [read_column(array, column, table.name) for array, column in zip(batches.columns, columns, strict=True)]
    rejected: dict[int, LeftOutRow] = {}
    for invalid in sorted(one for column in found for one in column.invalid):
        rejected.setdefault(invalid.row, LeftOutRow(*invalid))
    return _Rows(columns, [column.values for column in found], rejected, batches.num_rows)


def _read_stream(data: bytes, limits: Limits) -> Any:
    import pyarrow as pa

    splitter = MessageSplitter()
    try:
        messages = splitter.feed(data)
    except InvalidStreamError as error:
        raise InvalidRequestError(f"the body is not an Arrow IPC stream: {error}") from error
    if any(message.is_compressed for message in messages):
        raise InvalidRequestError("the Arrow stream is compressed; send it without compression")
    rows = sum(message.rows for message in messages)
    if rows > limits.copy_rows:
        raise LimitExceededError(
            f"the request has {rows:,} rows, more than copy_rows allows ({limits.copy_rows:,}); send fewer"
        )
    from tailrace.sql.arrow_values import is_plain, item_count

    try:
        reader = pa.ipc.open_stream(pa.py_buffer(data))
        for field in reader.schema:
            if not is_plain(field.type):
                raise InvalidRequestError(f"column {field.name!r} is of Arrow's {field.type}, which is not supported; cast it")
        table = reader.read_all()
        table.validate(full=True)
        items = sum(map(item_count, table.columns))
    except (pa.ArrowException, OSError, ValueError) as error:
        raise InvalidRequestError(f"the body is not an Arrow IPC stream: {error}") from error
    if items > _MAX_ITEMS:
        raise LimitExceededError(f"lists of the request have {items:,} items, more than {_MAX_ITEMS:,}; send fewer rows")
    return table


def _columns(table: Table, names: Sequence[str]) -> list[Column]:
    known = {column.name.lower(): column for column in table.columns}
    found = []
    for name in names:
        column = known.get(name.lower())
        if column is None:
            raise SqlError(f"table {table.name!r} has no column {name!r}{did_you_mean(name, list(known))}")
        if column in found:
            raise SqlError(f"column {column.name!r} is named twice; name it once")
        found.append(column)
    if not found:
        raise SqlError("the rows have no columns")
    return found


def _rows_at(rows: _Rows, left: Sequence[int]) -> list[tuple[Any, ...]]:
    if len(left) == rows.size:
        return list(zip(*rows.values, strict=True))
    return list(zip(*([values[row] for row in left] for values in rows.values), strict=True))


def _add_invalid(rows: _Rows, left: Sequence[int]) -> None:
    from tailrace.sql.arrow_values import find_invalid

    for column, values in zip(rows.columns, rows.values, strict=True):
        for invalid in find_invalid([values[row] for row in left], column):
            row = left[invalid.row]
            rows.rejected.setdefault(row, LeftOutRow(row, *invalid[1:]))


def _left_out(conflict: RowConflict, rows: _Rows, row: int) -> LeftOutRow:
    """Return a row whose values in some columns are taken, with the first of these that is in the file."""
    for column, values in zip(rows.columns, rows.values, strict=True):
        if column.name in conflict.columns:
            return LeftOutRow(row, column.name, str(values[row]), conflict.reason, _UNIQUE)
    return LeftOutRow(row, None, None, conflict.reason, _UNIQUE)


def _in_order(rows: _Rows) -> list[LeftOutRow]:
    return [rows.rejected[row] for row in sorted(rows.rejected)]


def _error_of(found: LeftOutRow) -> InvalidRowError:
    return InvalidRowError(found.reason, found.row, found.column, found.value, found.sqlstate)


def _constraint_error(error: ConstraintError, left: Sequence[int]) -> TailraceError:
    if error.row is None:
        return error
    return InvalidRowError(str(error), left[error.row], None, None, error.sqlstate)


def _insert_text(table: Table, columns: Sequence[Column]) -> str:
    name = ".".join(map(_quoted, table.name.split(".")))
    names = ", ".join(_quoted(column.name) for column in columns)
    # Numbers in a file are kept, as PostgreSQL's COPY does.
    is_generated = any(column.identity is not None and column.identity.kind == "always" for column in columns)
    overriding = "OVERRIDING SYSTEM VALUE " if is_generated else ""
    return f"INSERT INTO {name} ({names}) {overriding}VALUES ({', '.join('?' * len(columns))})"


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
