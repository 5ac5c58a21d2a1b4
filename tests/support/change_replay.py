"""Reads the change events of a source and replays them into rows, transaction by transaction, in the order of the log.

The replay knows nothing of how changes are captured. It holds the events against what every consumer of them relies on: the
transactions come in the order in which they were committed, each once and whole; an insert is of a key that is not there, an
update and a delete of one that is, as the event says it was.
"""

import base64
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple

import httpx
import msgspec

from tests.support.patience import PATIENCE_SECONDS

Row = Mapping[str, bytes]
"""The columns of a row, each as the JSON text that the event has for it."""

NO_KEY = b"{}"
_ABSENT = "_absent"
"""The member of a row that names the columns which it lacks."""
_PAGE = 1000


class ReplayError(AssertionError):
    """The events contradict each other, or what change events promise."""


class ChangeEvent(NamedTuple):
    """`table` is the name that the table has in its database, with its schema."""

    table: str
    cursor: int
    tx: int
    op: str
    key: bytes
    old: Row | None
    new: Row | None
    unchanged: frozenset[str]
    """Columns that are not in `new` because PostgreSQL did not log them again."""
    schema_version: int
    headers: Mapping[str, str]

    @property
    def is_of_snapshot(self) -> bool:
        """Whether a snapshot has found the row, or how it differs from what the log had."""
        return "snapshot" in self.headers

    def __str__(self) -> str:
        return f"{self.op} of {self.key.decode()} in {self.table} (tx {self.tx}, cursor {self.cursor})"


class _Value(msgspec.Struct):
    op: str
    key: msgspec.Raw
    old: dict[str, msgspec.Raw] | None
    new: dict[str, msgspec.Raw] | None
    ts: int
    tx: str
    schema_version: int = 1
    unchanged: list[str] = []
    unmapped: dict[str, dict[str, str]] = {}
    """Values that the type of their column can't hold, as text: of the `old` row and of the `new` one."""


class _Header(msgspec.Struct):
    name: str
    value: str | None = None


class _Message(msgspec.Struct):
    offset: int
    cursor: int
    value: _Value
    headers: list[_Header] = []


class _Page(msgspec.Struct):
    messages: list[_Message]
    next_offset: int
    has_more: bool


_decoder = msgspec.json.Decoder(_Page)


class LookAtTopics(NamedTuple):
    """One pass over all topics, each read to its end: the highest transaction that was seen before a topic was read and in it,
    and how many of its events were there then."""

    seen: list[tuple[str, int, int]]


class ChangeReader:
    """Reads the topics of a source by HTTP, each from where it has come to. `looks` says what each pass found at the ends."""

    def __init__(self, url: str, source: str) -> None:
        self._client = httpx.Client(base_url=url, timeout=PATIENCE_SECONDS)
        self._source = source
        self._next: dict[str, int] = {}
        self._events: dict[str, list[ChangeEvent]] = {}
        self.looks: list[LookAtTopics] = []

    def __enter__(self) -> "ChangeReader":
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def poll(self) -> None:
        """Read what has come since, topic by topic. Raises the errors of httpx while the server is away."""
        highest = 0
        seen: list[tuple[str, int, int]] = []
        for topic in self._topics():
            self._read_to_end(topic)
            transactions = self._transactions(topic)
            if transactions:
                highest = max(highest, transactions[-1])
            seen.append((topic, highest, len(transactions)))
        self.looks.append(LookAtTopics(seen))

    @property
    def events(self) -> list[ChangeEvent]:
        """All events that were read, in the order of the log."""
        return sorted((event for events in self._events.values() for event in events), key=attrgetter("cursor"))

    def check_looks(self) -> None:
        """Raise if a reader saw a part of a transaction: in one topic, or in one topic and not in another.

        Whoever has seen an event of a transaction finds all its events in what is read after that. Rows of snapshots come table
        by table.
        """
        transactions = {topic: self._transactions(topic) for topic in self._events}
        for look in self.looks:
            for topic, highest, count in look.seen:
                there = transactions.get(topic, [])
                whole = bisect_right(there, highest)
                if whole > count:
                    raise ReplayError(
                        f"transaction {highest} was seen when {topic} had {count} events, and up to there it has {whole}"
                    )

    def _transactions(self, topic: str) -> list[int]:
        """Return the transaction of each event, without those of snapshots."""
        return [event.tx for event in self._events.get(topic, ()) if not event.is_of_snapshot]

    def _topics(self) -> list[str]:
        answer = self._client.get("/api/sources").raise_for_status().json()
        return [table["changes"] for source in answer if source["name"] == self._source for table in source["tables"]]

    def _read_to_end(self, topic: str) -> None:
        while True:
            body = {"topic": topic, "partition_id": 0, "start": self._next.get(topic, 0), "limit": _PAGE}
            answer = self._client.post("/api/topics/consume", json=body).raise_for_status()
            page = _decoder.decode(answer.content)
            table = topic.removeprefix(f"_changes.{self._source}.")
            self._events.setdefault(topic, []).extend(_event(table, message) for message in page.messages)
            self._next[topic] = page.next_offset
            if not page.has_more:
                return


class ReplayedTable:
    """The rows that the events so far leave. Rows of a table without a key are counted."""

    def __init__(self) -> None:
        self.keyed: dict[bytes, tuple[int, Row]] = {}
        """By key: the version of the schema, and the row."""
        self.keyless: Counter[frozenset[tuple[str, bytes]]] = Counter()
        self._deleted: Row = {}

    def rows(self) -> Iterator[Row]:
        for _, row in self.keyed.values():
            yield row
        for columns in self.keyless.elements():
            yield dict(columns)

    def apply(self, event: ChangeEvent) -> None:
        if event.op == "truncate":
            self.keyed.clear()
            self.keyless.clear()
        elif event.key == NO_KEY:
            self._apply_keyless(event)
        elif event.op == "delete":
            _, self._deleted = self._take(event)
        elif event.op == "update":
            _, before = self._take(event)
            self.keyed[event.key] = event.schema_version, _completed(event, before)
        elif event.op in ("insert", "read"):
            if event.key in self.keyed:
                raise ReplayError(f"{event}: the row is there already")
            # An update of the key comes as a delete and an insert, which may leave out what stayed as it was.
            self.keyed[event.key] = event.schema_version, _completed(event, self._deleted)
        else:
            raise ReplayError(f"{event}: an unknown operation")

    def _take(self, event: ChangeEvent) -> tuple[int, Row]:
        if event.key not in self.keyed:
            raise ReplayError(f"{event}: there is no such row")
        version, row = self.keyed.pop(event.key)
        if version == event.schema_version:
            for name, value in (event.old or {}).items():
                if row[name] != value:
                    raise ReplayError(f"{event}: {name} was {row[name]!r}, and the event says {value!r}")
        return version, row

    def _apply_keyless(self, event: ChangeEvent) -> None:
        if event.unchanged:
            raise ReplayError(f"{event}: {event.unchanged} are left out, and no key says of which row")
        if event.op in ("update", "delete"):
            old = frozenset((event.old or {}).items())
            if not self.keyless[old]:
                raise ReplayError(f"{event}: there is no row {event.old}")
            self.keyless[old] -= 1
        if event.op in ("insert", "update", "read"):
            self.keyless[frozenset(_completed(event, {}).items())] += 1


class Transaction(NamedTuple):
    tx: int
    events: list[ChangeEvent]
    tables: Mapping[str, ReplayedTable]
    """The rows behind it. They are altered when the next transaction is taken."""
    is_late: bool = False
    """Whether it stands behind a snapshot that is younger: a part of its changes may be in the rows of other tables."""

    @property
    def is_snapshot(self) -> bool:
        return self.events[0].is_of_snapshot

    def counts(self) -> Counter[str]:
        """Return how many events each table has."""
        return Counter(event.table for event in self.events)


