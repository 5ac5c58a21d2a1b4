"""Compares the rows of a table with those that its change topic has, and makes events of the differences.

The events of the topic are applied to a temporary SQLite file, so that only a part of the rows is in memory. Then the rows of
the table, as COPY reads them, are looked up there. A row with a key is found by it; rows without one are a multiset of images.
What is compared are the bytes of the images, because the encoder writes the same bytes for the same values.
"""

import tempfile
from collections.abc import Iterable, Iterator, Mapping
from hashlib import blake2b
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, NamedTuple, Self

import apsw
import msgspec

from tailrace.capture.change_events import CommitInfo, Event, RowEventEncoder, RowImage, absent_member
from tailrace.model.errors import CorruptionError, StorageFullError
from tailrace.model.limits import MIB
from tailrace.model.source import ABSENT

_CACHE_BYTES = 128 * MIB
_PENDING_BYTES = 16 * MIB
_PENDING_ROW_BYTES = 300
"""Memory that a row takes besides its bytes until it is in the file."""
_NO_KEY = b"{}"
_DIGEST = b"#"
"""How the names of rows without a key begin. A key begins with a brace."""
_SHOWN_BYTES = 200

# Nothing of the file has to survive, so its one transaction is never committed.
_OPEN = f"""
PRAGMA journal_mode = off;
PRAGMA synchronous = off;
PRAGMA locking_mode = exclusive;
PRAGMA cache_size = -{_CACHE_BYTES >> 10};
CREATE TABLE logged (
    id INTEGER PRIMARY KEY, name BLOB NOT NULL UNIQUE, columns BLOB NOT NULL, unmapped BLOB NOT NULL, shape INTEGER NOT NULL,
    copies INTEGER NOT NULL
);
BEGIN;
"""
_SET = """
INSERT INTO logged (name, columns, unmapped, shape, copies) VALUES (?, ?, ?, ?, 1)
ON CONFLICT (name) DO UPDATE SET columns = excluded.columns, unmapped = excluded.unmapped, shape = excluded.shape
"""
_DELETE = "DELETE FROM logged WHERE name = ?"
_COUNT = """
INSERT INTO logged (name, columns, unmapped, shape, copies) VALUES (?1, ?2, ?3, ?4, max(?5, ?6))
ON CONFLICT (name) DO UPDATE SET copies = max(copies + ?5, ?6)
"""
_FIND = "SELECT columns, unmapped, shape, id, copies FROM logged WHERE name = ?"
_LEFT = "SELECT id, name, columns, unmapped, copies FROM logged ORDER BY id"


def differences(logged: "LoggedRows", rows: Iterable[bytes], at: CommitInfo) -> Iterator[Event]:
    """Yield events that make the rows of the log those of the table, each a line of COPY TO in text format.

    Inserts and updates have the order of the rows; deletes of rows that only the log has come after them.
    """
    encoder = logged.encoder
    is_full = encoder.table.identity == "full"
    logged.prepare_comparison()
    for key, image in encoder.row_images(rows):
        there = logged.take(key, image)
        if there is None:
            yield encoder.image_event("insert", key, None, image, at)
        elif not logged.is_same(there, image):
            # The key of the old row is that of the new one.
            old = there.image if is_full else logged.key_image(key, image)
            yield encoder.image_event("update", key, old, image, at)
    for key, image in logged.rows_left():
        old = image if is_full or key == _NO_KEY else logged.key_image(key, image)
        yield encoder.image_event("delete", key, old, None, at)


class LoggedRow(NamedTuple):
    columns: bytes
    unmapped: bytes
    shape: int
    """Rows of different shapes have different columns, though their names may be the same."""

    @property
    def image(self) -> RowImage:
        return RowImage(self.columns, self.unmapped)


