"""Staged batches on their way to the server: what a task of a pipeline made of one part of its source.

    chunk   length of the head (4 bytes), head (MessagePack), the batches one after another

The head names for each batch its topic, partition and length, and the moves of the pipeline's marks that belong to the
chunk. A body holds any number of chunks; each takes effect whole.
"""

from collections.abc import Iterator, Sequence
from struct import Struct
from typing import NamedTuple

import msgspec

from tailrace.model.changes import Buffer
from tailrace.model.errors import InvalidRequestError
from tailrace.model.pipeline import MarkMove

_LENGTH = Struct(">I")
_MAX_HEAD_BYTES = 1 << 24


class StagedBatch(NamedTuple):
    topic: str
    partition: int
    batch: Buffer


class Chunk(NamedTuple):
    moves: Sequence[MarkMove]
    batches: Sequence[StagedBatch]

    @property
    def size(self) -> int:
        return sum(len(staged.batch) for staged in self.batches)


class _Head(msgspec.Struct, array_like=True):
    moves: list[tuple[str, int | None, int]]
    batches: list[tuple[str, int, int]]


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(_Head)


def encode_chunk(chunk: Chunk) -> bytes:
    head = _encoder.encode(
        _Head(
            [(move.source, move.before, move.after) for move in chunk.moves],
            [(staged.topic, staged.partition, len(staged.batch)) for staged in chunk.batches],
        )
    )
    return b"".join((_LENGTH.pack(len(head)), head, *(staged.batch for staged in chunk.batches)))


def decode_chunks(body: Buffer) -> Iterator[Chunk]:
    """The chunks of a body. Raises where lengths and bytes don't fit; the batches themselves are not looked at."""
    data = memoryview(body)
    at = 0
    while at < len(data):
        if len(data) - at < _LENGTH.size:
            raise _cut_off(at)
        (size,) = _LENGTH.unpack_from(data, at)
        at += _LENGTH.size
        if size > min(_MAX_HEAD_BYTES, len(data) - at):
            raise _cut_off(at)
        try:
            head = _decoder.decode(data[at : at + size])
        except msgspec.MsgspecError as error:
            raise InvalidRequestError(f"the head of a staged chunk at byte {at} can't be read: {error}") from error
        at += size
        batches = []
        for topic, partition, length in head.batches:
            if not 0 <= length <= len(data) - at:
                raise _cut_off(at)
            batches.append(StagedBatch(topic, partition, data[at : at + length]))
            at += length
        yield Chunk([MarkMove(*move) for move in head.moves], batches)


def _cut_off(at: int) -> InvalidRequestError:
    return InvalidRequestError(f"the staged chunk at byte {at} is cut off or counts more bytes than it has")
