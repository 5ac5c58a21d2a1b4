"""Sources: databases whose tables are captured, and what is known of their capture.

A source is captured by one process at a time, which streams the changes of the database and sends them to the server. Its
**position** is the LSN behind the last transaction that the log has. It moves in the frame that holds the transaction.
"""

from typing import Literal

import msgspec

from tailrace.model.ids import SourceId, TableId, TopicId
from tailrace.model.table import Table

SnapshotMode = Literal["initial", "none", "on demand"]
"""Whether the rows that exist are read: before the changes, never, or when ALTER SOURCE ... SNAPSHOT asks for it."""
CapturedBy = Literal["server", "command"]
"""Who captures: a process that the server starts, or one that is started by `tailrace capture` elsewhere."""
ReplicaIdentity = Literal["default", "full", "index", "nothing"]
"""What PostgreSQL logs of the old row of an update or delete: its key, all of it, the columns of an index, or nothing."""
SourceState = Literal["stopped", "starting", "snapshot", "streaming", "retrying", "failed"]
"""`snapshot` reads the rows that exist; `retrying` will pass by itself; `failed` lasts until somebody has done what the advice
says."""

POSITION = "lsn"
"""The mark of a source's position."""
HELD = "held"
"""The mark of how far held transactions were released: an offset of the topic that holds them."""
HELD_PREFIX = "_held."
"""How the names of topics begin that hold transactions while a snapshot is read."""
ALL_TABLES = ("*.*",)
ABSENT = "_absent"
"""The member of a captured row that names the columns which it does not have, with commas before, between and after them."""
SOURCE_WRITERS = "source/"
"""How the names begin under which positions are kept. No pipeline can have such a name."""


class Source(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    id: SourceId
    """Never reused, not even for a source of the same name."""
    name: str
    url: str
    """The URL of the database, without a password."""
    password_env: str | None = None
    """The environment variable that holds the password where the capture runs."""
    password_file: str | None = None
    """The file that holds the password where the capture runs."""
    tables: tuple[str, ...]
    """Patterns of the tables that are captured: `public.orders`, `public.*`."""
    snapshot: SnapshotMode
    captured_by: CapturedBy = "server"
    slot: str
    """The replication slot that belongs to this source alone."""
    publication: str
    owns_publication: bool = True
    """Whether the capture creates and drops the publication, and adds tables to it."""
    created_ms: int
    system_id: str | None = None
    """The identifier of the database cluster in which the slot was created; `None` before that."""
    timeline: int | None = None
    """Its timeline at that time, or the newest one that was accepted."""
    wanted: tuple[str, ...] = ()
    """Patterns of the tables whose rows are to be read by the next snapshot."""
    resync: bool = False
    """Whether the slot is to be created anew, although changes are missing."""

    @property
    def writer(self) -> str:
        """The name under which its position is kept."""
        return f"{SOURCE_WRITERS}{self.id}"

    @property
    def snapshot_writer(self) -> str:
        """The name under which the rows of a snapshot are written."""
        return f"{self.writer}/snapshot"


class SourceTable(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A table of a source. Its changes are in a topic, as those of the server's own tables are; its rows are not kept."""

    source: SourceId
    table: Table
    """Its name is `<source>.<schema>.<table>`."""
    schema: str
    relation: str
    oid: int
    """The number of the relation in the database. A table that is created again has another."""
    identity: ReplicaIdentity
    attributes: tuple[int, ...] = ()
    """The numbers of its columns in the catalog of PostgreSQL; 0 where one is not known."""
    postgres_types: tuple[str, ...] = ()
    """The names of the types of its columns in PostgreSQL."""

    @property
    def id(self) -> TableId:
        return self.table.id


class SourceSnapshot(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A snapshot that is being read. Transactions on its tables are held in a topic meanwhile, and released behind the rows."""

    tables: tuple[TableId, ...]
    known: tuple[TableId, ...] = ()
    """Those of the tables that had changes in the log before. Changes of the others from before the snapshot are part of their
    rows."""
    done: dict[TableId, int] = {}
    """The tables whose rows are in the log, with the LSN at which they were read."""
    held: TopicId
    """The topic that holds transactions. It belongs to this snapshot alone, so it identifies it."""
    holds_all: bool = False
    """Whether all transactions are held, because all tables are read."""

    @property
    def is_read(self) -> bool:
        return set(self.tables) <= self.done.keys()

    def includes(self, table: TableId, commit_lsn: int) -> bool:
        """Return whether the rows that are read of the table have what this transaction has changed."""
        if table not in self.tables:
            return False
        read_at = self.done.get(table)
        return table not in self.known if read_at is None else commit_lsn < read_at


class SourceReport(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a capture reports about itself."""

    state: SourceState = "starting"
    error: str | None = None
    """What went wrong, if the state is `retrying` or `failed`."""
    advice: str | None = None
    """What to do about it."""
    received_lsn: int = 0
    """The end of what was received from the database."""
    database_lsn: int = 0
    """The end of the write-ahead log of the database, as far as it is known."""
    retained_bytes: int | None = None
    """Bytes of the write-ahead log that the database keeps for the slot."""
    transactions: int = 0
    """Transactions and changes that were captured since the process was started."""
    changes: int = 0
    snapshot_rows: int = 0
    """Rows that the snapshot has read."""
    snapshot_total: int = 0
    """Rows that it has to read, as the database estimates them."""
    snapshot_table: str | None = None
    """The table that was read last."""
    notes: tuple[str, ...] = ()
    """What deserves attention though the capture runs, such as tables without a primary key."""


class SourceStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A source as `system.sources` shows it."""

    source: Source
    state: SourceState
    owner: str | None
    seen_ms: int
    position: int | None
    """`None` before the slot was created."""
    tables: int
    report: SourceReport


def format_lsn(lsn: int) -> str:
    """Return an LSN as PostgreSQL prints it: `0/16B3748`."""
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


def parse_lsn(text: str) -> int:
    """Return the number of an LSN that PostgreSQL has printed."""
    high, _, low = text.partition("/")
    return int(high, 16) << 32 | int(low, 16)
