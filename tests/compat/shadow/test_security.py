"""A Kafka that asks who we are, over TLS."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tailrace.model.address import Address
from tests.compat.tools.programs import KAFKA_JARS
from tests.support.apache_kafka import ApacheKafka
from tests.support.ports import free_port
from tests.support.proxy import FaultyProxy
from tests.support.shadow_pair import ShadowPair, TestedShadow, beside
from tests.support.tls import make_certificate

USER, PASSWORD = "anna", "it is a secret"
MODULE = "org.apache.kafka.common.security"


class Secured(ShadowPair):
    """The other Kafka has a second listener, which asks who we are."""

    secured: str
    authority: Path


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder = tmp_path_factory.mktemp("secured")
    certificate = make_certificate(folder)
    password = folder / "password"
    password.write_text(f"{PASSWORD}\n")
    listens, secured = Address("127.0.0.1", free_port()), Address("127.0.0.1", free_port())
    both, controller = f"PLAINTEXT://{listens},SECURE://{secured}", Address("127.0.0.1", free_port())
    settings = {
        "listeners": f"{both},CONTROLLER://{controller}",
        "advertised.listeners": both,
        "controller.quorum.voters": f"1@{controller}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SECURE:SASL_SSL",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        "listener.name.secure.plain.sasl.jaas.config": f'{MODULE}.plain.PlainLoginModule required user_{USER}="{PASSWORD}";',
        "listener.name.secure.scram-sha-256.sasl.jaas.config": f"{MODULE}.scram.ScramLoginModule required;",
        "listener.name.secure.scram-sha-512.sasl.jaas.config": f"{MODULE}.scram.ScramLoginModule required;",
        "listener.name.secure.ssl.keystore.type": "PEM",
        "listener.name.secure.ssl.keystore.location": certificate,
    }
    scram = [f"SCRAM-SHA-{bits}=[name={USER},password={PASSWORD}]" for bits in (256, 512)]
    arguments = [part for each in scram for part in ("--add-scram", each)]
    kafka = ApacheKafka(KAFKA_JARS, folder / "kafka", listens, None, settings, arguments)
    try:
        kafka.start()
        with FaultyProxy(f"http://{listens}") as unused, beside(folder, kafka, unused) as running:
            found = Secured(running.server, kafka, unused)
            found.secured, found.authority = str(secured), folder
            yield found
    finally:
        kafka.kill()


def create(shadow: TestedShadow, pair: Secured, **options: str) -> None:
    given = {
        "topics": f"{shadow.name}.>",
        "user": USER,
        "password_file": str(pair.authority / "password"),
        '"security.protocol"': "SASL_SSL",
        '"ssl.ca.location"': str(pair.authority / "certificate.pem"),
        **options,
    }
    shown = ", ".join(f"{name} = '{value}'" for name, value in given.items())
    shadow.sql(f"CREATE SHADOW {shadow.name} TO KAFKA '{pair.secured}' WITH ({shown})")


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_user_with_a_password_copies_over_tls(outward: TestedShadow, pair: Secured, mechanism: str) -> None:
    topic = outward.topic()
    outward.origin.create(topic, 2)
    outward.origin.send(topic, [(b"k", b"v" * 100_000) for _ in range(50)])
    create(outward, pair, **{'"sasl.mechanism"': mechanism})
    outward.await_state("live")
    outward.await_equal()
    outward.command("verify")
    outward.command("cut-over")


@pytest.mark.parametrize(
    ("options", "error", "advice"),
    [
        ({"user": "berta"}, "does not let user 'berta' in", "Check the user and the password"),
        ({"user": "berta", '"sasl.mechanism"': "SCRAM-SHA-512"}, "", "Check the user and the password"),
        ({'"sasl.mechanism"': "SCRAM-SHA-256", "password_file": "/dev/null"}, "", "Check the user and the password"),
    ],
)
def test_a_user_who_is_not_let_in_is_told(
    outward: TestedShadow, pair: Secured, options: dict[str, str], error: str, advice: str
) -> None:
    create(outward, pair, copied_by="command", **options)
    with outward.run():
        assert advice in str(outward.await_state("failed", error=error).advice)


def test_a_certificate_of_an_unknown_authority_is_told(outward: TestedShadow, pair: Secured) -> None:
    create(outward, pair, copied_by="command", **{'"ssl.ca.location"': "/etc/ssl/certs/ca-certificates.crt"})
    with outward.run():
        assert "ssl.ca.location" in str(outward.await_state("retrying", error="certificate verify failed").advice)


def test_plain_text_to_a_listener_with_tls_is_told(outward: TestedShadow, pair: Secured) -> None:
    create(outward, pair, copied_by="command", **{'"security.protocol"': "sasl_plaintext"})
    with outward.run():
        outward.await_state("retrying", error=pair.secured)
