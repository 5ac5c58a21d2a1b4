"""What a statement answers: columns and rows, and a word about what it did."""

from collections.abc import Sequence
from typing import NamedTuple

from tailrace.model.ids import Cursor
from tailrace.model.table import ColumnType


class ResultColumn(NamedTuple):
    name: str
    type: ColumnType


class Result(NamedTuple):
    """Rows hold Python values: `None`, `bool`, `int`, `float`, `Decimal`, `str`, `bytes`, `date`, `datetime` (UTC), `UUID`,
    and for JSON and lists whatever JSON holds."""

    columns: Sequence[ResultColumn] = ()
    rows: Sequence[Sequence[object]] = ()
    status: str = ""
    """What was done, as in `INSERT 3` or `CREATE TOPIC`."""
    affected: int | None = None
    """Rows written, where the statement writes rows."""
    cursor: Cursor | None = None
    """The place in the log of what was written."""
    truncated: bool = False
    """Whether there were more rows than the limit `query_rows` allows, or more to consume than fits into one answer."""
