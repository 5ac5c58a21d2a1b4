"""The database of a source: connections, its catalog, the publication and the slot.

Two kinds of connections are used: ordinary ones for the catalog, and one that replicates (`stream`). All run in UTC and with
PostgreSQL's own formats, so that texts of values mean the same whatever the settings of the database are.
"""

import os
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import psycopg
from psycopg import pq, sql
from psycopg.conninfo import make_conninfo

from tailrace.capture.failures import CaptureError, connection_failure
from tailrace.model.source import ReplicaIdentity, Source, parse_lsn

LEAST_VERSION = 140000
"""PostgreSQL 14, the first that streams transactions which have not ended."""
_FAILOVER_VERSION = 170000
_OPTIONS_VERSION = 150000
_SESSION = "-c timezone=UTC -c datestyle=ISO,YMD -c intervalstyle=postgres -c bytea_output=hex"
_CONNECT_SECONDS = 10
_SILENCE_MS = 30_000
_STATEMENT_SECONDS = 60
_IDENTITIES: dict[str, ReplicaIdentity] = {"d": "default", "f": "full", "i": "index", "n": "nothing"}

_MATCHING = """
SELECT n.nspname, c.relname, c.oid::bigint, c.relreplident::text,
       EXISTS (SELECT FROM pg_index i WHERE i.indrelid = c.oid AND i.indisprimary) AS has_key,
       has_table_privilege(c.oid, 'SELECT') AS may_read, pg_has_role(c.relowner, 'USAGE') AS is_owner
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition AND c.relpersistence = 'p'
  AND n.nspname <> 'information_schema' AND n.nspname !~ '^pg_'
ORDER BY 1, 2
"""


Connection = psycopg.Connection[tuple[Any, ...]]


class FoundTable(NamedTuple):
    """A table of the database that can be captured. Of a partitioned table, its parent."""

    schema: str
    name: str
    oid: int
    identity: ReplicaIdentity
    has_key: bool
    may_read: bool
    is_owner: bool

    @property
    def full_name(self) -> str:
        return f"{self.schema}.{self.name}"


class SystemIdentity(NamedTuple):
    """Which database cluster it is, and on which timeline."""

    system_id: str
    timeline: int
    wal_end: int


class Slot(NamedTuple):
    plugin: str
    database: str
    is_active: bool
    active_pid: int | None
    confirmed_lsn: int | None
    wal_status: str | None
    """`reserved`, `extended`, `unreserved` or `lost`."""
    invalidation: str | None
    retained_bytes: int | None
    is_synced: bool


