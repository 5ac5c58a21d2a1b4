"""Machine code and Python join records to the same batches, which say what the records said."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.model.errors import CorruptBatchError
from tailrace.model.limits import DEFAULT_LIMITS
from tailrace.model.record import Record
from tailrace.wire.batch import HEADER_BYTES, check_batch, read_header, with_base_offset
from tailrace.wire.compression import Compression
from tailrace.wire.fast_rebatching import CompiledJoiner, compile_joiner, load_joiner
from tailrace.wire.rebatching import PlainJoiner, RecordJoiner, RecordSpan, joined_batch
from tailrace.wire.records import decode_batch, encode_batch, record_bytes

headers = st.lists(st.tuples(st.text(max_size=3), st.none() | st.binary(max_size=3)), max_size=2)
times = st.integers(-(1 << 40), 1 << 62)
drawn_records = st.lists(
    st.tuples(st.none() | st.binary(max_size=9), st.none() | st.binary(max_size=200), headers, times), min_size=1, max_size=9
)
drawn_batches = st.lists(st.tuples(drawn_records, st.booleans(), st.integers(0, 3)), min_size=1, max_size=4)


Fields = tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]], int]
Drawn = list[tuple[list[Fields], bool, int]]
"""Batches: records, whether they have the time of their append, and how many at the beginning are left out."""


@pytest.fixture(scope="module")
def compiled() -> CompiledJoiner:
    return load_joiner() or compile_joiner()


def spans_of(drawn: Drawn) -> list[RecordSpan]:
    spans = []
    offset = 0
    for fields, has_append_time, skipped in drawn:
        records = [Record(key, value, tuple(named), time) for key, value, named, time in fields]
        encoded = encode_batch(records, append_time=12_345 if has_append_time else None)
        batch = bytes(with_base_offset(encoded, offset))
        header = read_header(batch)
        spans.append(RecordSpan(header, record_bytes(batch, header, DEFAULT_LIMITS), offset + skipped, header.end_offset))
        offset = header.end_offset
    return spans


@given(drawn=drawn_batches)
@settings(max_examples=300, deadline=None)
def test_both_join_the_same(compiled: CompiledJoiner, drawn: Drawn) -> None:
    spans = spans_of(drawn)
    ours, theirs = compiled(spans), PlainJoiner()(spans)
    assert (bytes(ours.body), *ours[1:]) == (bytes(theirs.body), *theirs[1:])


@given(drawn=drawn_batches, codec=st.sampled_from(list(Compression)))
@settings(max_examples=100, deadline=None)
def test_a_joined_batch_has_the_records_in_order(
    compiled: CompiledJoiner,
    drawn: Drawn,
    codec: Compression,
) -> None:
    wanted = []
    for fields, has_append_time, skipped in drawn:
        for key, value, named, time in fields[skipped:]:
            wanted.append((key, value, named, 12_345 if has_append_time else time))
    for join in (compiled, PlainJoiner()):
        batch, counts = joined_batch(spans_of(drawn), join, codec)
        assert list(counts) == [max(0, len(fields) - skipped) for fields, _, skipped in drawn]
        if wanted:
            assert check_batch(batch).codec == codec
            found = decode_batch(batch, DEFAULT_LIMITS)
            assert [(each.key, each.value, list(each.headers), each.timestamp) for each in found] == wanted
            assert [each.offset for each in found] == list(range(len(wanted)))
            assert read_header(batch).max_timestamp == max(time for *_, time in wanted)


@given(body=st.binary(max_size=60), count=st.integers(1, 4))
@settings(max_examples=300, deadline=None)
def test_no_bytes_crash_it(compiled: CompiledJoiner, body: bytes, count: int) -> None:
    header = read_header(bytes(with_base_offset(encode_batch([Record(b"k", b"v")] * count), 0))[:HEADER_BYTES])
    for join in (compiled, PlainJoiner()):
        assert_readable_or_corrupt(join, RecordSpan(header, body, 0, count))


def assert_readable_or_corrupt(join: RecordJoiner, span: RecordSpan) -> None:
    try:
        joined = join([span])
    except CorruptBatchError:
        return
    assert len(joined.body) <= len(span.data) + 18 * span.header.records
