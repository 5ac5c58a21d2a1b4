"""Stored batches on their way to a reader that decodes them itself: each with its cursor and its length before it."""

from collections.abc import Iterator, Sequence
from struct import Struct
from typing import NamedTuple

from tailrace.model.commit import Buffer
from tailrace.model.errors import MalformedMessageError
from tailrace.model.ids import Cursor

_HEAD = Struct(">QI")


class PlacedBatch(NamedTuple):
    """A batch and the cursor of its first record."""

    cursor: Cursor
    batch: Buffer


def encode_batches(batches: Sequence[PlacedBatch]) -> bytes:
    parts: list[Buffer] = []
    for cursor, batch in batches:
        parts.append(_HEAD.pack(cursor, len(batch)))
        parts.append(batch)
    return b"".join(parts)


def decode_batches(body: Buffer) -> Iterator[PlacedBatch]:
    """Views into the body."""
    data = memoryview(body)
    at = 0
    while at < len(data):
        if len(data) - at < _HEAD.size:
            raise MalformedMessageError(f"the stream of batches ends within the head of a batch at byte {at}")
        cursor, size = _HEAD.unpack_from(data, at)
        at += _HEAD.size
        if size > len(data) - at:
            raise MalformedMessageError(f"the batch at byte {at} has {size} bytes, and the stream only {len(data) - at} more")
        yield PlacedBatch(Cursor(cursor), data[at : at + size])
        at += size