class Database:
    """Opens connections to the database of one source, and asks for what a capture has to know."""

    def __init__(self, source: Source) -> None:
        self._source = source

    def conninfo(self, *, replicates: bool = False) -> str:
        """Return what libpq connects with, with the password, which is read anew each time."""
        source = self._source
        given: dict[str, Any] = {
            "application_name": f"tailrace capture {source.name}",
            "connect_timeout": _CONNECT_SECONDS,
            "keepalives_idle": 10,
            "keepalives_interval": 5,
            "keepalives_count": 3,
            "tcp_user_timeout": _SILENCE_MS,
            "options": _SESSION,
            "client_encoding": "UTF8",
        }
        password = read_password(source)
        if password is not None:
            given["password"] = password
        if replicates:
            given["replication"] = "database"
        return make_conninfo(source.url, **given)

    @contextmanager
    def connect(self) -> Iterator[Connection]:
        """Open an ordinary connection."""
        try:
            with psycopg.connect(self.conninfo(), autocommit=True) as connection:
                connection.execute(f"SET statement_timeout = '{_STATEMENT_SECONDS}s'")
                yield connection
        except psycopg.Error as error:
            raise connection_failure(error, f"the database {self.shown_address} rejected a request") from error

    @property
    def shown_address(self) -> str:
        parts = urlsplit(self._source.url)
        return f"{parts.hostname or 'localhost'}:{parts.port or 5432}{parts.path}"

    def replication_connection(self) -> "pq.abc.PGconn":
        """Open a connection that replicates."""
        connection = pq.PGconn.connect(self.conninfo(replicates=True).encode())
        if connection.status != pq.ConnStatus.OK:
            message = connection.get_error_message()
            connection.finish()
            raise connection_failure(psycopg.OperationalError(message), f"can't replicate from {self.shown_address}")
        return connection

    def command(self, connection: "pq.abc.PGconn", text: str) -> list[list[bytes | None]]:
        """Run a command of the replication protocol, and return its rows."""
        result = connection.exec_(text.encode())
        if result.status not in (pq.ExecStatus.TUPLES_OK, pq.ExecStatus.COMMAND_OK):
            error = psycopg.errors.error_from_result(result)
            raise connection_failure(error, f"the database {self.shown_address} rejected {text.split(None, 1)[0]}")
        return [[result.get_value(row, column) for column in range(result.nfields)] for row in range(result.ntuples)]

    def identify(self, connection: "pq.abc.PGconn") -> SystemIdentity:
        system_id, timeline, wal_end, *_ = self.command(connection, "IDENTIFY_SYSTEM")[0]
        return SystemIdentity((system_id or b"").decode(), int(timeline or 0), parse_lsn((wal_end or b"0/0").decode()))

    def switch_point(self, connection: "pq.abc.PGconn", timeline: int, current: int) -> int | None:
        """Return where the history of the present timeline left an older one; `None` if it never was on it."""
        _, content = self.command(connection, f"TIMELINE_HISTORY {current}")[0]
        for line in (content or b"").decode(errors="replace").splitlines():
            words = line.split()
            if len(words) >= 2 and words[0] == str(timeline):
                return parse_lsn(words[1])
        return None

    def create_slot(self, connection: "pq.abc.PGconn", version: int) -> int:
        """Create the slot. Return the LSN from which on it has all changes."""
        options = "NOEXPORT_SNAPSHOT"
        if version >= _OPTIONS_VERSION:
            failover = ", FAILOVER true" if version >= _FAILOVER_VERSION else ""
            options = f"(SNAPSHOT 'nothing'{failover})"
        text = f"CREATE_REPLICATION_SLOT {quoted(self._source.slot)} LOGICAL pgoutput {options}"
        _, consistent_point, _, _ = self.command(connection, text)[0]
        return parse_lsn((consistent_point or b"").decode())

    def create_temporary_slot(self, connection: "pq.abc.PGconn", name: str) -> tuple[int, str]:
        """Create a slot that lives as long as the connection. Return its LSN and the name of a snapshot that shows exactly
        what was committed before."""
        text = f"CREATE_REPLICATION_SLOT {quoted(name)} TEMPORARY LOGICAL pgoutput EXPORT_SNAPSHOT"
        _, consistent_point, snapshot, _ = self.command(connection, text)[0]
        return parse_lsn((consistent_point or b"").decode()), (snapshot or b"").decode()


def read_password(source: Source) -> str | None:
    """Return the password from where the source says it is; `None` if it says nothing. libpq may find one by itself."""
    if source.password_env is not None:
        password = os.environ.get(source.password_env)
        if password is None:
            raise CaptureError(
                f"the environment variable {source.password_env} with the password is not set on {socket.gethostname()}",
                f"Set {source.password_env} in the environment of whoever reads the database: the server, `tailrace capture`"
                " or Spark's workers",
                state="failed",
            )
        return password
    if source.password_file is not None:
        try:
            return Path(source.password_file).read_text().rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as error:
            raise CaptureError(
                f"the file {source.password_file} with the password can't be read: {getattr(error, 'strerror', None) or error}",
                "Create it where the source is captured, readable by the user of that process only",
                state="failed",
            ) from error
    return None


