"""Standard Kafka clients against a real server read what they send, with every client and codec."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import aiokafka
import httpx
import kafka
import kafka.admin
import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from tailrace.wire.messages.group_offsets import (
    OFFSET_COMMIT_API,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tailrace.wire.messages.produce import PRODUCE_API, PartitionProduceData, ProduceRequest, TopicProduceData
from tests.integration.topics import consume as consume_over_http
from tests.integration.topics import create
from tests.support.batches import TIMESTAMP, encode_batch
from tests.support.kafka import RawClient
from tests.support.server import ServerProcess

SECONDS = 60
QUIET = {"log_level": 0}


@pytest.fixture(scope="module")
def shared_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path_factory.mktemp("clients") / "data") as running:
        yield running


@pytest.fixture
def server(shared_server: ServerProcess) -> Iterator[ServerProcess]:
    """Without topics: a test's own goes with it, and the next one of its name is another."""
    yield shared_server
    httpx.delete(f"{shared_server.url}/api/topics/orders", timeout=SECONDS)


@pytest.fixture
def admin(server: ServerProcess) -> AdminClient:
    return AdminClient({"bootstrap.servers": server.kafka, **QUIET})


def done(futures: dict[Any, Any]) -> list[Any]:
    return [future.result(SECONDS) for future in futures.values()]


def send(server: ServerProcess, topic: str, values: list[bytes], **settings: Any) -> list[tuple[int, int]]:
    """Return the partition and offset of each record, in the order of the values."""
    reports: list[Any] = []
    producer = Producer({"bootstrap.servers": server.kafka, **QUIET, **settings})
    for value in values:
        producer.produce(topic, value, key=value[:8], on_delivery=lambda error, message: reports.append((error, message)))
        producer.poll(0)
    assert producer.flush(SECONDS) == 0
    assert [error for error, _ in reports if error is not None] == []
    places = {message.value(): (message.partition(), message.offset()) for _, message in reports}
    return [places[value] for value in values]


@contextmanager
def reader(server: ServerProcess, *partitions: TopicPartition, **settings: Any) -> Iterator[Consumer]:
    consumer = Consumer(
        {"bootstrap.servers": server.kafka, "group.id": "none", "enable.auto.commit": False, **QUIET, **settings}
    )
    consumer.assign(list(partitions))
    try:
        yield consumer
    finally:
        consumer.close()


def read(consumer: Consumer, count: int) -> list[Any]:
    found: list[Any] = []
    deadline = time.monotonic() + SECONDS
    while len(found) < count:
        assert time.monotonic() < deadline, f"{len(found)} of {count} records came"
        for message in consumer.consume(count, 0.5):
            assert message.error() is None, message.error()
            found.append(message)
    return found


def read_all(server: ServerProcess, topic: str, count: int, partition: int = 0, **settings: Any) -> list[bytes]:
    with reader(server, TopicPartition(topic, partition, OFFSET_BEGINNING), **settings) as consumer:
        return [message.value() for message in read(consumer, count)]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("idempotent", [False, True])
def test_records_come_back_in_order_through_every_codec(server: ServerProcess, codec: str, idempotent: bool) -> None:
    create(server.url, "orders")
    values = [f"{number:08} {'x' * (number % 300)}".encode() for number in range(3_000)]
    settings = {"compression.type": codec, "enable.idempotence": idempotent, "linger.ms": 2}
    assert send(server, "orders", values, **settings) == [(0, number) for number in range(3_000)]
    assert read_all(server, "orders", 3_000) == values


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_every_kind_of_acknowledgement_stores_the_record(server: ServerProcess, acks: str) -> None:
    create(server.url, "orders")
    send(server, "orders", [b"first"])
    producer = Producer({"bootstrap.servers": server.kafka, "acks": acks, **QUIET})
    producer.produce("orders", b"second")
    assert producer.flush(SECONDS) == 0
    assert read_all(server, "orders", 2) == [b"first", b"second"]


def test_keys_headers_and_timestamps_are_kept(server: ServerProcess) -> None:
    create(server.url, "orders")
    producer = Producer({"bootstrap.servers": server.kafka, **QUIET})
    producer.produce("orders", b"value", key=b"key", headers=[("a", b"1"), ("b", None)], timestamp=1_700_000_000_123)
    producer.produce("orders", None, key=b"gone")
    assert producer.flush(SECONDS) == 0
    with reader(server, TopicPartition("orders", 0, OFFSET_BEGINNING)) as consumer:
        first, tombstone = read(consumer, 2)
    assert (first.key(), first.value(), first.headers()) == (b"key", b"value", [("a", b"1"), ("b", None)])
    assert first.timestamp()[1] == 1_700_000_000_123
    assert (tombstone.key(), tombstone.value()) == (b"gone", None)


