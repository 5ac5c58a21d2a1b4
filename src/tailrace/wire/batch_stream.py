"""The bodies of HTTP responses that hold stored batches, for readers that decode them themselves.

A stream of batches is, for each batch, its cursor (8 bytes), its length (4 bytes) and its bytes. The answer to a fetch of
several partitions begins with a head in JSON that says how far each partition was read and how many bytes its stream takes:

    length of the head (4 bytes) | head | stream of the first partition | stream of the second | ...
"""

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
    """Yield the batches as views into the body."""
    data = memoryview(body)
    at = 0
    while at < len(data):
        if len(data) - at < _HEAD.size:
            raise MalformedMessageError(f"the stream of batches is cut off within the head of a batch at byte {at}")
        cursor, size = _HEAD.unpack_from(data, at)
        at += _HEAD.size
        if size > len(data) - at:
            raise MalformedMessageError(f"the batch at byte {at} has {size} bytes, and {len(data) - at} are left in the stream")
        yield PlacedBatch(Cursor(cursor), data[at : at + size])
        at += size


_LENGTH = Struct(">I")


class FetchedPartitionHead(msgspec.Struct, frozen=True):
    partition_id: int
    next_offset: int
    """The first offset that was not read."""
    start_offset: int
    """The first offset that the partition still holds."""
    end_offset: int
    """The offset that the next record will get."""
    size_bytes: int
    """Bytes of its batches in this answer."""


class FetchedPartitionPart(NamedTuple):
    head: FetchedPartitionHead
    batches: Sequence[PlacedBatch]


_HEADS = msgspec.json.Decoder(list[FetchedPartitionHead])


def encode_fetched(parts: Sequence[FetchedPartitionPart]) -> bytes:
    """Encode an answer. `size_bytes` of each head is filled in here."""
    bodies = [encode_batch_stream(part.batches) for part in parts]
    heads = [msgspec.structs.replace(part.head, size_bytes=len(body)) for part, body in zip(parts, bodies, strict=True)]
    head = msgspec.json.encode(heads)
    return b"".join((_LENGTH.pack(len(head)), head, *bodies))


def decode_fetched(body: Buffer) -> Iterator[FetchedPartitionPart]:
    """Yield the partitions of an answer, with their batches as views into the body."""
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
        raise MalformedMessageError(f"the answer to a fetch has {len(data)} bytes, other than its head says")
    for head in heads:
        yield FetchedPartitionPart(head, list(decode_batch_stream(data[at : at + head.size_bytes])))
        at += head.size_bytes
