"""A consumer that changes its address goes on with the next record."""

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.support.eventually import eventually
from tests.support.patience import PATIENCE_SECONDS
from tests.support.shadow_pair import TestedShadow

pytestmark = pytest.mark.long


def await_offset(shadow: TestedShadow, group: str, wanted: bytes | None, partition: int = 0) -> None:
    """Wait until a group finds a record with this value next in the target; `None` if it has read everything."""

    def is_there() -> bool:
        offset = shadow.target.committed(group, shadow.topic(), partition)
        return offset is not None and shadow.target.value_at(shadow.topic(), offset, partition) == wanted

    eventually(is_there, f"group {group} before {wanted!r}", 30)


def test_a_group_goes_on_in_the_target_where_it_was(shadow: TestedShadow) -> None:
    topic, group = shadow.topic(), shadow.group()
    shadow.origin.create(topic)
    shadow.origin.numbers(topic, 0, 100)
    assert shadow.origin.read(group, topic, 40) == [b"%d" % number for number in range(40)]
    shadow.create()
    shadow.await_equal()
    await_offset(shadow, group, b"40")
    assert shadow.target.read(group, topic, 60) == [b"%d" % number for number in range(40, 100)]


def test_offsets_follow_what_groups_read_and_never_step_back(outward: TestedShadow) -> None:
    topic, group = outward.topic(), outward.group()
    outward.origin.create(topic)
    outward.origin.numbers(topic, 0, 100)
    outward.create()
    outward.origin.commit(group, topic, 30)
    await_offset(outward, group, b"30")
    outward.origin.commit(group, topic, 70)
    await_offset(outward, group, b"70")
    outward.origin.commit(group, topic, 10)
    outward.origin.commit(outward.group("other"), topic, 50)
    await_offset(outward, outward.group("other"), b"50")
    await_offset(outward, group, b"70")
    outward.origin.numbers(topic, 100, 5)
    outward.origin.commit(group, topic, 105)
    await_offset(outward, group, None)
    outward.origin.numbers(topic, 105, 1)
    await_offset(outward, group, b"105")


def test_offsets_are_translated_between_transactions_and_gaps(outward: TestedShadow) -> None:
    """Offsets differ on both sides: of markers, of aborted records, and of transactions of the copy."""
    topic = outward.topic()
    outward.origin.create(topic)
    producer = outward.origin.producer(**{"transactional.id": topic})
    producer.init_transactions()
    places: dict[int, bytes] = {}
    for number in range(40):
        producer.begin_transaction()
        is_aborted = number % 4 == 3
        for at in range(3):
            producer.produce(topic, b"%d.%d" % (number, at), b"k", 0)
        if is_aborted:
            producer.abort_transaction()
        else:
            producer.commit_transaction()
            end = outward.origin.ends(topic)[0]
            places.update({end - 4 + at: b"%d.%d" % (number, at) for at in range(3)})
        if number == 20:
            outward.create()
            outward.await_equal()
    outward.await_equal()
    chosen = sorted(places)[:: len(places) // 12]
    for number, offset in enumerate(chosen):
        outward.origin.commit(outward.group(f"g{number}"), topic, offset)
    for number, offset in enumerate(chosen):
        await_offset(outward, outward.group(f"g{number}"), places[offset])


def test_offsets_are_translated_after_a_restart_too(outward: TestedShadow) -> None:
    """What the process knew of offsets is gone then, but for a few pairs."""
    topic = outward.topic()
    outward.origin.create(topic)
    outward.create(copied_by="command", awaits=None)
    with outward.run():
        for number in range(0, 600, 6):
            outward.origin.numbers(topic, number, 6)
        outward.await_equal()
    chosen = (0, 1, 77, 300, 512, 590, 599)
    for offset in chosen:
        outward.origin.commit(outward.group(f"g{offset}"), topic, offset)
    with outward.run():
        for offset in chosen:
            await_offset(outward, outward.group(f"g{offset}"), b"%d" % offset)


def test_a_group_with_members_in_the_target_is_left_alone_there(outward: TestedShadow) -> None:
    topic, group = outward.topic(), outward.group()
    outward.origin.create(topic)
    outward.origin.numbers(topic, 0, 10)
    outward.create()
    outward.await_equal()
    consumer = Consumer({"bootstrap.servers": outward.target.address, "group.id": group, "enable.auto.commit": False})
    consumer.subscribe([topic])
    try:
        eventually(lambda: consumer.poll(0.05) is not None or bool(consumer.assignment()), "an assignment")
        outward.origin.commit(group, topic, 5)
        outward.await_note("with members in the target keep their own offsets")
        assert consumer.committed([TopicPartition(topic, 0)], PATIENCE_SECONDS)[0].offset < 0
    finally:
        consumer.close()
    await_offset(outward, group, b"5")


def test_only_groups_that_match_are_followed(outward: TestedShadow) -> None:
    topic = outward.topic()
    outward.origin.create(topic)
    outward.origin.numbers(topic, 0, 10)
    outward.create(groups=f"{outward.group('a*')}, {outward.group('exactly')}")
    for name in ("a1", "b", "exactly", "exactly-not"):
        outward.origin.commit(outward.group(name), topic, 3)
    for name in ("a1", "exactly"):
        await_offset(outward, outward.group(name), b"3")
    assert outward.target.committed(outward.group("b"), topic) is None
    assert outward.target.committed(outward.group("exactly-not"), topic) is None


def test_a_group_in_a_compacted_topic_misses_nothing(outward: TestedShadow) -> None:
    topic, group = outward.topic(), outward.group()
    outward.origin.create(topic, cleanup_policy="compact")
    outward.origin.send(topic, [(b"k%d" % (number % 10), b"%d" % number) for number in range(200)])
    outward.create()
    outward.origin.commit(group, topic, 150)
    eventually(lambda: outward.target.committed(group, topic) is not None, "the group in the target")
    values = [b"%d" % number for number in range(200)]
    offset = outward.target.committed(group, topic)
    assert offset is not None
    found = outward.target.value_at(topic, offset)
    assert found in values[:151]