def test_a_record_of_a_megabyte_passes_and_a_larger_one_is_rejected(server: ServerProcess) -> None:
    create(server.url, "orders")
    large = b"12345678" + b"x" * (1024 * 1024 - 8)
    settings = {"message.max.bytes": 4_000_000}
    assert send(server, "orders", [large], **settings) == [(0, 0)]
    assert read_all(server, "orders", 1, **{"message.max.bytes": 4_000_000}) == [large]
    refused: list[KafkaError] = []
    producer = Producer({"bootstrap.servers": server.kafka, **settings, **QUIET})
    producer.produce("orders", b"x" * 2_000_000, on_delivery=lambda error, _: refused.append(error))
    assert producer.flush(SECONDS) == 0
    assert [error.code() for error in refused] == [KafkaError.MSG_SIZE_TOO_LARGE]


def test_one_batch_may_have_a_hundred_thousand_tiny_records(server: ServerProcess) -> None:
    create(server.url, "orders", settings={"max_message_bytes": 4_000_000})
    values = [f"{number:010}".encode() for number in range(100_000)]
    batch = encode_batch([(TIMESTAMP, value) for value in values])
    data = (TopicProduceData(name="orders", partition_data=(PartitionProduceData(records=batch),)),)
    with RawClient(server.kafka) as raw:
        answer = raw.ask(PRODUCE_API, ProduceRequest(acks=-1, timeout_ms=SECONDS * 1000, topic_data=data), 9)
    assert [(part.error_code, part.base_offset) for part in answer.responses[0].partition_responses] == [(0, 0)]
    assert read_all(server, "orders", len(values)) == values


def test_records_of_one_surface_are_read_over_the_other(server: ServerProcess) -> None:
    create(server.url, "orders")
    send(server, "orders", [b'"over kafka"'])
    assert consume_over_http(server.url, "orders") == ["over kafka"]


def test_a_reader_that_waits_gets_new_records_at_once(server: ServerProcess) -> None:
    create(server.url, "orders")
    with reader(
        server, TopicPartition("orders", 0, OFFSET_BEGINNING), **{"fetch.wait.max.ms": 60_000, "socket.timeout.ms": 90_000}
    ) as consumer:
        assert consumer.consume(1, 0.5) == []
        began = time.monotonic()
        send(server, "orders", [b"x"])
        assert len(read(consumer, 1)) == 1
        assert time.monotonic() - began < 30, "not when the minute is over that it may wait"


def test_acknowledged_records_survive_a_kill_and_the_producer_carries_on(server: ServerProcess) -> None:
    create(server.url, "orders")
    values = [f"{number:08}".encode() for number in range(2_000)]
    send(server, "orders", values, **{"enable.idempotence": True})
    server.kill()
    server.start()
    assert read_all(server, "orders", 2_000) == values


