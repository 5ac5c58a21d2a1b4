"""Staged batches on their way to the server: what a task of a pipeline made of one part of its source.

    chunk   length of the head (4 bytes), head (MessagePack), the batches one after another

The head says where each batch goes and how long it is, and which moves of the pipeline's marks belong to the chunk. Topics are
identified by id, so a batch that was staged for a deleted topic never reaches a new one of the same name. A body holds any
number of chunks. Each chunk takes effect as a whole.
"""

from collections.abc import Iterator, Sequence
from struct import Struct
from typing import NamedTuple

import msgspec

from tailrace.model.commit import UNKNOWN_TIMESTAMP, Buffer
from tailrace.model.errors import InvalidRequestError
from tailrace.model.ids import TopicId
from tailrace.model.pipeline import MarkMove

_LENGTH = Struct(">I")
_MAX_HEAD_BYTES = 1 << 24


class StagedBatch(NamedTuple):
    topic_id: TopicId
    topic: str
    """Its name when the batch was staged, for error messages."""
    partition: int
    batch: Buffer
    needs: TopicId | None = None
    """A topic that the batch depends on. If that topic is deleted when the batch is to be published, the batch is left out."""
    oldest_timestamp: int = UNKNOWN_TIMESTAMP
    """No record is before it. The server finds it; a chunk does not carry it."""


class StagedChunk(NamedTuple):
    moves: Sequence[MarkMove]
    batches: Sequence[StagedBatch]

    @property
    def size(self) -> int:
        return sum(len(staged.batch) for staged in self.batches)


class _Head(msgspec.Struct, array_like=True):
    moves: list[tuple[str, int | None, int]]
    batches: list[tuple[int, str, int, int, int | None]]
    """Topic id, topic name, partition, length, and the id of the topic that the batch depends on."""


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(_Head)


def encode_staged_chunk(chunk: StagedChunk) -> bytes:
    head = _encoder.encode(
        _Head(
            [(move.source, move.before, move.after) for move in chunk.moves],
            [(each.topic_id, each.topic, each.partition, len(each.batch), each.needs) for each in chunk.batches],
        )
    )
    return b"".join((_LENGTH.pack(len(head)), head, *(staged.batch for staged in chunk.batches)))


def decode_staged_chunks(body: Buffer) -> Iterator[StagedChunk]:
    """Yield the chunks of a body. Raises if lengths and bytes don't fit; the batches themselves are not checked."""
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
        for topic_id, topic, partition, length, needs in head.batches:
            if not 0 <= length <= len(data) - at:
                raise _cut_off(at)
            needed = None if needs is None else TopicId(needs)
            batches.append(StagedBatch(TopicId(topic_id), topic, partition, data[at : at + length], needed))
            at += length
        yield StagedChunk([MarkMove(*move) for move in head.moves], batches)


def _cut_off(at: int) -> InvalidRequestError:
    return InvalidRequestError(f"the staged chunk at byte {at} is cut off, or declares more bytes than it has")
