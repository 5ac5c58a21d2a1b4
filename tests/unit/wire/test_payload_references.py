"""Batches that refer to a payload become the batches that they stand for."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.model.errors import CorruptBatchError
from tailrace.model.limits import DEFAULT_LIMITS
from tailrace.model.record import Record, reference_to
from tailrace.wire.batch import REFERENCE_MASK, check_batch, read_header, with_attributes, with_base_offset
from tailrace.wire.payload_references import (
    encode_payload_reference,
    expand_payload,
    expanded_size,
    is_payload_reference,
    read_payload_reference,
)
from tailrace.wire.records import decode_batch, encode_batch

CONTENT = bytes(range(256)) * 500

records = st.builds(
    Record,
    key=st.none() | st.binary(max_size=200),
    value=st.just(CONTENT),
    headers=st.lists(st.tuples(st.text(max_size=20), st.none() | st.binary(max_size=200)), max_size=4),
    timestamp=st.integers(0, 1 << 45),
)


@given(record=records, offset=st.integers(0, 1 << 60))
def test_an_expanded_batch_is_the_one_that_would_have_been_stored_with_the_value(record: Record, offset: int) -> None:
    stored = with_base_offset(encode_payload_reference(record, reference_to(CONTENT)), offset)
    check_batch(stored)
    inline = with_base_offset(encode_batch([record]), offset)
    assert bytes(expand_payload(stored, CONTENT, DEFAULT_LIMITS)) == bytes(inline)
    assert is_payload_reference(stored)
    assert not is_payload_reference(inline)
    assert len(inline) <= expanded_size(stored, reference_to(CONTENT)) <= len(inline) + 16


def test_a_reference_is_small_and_says_what_it_refers_to() -> None:
    stored = encode_payload_reference(Record(b"k", CONTENT), reference_to(CONTENT))
    assert len(stored) < 200
    assert read_payload_reference(stored, DEFAULT_LIMITS) == reference_to(CONTENT)


def test_the_append_time_is_kept() -> None:
    stored = encode_payload_reference(Record(None, CONTENT, timestamp=5), reference_to(CONTENT), append_time=7_000)
    expanded = expand_payload(stored, CONTENT, DEFAULT_LIMITS)
    assert [record.timestamp for record in decode_batch(expanded, DEFAULT_LIMITS)] == [7_000]
    assert read_header(expanded).max_timestamp == 7_000
    check_batch(expanded)


@pytest.mark.parametrize("value", [None, b"", b"no reference", b"\2" + bytes(40)])
def test_a_value_that_is_no_reference_is_corruption(value: bytes | None) -> None:
    batch = with_attributes(encode_batch([Record(None, value, timestamp=1)]), REFERENCE_MASK)
    with pytest.raises(CorruptBatchError, match="is not a reference to a payload"):
        read_payload_reference(batch, DEFAULT_LIMITS)


def test_a_batch_with_a_reference_has_one_record() -> None:
    batch = with_attributes(encode_batch([Record(None, b"a", timestamp=1)] * 2), REFERENCE_MASK)
    with pytest.raises(CorruptBatchError, match="has 1 record"):
        read_payload_reference(batch, DEFAULT_LIMITS)
