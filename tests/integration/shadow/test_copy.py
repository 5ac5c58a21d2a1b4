"""Topics are copied record by record, whatever they hold, and followed as they change."""

import time

import pytest
from confluent_kafka import Producer

from tests.support.copied_topics import ClusterView
from tests.support.eventually import eventually
from tests.support.patience import PATIENCE_SECONDS
from tests.support.shadow_pair import TestedShadow

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def test_records_keep_everything(shadow: TestedShadow) -> None:
    topic = shadow.topic()
    shadow.origin.create(topic, 3)
    for codec in CODECS:
        producer = shadow.origin.producer(**{"compression.codec": codec, "linger.ms": 20})
        for number in range(200):
            producer.produce(topic, b"value %d" % number, b"key %d" % number, number % 3, timestamp=1_700_000_000_000 + number)
        for key, value in (
            (None, None),
            (b"", b""),
            (None, b""),
            (b"", None),
            (b"tombstone", None),
            (b"\xff\0", b"\xfe" * 40_000),
        ):
            producer.produce(topic, value, key, 1, timestamp=5)
        producer.produce(topic, b"h", b"h", 2, headers=[("a", b"1"), ("a", None), ("b", b""), ("ü", "ß".encode())])
        assert producer.flush(PATIENCE_SECONDS) == 0
    shadow.create()
    shadow.await_equal()
    # Now as they come.
    shadow.origin.send(topic, [(b"k", b"live"), (None, b"live too"), (b"k", None)], 2)
    shadow.await_equal()
    assert "differs" not in shadow.command("verify")


def test_records_of_one_by_one_are_joined_and_stay_in_order(outward: TestedShadow) -> None:
    topic = outward.topic()
    outward.origin.create(topic)
    producer = outward.origin.producer(**{"batch.num.messages": 1})
    for number in range(3_000):
        producer.produce(topic, b"%d" % number, b"%d" % (number % 5), 0)
    assert producer.flush(PATIENCE_SECONDS) == 0
    outward.create()
    outward.await_equal()
    assert outward.target.values(topic) == [[b"%d" % number for number in range(3_000)]]


def test_aborted_transactions_are_not_copied_and_open_ones_wait(outward: TestedShadow) -> None:
    topic = outward.topic()
    outward.origin.create(topic, 2)
    outward.create()
    producer = outward.origin.producer(**{"transactional.id": topic})
    producer.init_transactions()
    for number in range(20):
        producer.begin_transaction()
        for partition in range(2):
            producer.produce(topic, b"%d" % number, b"k", partition)
        if number % 3 == 1:
            producer.abort_transaction()
        else:
            producer.commit_transaction()
    outward.await_equal()
    producer.begin_transaction()
    producer.produce(topic, b"open", b"k", 0)
    assert producer.flush(PATIENCE_SECONDS) == 0
    outward.origin.send(topic, [(b"k", b"behind")], 0)
    outward.origin.send(topic, [(b"k", b"elsewhere")], 1)
    eventually(lambda: outward.target.values(topic)[1][-1] == b"elsewhere", "the record of the other partition")
    assert outward.target.values(topic)[0][-1] == b"18"
    producer.commit_transaction()
    outward.await_equal()
    assert outward.target.values(topic)[0][-2:] == [b"open", b"behind"]


def test_topics_and_partitions_that_come_later_are_copied(shadow: TestedShadow) -> None:
    shadow.create()
    topic = shadow.topic("later")
    shadow.origin.create(topic, 1)
    shadow.origin.numbers(topic, 0, 10)
    shadow.await_equal("later")
    shadow.origin.add_partitions(topic, 3)
    for partition in range(3):
        shadow.origin.numbers(topic, 100, 10, partition)
    shadow.await_equal("later")
    assert shadow.target.topics()[topic] == 3


def test_only_topics_that_match_are_copied(outward: TestedShadow) -> None:
    for name in ("a", "b.c", "b.d"):
        outward.origin.create(outward.topic(name))
        outward.origin.numbers(outward.topic(name), 0, 3)
    outward.create(topics=f"{outward.topic('a')}, {outward.topic('b.*')}")
    for name in ("a", "b.c", "b.d"):
        outward.await_equal(name)
    outward.alter(f"SET (topics = '{outward.topic('b.c')}')")
    eventually(lambda: outward.copied_topics() == {outward.topic("b.c")}, "one topic")
    outward.origin.numbers(outward.topic("a"), 3, 3)
    outward.origin.numbers(outward.topic("b.c"), 3, 3)
    outward.await_equal("b.c")
    assert len(outward.target.values(outward.topic("a"))[0]) == 3


def test_what_decides_which_records_are_kept_is_taken_over(outward: TestedShadow) -> None:
    topic = outward.topic()
    outward.origin.create(topic, retention_ms="123456000", cleanup_policy="compact", compression_type="zstd")
    outward.origin.numbers(topic, 0, 5)
    outward.create()
    outward.await_equal()
    configs = configs_of(outward, topic)
    assert configs["retention.ms"] == "123456000"
    assert configs["cleanup.policy"] == "compact"
    assert configs["compression.type"] == "zstd"
    assert configs["message.timestamp.type"] == "CreateTime"


