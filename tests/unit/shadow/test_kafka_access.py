"""How a shadow's Kafka is reached, from its settings."""

import ssl
from pathlib import Path
from typing import Any

import pytest

from tailrace.client.config import ConnectionConfig
from tailrace.client.credentials import ServerAccess
from tailrace.model.address import Address
from tailrace.model.ids import ShadowId
from tailrace.model.shadow import Shadow
from tailrace.shadow.failures import ShadowError
from tailrace.shadow.kafka_access import KafkaAccess, kafka_access, server_access
from tailrace.shadow.sasl import authenticate

VARIABLE = "KAFKA_PASSWORD"


def access(settings: dict[str, str] | None = None, **fields: Any) -> KafkaAccess:
    given = {"bootstrap": "kafka-1:9092,[::1]:9093", **fields}
    return kafka_access(
        Shadow(id=ShadowId(1), name="prod", direction="to", topics=("a",), created_ms=0, settings=settings or {}, **given)
    )


def test_without_settings_it_is_plain_text() -> None:
    found = access()
    assert (found.addresses, found.tls, found.mechanism) == ([Address("kafka-1", 9092), Address("::1", 9093)], None, None)
    assert found.what == "the Kafka at kafka-1:9092,[::1]:9093"
    assert server_access("127.0.0.1:9092").addresses == [Address("127.0.0.1", 9092)]


def test_a_user_means_a_password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "first")
    found = access(user="anna", password_env=VARIABLE)
    assert (found.mechanism, found.user, found.password()) == ("PLAIN", "anna", "first")
    monkeypatch.setenv(VARIABLE, "changed")
    assert found.password() == "changed"


def test_the_password_may_be_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("secret \n")
    assert access(user="anna", password_file=str(file)).password() == "secret "


def test_a_password_that_is_not_there_is_told_when_it_is_needed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    with pytest.raises(ShadowError, match=f"the environment variable {VARIABLE} with the password is not set") as failed:
        access(user="anna", password_env=VARIABLE).password()
    assert failed.value.state == "failed"
    with pytest.raises(ShadowError, match="the file with the password can't be read"):
        access(user="anna", password_file=str(tmp_path / "none")).password()


@pytest.mark.parametrize("mechanism", ["scram-sha-512", "SCRAM-SHA-512"])
@pytest.mark.parametrize("name", ["sasl.mechanism", "sasl.mechanisms"])
def test_settings_have_librdkafkas_names_and_values(name: str, mechanism: str) -> None:
    found = access({"security.protocol": "SASL_SSL", name: mechanism, "client.id": "me", "socket.timeout.ms": "1500"}, user="a")
    assert found.mechanism == "SCRAM-SHA-512"
    assert (found.client_id, found.request_seconds) == ("me", 1.5)
    assert found.tls is not None
    assert (found.tls.check_hostname, found.tls.verify_mode) == (True, ssl.CERT_REQUIRED)


def test_certificates_are_checked_unless_they_are_not_to_be() -> None:
    names = access({"security.protocol": "ssl", "ssl.endpoint.identification.algorithm": "none"}).tls
    nothing = access({"security.protocol": "ssl", "enable.ssl.certificate.verification": "false"}).tls
    assert names is not None
    assert nothing is not None
    assert (names.check_hostname, names.verify_mode) == (False, ssl.CERT_REQUIRED)
    assert (nothing.check_hostname, nothing.verify_mode) == (False, ssl.CERT_NONE)


@pytest.mark.parametrize(
    ("settings", "fields", "why"),
    [
        ({"security.protocol": "tls"}, {}, "security.protocol is 'tls', not one of plaintext, ssl"),
        ({"security.protocol": "sasl_ssl"}, {}, "there is no user"),
        ({"security.protocol": "ssl"}, {"user": "a"}, "takes no user; use sasl_ssl"),
        ({"sasl.mechanism": "GSSAPI"}, {"user": "a"}, "'GSSAPI', not one of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512"),
        ({"security.protocol": "ssl", "ssl.ca.location": "/nowhere"}, {}, "its certificates can't be read"),
        ({"socket.timeout.ms": "soon"}, {}, "socket.timeout.ms is 'soon', not a number of milliseconds"),
        ({"socket.connection.setup.timeout.ms": "0"}, {}, "not a number of milliseconds from 1"),
    ],
)
def test_settings_that_make_no_sense_are_told(settings: dict[str, str], fields: dict[str, str], why: str) -> None:
    with pytest.raises(ShadowError, match=why) as failed:
        access(settings, **fields)
    assert failed.value.state == "failed"
    assert "ALTER SHADOW" in failed.value.advice


def own_access(url: str = "http://a", **given: Any) -> KafkaAccess:
    """How the Kafka listener of the server is reached by somebody who reaches it so over HTTP."""
    return server_access("127.0.0.1:9092", ServerAccess(url, ConnectionConfig(**given), {}))


def test_the_server_itself_is_reached_with_what_it_is_reached_with_over_http() -> None:
    assert (own_access().tls, own_access().mechanism) == (None, None)
    by_password = own_access(user="anna", password="secret")  # noqa: S106
    assert (by_password.mechanism, by_password.user, by_password.password()) == ("SCRAM-SHA-256", "anna", "secret")
    by_token = own_access(token="tlr_1_2")  # noqa: S106
    assert (by_token.mechanism, by_token.password()) == ("OAUTHBEARER", "tlr_1_2")
    assert own_access("https://a").tls is not None
    assert "secret" not in repr(by_password)


def test_a_token_is_sent_as_bearer() -> None:
    (message,) = authenticate("OAUTHBEARER", "", "tlr_1_2")
    assert message == b"n,,\x01auth=Bearer tlr_1_2\x01\x01"
