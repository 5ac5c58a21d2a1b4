"""What a routed change looks like in its topic: payload, key, partition and headers, from the bytes of the change event.

This is the meaning of a route after its condition was found true. The pipeline does the same in Spark, the dry run calls it.
Values are taken over as they stand in the event, byte for byte, so nothing is rounded or written anew on the way.
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
    """One change of one row. Rows and key are JSON as it stands in the log."""

    op: ChangeKind
    key: bytes
    old: bytes | None
    new: bytes | None
    timestamp: int
    cursor: Cursor


class RoutedRecord(NamedTuple):
    """A change as a record of the topic that a route leads to."""

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
    """The change that a record of a change topic holds."""
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
    """The record that a route makes of a change. `key_values` are those of PARTITION BY; without them the row's key counts."""
    key = change.key if key_values is None else partition_key(key_values)
    return RoutedRecord(
        key, payload_of(change, payload), headers_of(change, route, table, payload), partition_for_key(key, partitions)
    )


def payload_of(change: ChangeEvent, payload: PayloadMode) -> bytes:
    """`key`: the primary key. `full`: the row, for a delete the one that went. `diff`: the key, and what is otherwise now."""
    if payload == "key":
        return change.key
    if payload == "full":
        row = change.new if change.new is not None else change.old
        invariant(row is not None, f"the change at cursor {change.cursor} has no row")
        return row or _NULL
    return b'{"key":%b,"changed":%b}' % (change.key, _changed(change))


def partition_key(values: Sequence[KeyValue]) -> bytes:
    """A JSON array of the values, without spaces. The same values give the same bytes, whatever the columns are called."""
    return b"[" + b",".join(map(_json, values)) + b"]"


def headers_of(change: ChangeEvent, route: RouteId, table: str, payload: PayloadMode) -> Headers:
    """The id is made of the change and the route alone, so a change that is routed again has the same one."""
    return (
        ("source_table", table.encode()),
        ("op", change.op.encode()),
        ("timestamp", b"%d" % change.timestamp),
        ("payload_mode", payload.encode()),
        (MESSAGE_ID_HEADER, b"%d-%d" % (change.cursor, route)),
        ("cursor", b"%d" % change.cursor),
    )


def _changed(change: ChangeEvent) -> bytes:
    """For each column that differs, what it was and what it is; what was not there before or is not there now is left out."""
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
    """As Spark writes it: control characters that have no short form with capital letters."""
    if value.isprintable():
        return msgspec.json.encode(value)
    escaped = [f"\\u{ord(letter):04X}" if letter < " " and letter not in "\b\f\n\r\t" else letter for letter in value]
    whole = [piece if len(piece) > 1 else msgspec.json.encode(piece).decode()[1:-1] for piece in escaped]
    return f'"{"".join(whole)}"'.encode()
