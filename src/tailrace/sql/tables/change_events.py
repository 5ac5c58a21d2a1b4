"""Change events: encodes changes of rows for the log, and decodes them to rows as SQLite stores them.

The key is the primary key of the row as a JSON object; the value says what happened, with the row before and after. The encoder
of a table is built once, so that an event costs about as much as its bytes.

An event has the version of the table's schema that its rows have, unless that is 1. A decoded row is always of the present
shape (`schema_versions`).
"""

from collections.abc import Callable, Iterator, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

import msgspec

from tailrace.model.errors import CorruptionError, LimitExceededError
from tailrace.model.ids import RouteId
from tailrace.model.limits import Limits
from tailrace.model.record import Record
from tailrace.model.route import ChangeKind
from tailrace.model.table import Column, Table
from tailrace.sql.functions.float_texts import shortest_float4
from tailrace.sql.tables.schema_versions import RowShape, UpgradeRow, shape_at, upgrade_from
from tailrace.sql.tables.values import StoredRow, StoredValue, store_real
from tailrace.wire.records import encode_headers

SCHEMA_VERSION = "schema_version"
"""The header and the member of a value that have the version. Events of version 1 have neither."""

_JSON_TYPES: dict[str, Any] = {
    "boolean": bool | None,
    "smallint": int | None,
    "integer": int | None,
    "bigint": int | None,
    "double": float | None,
    "real": float | None,
    "bytes": bytes | None,
    "json": msgspec.Raw,
    "list": msgspec.Raw,
}
"""Other types are strings in JSON."""

_NULL = msgspec.Raw(b"null")
_READ = ("op", b"read")
_TRUNCATE = ("op", b"truncate")


class ReplayedChange(NamedTuple):
    """A decoded change: the key of the row, and the row after the change, `None` if it was deleted."""

    key: StoredRow
    row: StoredRow | None


class _Change(msgspec.Struct):
    op: ChangeKind
    # Before the rows, because pipelines find the end of a row by what follows it.
    schema_version: int | msgspec.UnsetType
    key: Any
    old: Any
    new: Any
    ts: int
    tx: str


class TableEvents:
    """Encodes and decodes the events of one table."""

    def __init__(self, table: Table, limits: Limits) -> None:
        self.table = table
        self._change_bytes = limits.change_bytes
        names = [column.name for column in table.columns]
        self._key_at = [names.index(name) for name in table.primary_key]
        self._key_of = _picker(self._key_at)
        key_columns = [table.columns[at] for at in self._key_at]
        self._row = _shape("StoredRow", table.columns)
        self._key = _shape("Key", key_columns)
        self._to_json = [(at, _to_json(column)) for at, column in enumerate(table.columns) if _is_converted(column)]
        self._key_to_json = [(at, _to_json(column)) for at, column in enumerate(key_columns) if _is_converted(column)]
        self._encode = msgspec.json.Encoder().encode
        self._key_from_json = [(at, _from_json(column)) for at, column in enumerate(key_columns) if _is_converted(column)]
        self._decode_keys: Callable[[bytes], Any] = msgspec.json.Decoder(list[self._key]).decode  # type: ignore[name-defined]
        version = table.schema_version
        self._version = msgspec.UNSET if version == 1 else version
        self._version_headers = () if version == 1 else ((SCHEMA_VERSION, b"%d" % version),)
        self._decoders: dict[int, _RowDecoder] = {}

    def key_of(self, row: StoredRow) -> StoredRow:
        return self._key_of(row)

    def headers(self, op: ChangeKind, tx: str, *, only_route: RouteId | None = None, skip_routes: str = "") -> bytes:
        """Return encoded headers.

        `only_route` is the one route that the event is for, `skip_routes` those that it is not for: `,3,7,`.
        """
        headers = [("source_table", self.table.name.encode()), ("op", op.encode()), ("tx", tx.encode())]
        headers += self._version_headers
        if only_route is not None:
            headers.append(("only_route", b"%d" % only_route))
        if skip_routes:
            headers.append(("skip_routes", skip_routes.encode()))
        return encode_headers(tuple(headers))

    def encode(self, op: ChangeKind, old: StoredRow | None, new: StoredRow | None, ts: int, tx: str) -> tuple[bytes, bytes]:
        """Return the key and value of an event."""
        image = new if new is not None else old
        key = self._encode(self._key(*_converted(self._key_of(image), self._key_to_json)))  # type: ignore[arg-type]
        value = self._encode(
            _Change(
                op,
                self._version,
                msgspec.Raw(key),
                None if old is None else self._image(old),
                None if new is None else self._image(new),
                ts,
                tx,
            )
        )
        if len(value) > self._change_bytes:
            raise self._too_large(value)
        return key, value

    def encode_rows(self, op: ChangeKind, rows: Sequence[StoredRow], ts: int, tx: str) -> Iterator[tuple[bytes, bytes]]:
        """Yield the keys and values of events for inserted or read rows. What the events share is encoded once.

        Fast path of `encode` for rows without an old image; `tests/unit/sql/tables/test_change_events.py` holds both equal.
        """
        encode, to_key, key_of, image = self._encode, self._key, self._key_of, self._image
        is_plain = not self._key_to_json
        version = b"" if self._version is msgspec.UNSET else b',"schema_version":%d' % self._version
        head = b'{"op":%b%b,"key":' % (encode(op), version)
        tail = b',"ts":%d,"tx":%b}' % (ts, encode(tx))
        for row in rows:
            values = key_of(row)
            key = encode(to_key(*(values if is_plain else _converted(values, self._key_to_json))))
            value = b'%b%b,"old":null,"new":%b%b' % (head, key, encode(image(row)), tail)
            if len(value) > self._change_bytes:
                raise self._too_large(value)
            yield key, value

    def encode_truncate(self, ts: int, tx: str) -> bytes:
        """Return the value of the event that says that all rows are removed. It has no key."""
        return self._encode(_Change("truncate", self._version, None, None, None, ts, tx))

    def decode(self, record: Record) -> ReplayedChange:
        """Decode a change of a row. The row is of the present shape, whichever version it was written with."""
        version = version_of(record)
        decoder = self._decoders.get(version)
        if decoder is None:
            decoder = self._decoders[version] = _RowDecoder(self.table, version)
        try:
            return decoder.decode(record.value or b"")
        except msgspec.MsgspecError as error:
            raise CorruptionError(f"a change event of table {self.table.name!r} can't be read: {error}") from error

    def decode_keys(self, keys: Sequence[bytes]) -> list[tuple[StoredValue, ...]] | None:
        """Decode the keys of events, or return `None` if one of them is not the key of a row."""
        try:
            found = self._decode_keys(b"[%b]" % b",".join(keys))
        except msgspec.MsgspecError:
            return None
        astuple, changes = msgspec.structs.astuple, self._key_from_json
        return [tuple(_converted(astuple(key), changes)) for key in found]

    def _too_large(self, value: bytes) -> LimitExceededError:
        return LimitExceededError(
            f"the change of a row of table {self.table.name!r} takes {len(value)} bytes, with the row before and after, more"
            f" than change_bytes allows ({self._change_bytes}); store smaller values"
        )

    def _image(self, row: StoredRow) -> Any:
        return self._row(*(_converted(row, self._to_json) if self._to_json else row))


