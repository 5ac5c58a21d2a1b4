"""Transactions of real clients on a real server."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.server import ServerProcess

SECONDS = 60.0
PARTITIONS = 3


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    folder = tmp_path_factory.mktemp("transactions")
    config = folder / "tailrace.toml"
    config.write_text("[broker]\ntransaction_interval_seconds = 1\n")
    with ServerProcess(folder / "data", "--config", str(config)) as running:
        yield running


@pytest.fixture
def topic(server: ServerProcess, request: pytest.FixtureRequest) -> str:
    return make_topic(server, request.node.name.replace("[", "-").replace("]", ""))


def make_topic(server: ServerProcess, name: str) -> str:
    admin = AdminClient({"bootstrap.servers": server.kafka})
    admin.create_topics([NewTopic(name, PARTITIONS)])[name].result(SECONDS)
    return name


def producer_of(server: ServerProcess, name: str, **settings: Any) -> Producer:
    producer = Producer({"bootstrap.servers": server.kafka, "transactional.id": name, **settings})
    producer.init_transactions(SECONDS)
    return producer


def consumer_of(server: ServerProcess, topic: str, group: str = "reader", **settings: Any) -> Consumer:
    consumer = Consumer(
        {
            "bootstrap.servers": server.kafka,
            "group.id": group,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            **settings,
        }
    )
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
    return consumer


def read_all(server: ServerProcess, topic: str, isolation: str = "read_committed") -> list[str]:
    """Return all values of each partition, as a client sees them now."""
    consumer = consumer_of(server, topic, **{"isolation.level": isolation})
    try:
        return sorted(_until_ends(consumer))
    finally:
        consumer.close()


def _until_ends(consumer: Consumer) -> Iterator[str]:
    ended = 0
    while ended < PARTITIONS:
        message = consumer.poll(SECONDS)
        assert message is not None, "the end of a partition was not reached in time"
        error = message.error()
        if error is None:
            yield message.value().decode()
        else:
            assert error.code() == KafkaError._PARTITION_EOF, error
            ended += 1


def send(producer: Producer, topic: str, values: Sequence[str]) -> None:
    for number, value in enumerate(values):
        producer.produce(topic, value, partition=number % PARTITIONS)


def test_a_committed_transaction_is_seen_whole_and_an_aborted_one_not_at_all(server: ServerProcess, topic: str) -> None:
    producer = producer_of(server, topic)
    first, second, third = ([f"{name}{number}" for number in range(10)] for name in "abc")
    producer.begin_transaction()
    send(producer, topic, first)
    assert producer.flush(SECONDS) == 0
    assert read_all(server, topic) == []
    assert read_all(server, topic, "read_uncommitted") == first
    producer.commit_transaction(SECONDS)
    assert read_all(server, topic) == first
    producer.begin_transaction()
    send(producer, topic, second)
    assert producer.flush(SECONDS) == 0
    producer.abort_transaction(SECONDS)
    producer.begin_transaction()
    send(producer, topic, third)
    producer.commit_transaction(SECONDS)
    assert read_all(server, topic) == sorted(first + third)
    assert read_all(server, topic, "read_uncommitted") == sorted(first + second + third)


def test_a_new_producer_fences_the_old_one(server: ServerProcess, topic: str) -> None:
    old = producer_of(server, topic)
    old.begin_transaction()
    send(old, topic, ["left"] * 3)
    assert old.flush(SECONDS) == 0
    new = producer_of(server, topic)
    new.begin_transaction()
    send(new, topic, ["new"] * 3)
    new.commit_transaction(SECONDS)
    with pytest.raises(KafkaException) as refused:
        old.commit_transaction(SECONDS)
    assert refused.value.args[0].code() in (KafkaError._FENCED, KafkaError.PRODUCER_FENCED)
    assert refused.value.args[0].fatal()
    assert read_all(server, topic) == ["new"] * 3


def test_a_transaction_that_takes_too_long_is_aborted(server: ServerProcess, topic: str) -> None:
    slow = producer_of(server, topic, **{"transaction.timeout.ms": 1000})
    slow.begin_transaction()
    send(slow, topic, ["slow"] * 3)
    assert slow.flush(SECONDS) == 0
    quick = producer_of(server, topic + "-quick")
    quick.begin_transaction()
    send(quick, topic, ["quick"] * 3)
    quick.commit_transaction(SECONDS)
    consumer = consumer_of(server, topic)
    try:
        seen: list[str] = []
        while len(seen) < 3:
            message = consumer.poll(SECONDS)
            assert message is not None, "what comes after the open transaction was never shown"
            if message.error() is None:
                seen.append(message.value().decode())
    finally:
        consumer.close()
    assert seen == ["quick"] * 3
    with pytest.raises(KafkaException):
        slow.commit_transaction(SECONDS)
    assert read_all(server, topic) == ["quick"] * 3


def test_consume_process_produce_moves_offsets_and_output_together(server: ServerProcess, topic: str) -> None:
    output = make_topic(server, topic + "-output")
    plain = Producer({"bootstrap.servers": server.kafka})
    inputs = [f"{number:03}" for number in range(60)]
    send(plain, topic, inputs)
    assert plain.flush(SECONDS) == 0
    done: list[str] = []
    for attempt in range(20):
        if len(done) == len(inputs):
            break
        # Every second worker dies before its commit; the next one starts where the last commit was.
        done += _work(server, topic, output, f"{topic}-worker", lives=attempt % 2 == 1)
    assert sorted(done) == inputs
    assert read_all(server, output) == [f"done {value}" for value in inputs]


def _work(server: ServerProcess, topic: str, output: str, name: str, lives: bool) -> list[str]:
    """Process up to 20 records in one transaction and return them. Without `lives`, the worker dies before the commit."""
    producer = producer_of(server, name)
    consumer = consumer_of(server, topic, group=name)
    consumer.unassign()
    consumer.subscribe([topic])
    taken: list[str] = []
    try:
        producer.begin_transaction()
        while len(taken) < 20:
            message = consumer.poll(SECONDS if not taken else 5)
            if message is None:
                break
            if message.error() is None:
                taken.append(message.value().decode())
                producer.produce(output, f"done {taken[-1]}", partition=message.partition())
        producer.send_offsets_to_transaction(
            consumer.position(consumer.assignment()), consumer.consumer_group_metadata(), SECONDS
        )
        if not lives:
            assert producer.flush(SECONDS) == 0
            return []
        producer.commit_transaction(SECONDS)
        return taken
    finally:
        consumer.close()


@pytest.mark.parametrize("committed", [True, False])
def test_a_transaction_continues_after_the_server_was_killed_in_the_middle_of_it(tmp_path: Path, committed: bool) -> None:
    with ServerProcess(tmp_path / "data") as server:
        topic = make_topic(server, "t")
        server.flags = (*server.flags, "--kafka", server.kafka)
        producer = producer_of(server, "tx")
        producer.begin_transaction()
        send(producer, topic, ["before"] * 3)
        assert producer.flush(SECONDS) == 0
        server.kill()
        server.start()
        assert read_all(server, topic) == []
        send(producer, topic, ["after"] * 3)
        if committed:
            producer.commit_transaction(SECONDS)
            assert read_all(server, topic) == ["after"] * 3 + ["before"] * 3
        else:
            producer.abort_transaction(SECONDS)
            assert read_all(server, topic) == []
        server.kill()
        server.start()
        assert len(read_all(server, topic)) == (6 if committed else 0)


def test_a_server_killed_at_any_time_leaves_each_transaction_whole(tmp_path: Path) -> None:
    """Producers write in a loop while the server is killed repeatedly."""
    with ServerProcess(tmp_path / "data") as server:
        topic = make_topic(server, "t")
        server.flags = (*server.flags, "--kafka", server.kafka)
        committed: set[str] = set()
        for life in range(4):
            producer = producer_of(server, "tx")
            for number in range(5 * life + 3):
                name = f"{life}.{number}"
                producer.begin_transaction()
                send(producer, topic, [name] * PARTITIONS)
                producer.commit_transaction(SECONDS)
                committed.add(name)
            producer.begin_transaction()
            send(producer, topic, [f"{life}.open"] * PARTITIONS)
            producer.poll(0)
            server.kill()
            server.start()
        seen = read_all(server, topic)
        assert sorted(seen) == sorted([name for name in committed for _ in range(PARTITIONS)])
