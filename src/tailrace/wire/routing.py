"""Makes the record of a topic from a change event that a route matches: its payload, key, partition and headers.

The dry run of a route calls it; the pipeline does the same in Spark. Values are copied from the event byte for byte, so
nothing is rounded or formatted again on the way.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import NamedTuple

import msgspec

from tailrace.model.errors import CorruptionError, invariant
from tailrace.model.ids import Cursor, RouteId
from tailrace.model.record import MESSAGE_ID_HEADER, Headers, Record
from tailrace.model.route import ChangeKind, PayloadMode
from tailrace.wire.partitioner import partition_for_key

KeyValue = bool | int | str | Decimal | date | datetime | None

_NULL = b"null"


class ChangeEvent(NamedTuple):
    """One change of one row. The rows and the key are the JSON of the log."""

    op: ChangeKind
    key: bytes
    old: bytes | None
    new: bytes | None
    timestamp: int
    cursor: Cursor


class RoutedRecord(NamedTuple):
    """A change as a record of the route's topic."""

    key: bytes
    value: bytes
    headers: Headers
    partition: int


class _Event(msgspec.Struct):
    op: ChangeKind
    key: msgspec.Raw
    old: msgspec.Raw
    new: msgspec.Raw


_decode_event = msgspec.json.Decoder(_Event).decode
_decode_row = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def read_change(record: Record) -> ChangeEvent:
    """Read the change event in a record of a change topic."""
    try:
        event = _decode_event(record.value or b"")
    except msgspec.MsgspecError as error:
        raise CorruptionError(f"the change at cursor {record.cursor} can't be read: {error}") from error
    return ChangeEvent(event.op, bytes(event.key), _present(event.old), _present(event.new), record.timestamp, record.cursor)


def route_change(
    change: ChangeEvent,
    *,
    route: RouteId,
    table: str,
    payload: PayloadMode,
    partitions: int,
    key_values: Sequence[KeyValue] | None = None,
) -> RoutedRecord:
    """Make the record of a change. `key_values` are those of PARTITION BY; without them the key is that of the row."""
    key = change.key if key_values is None else partition_key(key_values)
    return RoutedRecord(
        key, payload_of(change, payload), headers_of(change, route, table, payload), partition_for_key(key, partitions)
    )


def payload_of(change: ChangeEvent, payload: PayloadMode) -> bytes:
    """Return the payload: for `key` the primary key, for `full` the row (of a delete, the deleted one), for `diff` the key and
    the columns that changed.
    """
    if payload == "key":
        return change.key
    if payload == "full":
        row = change.new if change.new is not None else change.old
        invariant(row is not None, f"the change at cursor {change.cursor} has no row")
        return row or _NULL
    return b'{"key":%b,"changed":%b}' % (change.key, _changed(change))


def partition_key(values: Sequence[KeyValue]) -> bytes:
    """Return a JSON array of the values, without spaces. Equal values give equal bytes, whatever the columns are called."""
    return b"[" + b",".join(map(_json, values)) + b"]"


def headers_of(change: ChangeEvent, route: RouteId, table: str, payload: PayloadMode) -> Headers:
    """Return the headers. The message id depends on the change and the route only, so routing a change again keeps it."""
    return (
        ("source_table", table.encode()),
        ("op", change.op.encode()),
        ("timestamp", b"%d" % change.timestamp),
        ("payload_mode", payload.encode()),
        (MESSAGE_ID_HEADER, b"%d-%d" % (change.cursor, route)),
        ("cursor", b"%d" % change.cursor),
    )


def _changed(change: ChangeEvent) -> bytes:
    """Return the old and new value of each column that differs. A value that did not exist before or after is left out."""
    old, new = _row(change.old), _row(change.new)
    parts = []
    for name in {**old, **new}:
        before, after = old.get(name), new.get(name)
        if before is not None and after is not None and bytes(before) == bytes(after):
            continue
        images = ((b"old", before), (b"new", after))
        inner = b",".join(b'"%b":%b' % (image, bytes(value)) for image, value in images if value is not None)
        parts.append(b"%b:{%b}" % (_json(name), inner))
    return b"{%b}" % b",".join(parts)


def _row(image: bytes | None) -> Mapping[str, msgspec.Raw]:
    return {} if image is None else _decode_row(image)


def _present(image: msgspec.Raw) -> bytes | None:
    found = bytes(image)
    return None if found == _NULL else found


def _json(value: KeyValue) -> bytes:
    match value:
        case str():
            return _text(value)
        case Decimal():
            return b'"%b"' % format(value, "f").encode()
        case datetime():
            at = value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
            return b'"%bZ"' % at.replace(tzinfo=None).isoformat("T", "microseconds").encode()
        case date():
            return b'"%b"' % value.isoformat().encode()
    return msgspec.json.encode(value)


def _text(value: str) -> bytes:
    """Return a JSON string as Spark writes it: with capital letters in the escapes of control characters."""
    if value.isprintable():
        return msgspec.json.encode(value)
    escaped = [f"\\u{ord(letter):04X}" if letter < " " and letter not in "\b\f\n\r\t" else letter for letter in value]
    whole = [piece if len(piece) > 1 else msgspec.json.encode(piece).decode()[1:-1] for piece in escaped]
    return f'"{"".join(whole)}"'.encode()
