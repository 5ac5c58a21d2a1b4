"""The answer to a fetch of several partitions: a head in JSON that says how far each was read, then their batches as stored.

    length of the head (4 bytes) | head | batches of the first partition | batches of the second | ...

The batches of each partition are those of `wire/batch_stream.py`; the head says how many bytes they take.
"""

from collections.abc import Iterator, Sequence
from struct import Struct
from typing import NamedTuple

import msgspec

from tailrace.model.commit import Buffer
from tailrace.model.errors import MalformedMessageError
from tailrace.wire.batch_stream import PlacedBatch, decode_batches, encode_batches

_LENGTH = Struct(">I")


class FetchedPartition(msgspec.Struct, frozen=True):
    partition_id: int
    next_offset: int
    """Where to go on."""
    start_offset: int
    """The oldest offset that retention has left."""
    end_offset: int
    """The offset that the next record will get."""
    size_bytes: int
    """Of its batches in this answer."""


class PartitionPart(NamedTuple):
    head: FetchedPartition
    batches: Sequence[PlacedBatch]


_HEADS = msgspec.json.Decoder(list[FetchedPartition])


def encode_fetched(parts: Sequence[PartitionPart]) -> bytes:
    """`size_bytes` of the heads is filled in."""
    bodies = [encode_batches(part.batches) for part in parts]
    heads = [msgspec.structs.replace(part.head, size_bytes=len(body)) for part, body in zip(parts, bodies, strict=True)]
    head = msgspec.json.encode(heads)
    return b"".join((_LENGTH.pack(len(head)), head, *bodies))


def decode_fetched(body: Buffer) -> Iterator[PartitionPart]:
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
        yield PartitionPart(head, list(decode_batches(data[at : at + head.size_bytes])))
        at += head.size_bytes
