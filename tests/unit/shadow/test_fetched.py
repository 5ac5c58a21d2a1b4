"""What was fetched is cut into batches, without what no reader is shown."""

import pytest

from tailrace.model.errors import CorruptBatchError, UnsupportedBatchError
from tailrace.model.record import Record
from tailrace.shadow.fetched import committed_batches
from tailrace.wire.batch import with_base_offset
from tailrace.wire.control import TransactionMarker, encode_marker
from tailrace.wire.messages.fetch import FetchAbortedTransaction
from tailrace.wire.records import encode_batch


def data(offset: int, count: int = 1, producer: int = -1) -> bytes:
    records = [Record(None, b"%d" % (offset + at)) for at in range(count)]
    encoded = encode_batch(records, producer_id=producer, producer_epoch=0, base_sequence=0, transactional=producer >= 0)
    return bytes(with_base_offset(encoded, offset))


def marker(offset: int, producer: int, kind: TransactionMarker) -> bytes:
    return bytes(with_base_offset(encode_marker(kind, producer, 0, 1), offset))


def offsets(found: object) -> list[int]:
    return [batch.header.base_offset for batch in found.batches]  # type: ignore[attr-defined]


def test_batches_are_cut_and_an_incomplete_one_at_the_end_is_left_out() -> None:
    found = committed_batches(data(5, 2) + data(7) + data(8)[:-1], 5, None)
    assert offsets(found) == [5, 7]
    assert found.position == 8
    assert found.size == len(data(5, 2)) + len(data(7))


def test_a_batch_that_ends_before_the_position_is_left_out_and_one_that_reaches_it_is_not() -> None:
    found = committed_batches(data(0, 4) + data(4, 4), 6, None)
    assert offsets(found) == [4]
    assert found.position == 8


def test_aborted_transactions_and_markers_are_left_out() -> None:
    records = b"".join(
        (
            data(0, producer=1),
            data(1, producer=2),
            marker(2, 1, TransactionMarker.ABORT),
            data(3),
            marker(4, 2, TransactionMarker.COMMIT),
            data(5, producer=1),
            marker(6, 1, TransactionMarker.COMMIT),
        )
    )
    found = committed_batches(records, 0, [FetchAbortedTransaction(producer_id=1, first_offset=0)])
    assert offsets(found) == [1, 3, 5]
    assert found.position == 7


def test_an_aborted_transaction_whose_marker_comes_later_is_left_out_to_the_end() -> None:
    records = data(0, producer=1) + data(1, producer=1) + data(2)
    found = committed_batches(records, 0, [FetchAbortedTransaction(producer_id=1, first_offset=0)])
    assert offsets(found) == [2]


def test_nothing_moves_the_position_without_batches() -> None:
    assert committed_batches(None, 9, None) == ([], 9, 0)
    assert committed_batches(b"", 9, None) == ([], 9, 0)


def test_a_wrong_checksum_is_noticed() -> None:
    spoilt = bytearray(data(0))
    spoilt[-1] ^= 1
    with pytest.raises(CorruptBatchError, match="checksum of the batch at offset 0"):
        committed_batches(bytes(spoilt), 0, None)


def test_formats_from_before_batches_are_refused() -> None:
    old = bytearray(data(0))
    old[16] = 1
    with pytest.raises(UnsupportedBatchError, match=r"format 1, from before Kafka 0\.11"):
        committed_batches(bytes(old), 0, None)
