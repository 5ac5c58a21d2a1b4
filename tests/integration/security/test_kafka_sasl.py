"""Real Kafka clients at a listener that asks for authentication: each mechanism, what is refused, and rights that change."""

import asyncio
import time
from collections.abc import Iterator
from typing import Any

import aiokafka
import kafka
import kafka.admin
import pytest
from aiokafka.errors import KafkaError as AioKafkaError
from aiokafka.errors import TopicAuthorizationFailedError as AioTopicForbidden
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from kafka import errors

from tailrace.broker.security.settings import SecuritySettings
from tests.support.eventually import eventually
from tests.support.secured_thread import SecuredKafkaThread

SECONDS = 30
PASSWORD = "correct horse battery staple"  # noqa: S105  of nobody
MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN")
FORBIDDEN = KafkaError.TOPIC_AUTHORIZATION_FAILED


@pytest.fixture(scope="module")
def server() -> Iterator[SecuredKafkaThread]:
    with SecuredKafkaThread() as running:

        async def prepare(broker: Any) -> None:
            await broker.users.create("root", PASSWORD, ["admin"])
            await broker.users.create("alice", PASSWORD)
            await broker.users.create("bob", PASSWORD)
            await broker.topics.create("orders")

        running.run(prepare)
        yield running


def confluent(
    server: SecuredKafkaThread, name: str, password: str = PASSWORD, mechanism: str = "SCRAM-SHA-256"
) -> dict[str, Any]:
    return {
        "bootstrap.servers": server.address,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": name,
        "sasl.password": password,
        "log_level": 0,
    }


def python(server: SecuredKafkaThread, name: str, password: str = PASSWORD, mechanism: str = "SCRAM-SHA-256") -> dict[str, Any]:
    """Return the options of kafka-python and aiokafka."""
    return {
        "bootstrap_servers": server.address,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_plain_username": name,
        "sasl_plain_password": password,
    }


def send(options: dict[str, Any], topic: str = "orders") -> KafkaError | None:
    """Produce one record with librdkafka, and return its error."""
    told: list[KafkaError | None] = []
    producer = Producer({**options, "message.timeout.ms": 5_000})
    producer.produce(topic, b"v", on_delivery=lambda error, _: told.append(error))
    producer.flush(SECONDS)
    assert len(told) == 1
    return told[0]


def read_one(options: dict[str, Any], topic: str = "orders", group: str = "g") -> Any:
    """Read with librdkafka until there is a record or an error, which is returned."""
    consumer = Consumer(
        {**options, "group.id": group, "auto.offset.reset": "earliest", "topic.metadata.refresh.interval.ms": 500}
    )
    try:
        consumer.subscribe([topic])
        deadline = time.monotonic() + SECONDS
        while time.monotonic() < deadline:
            message = consumer.poll(0.5)
            if message is not None:
                return message.error() or message.value()
    finally:
        consumer.close()
    raise AssertionError("nothing came")


