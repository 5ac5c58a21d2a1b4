"""Connections to the SQLite file of the tables: how they are opened, and what their errors mean.

`tables.db` uses WAL mode with `synchronous = NORMAL`: commits do not sync, so a power failure can lose the newest of them but
never corrupts the file. The log has those changes, and opening applies them again. Pages have checksums; see `table_file`.

SQLite gets a few statements of our own with bound values. No text of a user reaches it.
"""

import logging
from contextlib import suppress

import apsw

from tailrace.model.errors import (
    ConstraintError,
    CorruptionError,
    FormatError,
    LimitExceededError,
    QueryLimitError,
    SqlError,
    StorageFailedError,
    StorageFullError,
    TablesDamagedError,
    TailraceError,
)
from tailrace.model.limits import KIB, MIB, Limits
from tailrace.sql.tables.table_file import (
    CHECKSUM_BYTES,
    FORMAT,
    TableFile,
    check_sealed,
    checksum_vfs,
    damage_named,
    is_damage,
)

_LOG = "_tailrace.log"
"""The table that names the log from which the rows come."""
CATALOG = "_tailrace.tables"
"""The table that lists the tables and the offsets up to which their changes are applied."""
RESERVED_NAMES = ("sqlite_", "_tailrace.")
"""Prefixes that no table of a user may have: SQLite's own, and that of internal tables."""

_WRITER_CACHE_KIB = 64 * KIB
_READER_CACHE_KIB = 8 * KIB
_BUSY_MS = 10_000
_LIKE_PATTERN_BYTES = 10_000
_EXPRESSION_DEPTH = 200
_PROGRAM_STEPS = 1_000_000
_COMPOUND_SELECTS = 100

_log = logging.getLogger(__name__)


def make_database(file: TableFile, limits: Limits) -> apsw.Connection:
    """Return a connection to a new file, to be filled in one transaction and closed.

    It is not durable until the file is synced.
    """
    file.begin_replacing()
    connection = apsw.Connection(str(file.building), vfs=checksum_vfs())
    connection.reserve_bytes("main", CHECKSUM_BYTES)
    connection.pragma("journal_mode", "off")
    connection.pragma("synchronous", "off")
    connection.pragma("cache_size", -_WRITER_CACHE_KIB)
    connection.pragma("user_version", FORMAT)
    _configure(connection, limits)
    connection.execute(
        f"CREATE TABLE {quoted(CATALOG)} (id INTEGER PRIMARY KEY, name TEXT NOT NULL, next_offset INTEGER NOT NULL,"
        " schema_version INTEGER NOT NULL DEFAULT 1) STRICT"
    )
    connection.execute(f"CREATE TABLE {quoted(_LOG)} (id TEXT NOT NULL) STRICT")
    connection.execute(f"INSERT INTO {quoted(_LOG)} VALUES (?)", (file.log_id,))  # noqa: S608
    return connection


def add_versions(connection: apsw.Connection) -> None:
    """Add the versions of schemas to a file that was made before there were any. All its tables have version 1."""
    if not has_versions(connection):
        connection.execute(f"ALTER TABLE {quoted(CATALOG)} ADD COLUMN schema_version INTEGER NOT NULL DEFAULT 1")


def has_versions(connection: apsw.Connection) -> bool:
    """Return whether a file has the versions of schemas."""
    return "schema_version" in [column[1] for column in connection.execute(f"PRAGMA table_info({quoted(CATALOG)})")]


def open_writer(file: TableFile, limits: Limits) -> apsw.Connection:
    """Return the one connection that writes. Raises `DamagedFileError` if the file is not what was written."""
    with file.lock, damage_named():
        connection = apsw.Connection(str(file.path), flags=apsw.SQLITE_OPEN_READWRITE, vfs=checksum_vfs())
        try:
            connection.set_busy_timeout(_BUSY_MS)
            connection.pragma("wal_autocheckpoint", 0)
            connection.pragma("journal_mode", "wal")
            connection.pragma("synchronous", "normal")
            connection.pragma("cache_size", -_WRITER_CACHE_KIB)
            _configure(connection, limits)
            file.check_log(connection)
            check_origin(connection, file)
        except BaseException:
            abandon(connection)
            raise
    return connection