def test_a_producer_carries_on_over_a_restart_without_loss_and_without_doubles(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data") as server:
        create(server.url, "orders")
        reports: list[Any] = []
        settings = {"enable.idempotence": True, "reconnect.backoff.max.ms": 200, "message.timeout.ms": 60_000}
        producer = Producer({"bootstrap.servers": server.kafka, **settings, **QUIET})
        for number in range(500):
            producer.produce("orders", b"%d" % number, on_delivery=lambda error, _: reports.append(error))
            if number == 250:
                producer.poll(0.05)
                server.kill()
                server.flags = (*server.flags, "--kafka", server.kafka)
                server.start()
        assert producer.flush(60) == 0
        assert reports == [None] * 500
        assert read_all(server, "orders", 500) == [b"%d" % number for number in range(500)]


def test_a_topic_is_administered_from_its_beginning_to_its_end(server: ServerProcess, admin: AdminClient) -> None:
    done(admin.create_topics([NewTopic("orders", 3, 1, config={"retention.ms": "60000"})]))
    with pytest.raises(KafkaException, match="TOPIC_ALREADY_EXISTS"):
        done(admin.create_topics([NewTopic("orders", 3, 1)]))
    with pytest.raises(KafkaException, match=r"INVALID_CONFIG.*min.insync.replicas can only be '1'"):
        done(admin.create_topics([NewTopic("replicated", 1, 1, config={"min.insync.replicas": "2"})]))
    resource = ConfigResource(ResourceType.TOPIC, "orders")
    resource.add_incremental_config(ConfigEntry("retention.bytes", "1000000", incremental_operation=AlterConfigOpType.SET))
    done(admin.incremental_alter_configs([resource]))
    (configs,) = done(admin.describe_configs([ConfigResource(ResourceType.TOPIC, "orders")]))
    assert (configs["retention.ms"].value, configs["retention.bytes"].value) == ("60000", "1000000")
    done(admin.create_partitions([NewPartitions("orders", 5)]))
    assert len(admin.list_topics(timeout=SECONDS).topics["orders"].partitions) == 5
    cluster = admin.describe_cluster().result(SECONDS)
    assert [(node.host, str(node.port)) for node in cluster.nodes] == [tuple(server.kafka.split(":"))]
    done(admin.delete_topics(["orders"]))
    assert "orders" not in admin.list_topics(timeout=SECONDS).topics


def test_offsets_are_found_by_time_and_records_are_deleted(server: ServerProcess, admin: AdminClient) -> None:
    create(server.url, "orders")
    producer = Producer({"bootstrap.servers": server.kafka, **QUIET})
    for timestamp in (1_000, 3_000, 2_000):
        producer.produce("orders", b"x", timestamp=1_700_000_000_000 + timestamp)
        assert producer.flush(SECONDS) == 0
    place = TopicPartition("orders", 0)

    def offset_of(spec: Any) -> int:
        (found,) = done(admin.list_offsets({place: spec}))
        return int(found.offset)

    assert offset_of(OffsetSpec.earliest()) == 0
    assert offset_of(OffsetSpec.latest()) == 3
    assert offset_of(OffsetSpec.max_timestamp()) == 1
    assert offset_of(OffsetSpec.for_timestamp(1_700_000_002_500)) == 1
    (deleted,) = done(admin.delete_records([TopicPartition("orders", 0, 2)]))
    assert deleted.low_watermark == 2
    assert offset_of(OffsetSpec.earliest()) == 2
    with reader(server, TopicPartition("orders", 0, 0), **{"auto.offset.reset": "error"}) as consumer:
        (message,) = consumer.consume(1, SECONDS)
        assert message.error().code() == KafkaError._AUTO_OFFSET_RESET


def test_a_topic_that_is_created_again_under_a_running_reader_is_read_from_its_beginning(
    server: ServerProcess, admin: AdminClient
) -> None:
    done(admin.create_topics([NewTopic("orders", 1, 1)]))
    send(server, "orders", [b"old 1", b"old 2"])
    settings = {"auto.offset.reset": "earliest", "topic.metadata.refresh.interval.ms": 200}
    with reader(server, TopicPartition("orders", 0, OFFSET_BEGINNING), **settings) as consumer:
        assert len(read(consumer, 2)) == 2
        done(admin.delete_topics(["orders"]))
        done(admin.create_topics([NewTopic("orders", 1, 1)]))
        send(server, "orders", [b"new"])
        deadline = time.monotonic() + SECONDS
        seen: list[bytes] = []
        while not seen and time.monotonic() < deadline:
            seen = [message.value() for message in consumer.consume(1, 1) if message.error() is None]
        assert seen == [b"new"]


def test_topics_are_created_on_demand_unless_that_is_off(tmp_path: Path) -> None:
    config = tmp_path / "tailrace.toml"
    config.write_text("[kafka]\ndefault_partitions = 2\n")
    with ServerProcess(tmp_path / "on", "--config", str(config)) as server:
        send(server, "made", [b"x"])
        admin = AdminClient({"bootstrap.servers": server.kafka, **QUIET})
        assert len(admin.list_topics(timeout=SECONDS).topics["made"].partitions) == 2
    config.write_text("[kafka]\nauto_create_topics = false\n")
    with ServerProcess(tmp_path / "off", "--config", str(config)) as server:
        refused: list[KafkaError] = []
        producer = Producer({"bootstrap.servers": server.kafka, "message.timeout.ms": 2_000, **QUIET})
        producer.produce("made", b"x", on_delivery=lambda error, _: refused.append(error))
        assert producer.flush(SECONDS) == 0
        assert len(refused) == 1


def test_clients_are_sent_to_the_advertised_address(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data", "--advertise", "tailrace.example:1234") as server:
        brokers = AdminClient({"bootstrap.servers": server.kafka, **QUIET}).list_topics(timeout=SECONDS).brokers
        assert [(broker.host, broker.port) for broker in brokers.values()] == [("tailrace.example", 1234)]


def test_kafka_python_administers_sends_and_reads(server: ServerProcess) -> None:
    admin = kafka.KafkaAdminClient(bootstrap_servers=server.kafka)
    admin.create_topics([kafka.admin.NewTopic("orders", 2, 1)])
    assert admin.list_topics() == ["orders"]
    producer = kafka.KafkaProducer(bootstrap_servers=server.kafka, compression_type="gzip")
    sent = [producer.send("orders", b"%d" % number, partition=1, key=b"k") for number in range(500)]
    assert [future.get(SECONDS).offset for future in sent] == list(range(500))
    producer.close()
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=server.kafka, auto_offset_reset="earliest", consumer_timeout_ms=SECONDS * 1000, group_id=None
    )
    place = kafka.TopicPartition("orders", 1)
    consumer.assign([place])
    assert [next(consumer).value for _ in range(500)] == [b"%d" % number for number in range(500)]
    assert consumer.end_offsets([place]) == {place: 500}
    consumer.close()
    admin.delete_topics(["orders"])
    admin.close()


def test_aiokafka_sends_and_reads(server: ServerProcess) -> None:
    create(server.url, "orders")

    async def there_and_back() -> list[bytes]:
        async with aiokafka.AIOKafkaProducer(bootstrap_servers=server.kafka, enable_idempotence=True) as producer:
            for number in range(200):
                await producer.send("orders", b"%d" % number)
        consumer = aiokafka.AIOKafkaConsumer(bootstrap_servers=server.kafka, auto_offset_reset="earliest")
        consumer.assign([aiokafka.TopicPartition("orders", 0)])
        async with consumer:
            return [(await consumer.getone()).value for _ in range(200)]

    values = asyncio.run(asyncio.wait_for(there_and_back(), SECONDS))
    assert values == [b"%d" % number for number in range(200)]


def test_producers_to_a_missing_reserved_topic_fail_at_once(server: ServerProcess) -> None:
    """Not only after the half minute that they wait for a topic that is about to be created."""
    began = time.monotonic()
    reports: list[KafkaError] = []
    producer = Producer({"bootstrap.servers": server.kafka, **QUIET})
    producer.produce("_changes.nothing", b"v", on_delivery=lambda error, _: reports.append(error))
    assert producer.flush(SECONDS) == 0
    assert reports[0].code() == KafkaError.TOPIC_EXCEPTION

    other = kafka.KafkaProducer(bootstrap_servers=server.kafka)
    with pytest.raises(kafka.errors.KafkaError):
        other.send("_changes.nothing", b"v").get(SECONDS)
    other.close()
    assert time.monotonic() - began < 20


def test_a_group_without_offsets_starts_over_http_and_one_beyond_the_end_gets_an_error(server: ServerProcess) -> None:
    create(server.url, "orders")
    send(server, "orders", [b"0", b"1"])
    asked = {"topic": "orders", "group_id": "wanderers", "start": "earliest"}
    with RawClient(server.kafka) as client:
        client.ask(OFFSET_COMMIT_API, committing("wanderers", "orders", -1), 8)
        answer = httpx.post(f"{server.url}/api/topics/consume", json=asked, timeout=SECONDS)
        assert [message["offset"] for message in answer.json()["messages"]] == [0, 1]
        client.ask(OFFSET_COMMIT_API, committing("wanderers", "orders", 77), 8)
        answer = httpx.post(f"{server.url}/api/topics/consume", json=asked, timeout=SECONDS)
        assert answer.is_client_error
        assert "ends at 2: a Kafka client has committed that; reset the group" in answer.text


def committing(group: str, topic: str, offset: int) -> OffsetCommitRequest:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_leader_epoch=-1)
    topics = (OffsetCommitRequestTopic(name=topic, partitions=(partition,)),)
    return OffsetCommitRequest(group_id=group, generation_id_or_member_epoch=-1, topics=topics)
