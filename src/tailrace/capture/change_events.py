"""Makes change events of what logical replication sends, as record batches for the topic of a table.

An event looks like those of the server's own tables (`docs/reference/tables.md`), with two more members where they are needed:
`unchanged` names columns of the new row whose value PostgreSQL did not send, and `unmapped` has the texts of values that their
column types can't hold. Both kinds of columns are missing in the rows, and a row names them in its member `_absent`, so that
routes which use them fail instead of taking them for null.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from itertools import repeat
from typing import NamedTuple

import msgspec

from tailrace.capture.column_types import cell_encoder, unmapped_text
from tailrace.capture.fast_events import LEAST_CHANGES, FastEventEncoder, RecordFields, is_fast, ready_kernel
from tailrace.capture.pgoutput import Cell, Cells, Delete, Insert, OldKind, Truncate, Unchanged, Update, decode
from tailrace.model.errors import InvalidRequestError, LimitExceededError
from tailrace.model.record import Headers
from tailrace.model.route import ChangeKind
from tailrace.model.source import ABSENT, SourceTable, format_lsn
from tailrace.wire.batch import HEADER_BYTES, assemble_batch
from tailrace.wire.records import encode_field, encode_headers
from tailrace.wire.varints import encode_varint

BATCH_RECORDS = 50_000
"""Records of one batch at most."""

_CHUNK_BYTES = 256 << 10
"""Lines of COPY that are encoded column by column at a time. More gains nothing."""
_VARINTS = [encode_varint(number) for number in range(1 << 13)]
"""Varints of the usual sizes and of most places in a batch."""
_1970 = datetime(1970, 1, 1, tzinfo=UTC)
_SHOWN_BYTES = 200
_to_json = msgspec.json.Encoder().encode

TRUNCATED = b"T\0\0\0\0\0"
"""A message that removes all rows of the table whose change it is."""


class CommitInfo(NamedTuple):
    """The transaction of a change, or the snapshot of a row."""

    xid: int
    commit_lsn: int
    commit_time_us: int
    """Microseconds since 1970."""

    @property
    def timestamp(self) -> int:
        """The time of the commit in milliseconds, which is the timestamp of its records."""
        return self.commit_time_us // 1000


class RawChange(NamedTuple):
    message: bytes
    """An Insert, Update, Delete or Truncate of `pgoutput`, without the id that such messages have inside a stream."""
    at: CommitInfo


class RawChanges:
    """Changes of one table, in order, with their commits."""

    def __init__(self, at: CommitInfo) -> None:
        """`at` is the commit of the messages that are appended first."""
        self.messages: list[bytes] = []
        """As those of a `RawChange`."""
        self._commits = [at]
        self._starts = [0]

    def extend(self, other: "RawChanges") -> None:
        """Append the changes of later commits."""
        before = len(self.messages)
        self.messages += other.messages
        self._commits += other._commits
        self._starts += [before + start for start in other._starts]

    def __len__(self) -> int:
        return len(self.messages)

    def __iter__(self) -> Iterator[RawChange]:
        for stop, start, at in zip(self._stops(), self._starts, self._commits, strict=True):
            yield from map(RawChange, self.messages[start:stop], repeat(at))

    def __getitem__(self, place: int) -> RawChange:
        return RawChange(self.messages[place], self._commits[bisect_right(self._starts, place) - 1])

    def commits(self) -> Iterator[tuple[int, CommitInfo]]:
        """Yield commits, each with the place behind its last change."""
        return zip(self._stops(), self._commits, strict=True)

    def _stops(self) -> list[int]:
        return [*self._starts[1:], len(self.messages)]


class ChangeEventBatch(NamedTuple):
    batch: bytearray
    records: int


class Event(NamedTuple):
    """A record to be."""

    op: ChangeKind
    key: bytes | None
    value: bytes
    at: CommitInfo


_EventFields = tuple[ChangeKind, bytes | None, bytes, CommitInfo]
"""What an `Event` has. A plain tuple takes a quarter of the time to make, which counts for the rows of snapshots."""


class RowImage(NamedTuple):
    """A row as events have it."""

    columns: bytes
    """The member `old` or `new`: an object."""
    unmapped: bytes = b""
    """The object under `unmapped` with the texts of columns that are missing in it; nothing if there are none."""
    unchanged: bytes = b""
    """The array with the names of columns of a new row that PostgreSQL did not send; nothing if it has sent all."""


class _Images(NamedTuple):
    """Keys and images of several rows."""

    keys: list[bytes]
    columns: list[bytes]
    unmapped: dict[int, bytes]
    """Of the rows that have such values, by their place."""


class RowEventEncoder:
    """Encodes the changes of one table, as it is defined now."""

    def __init__(self, table: SourceTable, change_bytes: int) -> None:
        self.table = table
        self._change_bytes = change_bytes
        definition = table.table
        names = [column.name for column in definition.columns]
        self._names = names
        self._columns = [(b"%b:" % _to_json(column.name), cell_encoder(column.type)) for column in definition.columns]
        self._key_at = [names.index(name) for name in definition.primary_key]
        self._key_places = frozenset(self._key_at)
        self._image_template = _object_template(names)
        self._key_template = _object_template(definition.primary_key)
        version = definition.schema_version
        self._version = b"" if version == 1 else b',"schema_version":%d' % version
        self._headers = _HeaderEncoder(definition.name, version)
        self._fast: FastEventEncoder | None = None
        if is_fast(definition):
            members = [name for name, _ in self._columns]
            self._fast = FastEventEncoder(definition, change_bytes, members, self._key_at, self._version)

    def encode(self, changes: Iterable[RawChange], most_bytes: int) -> list[ChangeEventBatch]:
        """Encode changes as batches of at most `most_bytes`, except for single events that are larger."""
        if isinstance(changes, RawChanges):
            found = self._fast_encode(changes, most_bytes)
            if found is not None:
                return found
        return list(self.encode_events(self.events(changes), most_bytes, is_snapshot=False))

    def encode_rows(self, rows: Iterable[bytes], at: CommitInfo, most_bytes: int) -> list[ChangeEventBatch]:
        """Encode rows of a snapshot, each a line of COPY TO STDOUT in text format, without its line feed."""
        lines = rows if isinstance(rows, list) else list(rows)
        kernel = ready_kernel() if self._fast is not None and len(lines) >= LEAST_CHANGES else None
        if self._fast is None or kernel is None:
            return list(self.encode_events(self._inserts(lines, at), most_bytes, is_snapshot=True))

        def general(place: int) -> Iterator[RecordFields]:
            return self._records(self._inserts(lines[place : place + 1], at), is_snapshot=True)

        commits = [(len(lines), at, self._headers.encode("insert", at, True))]
        found = self._fast.encode(kernel, lines, commits, general, most_bytes, BATCH_RECORDS, is_lines=True)
        return [ChangeEventBatch(*batch) for batch in found]

    def _fast_encode(self, changes: RawChanges, most_bytes: int) -> list[ChangeEventBatch] | None:
        """Encode changes by machine code; return `None` if that does not know the table, or is not there."""
        kernel = ready_kernel() if self._fast is not None and len(changes) >= LEAST_CHANGES else None
        if self._fast is None or kernel is None:
            return None

        def general(place: int) -> Iterator[RecordFields]:
            return self._records(self.events((changes[place],)), is_snapshot=False)

        commits = ((stop, at, self._headers.encode("insert", at, False)) for stop, at in changes.commits())
        found = self._fast.encode(kernel, changes.messages, commits, general, most_bytes, BATCH_RECORDS, is_lines=False)
        return [ChangeEventBatch(*batch) for batch in found]

    def _records(self, events: Iterable[_EventFields], *, is_snapshot: bool) -> Iterator[RecordFields]:
        for op, key, value, at in events:
            yield at.timestamp, encode_field(key) + encode_field(value) + self._headers.encode(op, at, is_snapshot)

    def encode_events(
        self, events: Iterable[_EventFields], most_bytes: int, *, is_snapshot: bool
    ) -> Iterator[ChangeEventBatch]:
        """Yield batches of events as they fill, each of at most `most_bytes`, except for single events that are larger."""
        parts: list[bytes] = []
        records, filled, first, newest, timestamp = 0, HEADER_BYTES, 0, 0, 0
        varints, short = _VARINTS, len(_VARINTS)
        headers_of = self._headers.encode
        last_op: ChangeKind | None = None
        last_at: CommitInfo | None = None
        headers = b""
        for op, key, value, at in events:
            if at is not last_at or op is not last_op:
                last_op, last_at = op, at
                headers = headers_of(op, at, is_snapshot)
                timestamp = at.commit_time_us // 1000
            key_size, value_size = -1 if key is None else len(key), len(value)
            fields = (
                varints[key_size] if 0 <= key_size < short else encode_varint(key_size),
                key or b"",
                varints[value_size] if value_size < short else encode_varint(value_size),
                value,
                headers,
            )
            if records:
                later = encode_varint(timestamp - first) if timestamp != first else b"\0"
                body = b"".join((b"\0", later, varints[records] if records < short else encode_varint(records), *fields))
                size = len(body)
                prefix = varints[size] if size < short else encode_varint(size)
                size += len(prefix)
                if filled + size > most_bytes or records >= BATCH_RECORDS:
                    yield ChangeEventBatch(assemble_batch(b"".join(parts), records, first, newest), records)
                    records = 0
            if not records:
                parts, filled, first, newest = [], HEADER_BYTES, timestamp, timestamp
                body = b"".join((b"\0\0\0", *fields))
                prefix = encode_varint(len(body))
                size = len(prefix) + len(body)
            parts += (prefix, body)
            records += 1
            filled += size
            if timestamp > newest:
                newest = timestamp
        if records:
            yield ChangeEventBatch(assemble_batch(b"".join(parts), records, first, newest), records)

    def events(self, changes: Iterable[RawChange]) -> Iterator[Event]:
        """Yield the events of changes. An update of the primary key is two."""
        for message, at in changes:
            match decode(message):
                case Insert(_, new):
                    yield self._event("insert", None, self._checked(new), at)
                case Update(_, old_kind, old, new):
                    yield from self._update(old_kind, old, self._checked(new), at)
                case Delete(_, old_kind, old):
                    yield self._delete(self._sent(old_kind, self._checked(old)), at)
                case Truncate():
                    yield self._truncate(at)
                case other:
                    raise InvalidRequestError(f"a message of type {type(other).__name__} is not a change of a table")

    def row_events(self, rows: Iterable[bytes], at: CommitInfo) -> Iterator[Event]:
        """Yield inserts of rows, each a line of COPY TO in text format."""
        return map(Event._make, self._inserts(rows, at))

    def row_images(self, rows: Iterable[bytes]) -> Iterator[tuple[bytes, RowImage]]:
        """Yield the keys and images of rows, each a line of COPY TO in text format."""
        for lines in _chunks(rows):
            chunk = self._fast_images(lines)
            for place, (key, columns) in enumerate(zip(chunk.keys, chunk.columns, strict=True)):
                yield key, RowImage(columns, chunk.unmapped.get(place, b""))

    def image_event(self, op: ChangeKind, key: bytes, old: RowImage | None, new: RowImage | None, at: CommitInfo) -> Event:
        """Make an event of images that are encoded already."""
        before = after = b"null"
        unmapped = extras = b""
        if old is not None:
            before = old.columns
            if old.unmapped:
                unmapped = b'"old":%b' % old.unmapped
        if new is not None:
            after = new.columns
            if new.unmapped:
                unmapped += b'%b"new":%b' % (b"," if unmapped else b"", new.unmapped)
            if new.unchanged:
                extras = b',"unchanged":%b' % new.unchanged
        if unmapped:
            extras += b',"unmapped":{%b}' % unmapped
        value = b'{"op":"%b"%b%b,"key":%b,"old":%b,"new":%b,"ts":%d,"tx":"%d"}' % (
            op.encode(),
            self._version,
            extras,
            key,
            before,
            after,
            at.commit_time_us // 1000,
            at.commit_lsn,
        )
        if len(value) > self._change_bytes:
            raise self._too_large(key, value)
        return Event(op, key, value, at)

    def _inserts(self, rows: Iterable[bytes], at: CommitInfo) -> Iterator[_EventFields]:
        template = b'{"op":"insert"%b,"key":%%b,"old":null,"new":%%b,"ts":%d,"tx":"%d"}' % (
            self._version,
            at.timestamp,
            at.commit_lsn,
        )
        for lines in _chunks(rows):
            keys, columns, unmapped = self._fast_images(lines)
            if unmapped:
                for place, key in enumerate(keys):
                    yield self.image_event("insert", key, None, RowImage(columns[place], unmapped.get(place, b"")), at)
                continue
            values = [template % images for images in zip(keys, columns, strict=True)]
            if max(map(len, values)) > self._change_bytes:
                raise next(self._too_large(*row) for row in zip(keys, values, strict=True) if len(row[1]) > self._change_bytes)
            yield from zip(repeat("insert"), keys, values, repeat(at))

    def _fast_images(self, lines: Sequence[bytes]) -> "_Images":
        """Encode rows column by column.

        Fast path of `_image` and `_key` for rows without unmapped values. It takes six tenths of the time.
        `tests/unit/capture/test_comparison.py` holds both equal.
        """
        rows = list(map(read_copy_line, lines))
        if set(map(len, rows)) != {len(self._columns)}:
            rows = list(map(self._checked, rows))
        encoded: list[list[bytes | None]] = []
        for place, ((_, encode), column) in enumerate(zip(self._columns, zip(*rows, strict=True), strict=True)):
            # A null in the key is an error that the general path raises.
            null = None if place in self._key_places else b"null"
            encoded.append([null if cell is None else encode(cell) for cell in column])
        image, key, key_at = self._image_template, self._key_template, self._key_at
        try:
            columns = [image % values for values in zip(*encoded, strict=True)]
        except TypeError:
            # One of the values is None, so it is not mapped.
            return self._mixed_images(rows, encoded)
        keys = [key % values for values in zip(*(encoded[place] for place in key_at), strict=True)]
        return _Images(keys or [b"{}"] * len(rows), columns, {})

    def _mixed_images(self, rows: Sequence[Cells], encoded: Sequence[Sequence[bytes | None]]) -> "_Images":
        found = _Images([], [], {})
        for place, (cells, values) in enumerate(zip(rows, zip(*encoded, strict=True), strict=True)):
            if None in values:
                found.keys.append(self._key("insert", cells))
                columns, found.unmapped[place], _ = self._image(cells, is_new=True)
            else:
                found.keys.append(self._key_template % tuple([values[place] for place in self._key_at]))
                columns = self._image_template % values
            found.columns.append(columns)
        return found

    def _update(self, old_kind: OldKind | None, old: Cells, new: Cells, at: CommitInfo) -> Iterator[Event]:
        if old_kind is None:
            # The columns of the replica identity did not change, so the key of the old row is that of the new one.
            sent: Cells = [cell if place in self._key_places else UNSENT for place, cell in enumerate(new)]
            yield self._event("update", sent, new, at)
            return
        sent = self._sent(old_kind, self._checked(old))
        whole = [
            before if isinstance(cell, Unchanged) and not isinstance(before, Unchanged) else cell
            for cell, before in zip(new, sent, strict=True)
        ]
        if any(sent[place] != whole[place] and not isinstance(sent[place], Unchanged) for place in self._key_at):
            yield self._delete(sent, at)
            yield self._event("insert", None, whole, at)
        else:
            yield self._event("update", sent, whole, at)

    def _delete(self, sent: Cells, at: CommitInfo) -> Event:
        return self._event("delete", sent, None, at)

    def _truncate(self, at: CommitInfo) -> Event:
        tail = b',"key":null,"old":null,"new":null,"ts":%d,"tx":"%d"}' % (at.timestamp, at.commit_lsn)
        return Event("truncate", None, b'{"op":"truncate"%b%b' % (self._version, tail), at)

    def _event(self, op: ChangeKind, old: Cells | None, new: Cells | None, at: CommitInfo) -> Event:
        """Make an event of two rows. Columns that were not sent are `UNSENT` in the old and `UNCHANGED` in the new one."""
        key = self._key(op, new if new is not None else old or [])
        before = None if old is None else self._image(old, is_new=False)
        after = None if new is None else self._image(new, is_new=True)
        return self.image_event(op, key, before, after, at)

    def _image(self, cells: Cells, *, is_new: bool) -> RowImage:
        parts: list[bytes] = []
        unmapped: list[bytes] = []
        unchanged: list[str] = []
        absent: list[str] = []
        for place, ((name, encode), cell) in enumerate(zip(self._columns, cells, strict=True)):
            if cell is None:
                parts.append(name + b"null")
            elif isinstance(cell, Unchanged):
                # That the old row is not sent whole is no news: routes that need it are refused.
                if is_new:
                    unchanged.append(self._names[place])
                    absent.append(self._names[place])
            else:
                value = encode(cell)
                if value is None:
                    unmapped.append(name + unmapped_text(cell))
                    absent.append(self._names[place])
                else:
                    parts.append(name + value)
        if not absent:
            return RowImage(b"{%b}" % b",".join(parts))
        parts.append(absent_member(absent))
        return RowImage(
            b"{%b}" % b",".join(parts),
            b"{%b}" % b",".join(unmapped) if unmapped else b"",
            _to_json(unchanged) if unchanged else b"",
        )

    def _key(self, op: ChangeKind, cells: Cells) -> bytes:
        """Return the primary key as an object. A value that its type can't hold is PostgreSQL's text here."""
        parts = []
        for place in self._key_at:
            cell, (name, encode) = cells[place], self._columns[place]
            if cell is None or isinstance(cell, Unchanged):
                raise self._no_key(op, place)
            parts.append(name + (encode(cell) or unmapped_text(cell)))
        return b"{%b}" % b",".join(parts)

    def _sent(self, old_kind: OldKind, old: Cells) -> Cells:
        """Return the old row with `UNSENT` for columns that were not sent, which look like nulls."""
        # No column of a replica identity is null.
        return [UNSENT if cell is None else cell for cell in old] if old_kind == "K" else old

    def _checked(self, cells: Cells) -> Cells:
        if len(cells) != len(self._columns):
            raise InvalidRequestError(
                f"a change of table {self.table.table.name!r} has {len(cells)} columns instead of {len(self._columns)}: the"
                " definition of the table is not the one that the change was made with"
            )
        return cells

    def _no_key(self, op: ChangeKind, place: int) -> InvalidRequestError:
        table = self.table
        return InvalidRequestError(
            f"PostgreSQL did not send column {table.table.columns[place].name!r} of the primary key with the {op} of a row of"
            f" table {table.table.name!r} (its replica identity is {table.identity!r}); run"
            f" ALTER TABLE {table.schema}.{table.relation} REPLICA IDENTITY DEFAULT (or FULL)"
        )

    def _too_large(self, key: bytes, value: bytes) -> LimitExceededError:
        return LimitExceededError(
            f"the change of the row {key[:_SHOWN_BYTES].decode(errors='replace')} of table {self.table.table.name!r} takes"
            f" {len(value)} bytes as an event, more than change_bytes allows ({self._change_bytes}); raise change_bytes in"
            " the settings of the server, or take the table out of the publication"
        )


UNSENT = Unchanged()
"""A column of an old row that PostgreSQL did not send."""


class _HeaderEncoder:
    """Encodes the headers of events. Those of the last transactions are kept, because most have many changes."""

    def __init__(self, table: str, version: int) -> None:
        self._table = table.encode()
        self._version: Headers = () if version == 1 else (("schema_version", b"%d" % version),)
        self.encode = lru_cache(maxsize=16)(self._encode)

    def _encode(self, op: ChangeKind, at: CommitInfo, is_snapshot: bool) -> bytes:
        return encode_headers(
            (
                ("source_table", self._table),
                ("op", op.encode()),
                *commit_headers(at._replace(xid=0) if is_snapshot else at),
                *self._version,
                *((("snapshot", b"true"),) if is_snapshot else ()),
            )
        )


def commit_headers(at: CommitInfo) -> Headers:
    """Return the headers that say which transaction a record belongs to. A snapshot has no transaction id."""
    time = _1970 + timedelta(microseconds=at.commit_time_us)
    return (
        ("tx", b"%d" % at.commit_lsn),
        *((("xid", b"%d" % at.xid),) if at.xid else ()),
        ("lsn", format_lsn(at.commit_lsn).encode()),
        ("commit_time", b"%bZ" % time.replace(tzinfo=None).isoformat(timespec="microseconds").encode()),
    )


_COPY_ESCAPES = {b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t", b"v": b"\v"}


def read_copy_line(line: bytes) -> Cells:
    """Return the cells of a line of COPY TO in text format."""
    if b"\\" not in line:
        return list(line.split(b"\t"))
    return [_copy_cell(field) if b"\\" in field else field for field in line.split(b"\t")]


def _copy_cell(field: bytes) -> Cell:
    if field == b"\\N":
        return None
    first, *rest = field.split(b"\\")
    found = [first]
    parts = iter(rest)
    for part in parts:
        if part:
            found.append(_COPY_ESCAPES.get(part[:1], part[:1]) + part[1:])
        else:
            # Two backslashes are one, and what follows stands for itself.
            found.append(b"\\" + next(parts, b""))
    return b"".join(found)


def absent_member(names: Iterable[str]) -> bytes:
    """Return the member of a row that names the columns which it lacks."""
    return b'"%b":%b' % (ABSENT.encode(), _to_json(f",{','.join(names)},"))


def _object_template(names: Iterable[str]) -> bytes:
    """Return an object with these members, whose values are to be filled in by `%`."""
    return b"{%b}" % b",".join(_to_json(name).replace(b"%", b"%%") + b":%b" for name in names)


def _chunks(rows: Iterable[bytes]) -> Iterator[list[bytes]]:
    chunk: list[bytes] = []
    size = 0
    for row in rows:
        chunk.append(row)
        size += len(row)
        if size > _CHUNK_BYTES:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk
