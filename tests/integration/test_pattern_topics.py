"""Kafka clients read patterns as topics of a real server: in order, once, from where they stopped, and within milliseconds."""

import asyncio
import statistics
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import aiokafka
import httpx
import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.integration.topics import create, publish
from tests.support.aio import on_loop
from tests.support.patience import PATIENCE_SECONDS
from tests.support.server import ServerProcess

QUIET = {"log_level": 0}


@pytest.fixture(scope="module")
def shared_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path_factory.mktemp("patterns") / "data") as running:
        yield running


@pytest.fixture
def server(shared_server: ServerProcess) -> Iterator[ServerProcess]:
    """Without topics: those of a test go with it. Cursors go on."""
    yield shared_server
    for topic in httpx.get(f"{shared_server.url}/api/topics", timeout=PATIENCE_SECONDS).json()["topics"]:
        httpx.delete(f"{shared_server.url}/api/topics/{topic['name']}", timeout=PATIENCE_SECONDS).raise_for_status()


@contextmanager
def producer(server: ServerProcess, **settings: Any) -> Iterator[Producer]:
    made = Producer({"bootstrap.servers": server.kafka, **QUIET, **settings})
    yield made
    assert made.flush(PATIENCE_SECONDS) == 0


@contextmanager
def consumer(server: ServerProcess, group: str = "none", **settings: Any) -> Iterator[Consumer]:
    made = Consumer(
        {
            "bootstrap.servers": server.kafka,
            "group.id": group,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            **QUIET,
            **settings,
        }
    )
    try:
        yield made
    finally:
        made.close()


def read(consumer: Consumer, count: int) -> list[Any]:
    found: list[Any] = []
    deadline = time.monotonic() + PATIENCE_SECONDS
    while len(found) < count:
        assert time.monotonic() < deadline, f"{len(found)} of {count} records came"
        for message in consumer.consume(count - len(found), 0.5):
            assert message.error() is None, message.error()
            found.append(message)
    return found


def read_from(server: ServerProcess, topic: str, count: int, offset: int = OFFSET_BEGINNING, **settings: Any) -> list[Any]:
    with consumer(server, **settings) as reader:
        reader.assign([TopicPartition(topic, 0, offset)])
        return read(reader, count)


def fill(server: ServerProcess, count: int, **settings: Any) -> list[bytes]:
    """Write to three topics in turn, each batch alone, and return the values in those two that match `orders.>`."""
    values = []
    with producer(server, **{"linger.ms": 0, **settings}) as writer:
        for number in range(count):
            topic = ("orders.eu", "orders.us", "other")[number % 3]
            value = b"%06d" % number
            writer.produce(topic, value, key=b"k%d" % (number % 50))
            if number % 20 == 19:
                assert writer.flush(PATIENCE_SECONDS) == 0
            if topic != "other":
                values.append(value)
    return values


