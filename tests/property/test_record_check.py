"""A batch of a producer is either rejected, or decoded by readers to exactly the records that it claims to hold."""

from struct import pack_into

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.model.errors import TailraceError
from tailrace.model.limits import DEFAULT_LIMITS
from tailrace.model.record import NO_TIMESTAMP, Record
from tailrace.wire.batch import CHECKED_FROM, HEADER_BYTES, check_batch
from tailrace.wire.compression import Compression
from tailrace.wire.fast_record_check import CompiledScan, compile_scan, load_scan
from tailrace.wire.record_check import check_records, plain_scan
from tailrace.wire.records import decode_batch, encode_batch
from tests.support.broken_batches import BROKEN, CASES

some_bytes = st.none() | st.binary(max_size=200)
names = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
records = st.builds(
    Record,
    key=some_bytes,
    value=some_bytes,
    headers=st.lists(st.tuples(names, some_bytes), max_size=4),
    timestamp=st.integers(-1, 100) | st.integers(0, 1 << 42),
)
codecs = st.sampled_from(list(Compression))
MOST_BYTES = DEFAULT_LIMITS.decompressed_batch_bytes


@pytest.fixture(scope="module")
def compiled() -> CompiledScan:
    return load_scan() or compile_scan()


def sealed(batch: bytearray) -> bytearray:
    """Return the batch with the length and checksum of its present bytes."""
    pack_into(">i", batch, 8, len(batch) - 12)
    pack_into(">I", batch, 17, crc32c(batch[CHECKED_FROM:]))
    return batch


@given(st.lists(records, min_size=1, max_size=20), codecs)
def test_good_batches_are_taken(compiled: CompiledScan, sent: list[Record], codec: Compression) -> None:
    batch = encode_batch(sent, codec=codec)
    times = [record.timestamp for record in sent]
    assert check_records(batch, check_batch(batch), MOST_BYTES, compiled) == span_of(times)
    assert check_records(batch, check_batch(batch), MOST_BYTES, plain_scan) == span_of(times)


@settings(max_examples=1_000)
@given(st.lists(records, min_size=1, max_size=5), codecs, st.data())
def test_what_is_taken_can_be_decoded(
    compiled: CompiledScan, sent: list[Record], codec: Compression, data: st.DataObject
) -> None:
    batch = encode_batch(sent, codec=codec)
    for _ in range(data.draw(st.integers(1, 3), "changes")):
        # Most mutations are inside the records, some in the counts and times of the head.
        place = data.draw(st.integers(CHECKED_FROM, len(batch) - 1) | st.integers(HEADER_BYTES, len(batch) - 1), "place")
        batch[place] = data.draw(st.integers(0, 255) | st.sampled_from([0, 1, 127, 128, 255]), "byte")
    if data.draw(st.booleans(), "is cut"):
        del batch[data.draw(st.integers(HEADER_BYTES, len(batch)), "cut") :]
    sealed(batch)
    assert outcome(batch, compiled) == outcome(batch, plain_scan)
    try:
        header = check_batch(batch)
        span = check_records(batch, header, MOST_BYTES, compiled)
    except TailraceError:
        return
    found = decode_batch(batch, DEFAULT_LIMITS)
    assert len(found) == header.records
    assert [record.offset - header.base_offset for record in found] == list(range(header.records))
    if not header.attributes & 0x08:
        assert span_of([record.timestamp for record in found]) == span


@given(st.binary(max_size=300), st.integers(-2, 50), st.integers(-(1 << 63), (1 << 63) - 1))
def test_both_walks_say_the_same_of_any_bytes(compiled: CompiledScan, data: bytes, count: int, base: int) -> None:
    assert compiled(data, 0, count, base)[:2] == plain_scan(data, 0, count, base)[:2]


@pytest.mark.parametrize(("kind", "codec"), CASES)
def test_both_walks_say_the_same_of_every_kind_that_is_broken(compiled: CompiledScan, kind: str, codec: int) -> None:
    batch = bytearray(BROKEN[kind].build(codec))
    assert outcome(batch, compiled) == outcome(batch, plain_scan)


def span_of(times: list[int]) -> tuple[int, int]:
    return min((time for time in times if time != NO_TIMESTAMP), default=(1 << 63) - 1), max(times)


def outcome(batch: bytearray, scan: object) -> object:
    try:
        return check_records(batch, check_batch(batch), MOST_BYTES, scan)  # type: ignore[arg-type]
    except TailraceError as error:
        return type(error), str(error)
