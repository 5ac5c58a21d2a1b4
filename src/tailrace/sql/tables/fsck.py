"""Checks the file of the tables: every page against its checksum, and every row against the log.

It works on copies in a temporary folder, because SQLite changes a file that it opens: the copy is brought up to date with the
log, as the next start would do, and compared with a file that is built from the log alone.
"""

import shutil
from collections.abc import Collection, Iterator, Sequence
from itertools import zip_longest
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple, Protocol

import apsw
import msgspec

from tailrace.broker import keys
from tailrace.model.commit import OffsetBounds
from tailrace.model.errors import CorruptionError
from tailrace.model.ids import Offset, PartitionId
from tailrace.model.limits import Limits
from tailrace.model.record import Record
from tailrace.model.table import Table, TableCheckpoint, changes_partition, checkpoint_partition
from tailrace.sql.tables.change_events import TableEvents
from tailrace.sql.tables.collations import register_collations
from tailrace.sql.tables.database import abandon, open_writer
from tailrace.sql.tables.rows import TableRows, can_be_rebuilt, rebuild
from tailrace.sql.tables.schema import rows_sql
from tailrace.sql.tables.table_file import DamagedFileError, TableFile, check_sealed, is_damage
from tailrace.sql.tables.values import StoredRow, shown
from tailrace.wire.records import decode_batch

FILE_NAME = "tables.db"

_REMEDY = "the next start rebuilds it from the log"


class StoredLog(Protocol):
    """The log of a folder that no server has open."""

    def get(self, key: bytes) -> bytes | None: ...
    def range(self, prefix: bytes) -> Sequence[tuple[bytes, bytes]]: ...
    def find(self, partitions: Collection[PartitionId]) -> None: ...
    def bounds(self, partition: PartitionId) -> OffsetBounds: ...
    def read(self, partition: PartitionId, offset: Offset, max_bytes: int) -> Sequence[bytes]: ...


class TablesReport(NamedTuple):
    findings: list[tuple[str, str]]
    """Where something is wrong, and what."""
    notes: list[str]
    tables: int = 0
    rows: int = 0
    """The number of rows that agree with the log."""


def check_tables(folder: Path, stored: StoredLog, limits: Limits) -> TablesReport:
    """Check the file in the folder. The log must have been checked before, without findings."""
    definitions = [msgspec.msgpack.decode(value, type=Table) for _, value in stored.range(keys.TABLES)]
    findings: list[tuple[str, str]] = []
    notes: list[str] = []
    report = TablesReport(findings, notes, len(definitions))
    if not definitions:
        return report
    tables = [TableEvents(table, limits) for table in definitions]
    stored.find([partition(table) for table in definitions for partition in (changes_partition, checkpoint_partition)])
    log = _OfflineTableLog(stored, limits)
    with TemporaryDirectory(prefix="tailrace-fsck-") as temporary:
        file = _copied(folder, Path(temporary), (stored.get(keys.IDENTITY) or b"").decode())
        why = file.why_rebuild()
        lost = [of.table.name for of in tables if not can_be_rebuilt(of.table, log)]
        remedy = f"restore a copy of it, because the log lacks changes of {', '.join(lost)}" if lost else _REMEDY
        if why is not None and lost and not file.path.exists():
            findings.append((FILE_NAME, f"it {why}: {remedy}"))
            return report
        if why is not None:
            notes.append(f"{FILE_NAME} {why}; {_REMEDY}")
            return report
        try:
            rows = _compare(file, Path(temporary), tables, log, limits, findings, notes)
        except CorruptionError as error:
            findings.append((FILE_NAME, str(error)))
        except Exception as error:
            if not is_damage(error):
                raise
            findings.append((FILE_NAME, f"{error}; {remedy}"))
        else:
            report = report._replace(rows=rows)
    return report


