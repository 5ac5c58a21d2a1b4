"""Partitions are chosen as Kafka's clients choose them, by the general and by the fast path."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.wire.encoding_kernels import load_fast_partitioner
from tailrace.wire.partitioner import murmur2, partition_for_key


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_the_hash_is_that_of_kafkas_java_client(key: bytes, expected: int) -> None:
    assert murmur2(key) == expected


@pytest.mark.parametrize(("key", "partitions", "expected"), [(b"21", 10, 0), (b"foobar", 1000, 166), (b"abc", 7, 4)])
def test_the_partition_is_the_positive_hash_modulo_the_count(key: bytes, partitions: int, expected: int) -> None:
    assert partition_for_key(key, partitions) == expected


def test_keys_of_every_length_are_taken() -> None:
    assert {partition_for_key(b"k" * length, 5) for length in range(64)} == set(range(5))


@given(st.lists(st.none() | st.binary(max_size=20), min_size=1), st.integers(1, 40))
def test_the_fast_path_chooses_the_same_partitions(keys: list[bytes | None], partitions: int) -> None:
    wanted = [-1 if key is None else partition_for_key(key, partitions) for key in keys]
    partitions_of = load_fast_partitioner()
    assert partitions_of(pa.array(keys, pa.binary()), partitions).tolist() == wanted
