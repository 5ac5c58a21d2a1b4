"""Whatever dies, and in whichever moment: each record is in the target once, in its place."""

import random
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

from tests.support.copied_topics import ClusterView
from tests.support.eventually import eventually
from tests.support.patience import PATIENCE_SECONDS
from tests.support.shadow_pair import ShadowPair, TestedShadow

pytestmark = pytest.mark.long

KILLS = 5
PARTITIONS = 3


@pytest.fixture
def by_command(pair: ShadowPair) -> Iterator[TestedShadow]:
    """A shadow to Kafka that is copied by processes of the test."""
    shadow = pair.shadow("to", copied_by="command")
    shadow.origin.create(shadow.topic(), PARTITIONS)
    shadow.create(awaits=None)
    yield shadow
    shadow.drop()


@contextmanager
def load(view: ClusterView, topic: str) -> Iterator[None]:
    """Produce while the block runs: plainly, and in transactions of which some are aborted."""
    stopping = threading.Event()
    failures: list[BaseException] = []

    def plain() -> None:
        producer = view.producer(**{"enable.idempotence": True, "linger.ms": 2})
        number = 0
        while not stopping.is_set():
            for _ in range(20):
                producer.produce(topic, b"plain %d" % number, b"%d" % (number % 50), number % PARTITIONS)
                number += 1
            producer.poll(0)
            stopping.wait(0.01)
        assert producer.flush(PATIENCE_SECONDS) == 0

    def transactional() -> None:
        chance = random.Random(4)
        number = 0
        while not stopping.is_set():
            producer = view.producer(**{"transactional.id": f"{topic}-load"})
            try:
                producer.init_transactions(PATIENCE_SECONDS)
                while not stopping.is_set():
                    number += 1
                    _transaction(producer, topic, number, is_aborted=chance.random() < 0.3)
            except KafkaException:
                continue  # the server was killed, and what was under way is aborted

    def run(work: "threading.Thread | object") -> None:
        try:
            work()  # type: ignore[operator]
        except BaseException as error:  # noqa: BLE001
            failures.append(error)

    threads = [threading.Thread(target=run, args=(work,)) for work in (plain, transactional)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stopping.set()
        for thread in threads:
            thread.join(2 * PATIENCE_SECONDS)
    assert not failures, failures


def _transaction(producer: Producer, topic: str, number: int, *, is_aborted: bool) -> None:
    producer.begin_transaction()
    for partition in range(PARTITIONS):
        producer.produce(topic, b"transaction %d" % number, b"t", partition)
    if is_aborted:
        producer.abort_transaction(PATIENCE_SECONDS)
    else:
        producer.commit_transaction(PATIENCE_SECONDS)


def test_a_copy_that_is_killed_at_any_time_goes_on_exactly_there(by_command: TestedShadow) -> None:
    chance = random.Random(1)
    with load(by_command.origin, by_command.topic()):
        for _ in range(KILLS):
            with by_command.run() as process:
                time.sleep(chance.uniform(0.7, 1.4))  # so that it dies somewhere in between
                process.signal(signal.SIGKILL)
    with by_command.run():
        by_command.await_equal()
    assert len(by_command.target.values(by_command.topic())[0]) > 100


def test_a_second_copy_fences_the_first(by_command: TestedShadow) -> None:
    with load(by_command.origin, by_command.topic()), by_command.run() as first:
        by_command.await_state("live")
        with by_command.run():
            code, said = first.wait()
            assert code == 1
            assert "is copied by" in said
            time.sleep(0.5)  # under load
    with by_command.run():
        by_command.await_equal()


def test_a_copy_that_was_frozen_can_write_no_more_when_it_wakes(by_command: TestedShadow) -> None:
    with load(by_command.origin, by_command.topic()), by_command.run() as first:
        by_command.await_state("live")
        first.signal(signal.SIGSTOP)
        with by_command.run():
            eventually(lambda: by_command.row().records > 0, "records that the second one has copied")
            first.signal(signal.SIGCONT)
            assert first.wait()[0] == 1
    with by_command.run():
        by_command.await_equal()


def test_the_target_is_killed(outward: TestedShadow) -> None:
    outward.origin.create(outward.topic(), PARTITIONS)
    outward.create()
    with load(outward.origin, outward.topic()):
        for _ in range(2):
            time.sleep(0.5)  # under load
            outward.pair.kafka.kill()
            outward.await_state("retrying", error="the Kafka at")
            outward.pair.kafka.start()
    outward.await_equal()
    outward.await_state("live")


def test_connections_to_the_target_break(outward: TestedShadow) -> None:
    outward.origin.create(outward.topic(), PARTITIONS)
    outward.create()
    with load(outward.origin, outward.topic()):
        for _ in range(6):
            time.sleep(0.4)  # under load
            outward.pair.network.reset_connections()
    outward.await_equal()


def test_the_server_is_killed(outward: TestedShadow) -> None:
    outward.origin.create(outward.topic(), PARTITIONS)
    outward.create()
    with load(outward.origin, outward.topic()):
        for _ in range(2):
            time.sleep(0.5)  # under load
            outward.pair.server.kill()
            outward.pair.server.start()
            outward.await_state("live")
    outward.await_equal()


def test_a_shadow_from_kafka_survives_the_end_of_both(inward: TestedShadow) -> None:
    inward.origin.create(inward.topic(), PARTITIONS)
    inward.create()
    with load(inward.origin, inward.topic()):
        time.sleep(0.5)  # under load
        inward.pair.kafka.kill()
        inward.await_state("retrying")
        inward.pair.kafka.start()
        inward.await_state("live")
        inward.pair.server.kill()
        inward.pair.server.start()
    inward.await_equal()


def test_a_position_that_was_deleted_is_found_again(by_command: TestedShadow) -> None:
    topic = by_command.topic()
    for partition in range(PARTITIONS):
        by_command.origin.numbers(topic, 0, 500 * partition, partition)
    with by_command.run():
        by_command.await_equal()
    by_command.target.delete_group(by_command.positions)
    by_command.origin.numbers(topic, 5_000, 10, 1)
    with by_command.run():
        by_command.await_note("its records there say that it is 500")
        by_command.await_equal()


def test_a_position_that_was_moved_back_copies_nothing_twice(by_command: TestedShadow) -> None:
    topic = by_command.topic()
    by_command.origin.numbers(topic, 0, 100)
    with by_command.run():
        by_command.await_equal()
    by_command.target.commit(by_command.positions, topic, 10)
    by_command.origin.numbers(topic, 100, 10)
    with by_command.run():
        by_command.await_equal()


def test_records_that_others_have_written_are_not_mixed_with_the_copy(outward: TestedShadow) -> None:
    for name in ("t", "other"):
        outward.origin.create(outward.topic(name))
        outward.origin.numbers(outward.topic(name), 0, 5)
    outward.target.create(outward.topic())
    outward.target.send(outward.topic(), [(b"k", b"somebody else's")])
    outward.create(awaits=None)
    row = outward.await_state("failed", error="is not one that would have been copied there")
    assert "Delete the topic in the target" in str(row.advice)
    outward.await_equal("other")
    assert outward.target.values(outward.topic()) == [[b"somebody else's"]]
    # What the advice says.
    outward.target.delete(outward.topic())
    outward.await_state("live")
    outward.await_equal()


def test_a_topic_that_has_the_first_records_already_is_copied_on(outward: TestedShadow) -> None:
    outward.origin.create(outward.topic())
    outward.origin.send(outward.topic(), [(b"k", b"%d" % number) for number in range(10)])
    outward.target.create(outward.topic())
    producer = outward.target.producer()
    for record in outward.origin.contents(outward.topic())[0][:4]:
        producer.produce(outward.topic(), record.value, record.key, 0, timestamp=record.timestamp)
    assert producer.flush(PATIENCE_SECONDS) == 0
    outward.create()
    outward.await_equal()


def test_a_topic_that_was_made_again_at_the_origin_is_not_mixed_with_the_old_one(outward: TestedShadow) -> None:
    topic = outward.topic()
    outward.origin.create(topic)
    outward.origin.numbers(topic, 0, 10)
    outward.create()
    outward.await_equal()
    outward.origin.delete(topic)
    outward.origin.create(topic)
    outward.origin.numbers(topic, 100, 5)
    outward.await_state("failed", error="was deleted at the origin and made again")
    assert len(outward.target.values(topic)[0]) == 10
    outward.target.delete(topic)
    outward.await_state("live")
    outward.await_equal()


def test_a_topic_that_was_deleted_in_the_target_is_copied_again(outward: TestedShadow) -> None:
    topic = outward.topic()
    outward.origin.create(topic)
    outward.origin.numbers(topic, 0, 10)
    outward.create()
    outward.await_equal()
    outward.target.delete(topic)
    eventually(lambda: topic in outward.target.topics(), "the topic in the target")
    outward.await_equal()


def test_records_that_are_lost_are_named_and_left_out_only_when_that_is_allowed(by_command: TestedShadow) -> None:
    topic = by_command.topic()
    by_command.origin.numbers(topic, 0, 100)
    with by_command.run():
        by_command.await_equal()
    by_command.origin.numbers(topic, 100, 100)
    by_command.origin.delete_before(topic, 0, 150)
    with by_command.run():
        row = by_command.await_state("failed", error="offsets 100 to 149 of partition 0")
        assert "SKIP LOST" in str(row.advice)
        by_command.origin.numbers(topic, 7, 3, 1)
        eventually(lambda: by_command.target.values(topic)[1] == [b"7", b"8", b"9"], "the records of another partition")
        assert len(by_command.target.values(topic)[0]) == 100
        by_command.alter("SKIP LOST")
        by_command.await_state("live")
        eventually(lambda: len(by_command.target.values(topic)[0]) == 150, "the rest")
    expected = [b"%d" % number for number in (*range(100), *range(150, 200))]
    assert by_command.target.values(topic)[0] == expected


def test_a_record_that_the_target_does_not_take_is_waited_for(outward: TestedShadow) -> None:
    topic = outward.topic()
    outward.origin.create(topic)
    outward.target.create(topic, max_message_bytes="2000")
    outward.origin.send(topic, [(b"k", b"small"), (b"k", b"x" * 5_000), (b"k", b"behind")])
    outward.create(awaits=None)
    row = outward.await_state("failed", error="the record at offset 1 takes 5")
    assert "Raise max.message.bytes" in str(row.advice)
    admin = AdminClient({"bootstrap.servers": outward.target.address})
    entry = ConfigEntry("max.message.bytes", "100000", incremental_operation=AlterConfigOpType.SET)
    (done,) = admin.incremental_alter_configs(
        [ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])]
    ).values()
    done.result(PATIENCE_SECONDS)
    outward.await_state("live")
    outward.await_equal()


