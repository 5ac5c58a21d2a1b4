import pytest

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