@pytest.fixture
def granted(server: SecuredKafkaThread) -> Iterator[None]:
    server.grant("alice", "publish", "topic", "orders")
    server.grant("alice", "consume", "topic", "orders")
    server.grant("alice", "consume", "group", "g")
    yield
    server.run(lambda broker: broker.grants.remove(lambda grant: True))


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_librdkafka_logs_in_sends_and_reads(server: SecuredKafkaThread, granted: None, mechanism: str) -> None:
    options = confluent(server, "alice", mechanism=mechanism)
    assert send(options) is None
    assert send({**options, "enable.idempotence": True}) is None
    assert read_one(options) == b"v"


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_kafka_python_logs_in_sends_and_reads(server: SecuredKafkaThread, granted: None, mechanism: str) -> None:
    options = python(server, "alice", mechanism=mechanism)
    producer = kafka.KafkaProducer(**options)
    producer.send("orders", b"v").get(SECONDS)
    producer.close()
    consumer = kafka.KafkaConsumer(
        "orders", group_id="g", auto_offset_reset="earliest", consumer_timeout_ms=SECONDS * 1000, **options
    )
    assert next(iter(consumer)).value == b"v"
    consumer.close()


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_aiokafka_logs_in_sends_and_reads(server: SecuredKafkaThread, granted: None, mechanism: str) -> None:
    async def use() -> bytes:
        options = python(server, "alice", mechanism=mechanism)
        async with aiokafka.AIOKafkaProducer(**options) as producer:
            await producer.send_and_wait("orders", b"v")
        async with aiokafka.AIOKafkaConsumer("orders", group_id="g", auto_offset_reset="earliest", **options) as consumer:
            return (await asyncio.wait_for(consumer.getone(), SECONDS)).value

    assert asyncio.run(use()) == b"v"


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize(("name", "password"), [("alice", "wrong"), ("nobody", PASSWORD)])
def test_wrong_passwords_are_refused(server: SecuredKafkaThread, mechanism: str, name: str, password: str) -> None:
    # Who succeeds in between is not slowed down, and ends the pauses.
    assert AdminClient(confluent(server, "root")).list_topics(timeout=SECONDS)
    before = server.closed("login_failed")
    told: list[KafkaError] = []
    client = Producer({**confluent(server, name, password, mechanism), "error_cb": told.append})
    with pytest.raises(KafkaException):
        client.list_topics(timeout=2)
    client.poll(0)
    assert KafkaError._AUTHENTICATION in {error.code() for error in told}
    assert AdminClient(confluent(server, "root")).list_topics(timeout=SECONDS)
    with pytest.raises(errors.KafkaError):
        kafka.KafkaAdminClient(**python(server, name, password, mechanism), bootstrap_timeout_ms=2_000)
    assert AdminClient(confluent(server, "root")).list_topics(timeout=SECONDS)

    async def start() -> None:
        producer = aiokafka.AIOKafkaProducer(**python(server, name, password, mechanism))
        try:
            await producer.start()
        finally:
            await producer.stop()

    with pytest.raises(AioKafkaError):
        asyncio.run(start())
    assert server.closed("login_failed") >= before + 3


def test_who_was_granted_nothing_learns_nothing(server: SecuredKafkaThread) -> None:
    options = confluent(server, "bob")
    assert AdminClient(options).list_topics(timeout=SECONDS).topics == {}
    for topic in ("orders", "no-such-topic"):
        error = send(options, topic)
        assert error is not None
        assert error.code() == FORBIDDEN
        assert read_one(options, topic).code() in (FORBIDDEN, KafkaError.GROUP_AUTHORIZATION_FAILED)
        with pytest.raises(errors.TopicAuthorizationFailedError):
            producer = kafka.KafkaProducer(**python(server, "bob"))
            try:
                producer.send(topic, b"v").get(SECONDS)
            finally:
                producer.close()

        async def send_by_aiokafka(topic: str = topic) -> None:
            async with aiokafka.AIOKafkaProducer(**python(server, "bob")) as producer:
                await producer.send_and_wait(topic, b"v")

        with pytest.raises(AioTopicForbidden):
            asyncio.run(send_by_aiokafka())
    admin = AdminClient(options)
    (created,) = admin.create_topics([NewTopic("mine", 1, 1)]).values()
    with pytest.raises(KafkaException) as refused:
        created.result(SECONDS)
    assert refused.value.args[0].code() == FORBIDDEN


def test_each_operation_is_granted_alone(server: SecuredKafkaThread, granted: None) -> None:
    server.revoke("alice", "publish", "topic", "orders")
    options = confluent(server, "alice")
    error = send(options)
    assert error is not None
    assert error.code() == FORBIDDEN
    server.grant("alice", "publish", "topic", "orders")
    assert send(options) is None
    server.revoke("alice", "consume", "group", "g")
    assert read_one(options).code() == KafkaError.GROUP_AUTHORIZATION_FAILED