class _OfflineTableLog:
    """Implements `rows.TableLog` on a log that no server has open."""

    def __init__(self, stored: StoredLog, limits: Limits) -> None:
        self._stored = stored
        self._limits = limits

    def bounds(self, table: Table) -> OffsetBounds:
        return self._stored.bounds(changes_partition(table))

    def read(self, table: Table, offset: Offset, max_bytes: int) -> list[Record]:
        start, end = self.bounds(table)
        if not start <= offset <= end:
            raise CorruptionError(
                f"table {table.name!r} has its changes up to offset {offset}, but the log has them from {start} to {end} and no"
                " checkpoint of the rows: restore the file that belongs to this log"
            )
        return self._records(changes_partition(table), offset, end, max_bytes)

    def checkpoint(self, table: Table) -> TableCheckpoint | None:
        value = self._stored.get(keys.checkpoint_key(table.id))
        return None if value is None else msgspec.msgpack.decode(value, type=TableCheckpoint)

    def read_rows(self, table: Table, checkpoint: TableCheckpoint, offset: Offset, max_bytes: int) -> list[Record]:
        return self._records(checkpoint_partition(table), offset, checkpoint.end, max_bytes)

    def _records(self, partition: PartitionId, offset: Offset, end: Offset, max_bytes: int) -> list[Record]:
        if offset >= end:
            return []
        batches = self._stored.read(partition, offset, max_bytes)
        records = [record for batch in batches for record in decode_batch(batch, self._limits)]
        return [record for record in records if offset <= record.offset < end]


def _copied(folder: Path, target: Path, log_id: str) -> TableFile:
    for suffix in ("", "-wal", ".backfill", ".rebuilt"):
        if (path := folder / f"{FILE_NAME}{suffix}").exists():
            shutil.copy(path, target)
    return TableFile(target / FILE_NAME, log_id)


def _compare(
    file: TableFile,
    temporary: Path,
    tables: Sequence[TableEvents],
    log: _OfflineTableLog,
    limits: Limits,
    findings: list[tuple[str, str]],
    notes: list[str],
) -> int:
    """Compare the copy of the file with the log, and return the number of rows that agree."""
    known = [of for of in tables if can_be_rebuilt(of.table, log)]
    notes += [
        f"the rows of table {of.table.name} can't be compared with the log, which lacks its oldest changes; a running server"
        " takes a checkpoint of them"
        for of in tables
        if of not in known
    ]
    expected = TableFile(temporary / "expected.db", file.log_id)
    rebuild(expected, known, log, limits)
    connections: list[apsw.Connection] = []
    try:
        for opened in (file, expected):
            connections.append(open_writer(opened, limits))
            register_collations(connections[-1])
        found, wanted = connections
        faults = found.execute("PRAGMA integrity_check(1)").fetchall()
        check_sealed(found)
        if faults != [("ok",)]:
            raise DamagedFileError(f"a page of the tables' file is not what was written ({str(faults[0][0]).splitlines()[-1]})")
        found.execute("BEGIN")
        TableRows(found).bring_up(tables, log)
        return sum(_same_rows(of, found, wanted, findings) for of in known)
    finally:
        for connection in connections:
            abandon(connection)


def _same_rows(of: TableEvents, found: apsw.Connection, wanted: apsw.Connection, findings: list[tuple[str, str]]) -> int:
    rows = 0
    for actual, expected_row in zip_longest(_rows(of.table, found), _rows(of.table, wanted)):
        if actual != expected_row:
            key = ", ".join(
                f"{name} = {shown(value)}"
                for name, value in zip(of.table.primary_key, of.key_of(expected_row or actual or ()), strict=True)
            )
            findings.append(
                (
                    f"{FILE_NAME}, table {of.table.name}",
                    f"the row with {key} differs from the log; remove the file: {_REMEDY}",
                )
            )
            return rows
        rows += 1
    return rows


def _rows(table: Table, connection: apsw.Connection) -> Iterator[StoredRow]:
    return connection.execute(rows_sql(table))
