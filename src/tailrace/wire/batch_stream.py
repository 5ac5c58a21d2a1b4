"""Stored batches on their way to a reader that decodes them itself: each with its cursor and its length before it."""

from collections.abc import Iterator, Sequence
from struct import Struct
from typing import NamedTuple

import msgspec

from tailrace.model.commit import Buffer
from tailrace.model.errors import MalformedMessageError
from tailrace.model.ids import Cursor

_HEAD = Struct(">QI")


class PlacedBatch(NamedTuple):
    """A batch and the cursor of its first record."""

    cursor: Cursor
    batch: Buffer


def encode_batch_stream(batches: Sequence[PlacedBatch]) -> bytes:
    parts: list[Buffer] = []
    for cursor, batch in batches:
        parts.append(_HEAD.pack(cursor, len(batch)))
        parts.append(batch)
    return b"".join(parts)


def decode_batch_stream(body: Buffer) -> Iterator[PlacedBatch]:
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


_LENGTH = Struct(">I")


class FetchedPartitionHead(msgspec.Struct, frozen=True):
    partition_id: int
    next_offset: int
    """Where to go on."""
    start_offset: int
    """The oldest offset that retention has left."""
    end_offset: int
    """The offset that the next record will get."""
    size_bytes: int
    """Of its batches in this answer."""


class FetchedPartitionPart(NamedTuple):
    head: FetchedPartitionHead
    batches: Sequence[PlacedBatch]


_HEADS = msgspec.json.Decoder(list[FetchedPartitionHead])


def encode_fetched(parts: Sequence[FetchedPartitionPart]) -> bytes:
    """`size_bytes` of the heads is filled in."""
    bodies = [encode_batch_stream(part.batches) for part in parts]
    heads = [msgspec.structs.replace(part.head, size_bytes=len(body)) for part, body in zip(parts, bodies, strict=True)]
    head = msgspec.json.encode(heads)
    return b"".join((_LENGTH.pack(len(head)), head, *bodies))


def decode_fetched(body: Buffer) -> Iterator[FetchedPartitionPart]:
    """Views into the body."""
    data = memoryview(body)
    if len(data) < _LENGTH.size:
        raise MalformedMessageError(f"the answer to a fetch has {len(data)} bytes, too few for its head")
    (length,) = _LENGTH.unpack_from(data)
    at = _LENGTH.size + length
    try:
        heads = _HEADS.decode(data[_LENGTH.size : at])
    except msgspec.DecodeError as error:
        raise MalformedMessageError(f"the head of an answer to a fetch can't be read: {error}") from error
    if at + sum(head.size_bytes for head in heads) != len(data):
        raise MalformedMessageError(f"the answer to a fetch has {len(data)} bytes, not as many as its head says")
    for head in heads:
        yield FetchedPartitionPart(head, list(decode_batch_stream(data[at : at + head.size_bytes])))
        at += head.size_bytes
