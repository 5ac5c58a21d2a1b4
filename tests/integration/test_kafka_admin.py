"""The admin clients of Kafka against a real server: configs that Kafka's tools send, honest answers, pushed metrics."""

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiokafka.admin
import httpx
import kafka
import kafka.admin
import pytest
from aiokafka.admin.config_resource import ConfigResource as AioConfigResource
from aiokafka.admin.config_resource import ConfigResourceType as AioConfigResourceType
from confluent_kafka import Consumer, ElectionType, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType
from kafka import errors

from tests.integration.topics import publish
from tests.support.eventually import eventually
from tests.support.server import ServerProcess

SECONDS = 60
QUIET = {"log_level": 0}
REPARTITION = {
    "cleanup.policy": "delete",
    "message.timestamp.type": "CreateTime",
    "retention.ms": "-1",
    "segment.bytes": "52428800",
}
"""What Kafka Streams asks for a repartition topic."""


@pytest.fixture(scope="module")
def shared_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    folder = tmp_path_factory.mktemp("admin")
    config = folder / "tailrace.toml"
    config.write_text("[kafka]\ntelemetry_interval_seconds = 1\n")
    with ServerProcess(folder / "data", "--config", str(config)) as running:
        yield running


@pytest.fixture
def server(shared_server: ServerProcess) -> Iterator[ServerProcess]:
    """Without topics: a test's own goes with it."""
    yield shared_server
    httpx.delete(f"{shared_server.url}/api/topics/orders", timeout=SECONDS)


@pytest.fixture
def admin(server: ServerProcess) -> AdminClient:
    return AdminClient({"bootstrap.servers": server.kafka, **QUIET})


@pytest.fixture
def tools(server: ServerProcess) -> Iterator[kafka.KafkaAdminClient]:
    client = kafka.KafkaAdminClient(bootstrap_servers=server.kafka)
    yield client
    client.close()


def done(futures: dict[Any, Any]) -> list[Any]:
    return [future.result(SECONDS) for future in futures.values()]


def described(admin: AdminClient, kind: ResourceType = ResourceType.TOPIC, name: str = "orders") -> dict[str, ConfigEntry]:
    (configs,) = done(admin.describe_configs([ConfigResource(kind, name)]))
    return dict(configs)


def alter(admin: AdminClient, kind: ResourceType, name: str, *entries: ConfigEntry) -> None:
    done(admin.incremental_alter_configs([ConfigResource(kind, name, incremental_configs=list(entries))]))


def setting(name: str, value: str | None) -> ConfigEntry:
    operation = AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET
    return ConfigEntry(name, value, incremental_operation=operation)


def error_of(raised: pytest.ExceptionInfo[KafkaException]) -> KafkaError:
    error = raised.value.args[0]
    assert isinstance(error, KafkaError)
    return error


def test_a_repartition_topic_is_created_with_three_replicas_asked_for(server: ServerProcess, admin: AdminClient) -> None:
    done(admin.create_topics([NewTopic("orders", 2, 3, config=REPARTITION)]))
    partitions = admin.list_topics("orders", timeout=SECONDS).topics["orders"].partitions
    assert {number: partition.replicas for number, partition in partitions.items()} == {0: [0], 1: [0]}
    found = described(admin)
    assert (found["segment.bytes"].value, found["segment.bytes"].is_read_only, found["segment.bytes"].is_default) == (
        "134217728",
        True,
        True,
    )
    assert set(found["segment.bytes"].synonyms) == {"log.segment.bytes"}
    assert "topic 'orders': accepted without effect: segment.bytes" in server.stderr


def test_accepted_configs_are_altered_and_what_would_promise_more_is_refused(admin: AdminClient) -> None:
    done(admin.create_topics([NewTopic("orders", 1, 1)]))
    alter(admin, ResourceType.TOPIC, "orders", setting("segment.ms", "3600000"), setting("retention.ms", "60000"))
    alter(admin, ResourceType.TOPIC, "orders", setting("segment.ms", None))
    assert (described(admin)["retention.ms"].value, described(admin)["segment.ms"].value) == ("60000", str(2**63 - 1))
    for name, value in (("min.insync.replicas", "2"), ("remote.storage.enable", "true"), ("segment.bytes", "1")):
        with pytest.raises(KafkaException, match=name) as raised:
            alter(admin, ResourceType.TOPIC, "orders", setting(name, value))
        assert error_of(raised).code() == KafkaError.INVALID_CONFIG


