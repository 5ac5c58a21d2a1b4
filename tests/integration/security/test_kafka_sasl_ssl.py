"""Each SASL mechanism over TLS, at a real server with nothing switched off: three clients, and a client certificate beside."""

import asyncio
import ssl
import time
from collections.abc import Iterator
from typing import Any

import aiokafka
import kafka
import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient
from kafka.net.sasl.oauth import AbstractTokenProvider

from tests.integration.security.secured import ADMIN, PASSWORD, SecuredServer, secured_server
from tests.support.certificates import Authority

SECONDS = 30
MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN")
TOPIC = "app.orders"
Tls = tuple[SecuredServer, Authority]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tls]:
    folder = tmp_path_factory.mktemp("sasl_ssl")
    authority = Authority(folder)
    issued = authority.server()
    toml = f"""
[security]
authentication = "required"
tls_certificate = "{issued.certificate}"
tls_key = "{issued.key}"
client_ca = "{authority.file}"
client_certificates = "accepted"
"""
    with secured_server(folder / "data", toml, str(authority.file)) as running:
        running.sql(f"CREATE TOPIC {TOPIC}")
        running.sql("CREATE TABLE app.items (id BIGINT PRIMARY KEY)")
        yield running, authority


def librdkafka(server: Tls, **settings: Any) -> dict[str, Any]:
    return {
        "bootstrap.servers": server[0].process.kafka,
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(server[1].file),
        "log_level": 0,
        **{name.replace("_", "."): value for name, value in settings.items()},
    }


def python(server: Tls, name: str, mechanism: str) -> dict[str, Any]:
    return {
        "bootstrap_servers": server[0].process.kafka,
        "security_protocol": "SASL_SSL",
        "ssl_context": ssl.create_default_context(cafile=str(server[1].file)),
        "sasl_mechanism": mechanism,
        "sasl_plain_username": name,
        "sasl_plain_password": PASSWORD,
    }


def sent(options: dict[str, Any]) -> KafkaError | None:
    told: list[KafkaError | None] = []
    producer = Producer({**options, "message.timeout.ms": 10_000})
    producer.poll(0)
    producer.produce(TOPIC, b"v", on_delivery=lambda error, _: told.append(error))
    producer.flush(SECONDS)
    assert len(told) == 1
    return told[0]


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_passwords_log_in(server: Tls, mechanism: str) -> None:
    name = server[0].create_user(f"PUBLISH ON TOPIC {TOPIC}")
    credentials = {"sasl_mechanism": mechanism, "sasl_username": name, "sasl_password": PASSWORD}
    assert sent(librdkafka(server, **credentials)) is None
    producer = kafka.KafkaProducer(**python(server, name, mechanism))
    producer.send(TOPIC, b"v").get(SECONDS)
    producer.close()

    async def send() -> None:
        async with aiokafka.AIOKafkaProducer(**python(server, name, mechanism)) as producer:
            await producer.send_and_wait(TOPIC, b"v")

    asyncio.run(send())
    with pytest.raises(KafkaException):
        AdminClient(librdkafka(server, **{**credentials, "sasl_password": "wrong"})).list_topics(timeout=2)
    # What succeeds ends the pauses of this address.
    assert AdminClient(librdkafka(server, **credentials)).list_topics(timeout=SECONDS)


def test_tokens_log_in_by_oauthbearer(server: Tls) -> None:
    name = server[0].create_user(f"PUBLISH ON TOPIC {TOPIC}")
    _, token = server[0].create_token(name)
    options = librdkafka(server, sasl_mechanism="OAUTHBEARER")
    assert sent({**options, "oauth_cb": lambda _: (token, time.time() + 600)}) is None

    class Provider(AbstractTokenProvider):
        def token(self) -> str:
            return token

    options = {**python(server, name, "OAUTHBEARER"), "sasl_oauth_token_provider": Provider()}
    producer = kafka.KafkaProducer(**options)
    producer.send(TOPIC, b"v").get(SECONDS)
    producer.close()


def test_a_certificate_alone_is_a_login_and_a_password_beside_it_wins(server: Tls) -> None:
    running, authority = server
    name, other = running.create_user(f"PUBLISH ON TOPIC {TOPIC}"), running.create_user()
    issued = authority.client(name, file=name)
    shown = {"ssl_certificate_location": str(issued.certificate), "ssl_key_location": str(issued.key)}
    assert sent(librdkafka(server, security_protocol="SSL", **shown)) is None
    as_other = {"sasl_mechanism": "SCRAM-SHA-256", "sasl_username": other, "sasl_password": PASSWORD}
    refused = sent(librdkafka(server, **shown, **as_other))
    assert refused is not None
    assert refused.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    with pytest.raises(KafkaException):
        AdminClient(librdkafka(server, security_protocol="SSL")).list_topics(timeout=2)


def test_acls_of_kafka_and_grants_of_sql_are_one(server: Tls) -> None:
    admin = kafka.KafkaAdminClient(**python(server, ADMIN, "SCRAM-SHA-512"))
    name = server[0].create_user(f"CONSUME ON TOPIC {TOPIC}", "SELECT ON TABLE app.items")
    wanted = kafka.admin.ACLFilter(
        f"User:{name}",
        None,
        kafka.admin.ACLOperation.ANY,
        kafka.admin.ACLPermissionType.ANY,
        kafka.admin.ResourcePatternFilter(kafka.admin.ResourceType.ANY, None, kafka.admin.ACLResourcePatternType.ANY),
    )
    try:
        found, _ = admin.describe_acls(wanted)
        assert {(acl.resource_pattern.resource_name, acl.operation.name) for acl in found} == {
            (TOPIC, "READ"),
            ("_changes.app.items", "READ"),
        }
        admin.delete_acls([wanted])
        assert server[0].sql(f"SHOW GRANTS FOR {name}") == []
    finally:
        admin.close()
