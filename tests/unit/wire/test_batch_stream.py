"""The answer to a fetch of several partitions."""

import pytest

from tailrace.model.errors import MalformedMessageError
from tailrace.model.ids import Cursor
from tailrace.wire.batch_stream import FetchedPartitionHead, FetchedPartitionPart, PlacedBatch, decode_fetched, encode_fetched

PARTS = [
    FetchedPartitionPart(FetchedPartitionHead(2, 7, 0, 9, 0), [PlacedBatch(Cursor(5), b"abc"), PlacedBatch(Cursor(8), b"d")]),
    FetchedPartitionPart(FetchedPartitionHead(0, 3, 1, 3, 0), []),
]


def test_parts_are_read_as_they_were_written() -> None:
    first, second = decode_fetched(encode_fetched(PARTS))
    assert [(cursor, bytes(batch)) for cursor, batch in first.batches] == [(5, b"abc"), (8, b"d")]
    assert (first.head.partition_id, first.head.next_offset, first.head.end_offset) == (2, 7, 9)
    assert (second.head.start_offset, list(second.batches)) == (1, [])


@pytest.mark.parametrize("size", [0, 3, 10, -1])
def test_what_is_cut_off_is_refused(size: int) -> None:
    with pytest.raises(MalformedMessageError):
        list(decode_fetched(encode_fetched(PARTS)[:size]))
