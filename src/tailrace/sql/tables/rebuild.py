"""Making the file of the tables again: from the log alone, or, where an older version has let retention take changes that no
checkpoint covers, with the rows of the file that is there.

The new file is filled in one transaction without a journal, which takes little memory; nobody sees it before it is whole.
"""

import logging
from collections.abc import Collection

import apsw

from tailrace.model.errors import CorruptionError
from tailrace.model.limits import Limits
from tailrace.sql.tables.database import abandon, check_log_id, make_database, open_reader
from tailrace.sql.tables.decimals import register_decimals
from tailrace.sql.tables.events import TableEvents
from tailrace.sql.tables.rows import Log, Rows, can_be_made_again
from tailrace.sql.tables.schema import insert_sql, rows_sql
from tailrace.sql.tables.table_file import CHECKSUM_BYTES, FORMAT, DamagedFileError, TableFile, is_damage

_log = logging.getLogger(__name__)


def rebuild(file: TableFile, tables: Collection[TableEvents], log: Log, limits: Limits) -> int:
    """Make the file again and put it in its place; gives the number of changes applied. No writer may have the file open.

    Raises `CorruptionError` if neither the log nor the file has the rows of a table; then nothing was touched.
    """
    _refuse_other_log(file, limits)
    connection = make_database(file, limits)
    try:
        register_decimals(connection)
        rows = Rows(connection)
        connection.execute("BEGIN IMMEDIATE")
        kept = [of for of in tables if not can_be_made_again(of.table, log)]
        if kept:
            _keep_rows(file, kept, log, connection, rows, limits)
        applied = rows.bring_up(tables, log)
        connection.execute("COMMIT")
        connection.pragma("journal_mode", "wal")
    finally:
        connection.close(True)
    file.replace()
    return applied


def _refuse_other_log(file: TableFile, limits: Limits) -> None:
    """A file that can be read and is of another log is somebody's, and is not to be replaced."""
    if not file.path.exists() or not file.path.stat().st_size:
        return
    try:
        old = open_reader(file, limits)
        try:
            check_log_id(old, file)
        finally:
            abandon(old)
    except (apsw.Error, DamagedFileError) as error:
        _log.debug("the old file can't say which log it is of: %s", error)


def _keep_rows(
    file: TableFile, tables: Collection[TableEvents], log: Log, new: apsw.Connection, rows: Rows, limits: Limits
) -> None:
    """Copy tables from the file that is there: it is the only one who has their rows."""
    if not file.path.exists():
        return
    try:
        old = open_reader(file, limits)
        try:
            register_decimals(old)
            _check_readable(old, file)
            offsets = Rows(old).offsets()
            for of in tables:
                table = of.table
                if table.id in offsets:
                    rows.create(table)
                    new.executemany(insert_sql(table), old.execute(rows_sql(table)))
                    rows.reached({table.id: offsets[table.id]})
                    _log.warning(
                        "table %s: its rows are taken from the file that was there, for the log lacks some", table.name
                    )
        finally:
            abandon(old)
    except (apsw.Error, DamagedFileError) as error:
        if not is_damage(error):
            raise
        names = ", ".join(repr(of.table.name) for of in tables)
        raise CorruptionError(
            f"{file.path} is damaged ({error}), and the log lacks the oldest changes of {names} and has no checkpoint of their"
            " rows: bring back a copy of the file"
        ) from error


def _check_readable(old: apsw.Connection, file: TableFile) -> None:
    """A file with checksums is checked page by page as it is read; one without them as far as SQLite can."""
    version, reserved = old.pragma("user_version"), old.reserve_bytes()
    if (version, reserved) not in ((FORMAT, CHECKSUM_BYTES), (1, 0)):
        raise DamagedFileError(f"its header says format {version} with {reserved} bytes of checksum")
    faults = old.execute("PRAGMA integrity_check(1)").fetchall()
    if faults != [("ok",)]:
        raise DamagedFileError(str(faults[0][0]))
    check_log_id(old, file)
