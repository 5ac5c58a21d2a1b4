"""Brings the rows in SQLite up to date with the log, and rebuilds the file from it.

Every commit of SQLite includes the offsets that its tables have reached. Changes that the log has beyond them are applied
again, which gives the same rows as the first time, because an event has the whole row. Where the log no longer has all changes,
it has a checkpoint of the rows, from which the table is rebuilt.

A table that ALTER TABLE has changed is brought to its present shape first. Events of an older shape are decoded to rows of the
present one (`change_events`), so it does not matter which of them the file had before it was altered.

A rebuild uses the log alone, or the rows of the existing file where an older version let retention delete changes that no
checkpoint covers. The new file is filled in one transaction without a journal, which takes little memory; nobody sees it before
it is complete.
"""

import logging
from collections.abc import Collection, Iterable, Mapping
from typing import Protocol

import apsw

from tailrace.model.commit import OffsetBounds
from tailrace.model.errors import CorruptionError
from tailrace.model.ids import Offset, TableId
from tailrace.model.killpoint import killpoint
from tailrace.model.limits import MIB, Limits
from tailrace.model.record import Record
from tailrace.model.table import Table, TableCheckpoint
from tailrace.sql.tables.altered_rows import alter_rows
from tailrace.sql.tables.change_events import TableEvents, is_read, is_truncate
from tailrace.sql.tables.collations import register_collations
from tailrace.sql.tables.database import (
    CATALOG,
    abandon,
    add_versions,
    check_log_id,
    has_versions,
    make_database,
    open_reader,
    quoted,
)
from tailrace.sql.tables.indexes import drop_indexes, drop_other_indexes, ensure_indexes
from tailrace.sql.tables.schema import create_sql, delete_all_sql, delete_sql, insert_sql, rows_behind_sql, rows_sql, upsert_sql
from tailrace.sql.tables.schema_versions import upgrade_from
from tailrace.sql.tables.table_file import CHECKSUM_BYTES, FORMAT, DamagedFileError, TableFile, is_damage
from tailrace.sql.tables.values import StoredRow

_log = logging.getLogger(__name__)

_READ_BYTES = 4 * MIB
_FIRST = Offset(0)


class TableLog(Protocol):
    """The changes of tables in the log."""

    def bounds(self, table: Table) -> OffsetBounds:
        """Return the offsets between which the log has changes."""

    def read(self, table: Table, offset: Offset, max_bytes: int) -> list[Record]:
        """Return changes from an offset on, up to so many bytes; none at the end.

        Raises `CorruptionError` outside of the bounds.
        """

    def checkpoint(self, table: Table) -> TableCheckpoint | None:
        """Return the newest checkpoint of the rows."""

    def read_rows(self, table: Table, checkpoint: TableCheckpoint, offset: Offset, max_bytes: int) -> list[Record]:
        """Return rows of a checkpoint from a record on, up to so many bytes; none at the end."""


