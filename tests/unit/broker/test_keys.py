from tailrace.broker import keys
from tailrace.model.ids import PartitionId, ProducerId, TopicId

TOPIC = TopicId(7)


def test_offset_keys_are_read_back() -> None:
    for group in ("g", "группа", "a/b", "with\0null"):
        partition = PartitionId(TOPIC, 300)
        assert keys.read_offset_key(keys.offset_key(partition, group)) == (partition, group)


def test_no_group_begins_like_another() -> None:
    short = keys.offsets_of_group(TOPIC, "a")
    for other in ("ab", "a\0", "a\0\0\0\0"):
        assert not keys.offset_key(PartitionId(TOPIC, 0), other).startswith(short)


def test_partitions_of_a_group_come_out_in_order() -> None:
    numbers = [0, 1, 2, 255, 256, 9_999]
    made = [keys.offset_key(PartitionId(TOPIC, number), "g") for number in numbers]
    assert made == sorted(made)


def test_what_belongs_to_a_topic_begins_with_its_prefix_and_that_of_no_other() -> None:
    partition = PartitionId(TOPIC, 1)
    for prefix_of, key in (
        (keys.offsets_of_topic, keys.offset_key(partition, "g")),
        (keys.producers_of_topic, keys.producer_key(partition, 5)),
        (keys.dedup_of_topic, keys.dedup_entry_key(TOPIC, b"f" * 16)),
        (keys.dedup_of_topic, keys.dedup_expiry_key(TOPIC, 10, b"f" * 16)),
        (keys.dedup_of_topic, keys.dedup_count_key(TOPIC)),
    ):
        assert key.startswith(prefix_of(TOPIC))
        assert not any(key.startswith(prefix_of(TopicId(other))) for other in range(300) if other != TOPIC)


def test_producer_keys_are_read_back() -> None:
    key = keys.producer_key(PartitionId(TOPIC, 2), 1 << 40)
    assert key.startswith(keys.producers_of_partition(PartitionId(TOPIC, 2)))
    assert keys.read_producer_key(key) == (PartitionId(TOPIC, 2), ProducerId(1 << 40))


def test_expiries_come_out_oldest_first() -> None:
    fingerprint = bytes(16)
    made = [keys.dedup_expiry_key(TOPIC, at, fingerprint) for at in (1, 255, 256, 1_700_000_000_000)]
    assert made == sorted(made)
    assert [keys.fingerprint_of_expiry(TOPIC, key) for key in made] == [fingerprint] * 4


def test_the_expiry_bound_is_above_what_expires_then_and_below_what_expires_later() -> None:
    bound = keys.dedup_expiries(TOPIC) + keys.expiry_bound(500)
    assert keys.dedup_expiry_key(TOPIC, 500, b"\xff" * 16) < bound <= keys.dedup_expiry_key(TOPIC, 501, bytes(16))
