"""The SQLite file of the tables: how connections to it are opened, and what a statement may do there.

`tables.db` runs in WAL mode with `synchronous = NORMAL`: commits do not sync, and a power cut can take the newest of them away
but never corrupts the file. The log has those changes; opening applies them again. Pages have checksums: see `table_file`.

Statements are translated from our SQL before they come here, and an authorizer denies whatever that could let through: other
files, pragmas, extensions, tables of our own. Nothing that a user says reaches SQLite as text.
"""

import logging
import re
from collections.abc import Callable, Collection
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
    UnsupportedSqlError,
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
"""The log that the rows come from."""
CATALOG = "_tailrace.tables"
"""Which tables there are, and up to which offset their changes are applied."""
RESERVED_NAMES = ("sqlite_", "_tailrace.")
"""What no table's name begins with: SQLite's own, and ours."""

_WRITER_CACHE_KIB = 64 * KIB
_READER_CACHE_KIB = 8 * KIB
_BUSY_MS = 10_000
_LIKE_PATTERN_BYTES = 10_000
_EXPRESSION_DEPTH = 200
_PROGRAM_STEPS = 1_000_000
_COMPOUND_SELECTS = 100

_FORBIDDEN_FUNCTIONS = frozenset(
    (
        "load_extension",
        "readfile",
        "writefile",
        "edit",
        "fts3_tokenizer",
        "fts5",
        "randomblob",
        "random",
        "zeroblob",
        "verify_checksum",
    )
)
_TABLE_FUNCTIONS = frozenset(("json_each", "json_tree"))
_READ = frozenset((apsw.SQLITE_SELECT, apsw.SQLITE_RECURSIVE))
_WRITE = frozenset((apsw.SQLITE_INSERT, apsw.SQLITE_UPDATE, apsw.SQLITE_DELETE))
_CONTROL = frozenset((apsw.SQLITE_TRANSACTION, apsw.SQLITE_SAVEPOINT))

Authorizer = Callable[[int, str | None, str | None, str | None, str | None], int]


def make_database(file: TableFile, limits: Limits) -> apsw.Connection:
    """A connection to a new file, to be filled in one transaction and closed; not durable until it is synced as a whole."""
    file.begin_replacing()
    connection = apsw.Connection(str(file.building), vfs=checksum_vfs())
    connection.reserve_bytes("main", CHECKSUM_BYTES)
    connection.pragma("journal_mode", "off")
    connection.pragma("synchronous", "off")
    connection.pragma("cache_size", -_WRITER_CACHE_KIB)
    connection.pragma("user_version", FORMAT)
    _configure(connection, limits)
    connection.execute(
        f"CREATE TABLE {quoted(CATALOG)} (id INTEGER PRIMARY KEY, name TEXT NOT NULL, next_offset INTEGER NOT NULL) STRICT"
    )
    connection.execute(f"CREATE TABLE {quoted(_LOG)} (id TEXT NOT NULL) STRICT")
    connection.execute(f"INSERT INTO {quoted(_LOG)} VALUES (?)", (file.log_id,))  # noqa: S608
    return connection


def open_writer(file: TableFile, limits: Limits) -> apsw.Connection:
    """The one connection that writes. Raises `DamagedFileError` if the file is not what was written."""
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
            # Only the writer touches what is beside the file: there may be another file in its place by then.
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
    """Close it and leave the files as they are. Calling it again does nothing."""
    with suppress(apsw.ConnectionClosedError):
        connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        connection.close(True)


