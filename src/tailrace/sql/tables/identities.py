"""Identity columns: the next numbers of tables, which are never given out twice.

The last number of each column is kept in memory and written to the log in the frame of the rows that have it, so a number that
a client has seen is durable with its row. Numbers of statements that failed are left out, as PostgreSQL does; after a crash
they may be given out again, because nobody has seen them.
"""

from collections.abc import Callable, Mapping

from tailrace.model.errors import SqlError
from tailrace.model.ids import TableId
from tailrace.model.table import Column, Table
from tailrace.sql.tables.values import RANGES

_LIMIT_REACHED = "2200H"

LastNumbers = Mapping[int, int]
"""The last numbers of a table by the numbers of its identity columns."""


class IdentityNumbers:
    """Used by the writer's thread only."""

    def __init__(self, read: Callable[[Table], LastNumbers]) -> None:
        """`read` returns what the log has of a table."""
        self._read = read
        self._last: dict[TableId, dict[int, int]] = {}
        self._unsaved: set[TableId] = set()
        self._restarted: list[tuple[TableId, dict[int, int]]] = []
        """Tables whose numbers begin anew, with those from before, until the log has it."""

    def next(self, table: Table, column: Column) -> int:
        """Return the next number of a column."""
        identity = column.identity
        if identity is None:
            raise SqlError(f"column {column.name!r} is no identity column")
        known = self._last.get(table.id)
        if known is None:
            known = self._last[table.id] = dict(self._read(table))
        last = known.get(identity.number)
        number = identity.start if last is None else last + identity.increment
        least, most = RANGES[column.type.kind]
        if not least <= number <= most:
            word, bound = ("maximum", most) if identity.increment > 0 else ("minimum", least)
            raise SqlError(
                f"the identity column {column.name!r} of table {table.name!r} has reached its {word} value ({bound})",
                sqlstate=_LIMIT_REACHED,
            )
        known[identity.number] = number
        self._unsaved.add(table.id)
        return number

    @property
    def restarts(self) -> int:
        """How many restarts the log does not have yet."""
        return len(self._restarted)

    def restart(self, table: Table) -> None:
        """Begin with the first numbers of a table again (TRUNCATE ... RESTART IDENTITY)."""
        if all(column.identity is None for column in table.columns):
            return
        known = self._last.get(table.id)
        self._restarted.append((table.id, dict(self._read(table)) if known is None else known))
        self._last[table.id] = {}
        self._unsaved.add(table.id)

    def undo_restarts(self, first: int) -> None:
        """Undo the restarts of a transaction that failed: those from this one on."""
        while len(self._restarted) > first:
            table_id, before = self._restarted.pop()
            self._last[table_id] = before

    def unsaved(self) -> dict[TableId, LastNumbers]:
        """Return the last numbers of all tables that the log does not have yet."""
        return {table_id: dict(self._last[table_id]) for table_id in self._unsaved}

    def saved(self, numbers: Mapping[TableId, LastNumbers]) -> None:
        """Note that the log has these."""
        self._restarted.clear()
        self._unsaved -= {table_id for table_id, last in numbers.items() if self._last.get(table_id) == last}

    def forget(self, table: Table) -> None:
        """Forget a table that was dropped."""
        self._last.pop(table.id, None)
        self._unsaved.discard(table.id)
