"""Staged chunks are decoded as they were encoded, and rejected if they are cut off."""

import pytest

from tailrace.model.errors import InvalidRequestError
from tailrace.model.ids import TopicId
from tailrace.model.pipeline import MarkMove
from tailrace.wire.staged_chunks import StagedBatch, StagedChunk, decode_staged_chunks, encode_staged_chunk

CHUNKS = [
    StagedChunk(
        [MarkMove("1/0", 5, 9)],
        [
            StagedBatch(TopicId(7), "orders.paid", 3, b"first"),
            StagedBatch(TopicId(8), "orders.all", 0, b"second one", TopicId(7)),
        ],
    ),
    StagedChunk([MarkMove("batch", None, 4), MarkMove("2/0", 0, 1)], []),
    StagedChunk([], [StagedBatch(TopicId(1), "t", 0, b"")]),
]
BODY = b"".join(map(encode_staged_chunk, CHUNKS))


def test_chunks_come_back_as_they_were() -> None:
    assert list(decode_staged_chunks(BODY)) == CHUNKS


def test_a_body_that_is_cut_anywhere_else_than_between_chunks_is_refused() -> None:
    ends = {0}
    for chunk in CHUNKS:
        ends.add(max(ends) + len(encode_staged_chunk(chunk)))
    for size in range(len(BODY)):
        if size in ends:
            assert len(list(decode_staged_chunks(BODY[:size]))) == sorted(ends).index(size)
        else:
            with pytest.raises(InvalidRequestError):
                list(decode_staged_chunks(BODY[:size]))


@pytest.mark.parametrize("head", [b"\xc1", b"\x93\x01\x02\x03", b"\x92\x90\x91\x95\x01\xa1t\x00\xd2\xff\xff\xff\xff\xc0"])
def test_a_head_that_makes_no_sense_is_refused(head: bytes) -> None:
    with pytest.raises(InvalidRequestError):
        list(decode_staged_chunks(len(head).to_bytes(4) + head))
