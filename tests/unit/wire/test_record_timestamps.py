"""Timestamps of a batch are found without decoding it, and agree with its decoded records."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.model.errors import CorruptBatchError, TailraceError
from tailrace.model.limits import DEFAULT_LIMITS
from tailrace.model.record import NO_TIMESTAMP, Record
from tailrace.wire.batch import HEADER_BYTES, read_header, with_records
from tailrace.wire.compression import Compression
from tailrace.wire.record_timestamps import NEVER_MS, first_record_at, oldest_timestamp
from tailrace.wire.records import decode_batch, encode_batch
from tailrace.wire.varints import encode_varint

BASE_MS = 1_700_000_000_000
SIZES = [0, 50, 57, 58, 100, 8_000, 8_184, 8_190, 20_000]
"""Sizes of values whose records have lengths of one, two and three bytes, on either side of the boundaries."""


def batch_of(
    times: Sequence[int], *, size: int = 10, codec: Compression = Compression.NONE, append_time: int | None = None
) -> bytearray:
    return encode_batch([Record(None, b"v" * size, (), time) for time in times], codec=codec, append_time=append_time)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("late", [-1, -64, -65, -9_000, -1_000_000_000])
def test_a_record_before_the_first_is_found_wherever_it_is(size: int, late: int) -> None:
    for place in range(1, 4):
        times = [BASE_MS, BASE_MS + 1, BASE_MS + 70, BASE_MS + 9_000]
        assert oldest_timestamp(batch_of(times, size=size), DEFAULT_LIMITS) == BASE_MS
        times[place] = BASE_MS + late
        assert oldest_timestamp(batch_of(times, size=size), DEFAULT_LIMITS) == BASE_MS + late


def test_records_without_a_time_are_left_out() -> None:
    assert oldest_timestamp(batch_of([NO_TIMESTAMP, NO_TIMESTAMP]), DEFAULT_LIMITS) == NEVER_MS
    assert oldest_timestamp(batch_of([NO_TIMESTAMP, 7, 5]), DEFAULT_LIMITS) == 5
    assert oldest_timestamp(batch_of([7, NO_TIMESTAMP, 9]), DEFAULT_LIMITS) == 7


def test_the_time_of_append_is_that_of_all_records() -> None:
    assert oldest_timestamp(batch_of([5, 6], append_time=BASE_MS), DEFAULT_LIMITS) == BASE_MS
    assert oldest_timestamp(batch_of([5, 6], append_time=NO_TIMESTAMP), DEFAULT_LIMITS) == NEVER_MS


@pytest.mark.parametrize(
    "records",
    [
        b"",
        b"\x0e" * 7,
        encode_varint(6) + b"\0" * 5,
        encode_varint(6) + b"\0" * 7,
        encode_varint(1 << 40) + b"\0" * 20,
        encode_varint(-9_000) + b"\0" * 20,
        b"\xff" * 1_000,
    ],
    ids=["none", "too-long", "cut-off", "bytes-left", "huge", "negative", "endless"],
)
def test_records_that_make_no_sense_are_refused(records: bytes) -> None:
    broken = with_records(batch_of([BASE_MS]), [records], 0)
    with pytest.raises(CorruptBatchError):
        oldest_timestamp(broken, DEFAULT_LIMITS)


@given(
    st.lists(st.just(NO_TIMESTAMP) | st.integers(-100, 100) | st.integers(-(1 << 62), 1 << 62), min_size=1, max_size=5),
    st.lists(st.sampled_from(SIZES), min_size=5, max_size=5),
    st.sampled_from(list(Compression)),
)
def test_it_is_the_least_time_of_the_decoded_records(times: list[int], sizes: list[int], codec: Compression) -> None:
    records = [Record(None, b"v" * size, (), time) for time, size in zip(times, sizes, strict=False)]
    batch = encode_batch(records, codec=codec)
    decoded = [record.timestamp for record in decode_batch(batch, DEFAULT_LIMITS) if record.timestamp != NO_TIMESTAMP]
    assert oldest_timestamp(batch, DEFAULT_LIMITS) == min(decoded, default=NEVER_MS)


@given(st.binary(max_size=60), st.lists(st.integers(-5, 5), min_size=1, max_size=4))
def test_no_record_that_can_be_decoded_is_older(junk: bytes, times: list[int]) -> None:
    batch = bytearray(batch_of(times))
    batch[HEADER_BYTES : HEADER_BYTES + len(junk)] = junk
    batch = bytearray(with_records(batch, [bytes(batch[HEADER_BYTES:])], read_header(batch).attributes))
    try:
        oldest = oldest_timestamp(batch, DEFAULT_LIMITS)
    except TailraceError:
        return
    try:
        decoded = decode_batch(batch, DEFAULT_LIMITS)
    except TailraceError:
        return
    assert all(record.timestamp >= oldest for record in decoded if record.timestamp != NO_TIMESTAMP)


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