class LoggedRows:
    """The rows of one table as the log has them. They can be compared once, after all events were applied."""

    def __init__(self, encoder: RowEventEncoder, folder: Path | None = None) -> None:
        self.encoder = encoder
        self._folder = folder
        self._names = [column.name for column in encoder.table.table.columns]
        self._shapes = [0]
        """By schema version, counted from 0."""
        for changes in encoder.table.table.history:
            # Values of a column of another type are compared like all others.
            self._shapes.append(self._shapes[-1] + any(change.kind != "retype" for change in changes))
        self._rows: dict[bytes, LoggedRow | None] = {}
        """Rows with a key that were set or deleted since the last flush."""
        self._copies: dict[bytes, _Copies] = {}
        """What happened to rows without a key since then."""
        self._pending_bytes = 0
        self._deleted: tuple[bytes, LoggedRow | None] | None = None
        """The key that the last event has deleted, and its row unless the file has it."""
        self._taken = bytearray()
        """A bit for each id in the file."""

    def __enter__(self) -> Self:
        # SQLite has the file open when its name is removed, so nothing is left of it however the process ends.
        with tempfile.NamedTemporaryFile(prefix="tailrace-comparison-", dir=self._folder) as file:
            self._connection = apsw.Connection(file.name)
        self._connection.execute(_OPEN).fetchall()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._connection.close()

    def apply(self, values: Iterable[bytes]) -> None:
        """Apply change events, in the order of the topic."""
        for value in values:
            event = self._decode(value)
            if self._pending_bytes > _PENDING_BYTES and not event.unchanged:
                self._flush()
            key = bytes(event.key)
            match event.op:
                case "insert" | "update":
                    self._put(key, event)
                case "delete":
                    self._delete(key, event)
                    continue
                case "truncate":
                    self._rows, self._copies, self._pending_bytes = {}, {}, 0
                    self._connection.execute("DELETE FROM logged")
            self._deleted = None

    def prepare_comparison(self) -> None:
        """Let rows be taken. No event may be applied after that."""
        self._flush()
        newest: Any = self._connection.execute("SELECT max(id) FROM logged").get
        self._taken = bytearray(((newest or 0) >> 3) + 1)

    def take(self, key: bytes, image: RowImage) -> LoggedRow | None:
        """Return the row that a row of the table is to be compared with, which is not left then."""
        name = key if key != _NO_KEY else _digest(LoggedRow(image.columns, image.unmapped, self._shapes[-1]))
        found = self._connection.execute(_FIND, (name,)).fetchone()
        if found is None:
            return None
        columns, unmapped, shape, id_, copies = found
        place, bit = id_ >> 3, 1 << (id_ & 7)
        if copies > 1:
            self._connection.execute("UPDATE logged SET copies = copies - 1 WHERE id = ?", (id_,))
        elif key == _NO_KEY and (copies == 0 or self._taken[place] & bit):
            return None
        else:
            self._taken[place] |= bit
        return LoggedRow(columns, unmapped, shape)

    def rows_left(self) -> Iterator[tuple[bytes, RowImage]]:
        """Yield the keys and images of rows that were not taken."""
        for id_, name, columns, unmapped, copies in self._connection.execute(_LEFT):
            if not self._taken[id_ >> 3] & 1 << (id_ & 7):
                key = _NO_KEY if name.startswith(_DIGEST) else name
                for _ in range(copies):
                    yield key, RowImage(columns, unmapped)

    def is_same(self, row: LoggedRow, image: RowImage) -> bool:
        return row == (image.columns, image.unmapped, self._shapes[-1])

    def key_image(self, key: bytes, image: RowImage) -> RowImage:
        """Return the columns of a row that are in its key."""
        names = _members(key)
        columns, unmapped = (
            {name: value for name, value in _members(part).items() if name in names} for part in (image.columns, image.unmapped)
        )
        return self._image(columns, unmapped)

    def _decode(self, value: bytes) -> "_LoggedEvent":
        try:
            return _decode_event(value)
        except msgspec.MsgspecError as error:
            raise CorruptionError(
                f"a change of table {self.encoder.table.table.name!r} can't be read: {error}:"
                f" {value[:_SHOWN_BYTES].decode(errors='replace')}"
            ) from error

    def _put(self, key: bytes, event: "_LoggedEvent") -> None:
        row = LoggedRow(bytes(event.new), bytes(event.unmapped.new), self._shape(event))
        if event.unchanged:
            row = self._filled(row, event.unchanged, self._before(key, event))
        if key == _NO_KEY:
            if event.op == "update":
                self._count(self._old(event), -1)
            self._count(row, 1)
        else:
            self._rows[key] = row
            self._pending_bytes += len(key) + len(row.columns) + _PENDING_ROW_BYTES

    def _delete(self, key: bytes, event: "_LoggedEvent") -> None:
        if key == _NO_KEY:
            self._deleted = None
            self._count(self._old(event), -1)
        else:
            self._deleted = key, self._rows.get(key)
            self._rows[key] = None
            self._pending_bytes += len(key) + _PENDING_ROW_BYTES

    def _count(self, row: LoggedRow, change: int) -> None:
        """Add or remove a copy of a row without a key. To remove one that the log does not have does nothing."""
        name = _digest(row)
        known = self._copies.get(name)
        if known is None:
            known = _Copies(row, 0, 0)
            self._pending_bytes += len(row.columns) + _PENDING_ROW_BYTES
        self._copies[name] = _Copies(row, known.change + change, max(known.least + change, 0))

    def _flush(self) -> None:
        rows, execute = self._rows, self._connection.executemany
        try:
            execute(_SET, ((name, *row) for name, row in rows.items() if row is not None))
            execute(_DELETE, ((name,) for name, row in rows.items() if row is None))
            execute(_COUNT, ((name, *row, change, least) for name, (row, change, least) in self._copies.items()))
        except apsw.FullError as error:
            raise StorageFullError(
                f"there is no room to compare the rows of table {self.encoder.table.table.name!r} in"
                f" {str(self._folder or tempfile.gettempdir())!r}; free some, or choose another folder by TMPDIR"
            ) from error
        self._rows, self._copies, self._pending_bytes = {}, {}, 0

    def _shape(self, event: "_LoggedEvent") -> int:
        return self._shapes[min(event.schema_version, len(self._shapes)) - 1]

    def _old(self, event: "_LoggedEvent") -> LoggedRow:
        return LoggedRow(bytes(event.old), bytes(event.unmapped.old), self._shape(event))

    def _before(self, key: bytes, event: "_LoggedEvent") -> LoggedRow | None:
        """Return the row that was there before an event with unchanged columns."""
        if event.op == "update":
            return self._rows[key] if key in self._rows else self._stored(key)
        # It is the insert of an update of the primary key, which comes right after its delete.
        if self._deleted is None:
            return None
        key, row = self._deleted
        return row or self._stored(key)

    def _stored(self, name: bytes) -> LoggedRow | None:
        found = self._connection.execute(_FIND, (name,)).fetchone()
        return None if found is None else LoggedRow(*found[:3])

    def _filled(self, row: LoggedRow, unchanged: Iterable[str], before: LoggedRow | None) -> LoggedRow:
        """Return a row with its unchanged columns, as far as they are known. A row that lacks one equals no other."""
        if before is None or before.shape != row.shape:
            return row
        columns, unmapped = _members(row.columns), _members(row.unmapped)
        known, unmapped_before = _members(before.columns), _members(before.unmapped)
        unknown = []
        for name in unchanged:
            if name in known:
                columns[name] = known[name]
            elif name in unmapped_before:
                unmapped[name] = unmapped_before[name]
            else:
                unknown.append(name)
        image = self._image(columns, unmapped, unknown)
        return LoggedRow(image.columns, image.unmapped, row.shape)

    def _image(
        self, columns: Mapping[str, msgspec.Raw], unmapped: Mapping[str, msgspec.Raw], unknown: Iterable[str] = ()
    ) -> RowImage:
        """Make an image of columns as the encoder does."""
        parts = [_member(name, columns[name]) for name in self._ordered(columns)]
        absent = self._ordered([*unmapped, *unknown])
        if absent:
            parts.append(absent_member(absent))
        texts = [_member(name, unmapped[name]) for name in self._ordered(unmapped)]
        return RowImage(b"{%b}" % b",".join(parts), b"{%b}" % b",".join(texts) if texts else b"")

    def _ordered(self, names: Iterable[str]) -> list[str]:
        """Return names in the order of the columns, and then those of columns that are gone."""
        found = dict.fromkeys(names)
        return [*(name for name in self._names if name in found), *(name for name in found if name not in self._names)]


