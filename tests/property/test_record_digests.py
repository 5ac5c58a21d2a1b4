"""Digests tell apart what records say, and nothing else; machine code and Python tell apart the same."""

from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.model.errors import CorruptBatchError
from tailrace.model.limits import DEFAULT_LIMITS
from tailrace.model.record import Record
from tailrace.wire.batch import HEADER_BYTES, read_header, with_base_offset
from tailrace.wire.fast_record_digests import CompiledDigester, compile_digester, load_digester
from tailrace.wire.record_digests import HAS_KEY, HAS_VALUE, Digester, PlainDigester, RecordDigests
from tailrace.wire.records import encode_batch, record_bytes

texts = st.none() | st.sampled_from([b"", b"a", b"b", b"long enough for two rounds"])
drawn = st.lists(
    st.tuples(texts, texts, st.sampled_from([(), (("h", b"1"),), (("h", None),)]), st.integers(0, 2)), min_size=1, max_size=12
)
Fields = list[tuple[bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...], int]]


@pytest.fixture(scope="module")
def compiled() -> CompiledDigester:
    return load_digester() or compile_digester()


def digest(digester: Digester, fields: Fields, base_offset: int = 0, append_time: int | None = None) -> RecordDigests:
    records = [Record(key, value, headers, time) for key, value, headers, time in fields]
    batch = bytes(with_base_offset(encode_batch(records, append_time=append_time), base_offset))
    header = read_header(batch)
    return digester(header, record_bytes(batch, header, DEFAULT_LIMITS))


@given(fields=drawn, base_offset=st.integers(0, 1 << 40))
@settings(max_examples=200, deadline=None)
def test_records_have_the_same_digest_if_they_say_the_same(
    compiled: CompiledDigester, fields: Fields, base_offset: int
) -> None:
    for digester in (compiled, PlainDigester()):
        rows = digest(digester, fields, base_offset)
        assert list(rows["offset"]) == list(range(base_offset, base_offset + len(fields)))
        for field, row in zip(fields, rows, strict=True):
            key, value = field[:2]
            assert row["kind"] == (HAS_KEY if key is not None else 0) | (HAS_VALUE if value is not None else 0)
            for other, another in zip(fields, rows, strict=True):
                assert (row["digest"] == another["digest"]) == (field == other)
                assert (row["key"] == another["key"]) == (key == other[0])


@given(fields=drawn)
@settings(max_examples=50, deadline=None)
def test_a_digest_does_not_depend_on_the_batch(compiled: CompiledDigester, fields: Fields) -> None:
    for digester in (compiled, PlainDigester()):
        alone = [digest(digester, [field], 7)["digest"][0] for field in fields]
        assert list(digest(digester, fields)["digest"]) == alone


def test_the_time_of_the_append_is_the_time_of_all_records(compiled: CompiledDigester) -> None:
    fields: Fields = [(b"k", b"v", (), 1), (b"k", b"v", (), 2)]
    for digester in (compiled, PlainDigester()):
        first, second = digest(digester, fields, append_time=9)["digest"]
        assert first == second == digest(digester, [(b"k", b"v", (), 9)])["digest"][0]


@given(body=st.binary(max_size=60), count=st.integers(1, 4))
@settings(max_examples=300, deadline=None)
def test_no_bytes_crash_it(compiled: CompiledDigester, body: bytes, count: int) -> None:
    header = read_header(bytes(with_base_offset(encode_batch([Record(b"k", b"v")] * count), 0))[:HEADER_BYTES])
    for digester in (compiled, PlainDigester()):
        with suppress(CorruptBatchError):
            assert len(digester(header, body)) == count