def open_reader(file: TableFile, limits: Limits) -> apsw.Connection:
    with damage_named():
        connection = apsw.Connection(str(file.path), flags=apsw.SQLITE_OPEN_READWRITE, vfs=checksum_vfs())
        try:
            # Only the writer changes the files beside the file: it may have been replaced when this connection closes.
            connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
            connection.set_busy_timeout(_BUSY_MS)
            connection.pragma("query_only", True)
            connection.pragma("cache_size", -_READER_CACHE_KIB)
            connection.pragma("wal_autocheckpoint", 0)
            _configure(connection, limits)
        except BaseException:
            abandon(connection)
            raise
    return connection


def abandon(connection: apsw.Connection) -> None:
    """Close a connection and leave the files as they are. Calling it again does nothing."""
    with suppress(apsw.ConnectionClosedError):
        connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        connection.close(True)


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _configure(connection: apsw.Connection, limits: Limits) -> None:
    connection.pragma("temp_store", "memory")
    connection.config(apsw.SQLITE_DBCONFIG_DQS_DML, 0)
    connection.config(apsw.SQLITE_DBCONFIG_DQS_DDL, 0)
    connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 1)
    connection.config(apsw.SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0)
    connection.config(apsw.SQLITE_DBCONFIG_ENABLE_LOAD_EXTENSION, 0)
    connection.limit(apsw.SQLITE_LIMIT_LENGTH, max(limits.frame_bytes, MIB))
    connection.limit(apsw.SQLITE_LIMIT_ATTACHED, 0)
    connection.limit(apsw.SQLITE_LIMIT_LIKE_PATTERN_LENGTH, _LIKE_PATTERN_BYTES)
    connection.limit(apsw.SQLITE_LIMIT_EXPR_DEPTH, _EXPRESSION_DEPTH)
    connection.limit(apsw.SQLITE_LIMIT_VDBE_OP, _PROGRAM_STEPS)
    connection.limit(apsw.SQLITE_LIMIT_COMPOUND_SELECT, _COMPOUND_SELECTS)
    connection.limit(apsw.SQLITE_LIMIT_WORKER_THREADS, 0)


def check_origin(connection: apsw.Connection, file: TableFile) -> None:
    """Raise if the file belongs to another version or log."""
    found = connection.pragma("user_version")
    check_sealed(connection)
    if found != FORMAT:
        raise FormatError(f"{file.path} has format {found}, and this version reads {FORMAT}; use the version that wrote it")
    check_log_id(connection, file)


def check_log_id(connection: apsw.Connection, file: TableFile) -> None:
    found = connection.execute(f"SELECT id FROM {quoted(_LOG)}").fetchall()  # noqa: S608
    if found != [(file.log_id,)]:
        other_id = found[0][0] if found else "none"
        raise CorruptionError(
            f"{file.path} belongs to log {other_id}, not to this log ({file.log_id}). Restore the right file, or remove this"
            " one: the rows are then rebuilt from the log"
        )


def failure_of(error: Exception, limits: Limits) -> TailraceError:
    """Return the error that a client gets for an error of a statement. Errors of Tailrace are returned unchanged."""
    if is_damage(error):
        return TablesDamagedError(
            f"the file of the tables is damaged ({error}) and is being rebuilt from the log; nothing was read or written:"
            " try again later"
        )
    if isinstance(error, TailraceError):
        return error
    text = str(error)
    match error:
        case apsw.ConstraintError():
            return ConstraintError(text)
        case apsw.InterruptError():
            return QueryLimitError(
                f"the statement ran longer than query_seconds allows ({limits.query_seconds} s); read or change fewer rows"
            )
        case apsw.NoMemError() | MemoryError():
            return QueryLimitError(
                f"the statement needs more memory than query_bytes allows ({limits.query_bytes}); read or change fewer rows"
            )
        case apsw.TooBigError():
            return LimitExceededError(f"a value is larger than frame_bytes allows ({limits.frame_bytes}); store a smaller one")
        case apsw.FullError():
            return StorageFullError(f"the disk of the tables is full: {text}; nothing was written")
        case apsw.IOError() | apsw.CantOpenError():
            return StorageFailedError(
                f"the file of the tables can't be read or written: {text}; check the disk of the data folder"
            )
        case RecursionError():
            return SqlError("the statement is nested too deeply; split it into smaller statements")
        case UnicodeEncodeError():
            return SqlError("a string is not valid Unicode; send it as bytes")
        case apsw.Error():
            return SqlError(text)
    _log.error("Unexpected internal error in a statement.", exc_info=error)
    return TailraceError(f"unexpected internal error, {type(error).__name__}; the log of the server has the details")