def matching_tables(connection: Connection, patterns: Sequence[str]) -> list[FoundTable]:
    """Return the tables that the patterns of a source name."""
    found = [
        FoundTable(schema, name, oid, _IDENTITIES[identity], has_key, may_read, is_owner)
        for schema, name, oid, identity, has_key, may_read, is_owner in connection.execute(_MATCHING)
    ]
    return [table for table in found if any(matches(pattern, table.schema, table.name) for pattern in patterns)]


def matches(pattern: str, schema: str, name: str) -> bool:
    """Return whether a pattern such as `public.orders` or `public.*` names the table."""
    schemas, _, names = pattern.partition(".")
    return schemas in ("*", schema) and names in ("*", name)


def find_slot(connection: Connection, name: str) -> Slot | None:
    """Return the state of a slot; `None` if there is none."""
    version = connection.info.server_version
    invalidation = "invalidation_reason" if version >= _FAILOVER_VERSION else "NULL"
    synced = "synced" if version >= _FAILOVER_VERSION else "false"
    row = connection.execute(
        sql.SQL(
            "SELECT plugin, database, active, active_pid, confirmed_flush_lsn::text, wal_status, {}, CASE WHEN"
            " pg_is_in_recovery() THEN NULL ELSE pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn)::bigint END, {}"
            " FROM pg_replication_slots WHERE slot_name = %s"
        ).format(sql.SQL(invalidation), sql.SQL(synced)),
        (name,),
    ).fetchone()
    if row is None:
        return None
    plugin, database, active, pid, confirmed, status, reason, retained, is_synced = row
    return Slot(
        plugin, database, active, pid, None if confirmed is None else parse_lsn(confirmed), status, reason, retained, is_synced
    )


class UnpublishedTables(NamedTuple):
    """The tables that match the patterns of a source, and which of them its publication does not have."""

    found: list[FoundTable]
    missing: list[FoundTable]
    foreign: list[FoundTable]
    """Those that belong to somebody else, so that the source can't publish them."""
    has_publication: bool


class PublishedTables(NamedTuple):
    captured: list[FoundTable]
    foreign: list[FoundTable]


def unpublished_tables(connection: Connection, source: Source) -> UnpublishedTables:
    found = matching_tables(connection, source.tables)
    exists = connection.execute("SELECT FROM pg_publication WHERE pubname = %s", (source.publication,)).fetchone()
    listed = {
        f"{schema}.{name}"
        for schema, name in connection.execute(
            "SELECT schemaname, tablename FROM pg_publication_tables WHERE pubname = %s", (source.publication,)
        )
    }
    if not source.owns_publication:
        if exists is None:
            raise CaptureError(
                f"the publication {source.publication!r} does not exist in the database",
                "Create it there (CREATE PUBLICATION ... WITH (publish_via_partition_root = true)), or leave out the option"
                " publication: the source makes one of its own then",
                state="failed",
            )
        return UnpublishedTables([table for table in found if table.full_name in listed], [], [], True)
    # A table that somebody else creates later must not stop the capture of the others.
    foreign = [table for table in found if table.full_name not in listed and not table.is_owner]
    missing = [table for table in found if table.full_name not in listed and table.is_owner]
    return UnpublishedTables(found, missing, foreign, exists is not None)


def publish_tables(connection: Connection, source: Source, tables: UnpublishedTables) -> PublishedTables:
    """Create the publication of a source, or add the tables to it that are missing."""
    publication = sql.Identifier(source.publication)
    names = sql.SQL(", ").join(sql.Identifier(table.schema, table.name) for table in tables.missing)
    if not tables.has_publication:
        listed = sql.SQL(" FOR TABLE {}").format(names) if tables.missing else sql.SQL("")
        connection.execute(
            sql.SQL("CREATE PUBLICATION {}{} WITH (publish_via_partition_root = true)").format(publication, listed)
        )
    elif tables.missing:
        connection.execute(sql.SQL("ALTER PUBLICATION {} ADD TABLE {}").format(publication, names))
    return PublishedTables([table for table in tables.found if table not in tables.foreign], tables.foreign)


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