class _RowDecoder:
    """Decodes the events of one version of a table's schema."""

    def __init__(self, table: Table, version: int) -> None:
        shape: RowShape = shape_at(table, version)
        known = {column.name: column for column in shape.columns}
        key = [known[name] for name in shape.primary_key]
        self._upgrade: UpgradeRow = upgrade_from(table, version)
        self._from_json = [(at, _from_json(column)) for at, column in enumerate(shape.columns) if _is_converted(column)]
        self._key_from_json = [(at, _from_json(column)) for at, column in enumerate(key) if _is_converted(column)]
        change = msgspec.defstruct("Replay", [("key", _shape("Key", key)), ("new", _shape("StoredRow", shape.columns) | None)])
        self._decode: Callable[[bytes], Any] = msgspec.json.Decoder(change).decode

    def decode(self, value: bytes) -> ReplayedChange:
        change = self._decode(value)
        # Stored keys are the same in all versions.
        key = _converted(msgspec.structs.astuple(change.key), self._key_from_json)
        if change.new is None:
            return ReplayedChange(key, None)
        return ReplayedChange(key, self._upgrade(_converted(msgspec.structs.astuple(change.new), self._from_json)))


def is_read(record: Record) -> bool:
    """Return whether an event is a row that a snapshot has read, and not a change."""
    return _READ in record.headers


def is_truncate(record: Record) -> bool:
    """Return whether an event says that all rows are removed."""
    return _TRUNCATE in record.headers


def version_of(record: Record) -> int:
    """Return the version of the schema that the rows of an event have."""
    return next((int(value or 1) for name, value in record.headers if name == SCHEMA_VERSION), 1)


def _converted(row: StoredRow, changes: Sequence[tuple[int, Callable[[Any], Any]]]) -> StoredRow:
    if not changes:
        return row
    cells = list(row)
    for at, convert in changes:
        cells[at] = convert(cells[at])
    return cells


def _shape(name: str, columns: Sequence[Column]) -> Any:
    """Return a struct with a field for each column, in order. Column names need not be valid names in Python."""
    fields = [(f"f{at}", _JSON_TYPES.get(column.type.kind, str | None)) for at, column in enumerate(columns)]
    return msgspec.defstruct(name, fields, rename={f"f{at}": column.name for at, column in enumerate(columns)})


def _picker(at: Sequence[int]) -> Callable[[StoredRow], StoredRow]:
    if len(at) == 1:
        (only,) = at
        return lambda row: (row[only],)
    return itemgetter(*at)


def _is_converted(column: Column) -> bool:
    return column.type.kind in ("boolean", "real", "json", "list")


def _to_json(column: Column) -> Callable[[Any], Any]:
    if column.type.kind == "boolean":
        return lambda kept: None if kept is None else kept != 0
    if column.type.kind == "real":
        return lambda kept: None if kept is None else shortest_float4(kept)
    return lambda kept: _NULL if kept is None else msgspec.Raw(kept.encode())


def _from_json(column: Column) -> Callable[[Any], Any]:
    if column.type.kind == "boolean":
        return lambda value: None if value is None else int(value)
    if column.type.kind == "real":
        return lambda value: None if value is None else store_real(value)
    return lambda value: None if value == _NULL else bytes(value).decode()