def replay(events: Iterable[ChangeEvent]) -> Iterator[Transaction]:
    """Yield each transaction when it has been replayed. Raise `ReplayError` where the events can't be right.

    Where a snapshot was interrupted, its tables are read at different points. Changes of a table that was read before stand
    behind the rows of another one then; of each table they are in order nevertheless.
    """
    tables: dict[str, ReplayedTable] = {}
    last = last_snapshot = 0
    last_of_table: dict[str, int] = {}
    for tx, group in groupby(events, key=attrgetter("tx")):
        changes = list(group)
        is_late = tx <= last
        if is_late and tx > last_snapshot:
            raise ReplayError(f"transaction {tx} stands behind {last}: {changes[0]}")
        last = max(last, tx)
        if changes[0].is_of_snapshot:
            last_snapshot = tx
        for table in {event.table for event in changes}:
            if tx < last_of_table.get(table, 0):
                raise ReplayError(f"transaction {tx} of {table} stands behind {last_of_table[table]}")
            last_of_table[table] = tx
        if len({event.is_of_snapshot for event in changes}) != 1:
            raise ReplayError(f"transaction {tx} has rows of a snapshot and changes: {changes[0]}")
        for name in ("commit_time",) if changes[0].is_of_snapshot else ("xid", "commit_time"):
            if len({event.headers.get(name) for event in changes}) != 1 or name not in changes[0].headers:
                raise ReplayError(f"the events of transaction {tx} do not have one header {name}: {changes[0].headers}")
        for event in changes:
            if "lsn" not in event.headers:
                raise ReplayError(f"{event}: there is no header lsn, but {event.headers}")
            tables.setdefault(event.table, ReplayedTable()).apply(event)
        yield Transaction(tx, changes, tables, is_late)


def as_recordset(rows: Iterable[Row], types: Mapping[str, str]) -> bytes:
    """Return rows as JSON that PostgreSQL's `jsonb_to_recordset` reads, with the columns of these types alone."""
    return b"[%s]" % b",".join(
        b"{%s}"
        % b",".join(b"%s:%s" % (msgspec.json.encode(name), _readable(row[name], types[name])) for name in types if name in row)
        for row in rows
    )


def _readable(value: bytes, postgres_type: str) -> bytes:
    if postgres_type == "bytea" and value != b"null":
        return msgspec.json.encode("\\x" + base64.b64decode(msgspec.json.decode(value)).hex())
    return value


def _completed(event: ChangeEvent, before: Row) -> Row:
    """Return the new row, with what the event leaves out from the row before."""
    if event.new is None:
        raise ReplayError(f"{event}: there is no new row")
    if shown := event.unchanged & event.new.keys():
        raise ReplayError(f"{event}: {shown} are unchanged, and yet in the row")
    if missing := event.unchanged - before.keys():
        raise ReplayError(f"{event}: {missing} are unchanged, and nobody has said what they were")
    return {**event.new, **{name: before[name] for name in event.unchanged}}


def _event(table: str, message: _Message) -> ChangeEvent:
    value = message.value
    return ChangeEvent(
        table,
        message.cursor,
        int(value.tx),
        value.op,
        bytes(value.key),
        _row(value, value.old, "old"),
        _row(value, value.new, "new"),
        frozenset(value.unchanged),
        value.schema_version,
        {header.name: header.value or "" for header in message.headers},
    )


def _row(value: _Value, columns: dict[str, msgspec.Raw] | None, side: str) -> Row | None:
    """Return a row with the values that are beside it as text."""
    if columns is None:
        return None
    row = {name: bytes(raw) for name, raw in columns.items()}
    unmapped = value.unmapped.get(side, {})
    lacking = {*unmapped, *(value.unchanged if side == "new" else ())}
    named = msgspec.json.decode(row.pop(_ABSENT, b'""'), type=str)
    if set(filter(None, named.split(","))) != lacking or lacking & row.keys():
        raise ReplayError(f"the {side} row {row} lacks {lacking}, and names {named!r} in {_ABSENT}")
    return {**row, **{name: msgspec.json.encode(text) for name, text in unmapped.items()}}
