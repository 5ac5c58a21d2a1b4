"""The SQLite file of the tables: how connections to it are opened, and what a statement may do there.

`tables.db` runs in WAL mode with `synchronous = NORMAL`: commits do not sync, and a power cut can take the newest of them away
but never corrupts the file. The log has those changes; opening applies them again.

Statements are translated from our SQL before they come here, and an authorizer denies whatever that could let through: other
files, pragmas, extensions, tables of our own. Nothing that a user says reaches SQLite as text.
"""

from collections.abc import Callable, Collection
from pathlib import Path

import apsw

from tailrace.model.errors import FormatError
from tailrace.model.limits import KIB, MIB, Limits

CATALOG = "_tailrace.tables"
"""Which tables there are, and up to which offset their changes are applied."""
RESERVED_NAMES = ("sqlite_", "_tailrace.")
"""What no table's name begins with: SQLite's own, and ours."""

_FORMAT = 1
_WRITER_CACHE_KIB = 64 * KIB
_READER_CACHE_KIB = 8 * KIB
_BUSY_MS = 10_000
_LIKE_PATTERN_BYTES = 10_000
_EXPRESSION_DEPTH = 200
_PROGRAM_STEPS = 1_000_000
_COMPOUND_SELECTS = 100

_FORBIDDEN_FUNCTIONS = frozenset(
    ("load_extension", "readfile", "writefile", "edit", "fts3_tokenizer", "fts5", "randomblob", "random", "zeroblob")
)
_TABLE_FUNCTIONS = frozenset(("json_each", "json_tree"))
_READ = frozenset((apsw.SQLITE_SELECT, apsw.SQLITE_RECURSIVE))
_WRITE = frozenset((apsw.SQLITE_INSERT, apsw.SQLITE_UPDATE, apsw.SQLITE_DELETE))
_CONTROL = frozenset((apsw.SQLITE_TRANSACTION, apsw.SQLITE_SAVEPOINT))

Authorizer = Callable[[int, str | None, str | None, str | None, str | None], int]


def open_writer(path: Path, limits: Limits) -> apsw.Connection:
    """The one connection that writes. Makes the file if it is not there."""
    connection = apsw.Connection(str(path))
    connection.set_busy_timeout(_BUSY_MS)
    connection.pragma("journal_mode", "wal")
    connection.pragma("synchronous", "normal")
    connection.pragma("cache_size", -_WRITER_CACHE_KIB)
    connection.pragma("wal_autocheckpoint", 0)
    _configure(connection, limits)
    _check_format(connection, path)
    return connection


def open_reader(path: Path, limits: Limits) -> apsw.Connection:
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
    connection.set_busy_timeout(_BUSY_MS)
    connection.pragma("query_only", True)
    connection.pragma("cache_size", -_READER_CACHE_KIB)
    connection.pragma("wal_autocheckpoint", 0)
    _configure(connection, limits)
    return connection


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


def _check_format(connection: apsw.Connection, path: Path) -> None:
    found = connection.pragma("user_version")
    if found not in (0, _FORMAT):
        raise FormatError(f"{path} has format {found}, and this version reads {_FORMAT}; use the version that wrote it")
    connection.pragma("user_version", _FORMAT)
    connection.execute(
        f"CREATE TABLE IF NOT EXISTS {quoted(CATALOG)}"
        " (id INTEGER PRIMARY KEY, name TEXT NOT NULL, next_offset INTEGER NOT NULL) STRICT"
    )