def test_a_revoked_right_ends_at_once_for_those_who_are_connected(server: SecuredKafkaThread, granted: None) -> None:
    told: list[KafkaError | None] = []
    producer = Producer(confluent(server, "alice"))
    consumer = Consumer(
        {**confluent(server, "alice"), "group.id": "g", "auto.offset.reset": "latest", "fetch.wait.max.ms": 30_000}
    )
    try:
        producer.produce("orders", b"v", on_delivery=lambda error, _: told.append(error))
        producer.flush(SECONDS)
        consumer.assign([TopicPartition("orders", 0, 1_000_000_000)])
        consumer.assign([TopicPartition("orders", 0, _end(server))])
        assert consumer.poll(1.0) is None
        server.revoke("alice", "publish", "topic", "orders")
        server.revoke("alice", "consume", "topic", "orders")
        began = time.monotonic()
        message = consumer.poll(SECONDS)
        assert message is not None
        assert message.error().code() == FORBIDDEN
        assert time.monotonic() - began < 2.0
        producer.produce("orders", b"v", on_delivery=lambda error, _: told.append(error))
        producer.flush(SECONDS)
        assert told[0] is None
        assert told[1] is not None
        assert told[1].code() == FORBIDDEN
    finally:
        consumer.close()


def _end(server: SecuredKafkaThread) -> int:
    async def end(broker: Any) -> int:
        return int(broker.positions.bounds("orders", 0).end)

    return server.run(end)


def test_the_connections_of_a_dropped_user_end_within_a_second(server: SecuredKafkaThread) -> None:
    server.run(lambda broker: broker.users.create("carol", PASSWORD, ["admin"]))
    admin = kafka.KafkaAdminClient(**python(server, "carol"))
    assert "orders" in admin.list_topics()
    before = server.closed("login_revoked")
    server.run(lambda broker: broker.users.drop("carol"))
    eventually(lambda: server.closed("login_revoked") > before, "the connection is closed", 3.0)
    with pytest.raises(errors.KafkaError):
        admin.list_topics()
    admin.close()


def test_acls_by_librdkafka(server: SecuredKafkaThread) -> None:
    admin = AdminClient(confluent(server, "root"))
    read = AclBinding(
        ResourceType.TOPIC, "ord", ResourcePatternType.PREFIXED, "User:bob", "*", AclOperation.READ, AclPermissionType.ALLOW
    )
    group = AclBinding(
        ResourceType.GROUP, "g", ResourcePatternType.LITERAL, "User:bob", "*", AclOperation.READ, AclPermissionType.ALLOW
    )
    for created in admin.create_acls([read, group]).values():
        created.result(SECONDS)
    send(confluent(server, "root"))
    assert read_one(confluent(server, "bob")) == b"v"
    everything = AclBindingFilter(
        ResourceType.ANY, None, ResourcePatternType.ANY, "User:bob", None, AclOperation.ANY, AclPermissionType.ANY
    )
    assert set(admin.describe_acls(everything).result(SECONDS)) == {read, group}
    (deleted,) = admin.delete_acls([everything]).values()
    assert set(deleted.result(SECONDS)) == {read, group}
    assert read_one(confluent(server, "bob")).code() in (FORBIDDEN, KafkaError.GROUP_AUTHORIZATION_FAILED)
    bob = AdminClient(confluent(server, "bob"))
    for refused in (*bob.create_acls([read]).values(), *bob.delete_acls([everything]).values()):
        with pytest.raises(KafkaException) as error:
            refused.result(SECONDS)
        assert error.value.args[0].code() == KafkaError.CLUSTER_AUTHORIZATION_FAILED


def test_acls_by_kafka_python(server: SecuredKafkaThread) -> None:
    admin = kafka.KafkaAdminClient(**python(server, "root"))
    topic = kafka.admin.ResourcePattern(kafka.admin.ResourceType.TOPIC, "orders")
    allow, deny = kafka.admin.ACLPermissionType.ALLOW, kafka.admin.ACLPermissionType.DENY
    write = kafka.admin.ACL("User:bob", "*", kafka.admin.ACLOperation.WRITE, allow, topic)
    not_from_here = kafka.admin.ACL("User:*", "127.0.0.1", kafka.admin.ACLOperation.WRITE, deny, topic)
    try:
        assert admin.create_acls([write])["failed"] == []
        assert send(confluent(server, "bob")) is None
        assert admin.create_acls([not_from_here])["failed"] == []
        error = send(confluent(server, "bob"))
        assert error is not None
        assert error.code() == FORBIDDEN
        wanted = kafka.admin.ACLFilter(
            None,
            None,
            kafka.admin.ACLOperation.ANY,
            kafka.admin.ACLPermissionType.ANY,
            kafka.admin.ResourcePatternFilter(
                kafka.admin.ResourceType.TOPIC, "orders", kafka.admin.ACLResourcePatternType.MATCH
            ),
        )
        found, problem = admin.describe_acls(wanted)
        assert problem is errors.NoError
        assert set(found) == {write, not_from_here}
        asker = kafka.KafkaAdminClient(**python(server, "bob"))
        with pytest.raises(errors.ClusterAuthorizationFailedError):
            asker.describe_acls(wanted)
        asker.close()
        ((_, removed, _),) = admin.delete_acls([wanted])
        assert set(removed) == {write, not_from_here}
    finally:
        admin.close()