class _Copies(NamedTuple):
    """What happened to the number of copies of a row: it became `max(number + change, least)`."""

    row: LoggedRow
    change: int
    least: int


class _Unmapped(msgspec.Struct, frozen=True):
    old: msgspec.Raw = msgspec.Raw()
    new: msgspec.Raw = msgspec.Raw()


class _LoggedEvent(msgspec.Struct):
    op: Literal["insert", "update", "delete", "truncate", "read"]
    """Events with `read` are no changes."""
    key: msgspec.Raw
    old: msgspec.Raw
    new: msgspec.Raw
    schema_version: int = 1
    unchanged: tuple[str, ...] = ()
    unmapped: _Unmapped = _Unmapped()


_decode_event = msgspec.json.Decoder(_LoggedEvent).decode
_decode_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_to_json = msgspec.json.Encoder().encode


def _members(image: bytes) -> dict[str, msgspec.Raw]:
    """Return the columns of an image."""
    found = _decode_members(image) if image else {}
    found.pop(ABSENT, None)
    return found


def _member(name: str, value: msgspec.Raw) -> bytes:
    return b"%b:%b" % (_to_json(name), bytes(value))


def _digest(row: LoggedRow) -> bytes:
    head = b"%d,%d," % (len(row.columns), row.shape)
    return _DIGEST + blake2b(b"".join((head, row.columns, row.unmapped)), digest_size=16).digest()
