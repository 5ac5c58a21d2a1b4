"""The fields of records as Arrow columns, one Python object at a time: where the compiled loops are not loaded, and where they
refuse a batch, to say what is wrong with it."""

import json
from collections.abc import Sequence

import pyarrow as pa

from tailrace.model.limits import Limits
from tailrace.model.record import Headers, Record
from tailrace.wire.arrow import COLUMNS, HEADER_LIST, Chunk
from tailrace.wire.records import decode_batch


def plain_fields(chunk: Chunk, limits: Limits) -> "PlainFields":
    return PlainFields([record for stored in chunk.stored for record in decode_batch(stored.batch, limits)])


class PlainFields:
    def __init__(self, records: Sequence[Record]) -> None:
        self._records = records

    def timestamps(self) -> pa.Array:
        return pa.array([record.timestamp for record in self._records], COLUMNS["timestamp"])

    def binary(self, field: str) -> pa.Array:
        return pa.array([getattr(record, field) for record in self._records], pa.binary())

    def text(self, field: str) -> pa.Array:
        return pa.array([_text(getattr(record, field)) for record in self._records], pa.string())

    def header(self, name: str) -> pa.Array:
        return pa.array([_text(_first(name, record.headers)) for record in self._records], pa.string())

    def header_json(self) -> pa.Array:
        return pa.array([_json(record.headers) for record in self._records], pa.string())

    def header_list(self) -> pa.Array:
        lists = [[{"name": name, "value": value} for name, value in record.headers] for record in self._records]
        return pa.array(lists, HEADER_LIST)


def _first(name: str, headers: Headers) -> bytes | None:
    return next((value for other, value in headers if other == name), None)


def _text(field: bytes | None) -> str | None:
    if field is None:
        return None
    try:
        return field.decode()
    except UnicodeDecodeError:
        return f"\\x{field.hex()}"


def _json(headers: Headers) -> str:
    """An object; a name that comes more than once has a list there."""
    found: dict[str, list[str | None]] = {}
    for name, value in headers:
        found.setdefault(name, []).append(_text(value))
    shown = {name: values if len(values) > 1 else values[0] for name, values in found.items()}
    return json.dumps(shown, ensure_ascii=False, separators=(",", ":"))