def test_passwords_by_librdkafka(server: SecuredKafkaThread) -> None:
    admin = AdminClient(confluent(server, "root"))
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 8192)
    for changed in admin.alter_user_scram_credentials([UserScramCredentialUpsertion("dave", info, b"first")]).values():
        changed.result(SECONDS)
    assert AdminClient(confluent(server, "dave", "first", "SCRAM-SHA-512")).list_topics(timeout=SECONDS).topics == {}
    (described,) = admin.describe_user_scram_credentials(["dave"]).values()
    (found,) = described.result(SECONDS).scram_credential_infos
    assert (found.mechanism, found.iterations) == (ScramMechanism.SCRAM_SHA_512, 8192)
    (removed,) = admin.alter_user_scram_credentials(
        [UserScramCredentialDeletion("dave", ScramMechanism.SCRAM_SHA_512)]
    ).values()
    removed.result(SECONDS)
    with pytest.raises(KafkaException):
        AdminClient(confluent(server, "dave", "first", "SCRAM-SHA-512")).list_topics(timeout=2)


def test_passwords_by_kafka_python(server: SecuredKafkaThread) -> None:
    admin = kafka.KafkaAdminClient(**python(server, "root"))
    try:
        change = kafka.admin.UserScramCredentialUpsertion(
            "erin", kafka.admin.ScramMechanism.SCRAM_SHA_256, "secret", iterations=4096
        )
        assert admin.alter_user_scram_credentials([change]) == {"erin": None}
        assert admin.describe_user_scram_credentials(["erin"])["erin"]["credential_infos"] == [
            {"mechanism": kafka.admin.ScramMechanism.SCRAM_SHA_256, "iterations": 4096}
        ]
        kafka.KafkaAdminClient(**python(server, "erin", "secret")).close()
    finally:
        admin.close()


def test_a_token_logs_in_by_oauthbearer(server: SecuredKafkaThread) -> None:
    token = server.run(lambda broker: broker.users.create_token("root"))
    options = {
        "bootstrap.servers": server.address,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "oauth_cb": lambda _: (token.text, time.time() + 3600),
        "log_level": 0,
    }
    producer = Producer(options)
    producer.poll(0)
    assert "orders" in producer.list_topics(timeout=SECONDS).topics
    before = server.closed("login_revoked")
    server.run(lambda broker: broker.users.drop_token(token.token.id))
    eventually(lambda: server.closed("login_revoked") > before, "the connection is closed", 3.0)


def test_librdkafka_logs_in_again_before_its_session_ends() -> None:
    settings = SecuritySettings(authentication="required", session_seconds=2)
    with SecuredKafkaThread(settings) as server:

        async def prepare(broker: Any) -> None:
            await broker.users.create("root", PASSWORD, ["admin"])
            await broker.topics.create("orders")

        server.run(prepare)
        producer = Producer(confluent(server, "root"))
        told: list[KafkaError | None] = []
        until = time.monotonic() + 6
        while time.monotonic() < until:
            producer.produce("orders", b"v", on_delivery=lambda error, _: told.append(error))
            producer.flush(SECONDS)
            time.sleep(0.1)
        assert set(told) == {None}
        assert server.closed("session_over") == 0
        assert server.closed("login_revoked") == 0
