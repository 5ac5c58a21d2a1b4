"""A batch encoded the quick way is the one that the general encoder makes."""

from hypothesis import given
from hypothesis import strategies as st

from tailrace.model.record import Record
from tailrace.wire.records import encode_batch
from tailrace.wire.uniform_batch import encode_uniform_batch, encoded_headers

sizes = st.integers(0, 300) | st.sampled_from([8191, 8192, 20_000])
headers = st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=3)


@given(st.lists(st.tuples(sizes, sizes, headers), min_size=1, max_size=5), st.integers(0, 1 << 42))
def test_it_is_byte_for_byte_the_same(shapes: list[tuple[int, int, list[tuple[str, bytes | None]]]], timestamp: int) -> None:
    records = [Record(b"k" * key, b"v" * value, given, timestamp) for key, value, given in shapes]
    uniform = [(record.key or b"", record.value or b"", encoded_headers(record.headers)) for record in records]
    assert encode_uniform_batch(uniform, timestamp) == encode_batch(records)


def test_many_records_are_numbered_beyond_the_short_numbers() -> None:
    records = [Record(b"", b"", (), 5)] * 9000
    assert encode_uniform_batch([(b"", b"", b"\0")] * 9000, 5) == encode_batch(records)
