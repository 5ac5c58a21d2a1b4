"""The first record at a time is found without decoding the batch."""

import pytest

from tailrace.model.limits import DEFAULT_LIMITS
from tailrace.model.record import Record
from tailrace.wire.compression import Compression
from tailrace.wire.record_timestamps import first_record_at
from tailrace.wire.records import encode_batch

BASE_MS = 1_700_000_000_000


@pytest.mark.parametrize("codec", list(Compression))
def test_the_first_record_of_a_time_is_found_without_decoding_the_others(codec: Compression) -> None:
    times = [5, 3, 70_000, 4, 90_000]
    batch = encode_batch([Record(b"k", b"v", (), BASE_MS + time) for time in times], codec=codec)
    assert first_record_at(batch, BASE_MS, DEFAULT_LIMITS) == (0, BASE_MS + 5)
    assert first_record_at(batch, BASE_MS + 4, DEFAULT_LIMITS, first=1) == (2, BASE_MS + 70_000)
    assert first_record_at(batch, BASE_MS + 70_001, DEFAULT_LIMITS) == (4, BASE_MS + 90_000)
    assert first_record_at(batch, BASE_MS + 90_001, DEFAULT_LIMITS) is None


def test_records_stamped_by_the_server_all_have_its_time() -> None:
    batch = encode_batch([Record(None, b"v", (), BASE_MS)] * 3, append_time=BASE_MS + 50)
    assert first_record_at(batch, BASE_MS + 50, DEFAULT_LIMITS, first=1) == (1, BASE_MS + 50)
    assert first_record_at(batch, BASE_MS + 51, DEFAULT_LIMITS) is None