@pytest.mark.parametrize("codec", ["none", "gzip", "zstd"])
def test_all_matching_records_come_in_the_order_of_their_cursors(server: ServerProcess, codec: str) -> None:
    for name in ("orders.eu", "orders.us", "other"):
        create(server.url, name)
    values = fill(server, 600, **{"compression.type": codec, "linger.ms": 2})
    found = read_from(server, "orders.>", len(values))
    assert sorted(message.value() for message in found) == sorted(values)
    offsets = [message.offset() for message in found]
    assert offsets == sorted(set(offsets))
    for name in ("orders.eu", "orders.us"):
        own = [message.value() for message in read_from(server, name, len(values) // 2)]
        assert [message.value() for message in found if message.value() in set(own)] == own
    middle = found[len(found) // 2].offset()
    again = read_from(server, "orders.>", len(found) - len(found) // 2, middle)
    assert [message.offset() for message in again] == offsets[len(found) // 2 :]


def test_a_group_resumes_where_it_stopped_also_after_a_restart_and_with_topics_created_meanwhile(tmp_path: Any) -> None:
    with ServerProcess(tmp_path / "data") as server:
        for name in ("orders.eu", "orders.us", "other"):
            create(server.url, name)
        values = fill(server, 90)
        with consumer(server, "billing") as reader:
            reader.subscribe(["orders.>"])
            first = read(reader, 25)
            reader.commit(message=first[-1], asynchronous=False)
        server.terminate()
        server.start()
        create(server.url, "orders.new")
        publish(server.url, "orders.new", "new")
        with consumer(server, "billing") as reader:
            reader.subscribe(["orders.>"])
            rest = read(reader, len(values) - 25 + 1)
            reader.commit(asynchronous=False)
        assert rest[-1].value() == b'"new"'
        assert sorted(message.value() for message in (*first, *rest[:-1])) == sorted(values)
        page = httpx.get(f"{server.url}/api/groups/billing/offsets", timeout=PATIENCE_SECONDS).json()
        assert [(each["topic_name"], each["lag"]) for each in page["offsets"]] == [("orders.>", 0)]
        body = {"sql": "SELECT topic, next_offset, lag FROM system.topic_offsets"}
        rows = httpx.post(f"{server.url}/api/sql", json=body, timeout=PATIENCE_SECONDS).json()
        assert rows["rows"] == [["orders.>", rest[-1].offset() + 1, 0]]


def test_partitions_of_a_pattern_share_the_records_by_key(server: ServerProcess) -> None:
    for name in ("orders.eu", "orders.us", "other"):
        create(server.url, name)
    values = fill(server, 900)
    with consumer(server, "four") as one, consumer(server, "four") as two:
        found: list[Any] = []
        for reader in (one, two):
            reader.subscribe(["orders.>@4"])
        deadline = time.monotonic() + PATIENCE_SECONDS
        while len(found) < len(values):
            assert time.monotonic() < deadline, f"{len(found)} of {len(values)} records came"
            for reader in (one, two):
                for message in reader.consume(100, 0.1):
                    assert message.error() is None, message.error()
                    found.append(message)
    assert sorted(message.value() for message in found) == sorted(values)
    assert {message.partition() for message in found} == {0, 1, 2, 3}
    by_key: dict[bytes, set[int]] = {}
    for message in found:
        by_key.setdefault(message.key(), set()).add(message.partition())
    assert all(len(partitions) == 1 for partitions in by_key.values())
    for partition in range(4):
        offsets = [message.offset() for message in found if message.partition() == partition]
        assert offsets == sorted(offsets)


@pytest.mark.parametrize("level", ["read_committed", "read_uncommitted"])
def test_aborted_records_are_left_out_and_open_ones_awaited(server: ServerProcess, level: str) -> None:
    create(server.url, "orders.eu")
    with producer(server, **{"transactional.id": f"tx-{level}"}) as writer:
        writer.init_transactions()
        for number in range(6):
            writer.begin_transaction()
            writer.produce("orders.eu", b"%d" % number)
            assert writer.flush(PATIENCE_SECONDS) == 0
            (writer.commit_transaction if number % 2 else writer.abort_transaction)()
        writer.begin_transaction()
        writer.produce("orders.eu", b"open")
        assert writer.flush(PATIENCE_SECONDS) == 0
        publish(server.url, "orders.eu", "after")
        with consumer(server, **{"isolation.level": level}) as reader:
            reader.assign([TopicPartition("orders.>", 0, OFFSET_BEGINNING)])
            assert [message.value() for message in read(reader, 3)] == [b"1", b"3", b"5"]
            assert reader.consume(1, 0.3) == []
            writer.commit_transaction()
            assert [message.value() for message in read(reader, 2)] == [b"open", b'"after"']


def test_large_values_come_whole_and_deleted_records_are_skipped(server: ServerProcess) -> None:
    for name in ("orders.eu", "orders.us"):
        create(server.url, name)
    large = "x" * 300_000
    publish(server.url, "orders.eu", large, "small")
    publish(server.url, "orders.us", "last")
    found = read_from(server, "orders.>", 3)
    assert [len(message.value()) for message in found] == [300_002, 7, 6]
    admin = AdminClient({"bootstrap.servers": server.kafka, **QUIET})
    for future in admin.delete_records([TopicPartition("orders.eu", 0, 1)]).values():
        future.result(PATIENCE_SECONDS)
    assert [message.value() for message in read_from(server, "orders.>", 2, found[0].offset())] == [b'"small"', b'"last"']
    with consumer(server) as reader:
        low, high = reader.get_watermark_offsets(TopicPartition("orders.>", 0), PATIENCE_SECONDS)
    assert (low, high) == (found[1].offset(), found[2].offset() + 1)


def test_the_end_is_reached_behind_records_of_other_topics(server: ServerProcess) -> None:
    for name in ("orders.eu", "other"):
        create(server.url, name)
    publish(server.url, "orders.eu", "a")
    publish(server.url, "other", *range(100))
    with consumer(server, "none", **{"enable.partition.eof": True}) as reader:
        partitions = [TopicPartition("orders.>@3", number, OFFSET_BEGINNING) for number in range(3)]
        reader.assign(partitions)
        ends: set[int] = set()
        values = []
        deadline = time.monotonic() + PATIENCE_SECONDS
        while len(ends) < 3:
            assert time.monotonic() < deadline
            message = reader.poll(0.5)
            if message is None:
                continue
            error = message.error()
            if error is None:
                values.append(message.value())
            else:
                assert error.code() == KafkaError._PARTITION_EOF
                ends.add(message.partition())
        assert values == [b'"a"']


@on_loop
async def test_other_clients_read_patterns(server: ServerProcess) -> None:
    for name in ("orders.eu", "orders.us", "other"):
        create(server.url, name)
    values = await asyncio.to_thread(fill, server, 300)
    for name in ("orders.>", "orders.>@3"):
        reader = aiokafka.AIOKafkaConsumer(
            name,
            bootstrap_servers=server.kafka,
            group_id=f"aiokafka-{name}",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        )
        await reader.start()
        try:
            found = [await asyncio.wait_for(reader.getone(), PATIENCE_SECONDS) for _ in values]
        finally:
            await reader.stop()
        assert sorted(message.value for message in found) == sorted(values)


def test_nothing_can_be_produced_to_a_pattern(server: ServerProcess) -> None:
    create(server.url, "orders.eu")
    outcomes: list[Any] = []
    with producer(server) as writer:
        writer.produce("orders.>", b"x", on_delivery=lambda error, _: outcomes.append(error))
    assert [error.code() for error in outcomes] == [KafkaError.TOPIC_EXCEPTION]
    with consumer(server) as reader:
        assert set(reader.list_topics(timeout=PATIENCE_SECONDS).topics) == {"orders.eu"}
        reader.subscribe(["orders.>.x"])
        with pytest.raises(KafkaException):
            message = reader.poll(PATIENCE_SECONDS)
            raise KafkaException(message.error())


def test_forty_consumers_each_read_everything(server: ServerProcess) -> None:
    for name in ("orders.eu", "orders.us", "other"):
        create(server.url, name)
    values = fill(server, 300)
    with ThreadPoolExecutor(40) as threads:
        found = list(threads.map(lambda _: read_from(server, "orders.>", len(values)), range(40)))
    first = [message.offset() for message in found[0]]
    assert first == sorted(first)
    assert all([message.offset() for message in each] == first for each in found)


def test_a_consumer_at_the_end_sees_a_publish_within_milliseconds(server: ServerProcess) -> None:
    create(server.url, "orders.eu")
    create(server.url, "other")
    publish(server.url, "orders.eu", "first")
    took = []
    with (
        httpx.Client(base_url=server.url, timeout=PATIENCE_SECONDS) as client,
        consumer(server, "none", **{"fetch.wait.max.ms": 5_000}) as reader,
    ):
        reader.assign([TopicPartition("orders.>", 0, OFFSET_BEGINNING)])
        read(reader, 1)
        for number in range(50):
            for topic in ("other", "orders.eu"):
                body = {"messages": [{"topic": topic, "value": number}]}
                client.post("/api/topics/publish", json=body).raise_for_status()
                answered = time.perf_counter()
            read(reader, 1)
            took.append(time.perf_counter() - answered)
    assert statistics.median(took) < 0.02, took