def latest(view: ClusterView, topic: str) -> dict[bytes, bytes]:
    """Return the last value of each key that has one."""
    found = {record.key: record.value for record in view.contents(topic)[0]}
    return {key: value for key, value in found.items() if key is not None and value is not None}


def test_a_compacted_topic_has_the_last_record_of_each_key(outward: TestedShadow) -> None:
    topic = outward.topic()
    outward.origin.create(topic, cleanup_policy="compact", min_cleanable_dirty_ratio="0.01")
    outward.origin.send(topic, [(b"k%d" % (number % 40), b"%d" % number) for number in range(2_000)])
    outward.origin.send(topic, [(b"k%d" % number, None) for number in range(10)])
    outward.origin.send(topic, [(b"k%d" % (number % 40), b"more %d" % number) for number in range(30, 40)])
    # So that batches with gaps are copied.
    eventually(lambda: len(outward.origin.contents(topic)[0]) < 1_000, "a compaction")
    outward.create()
    eventually(lambda: outward.row().lag == 0, "the copy")
    assert latest(outward.target, topic) == latest(outward.origin, topic)
    assert len(latest(outward.target, topic)) == 30
    assert "equal by key" in outward.command("verify")
    outward.origin.send(topic, [(b"k%d" % (number % 40), b"later %d" % number) for number in range(200)])
    outward.command("verify")
    # What is not the origin's is found by its key too.
    outward.target.send(topic, [(b"k20", b"somebody else's")])
    outward.origin.send(topic, [(b"k21", b"behind it")])
    eventually(lambda: latest(outward.target, topic)[b"k21"] == b"behind it", "the last record")
    assert "somebody else's" in outward.command("verify", code=1)


def test_append_times_are_kept(outward: TestedShadow) -> None:
    topic = outward.topic()
    outward.origin.create(topic, message_timestamp_type="LogAppendTime")
    producer = outward.origin.producer()
    before_ms = time.time() * 1000 - 5_000
    producer.produce(topic, b"v", b"k", 0, timestamp=5)
    assert producer.flush(PATIENCE_SECONDS) == 0
    outward.create()
    outward.await_equal()
    ((record,),) = outward.target.contents(topic)
    assert record.timestamp > before_ms
    assert "stores append times" in str(outward.row().notes)


def test_a_record_is_there_within_a_second(outward: TestedShadow) -> None:
    topic = outward.topic()
    outward.origin.create(topic)
    outward.create()
    outward.origin.numbers(topic, 0, 1)
    outward.await_equal()
    delays = []
    for number in range(1, 21):
        began = time.monotonic()
        outward.origin.numbers(topic, number, 1)
        outward.target.await_value(topic, b"%d" % number)
        delays.append(time.monotonic() - began)
    assert sorted(delays)[len(delays) // 2] < 1.0


def test_the_throttle_bounds_what_is_copied_and_can_be_lifted(outward: TestedShadow) -> None:
    topic = outward.topic()
    outward.origin.create(topic)
    outward.origin.send(topic, [(b"k", b"v" * 10_000) for _ in range(400)])
    began = time.monotonic()
    outward.create(awaits="back-filling", throttle="500 KB")
    eventually(lambda: outward.row().records > 100, "some records")
    assert outward.row().records < 400
    assert outward.row().records * 10_000 < 500_000 * (time.monotonic() - began) + 2_000_000
    outward.alter("SET (throttle = NULL)")
    outward.await_equal()


def test_a_paused_shadow_copies_nothing_until_it_goes_on(outward: TestedShadow) -> None:
    topic = outward.topic()
    outward.origin.create(topic)
    outward.origin.numbers(topic, 0, 5)
    outward.create()
    outward.await_equal()
    outward.alter("PAUSE")
    eventually(lambda: not outward.processes(), "the end of the process")
    outward.origin.numbers(topic, 5, 5)
    assert len(outward.target.values(topic)[0]) == 5
    outward.alter("RESUME")
    outward.await_equal()


def test_two_shadows_copy_different_topics_at_once(outward: TestedShadow) -> None:
    other = outward.pair.shadow("to")
    try:
        for each in (outward, other):
            each.origin.create(each.topic())
            each.origin.numbers(each.topic(), 0, 100)
            each.create()
        for each in (outward, other):
            each.await_equal()
    finally:
        other.drop()


def configs_of(shadow: TestedShadow, topic: str) -> dict[str, str]:
    from confluent_kafka.admin import AdminClient, ConfigResource

    admin = AdminClient({"bootstrap.servers": shadow.target.address})
    (found,) = admin.describe_configs([ConfigResource(ConfigResource.Type.TOPIC, topic)]).values()
    return {name: entry.value for name, entry in found.result(PATIENCE_SECONDS).items()}


@pytest.mark.parametrize("partitions", [40])
def test_many_partitions_are_copied_at_once(outward: TestedShadow, partitions: int) -> None:
    topic = outward.topic()
    outward.origin.create(topic, partitions)
    producer: Producer = outward.origin.producer()
    for number in range(8_000):
        producer.produce(topic, b"%d" % number, b"k", number % partitions)
    assert producer.flush(PATIENCE_SECONDS) == 0
    outward.create()
    outward.await_equal()