class TableRows:
    """Internal statements on the writer's connection. The caller starts and ends transactions."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection

    def offsets(self) -> dict[TableId, Offset]:
        """Return for each table the offset of the first change that it lacks."""
        found = self._connection.execute(f"SELECT id, next_offset FROM {quoted(CATALOG)}")  # noqa: S608
        return {TableId(table_id): Offset(offset) for table_id, offset in found}

    def create(self, table: Table) -> None:
        """Create a table without its indexes, which are made when it has its rows."""
        self._connection.execute(create_sql(table))
        self._connection.execute(
            f"INSERT INTO {quoted(CATALOG)} (id, name, next_offset, schema_version) VALUES (?, ?, ?, ?)",  # noqa: S608
            (table.id, table.name, _FIRST, table.schema_version),
        )

    def versions(self) -> dict[TableId, int]:
        """Return for each table the version of the schema that its rows have."""
        if not has_versions(self._connection):
            return dict.fromkeys(self.offsets(), 1)
        found = self._connection.execute(f"SELECT id, schema_version FROM {quoted(CATALOG)}")  # noqa: S608
        return {TableId(table_id): version for table_id, version in found}

    def alter(self, table: Table, version: int, *, is_behind: bool = False) -> None:
        """Bring rows of a version to the present shape of their table. Its indexes are left to the caller.

        `is_behind` tells that changes of earlier versions are still to be applied.
        """
        alter_rows(self._connection, table, version, is_behind=is_behind)
        self._connection.execute(
            f"UPDATE {quoted(CATALOG)} SET schema_version = ? WHERE id = ?",  # noqa: S608
            (table.schema_version, table.id),
        )

    def has_null(self, table: Table, column: str) -> bool:
        """Return whether a row has null in this column."""
        sql = f"SELECT 1 FROM {quoted(table.name)} WHERE {quoted(column)} IS NULL LIMIT 1"  # noqa: S608
        return self._connection.execute(sql).fetchone() is not None

    def is_empty(self, table: Table) -> bool:
        return self._connection.execute(f"SELECT 1 FROM {quoted(table.name)} LIMIT 1").fetchone() is None  # noqa: S608

    def drop(self, table_id: TableId, name: str) -> None:
        self._connection.execute(f"DROP TABLE IF EXISTS {quoted(name)}")
        self._connection.execute(f"DELETE FROM {quoted(CATALOG)} WHERE id = ?", (table_id,))  # noqa: S608

    def reached(self, offsets: Mapping[TableId, Offset]) -> None:
        """Record that the tables have all changes below these offsets, in the same transaction as the rows."""
        self._connection.executemany(
            f"UPDATE {quoted(CATALOG)} SET next_offset = ? WHERE id = ?",  # noqa: S608
            [(offset, table_id) for table_id, offset in offsets.items()],
        )

    def behind(self, table: Table, key: StoredRow | None, most_rows: int, most_bytes: int) -> tuple[list[StoredRow], bool]:
        """Return the next rows in key order, after this key or from the start, and whether they are the last."""
        rows: list[StoredRow] = []
        size = 0
        cursor = self._connection.cursor()
        try:
            for row in cursor.execute(rows_behind_sql(table, is_first=key is None), (*(key or ()), most_rows)):
                rows.append(row)
                size += sum(len(cell) for cell in row if isinstance(cell, (str, bytes)))
                if size >= most_bytes:
                    return rows, False
        finally:
            cursor.close(force=True)
        return rows, len(rows) < most_rows

    def bring_up(self, events: Iterable[TableEvents], log: TableLog) -> int:
        """Make the tables what the log says, and return the number of changes applied."""
        add_versions(self._connection)
        wanted = {of.table.id: of for of in events}
        there = {
            TableId(table_id): str(name)
            for table_id, name in self._connection.execute(f"SELECT id, name FROM {quoted(CATALOG)}")  # noqa: S608
        }
        for table_id, name in there.items():
            if table_id not in wanted:
                self.drop(table_id, name)
        versions = self.versions()
        for table_id, of in wanted.items():
            if table_id not in there:
                self.create(of.table)
                self._fill(of, log)
                continue
            # The file may have indexes from before a change of the definition that it missed. Those it lacks are made last.
            drop_other_indexes(self._connection, of.table)
            if versions[table_id] < of.table.schema_version:
                drop_indexes(self._connection, of.table)
                self.alter(of.table, versions[table_id], is_behind=True)
            elif versions[table_id] > of.table.schema_version:
                why = f"version {versions[table_id]} of its schema, but the log has version {of.table.schema_version}"
                self._rebuild(of, log, why)
        offsets = self.offsets()
        applied = sum(self._bring_up(of, offsets[table_id], log) for table_id, of in wanted.items())
        for of in wanted.values():
            ensure_indexes(self._connection, of.table)
        return applied

    def _bring_up(self, of: TableEvents, offset: Offset, log: TableLog) -> int:
        table = of.table
        start, end = log.bounds(table)
        if not start <= offset <= end and can_be_rebuilt(table, log):
            offset = self._rebuild(of, log, f"its changes up to offset {offset}, but the log has them from {start} to {end}")
        return self._replay(of, offset, log)

    def _rebuild(self, of: TableEvents, log: TableLog, why: str) -> Offset:
        """Begin a table anew that is ahead of the log, and return the offset of the first change that it lacks.

        With relaxed durability a power failure can lose more of the log than of the rows. The log is the truth.
        """
        table = of.table
        if not can_be_rebuilt(table, log):
            raise CorruptionError(
                f"table {table.name!r} has {why}, which lacks its oldest changes and has no checkpoint of the rows: restore the"
                " table file that belongs to this log"
            )
        _log.warning("Table %s has %s. Its rows are rebuilt.", table.name, why)
        self.drop(table.id, table.name)
        self.create(table)
        return self._fill(of, log)

    def _fill(self, of: TableEvents, log: TableLog) -> Offset:
        """Fill a new table from its checkpoint, if there is one, and return the offset of the first change that it lacks."""
        table = of.table
        checkpoint = log.checkpoint(table)
        if checkpoint is None:
            return _FIRST
        put = insert_sql(table, or_replace=True)
        offset = checkpoint.first
        while records := log.read_rows(table, checkpoint, offset, _READ_BYTES):
            self._connection.executemany(put, (of.decode(record).row or () for record in records))
            offset = Offset(records[-1].offset + 1)
            killpoint("rebuild.half")
        if offset != checkpoint.end:
            raise CorruptionError(f"the checkpoint of table {table.name!r} ends at record {offset}, not at {checkpoint.end}")
        self.reached({table.id: checkpoint.offset})
        return checkpoint.offset

    def _replay(self, of: TableEvents, offset: Offset, log: TableLog) -> int:
        table = of.table
        put, take = upsert_sql(table), delete_sql(table)
        first = offset
        while records := log.read(table, offset, _READ_BYTES):
            for record in records:
                if is_read(record):
                    continue
                if is_truncate(record):
                    self._connection.execute(delete_all_sql(table))
                    continue
                key, row = of.decode(record)
                if row is None:
                    self._connection.execute(take, key)
                else:
                    self._put(table, put, row)
            offset = Offset(records[-1].offset + 1)
            killpoint("rebuild.half")
        if offset != first:
            self.reached({table.id: offset})
        return offset - first

    def _put(self, table: Table, sql: str, row: StoredRow) -> None:
        """Insert or update a row of the log."""
        try:
            self._connection.execute(sql, row)
        except apsw.ConstraintError:
            # The file has a unique index that was dropped and made again since; there were rows that break it meanwhile.
            drop_indexes(self._connection, table)
            self._connection.execute(sql, row)


def can_be_rebuilt(table: Table, log: TableLog) -> bool:
    """Return whether the log alone has all rows: from its first change on, or from a checkpoint."""
    return log.bounds(table).start == _FIRST or log.checkpoint(table) is not None


def rebuild(file: TableFile, tables: Collection[TableEvents], log: TableLog, limits: Limits) -> int:
    """Rebuild the file, replace the old one, and return the number of changes applied. No writer may have the file open.

    Raises `CorruptionError` if neither the log nor the file has the rows of a table; then nothing was changed.
    """
    _check_same_log(file, limits)
    connection = make_database(file, limits)
    try:
        register_collations(connection)
        rows = TableRows(connection)
        connection.execute("BEGIN IMMEDIATE")
        kept = [of for of in tables if not can_be_rebuilt(of.table, log)]
        if kept:
            _keep_rows(file, kept, log, connection, rows, limits)
        applied = rows.bring_up(tables, log)
        connection.execute("COMMIT")
        connection.pragma("journal_mode", "wal")
    finally:
        connection.close(True)
    file.replace()
    return applied


def _check_same_log(file: TableFile, limits: Limits) -> None:
    """Raise if the file is readable and belongs to another log: it must not be replaced."""
    if not file.path.exists() or not file.path.stat().st_size:
        return
    try:
        old = open_reader(file, limits)
        try:
            check_log_id(old, file)
        finally:
            abandon(old)
    except (apsw.Error, DamagedFileError) as error:
        _log.debug("The old file can't be read to find out which log it belongs to: %s", error)


def _keep_rows(
    file: TableFile, tables: Collection[TableEvents], log: TableLog, new: apsw.Connection, rows: TableRows, limits: Limits
) -> None:
    """Copy tables from the existing file, which alone has their rows."""
    if not file.path.exists():
        return
    try:
        old = open_reader(file, limits)
        try:
            register_collations(old)
            _check_readable(old, file)
            offsets, versions = TableRows(old).offsets(), TableRows(old).versions()
            for of in tables:
                table = of.table
                if table.id in offsets:
                    rows.create(table)
                    upgrade = upgrade_from(table, versions[table.id])
                    new.executemany(insert_sql(table), map(upgrade, old.execute(rows_sql(table))))
                    rows.reached({table.id: offsets[table.id]})
                    _log.warning(
                        "The rows of table %s are copied from the existing file, because the log lacks some of its changes.",
                        table.name,
                    )
        finally:
            abandon(old)
    except (apsw.Error, DamagedFileError) as error:
        if not is_damage(error):
            raise
        names = ", ".join(repr(of.table.name) for of in tables)
        raise CorruptionError(
            f"{file.path} is damaged ({error}), and the log lacks the oldest changes of {names} and has no checkpoint of their"
            " rows: restore a copy of the file"
        ) from error


def _check_readable(old: apsw.Connection, file: TableFile) -> None:
    """Raise if the file is damaged. Pages with checksums are checked when they are read, other files as far as SQLite can."""
    version, reserved = old.pragma("user_version"), old.reserve_bytes()
    if (version, reserved) not in ((FORMAT, CHECKSUM_BYTES), (1, 0)):
        raise DamagedFileError(f"its header says format {version} with {reserved} bytes of checksum")
    faults = old.execute("PRAGMA integrity_check(1)").fetchall()
    if faults != [("ok",)]:
        raise DamagedFileError(str(faults[0][0]))
    check_log_id(old, file)