def allow(names: Collection[str], *, writes: bool) -> Authorizer:
    """Statements may read these tables, and write to them if `writes`; nothing else. `names` may change."""

    def authorize(action: int, first: str | None, second: str | None, database: str | None, trigger: str | None) -> int:
        if action == apsw.SQLITE_READ:
            # A CTE of which no column is read comes as a table that is not there.
            is_cte = not second and not (first or "").lower().startswith(RESERVED_NAMES)
            allowed = first in names or first in _TABLE_FUNCTIONS or not first or is_cte
        elif action == apsw.SQLITE_FUNCTION:
            allowed = second not in _FORBIDDEN_FUNCTIONS and not (second or "").startswith("sqlite_")
        else:
            allowed = action in _READ or (writes and (action in _CONTROL or (action in _WRITE and first in names)))
        return apsw.SQLITE_OK if allowed else apsw.SQLITE_DENY

    return authorize


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
    """Refuse a file of another version or log."""
    found = connection.pragma("user_version")
    check_sealed(connection)
    if found != FORMAT:
        raise FormatError(f"{file.path} has format {found}, and this version reads {FORMAT}; use the version that wrote it")
    check_log_id(connection, file)


def check_log_id(connection: apsw.Connection, file: TableFile) -> None:
    found = connection.execute(f"SELECT id FROM {quoted(_LOG)}").fetchall()  # noqa: S608
    if found != [(file.log_id,)]:
        told = found[0][0] if found else "none"
        raise CorruptionError(
            f"{file.path} is not of this log, which is {file.log_id}, but of {told}. Bring back the right one, or take it away:"
            " the rows are made again from the log"
        )


_log = logging.getLogger(__name__)

_UNIQUE = re.compile(r"UNIQUE constraint failed: (.*)")
_UNKNOWN_COLUMN = re.compile(r"no such column: \"?([^\"]*)\"?( - should this be .*)?")
_UNKNOWN_FUNCTION = re.compile(r"no such function: (.*)")
_NOT_NULL = re.compile(r"NOT NULL constraint failed: (.*)")


def failure_of(error: Exception, limits: Limits) -> TailraceError:
    """The error of ours for whatever a statement ended with. Errors of our own functions come as they are."""
    if is_damage(error):
        return TablesDamagedError(
            f"the file of the tables is damaged ({error}) and is made again from the log; nothing was read or written:"
            " try again after a pause"
        )
    if isinstance(error, TailraceError):
        return error
    text = str(error)
    match error:
        case apsw.ConstraintError():
            return _constraint(text)
        case apsw.InterruptError():
            return QueryLimitError(f"the statement ran longer than query_seconds allows ({limits.query_seconds} s)")
        case apsw.NoMemError() | MemoryError():
            return QueryLimitError(f"the statement needs more memory than query_bytes allows ({limits.query_bytes})")
        case apsw.TooBigError():
            return LimitExceededError(f"a value is larger than frame_bytes allows ({limits.frame_bytes})")
        case apsw.AuthError() | apsw.SQLError() if "not authorized" in text or "prohibited" in text:
            return UnsupportedSqlError(f"the statement does what statements may not do: {text}")
        case apsw.FullError():
            return StorageFullError(f"the disk of the tables has no room: {text}; nothing was written")
        case apsw.IOError() | apsw.CantOpenError():
            return StorageFailedError(f"the file of the tables can't be used: {text}")
        case RecursionError():
            return SqlError("the statement is nested too deep; take it apart")
        case UnicodeEncodeError():
            return SqlError("a text is not valid Unicode")
        case apsw.Error():
            return SqlError(_in_our_words(text))
    _log.error("a statement met an error that nobody foresaw", exc_info=error)
    return TailraceError(f"the server met an error of its own, {type(error).__name__}; its log says more")


def _in_our_words(text: str) -> str:
    function = _UNKNOWN_FUNCTION.fullmatch(text)
    if function is not None:
        return f"there is no function {function[1].lower()}"
    said = text if text[:2].isupper() else text[:1].lower() + text[1:]
    return _UNKNOWN_COLUMN.sub(r"there is no column \1", said)


def _constraint(text: str) -> ConstraintError:
    unique = _UNIQUE.fullmatch(text)
    if unique is not None:
        names = [name.rpartition(".")[2] for name in unique[1].split(", ")]
        return ConstraintError(f"there is a row with this {', '.join(names)} already; use ON CONFLICT to say what to do then")
    null = _NOT_NULL.fullmatch(text)
    if null is not None:
        return ConstraintError(f"column {null[1].rpartition('.')[2]!r} can't be null")
    return ConstraintError(text)