def test_a_topic_whose_records_are_refused_stops_no_other(outward: TestedShadow) -> None:
    for name in ("t", "other"):
        outward.origin.create(outward.topic(name))
    # It takes only records with keys.
    outward.target.create(outward.topic(), cleanup_policy="compact")
    outward.create()
    outward.origin.send(outward.topic(), [(None, b"without a key")])
    row = outward.await_state("failed", error=f"partition 0 of topic '{outward.topic()}'")
    assert "takes only records with keys" in str(row.advice)
    for number in range(3):
        outward.origin.numbers(outward.topic("other"), number, 1)
        outward.await_equal("other")
    assert outward.target.values(outward.topic()) == [[]]


def test_a_target_that_can_not_be_reached_is_waited_for(outward: TestedShadow) -> None:
    topic = outward.topic()
    outward.origin.create(topic)
    outward.origin.numbers(topic, 0, 5)
    outward.pair.network.refuses = True
    try:
        outward.create(awaits=None, copied_by="command")
        with outward.run():
            row = outward.await_state("retrying", error="the Kafka at")
            assert "tried again by itself" in str(row.advice)
            outward.pair.network.refuses = False
            outward.await_state("live")
            outward.await_equal()
    finally:
        outward.pair.network.refuses = False


def test_a_target_that_is_silent_is_given_up_and_tried_again(outward: TestedShadow) -> None:
    topic = outward.topic()
    outward.origin.create(topic)
    outward.create(**{'"socket.timeout.ms"': "1000"})
    outward.pair.network.is_silent = True
    try:
        outward.origin.numbers(topic, 0, 5)
        outward.await_state("retrying", error="did not answer")
    finally:
        outward.pair.network.is_silent = False
        outward.pair.network.reset_connections()
    outward.await_equal()
