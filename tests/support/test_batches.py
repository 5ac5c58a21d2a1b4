"""The batches that all other tests are made of."""

import pytest

from tailrace.model.errors import CorruptBatchError
from tailrace.wire.batch import check_batch, read_header, with_base_offset
from tests.support.batches import StoredRecord, decode_batch, encode_batch


def test_a_batch_gives_back_its_records() -> None:
    batch = encode_batch([(5_000, b"first"), (4_990, b""), (9_000, b"x" * 300)])
    assert decode_batch(with_base_offset(batch, 70)) == [
        StoredRecord(70, 5_000, b"first"),
        StoredRecord(71, 4_990, b""),
        StoredRecord(72, 9_000, b"x" * 300),
    ]


def test_a_batch_passes_the_check_of_what_comes_from_outside() -> None:
    header = check_batch(encode_batch([(1_000, b"a"), (3_000, b"b"), (2_000, b"c")]))
    assert (header.records, header.base_timestamp, header.max_timestamp) == (3, 1_000, 3_000)
    assert read_header(encode_batch([(0, b"")])).records == 1


def test_a_changed_byte_is_not_read() -> None:
    batch = bytearray(encode_batch([(1_000, b"value")]))
    batch[-2] ^= 1
    with pytest.raises(CorruptBatchError):
        decode_batch(batch)