def test_configs_of_the_broker_are_shown_and_read_only(admin: AdminClient) -> None:
    found = described(admin, ResourceType.BROKER, "0")
    assert (found["num.partitions"].value, found["num.partitions"].is_read_only) == ("1", True)
    with pytest.raises(KafkaException, match="read-only here"):
        alter(admin, ResourceType.BROKER, "0", setting("log.retention.ms", "1"))


def test_a_relaxed_server_does_not_accept_a_sync_before_each_answer(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data", "--durability", "relaxed") as server:
        admin = AdminClient({"bootstrap.servers": server.kafka, **QUIET})
        with pytest.raises(KafkaException, match="relaxed durability"):
            done(admin.create_topics([NewTopic("orders", 1, 1, config={"flush.messages": "1"})]))
        done(admin.create_topics([NewTopic("orders", 1, 1, config={"flush.ms": "1000"})]))
        assert described(admin)["flush.ms"].value == "100"


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd", "uncompressed"])
@pytest.mark.parametrize("idempotent", [False, True])
def test_topics_with_a_codec_keep_records_order_and_offsets(
    server: ServerProcess, admin: AdminClient, codec: str, idempotent: bool
) -> None:
    done(admin.create_topics([NewTopic("orders", 1, 1, config={"compression.type": codec})]))
    assert described(admin)["compression.type"].value == codec
    values = [f"{number:05} {'x' * (number % 300)}".encode() for number in range(2_000)]
    offsets: list[int] = []
    producer = Producer(
        {
            "bootstrap.servers": server.kafka,
            "compression.type": "lz4",
            "enable.idempotence": idempotent,
            "linger.ms": 2,
            **QUIET,
        }
    )
    for value in values:
        producer.produce("orders", value, on_delivery=lambda error, message: offsets.append(message.offset()))
        producer.poll(0)
    assert producer.flush(SECONDS) == 0
    assert offsets == list(range(2_000))
    assert publish(server.url, "orders", "published " + "y" * 9_000) == [2_000]
    consumer = Consumer({"bootstrap.servers": server.kafka, "group.id": "g", **QUIET})
    consumer.assign([TopicPartition("orders", 0, 0)])
    found: list[bytes] = []

    def has_read_all() -> bool:
        found.extend(message.value() for message in consumer.consume(500, 0.2))
        return len(found) == len(values) + 1

    eventually(has_read_all, "all records")
    consumer.close()
    assert found[:-1] == values
    assert b"published yyy" in found[-1]


def test_librdkafka_is_told_that_no_election_is_needed(admin: AdminClient) -> None:
    done(admin.create_topics([NewTopic("orders", 1, 1)]))
    wanted = [TopicPartition("orders", 0), TopicPartition("gone", 0)]
    found = admin.elect_leaders(ElectionType.PREFERRED, wanted).result(SECONDS)
    assert {each.topic: error.code() for each, error in found.items()} == {
        "orders": KafkaError.ELECTION_NOT_NEEDED,
        "gone": KafkaError.UNKNOWN_TOPIC_OR_PART,
    }
    assert admin.elect_leaders(ElectionType.UNCLEAN, None).result(SECONDS) == {}
    assert admin.list_consumer_groups().result(SECONDS).errors == []


def test_kafka_python_is_told_that_nothing_can_be_moved(tools: kafka.KafkaAdminClient) -> None:
    tools.create_topics([kafka.admin.NewTopic("orders", 1, 3)])
    place = kafka.TopicPartition("orders", 0)
    assert tools.elect_leaders(0, {"orders": [0]}).replica_election_results[0].partition_result[0].error_code == 84
    assert tools.alter_partition_reassignments({place: [0]}) == {place: None}
    assert tools.alter_partition_reassignments({place: [0, 1]}) == {place: errors.InvalidReplicationAssignmentError}
    assert tools.alter_partition_reassignments({place: None}) == {place: errors.NoReassignmentInProgressError}
    assert tools.list_partition_reassignments() == {}


def test_kafka_python_is_told_the_features(tools: kafka.KafkaAdminClient) -> None:
    feature = tools.describe_features()["transaction.version"]
    assert (feature["supported"], feature["finalized"], feature["finalized_epoch"]) == ((2, 2), (2, 2), 0)
    assert tools.update_features({"transaction.version": 2}, validate_only=True) == {"transaction.version": "OK"}
    with pytest.raises(errors.InvalidUpdateVersionError):
        tools.update_features({"transaction.version": 3})


def test_kafka_python_lists_what_has_configs(tools: kafka.KafkaAdminClient) -> None:
    tools.create_topics([kafka.admin.NewTopic("orders", 1, 1)])
    listed = tools.list_config_resources()
    assert {kind.lower(): names for kind, names in listed.items()} == {
        "topic": ["orders"],
        "broker": ["0"],
    }


def test_kafka_python_lists_transactions_by_a_pattern(server: ServerProcess, tools: kafka.KafkaAdminClient) -> None:
    for name in ("billing-1", "billing-2", "orders"):
        producer = Producer({"bootstrap.servers": server.kafka, "transactional.id": name, **QUIET})
        producer.init_transactions(SECONDS)
    found = tools.list_transactions(transactional_id_pattern=r"billing-\d+")
    assert set(re.findall(r"billing-\d|orders", repr(found))) == {"billing-1", "billing-2"}
    with pytest.raises(errors.KafkaError):
        tools.list_transactions(transactional_id_pattern="(?=billing).*")


def test_aiokafka_creates_and_alters_topics_with_configs_of_kafka(server: ServerProcess) -> None:
    async def administer() -> tuple[Any, Any]:
        client = aiokafka.admin.AIOKafkaAdminClient(bootstrap_servers=server.kafka)
        await client.start()
        try:
            created = await client.create_topics([aiokafka.admin.NewTopic("orders", 1, 3, topic_configs=REPARTITION)])
            resource = AioConfigResource(AioConfigResourceType.TOPIC, "orders", configs={"flush.messages": "1000"})
            return created, await client.alter_configs([resource])
        finally:
            await client.close()

    created, (altered,) = asyncio.run(administer())
    assert [each[1] for each in created.topic_errors] == [0]
    assert [each[0] for each in altered.resources] == [0]


def metrics_of(server: ServerProcess, client: str) -> dict[str, float]:
    text = httpx.get(f"{server.url}/metrics", timeout=SECONDS).text
    rows = re.findall(r'^tailrace_kafka_client_metric\{client="([^"]*)",metric="([^"]*)"\} (\S+)$', text, re.MULTILINE)
    return {metric: float(value) for label, metric, value in rows if label == client}


def test_librdkafka_pushes_its_metrics_by_itself(tmp_path: Path) -> None:
    config = tmp_path / "tailrace.toml"
    # The first push comes after up to one and a half intervals.
    config.write_text("[kafka]\nclient_telemetry = true\ntelemetry_interval_seconds = 5\n")
    with ServerProcess(tmp_path / "data", "--config", str(config)) as server:
        push_metrics(server)


def push_metrics(server: ServerProcess) -> None:
    admin = AdminClient({"bootstrap.servers": server.kafka, **QUIET})
    done(admin.create_topics([NewTopic("orders", 1, 1)]))
    total = "org.apache.kafka.producer.connection.creation.total"
    producer = Producer({"bootstrap.servers": server.kafka, "client.id": "billing-17", **QUIET})
    producer.produce("orders", b"x")
    eventually(lambda: metrics_of(server, "billing-*").get(total, 0) >= 1, "the producer's metrics")
    assert all(name.startswith("org.apache.kafka.producer.") for name in metrics_of(server, "billing-*"))
    quiet = Producer({"bootstrap.servers": server.kafka, "client.id": "silent", "enable.metrics.push": False, **QUIET})
    quiet.produce("orders", b"x")
    assert quiet.flush(SECONDS) == 0
    assert producer.flush(SECONDS) == 0
    del producer
    eventually(lambda: metrics_of(server, "billing-*") == {}, "the end of the producer")
    assert metrics_of(server, "silent") == {}
    assert re.search(r'pushes_total\{outcome="accepted"\} [1-9]', httpx.get(f"{server.url}/metrics", timeout=SECONDS).text)


def test_clients_are_not_asked_for_metrics_by_default(tools: kafka.KafkaAdminClient) -> None:
    offered = repr(tools.api_versions())
    assert "PushTelemetry" not in offered
    assert "ListConfigResources" in offered
