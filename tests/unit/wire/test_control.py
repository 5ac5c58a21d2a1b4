"""Control batches mark the end of transactions."""

import pytest

from tailrace.model.errors import CorruptBatchError
from tailrace.model.limits import DEFAULT_LIMITS
from tailrace.wire.batch import HEADER_BYTES, check_batch
from tailrace.wire.control import TransactionMarker, decode_marker, encode_marker
from tailrace.wire.records import decode_batch


@pytest.mark.parametrize("marker", TransactionMarker)
def test_a_marker_is_a_batch_of_one_control_record(marker: TransactionMarker) -> None:
    batch = encode_marker(marker, 7, 3, 1_700_000_000_000)
    header = check_batch(batch)
    assert (header.is_control, header.is_transactional) == (True, True)
    assert (header.producer_id, header.producer_epoch, header.base_sequence, header.records) == (7, 3, -1, 1)
    assert decode_marker(batch) is marker
    (record,) = decode_batch(batch, DEFAULT_LIMITS)
    assert record.key == bytes((0, 0, 0, marker))
    assert record.value == bytes(6)


def test_a_control_batch_that_is_cut_off_is_corrupt() -> None:
    batch = encode_marker(TransactionMarker.COMMIT, 7, 3, 0)
    with pytest.raises(CorruptBatchError, match="this one has 70"):
        decode_marker(batch[:70])


def test_a_marker_of_an_unknown_kind_is_corrupt() -> None:
    batch = encode_marker(TransactionMarker.COMMIT, 7, 3, 0)
    batch[HEADER_BYTES + 8] = 5
    with pytest.raises(CorruptBatchError, match="has the type 5"):
        decode_marker(batch)
