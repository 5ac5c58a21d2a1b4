"""Spark's Kafka connector logs in as the pipeline does, and Spark sees no secret."""

from pathlib import Path

import pytest

from tailrace.client.credentials import CredentialSource
from tailrace.model.server_credentials import CERTIFICATE_VARIABLE, MECHANISM_VARIABLE, TOKEN_VARIABLE
from tailrace.pipeline.connection import ServerAddress
from tailrace.pipeline.errors import OptionError
from tailrace.pipeline.kafka_login import kafka_login, share_password
from tailrace.pipeline.options import sink_options, source_options

SECRET = "planted-secret"  # noqa: S105


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in ("USER", "PASSWORD", "PASSWORD_FILE", "TOKEN", "TOKEN_FILE", "CA_FILE"):
        monkeypatch.delenv(f"TAILRACE_{name}", raising=False)
    return monkeypatch


def test_nothing_is_needed_where_nobody_logs_in() -> None:
    assert kafka_login(ServerAddress("http://127.0.0.1:8080")) == {}


def test_a_user_logs_in_with_a_password_that_java_reads_from_its_environment(
    environment: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    environment.setenv("MY_PASSWORD", SECRET)
    found = kafka_login(ServerAddress("http://a", login=CredentialSource(user='al"ice', password_env="MY_PASSWORD")))  # noqa: S106
    assert found["security.protocol"] == "SASL_PLAINTEXT"
    assert found["sasl.jaas.config"].endswith('required username="al\\"ice" password="${env:MY_PASSWORD}";')
    assert SECRET not in str(found)
    file = tmp_path / "password"
    file.write_text(SECRET)
    address = ServerAddress("https://a", "/ca.pem", CredentialSource(user="alice", password_file=str(file)))
    environment.setenv("TAILRACE_PASSWORD", "before")
    share_password(address)
    found = kafka_login(address)
    assert found["security.protocol"] == "SASL_SSL"
    assert found["ssl.truststore.location"] == "/ca.pem"
    assert "${env:TAILRACE_PASSWORD}" in found["sasl.jaas.config"]
    assert SECRET not in str(found)


def test_a_pipeline_of_the_server_logs_in_with_what_it_was_given(environment: pytest.MonkeyPatch) -> None:
    environment.setenv(MECHANISM_VARIABLE, "SCRAM-SHA-512")
    environment.setenv(TOKEN_VARIABLE, SECRET)
    environment.setenv(CERTIFICATE_VARIABLE, "/server.pem")
    found = kafka_login(ServerAddress("https://127.0.0.1:8080"))
    assert (found["sasl.mechanism"], found["ssl.truststore.location"]) == ("SCRAM-SHA-512", "/server.pem")
    assert found["ssl.endpoint.identification.algorithm"] == ""
    assert 'username="SERVER" password="${env:TAILRACE_TOKEN}"' in found["sasl.jaas.config"]


def test_a_token_is_refused_with_what_to_do(environment: pytest.MonkeyPatch) -> None:
    environment.setenv("TAILRACE_TOKEN", SECRET)
    with pytest.raises(OptionError, match="--password-file"):
        kafka_login(ServerAddress("http://a"))


def test_options_of_spark_name_variables_and_files() -> None:
    options = {"subscribe": "a", "user": "alice", "passwordEnv": "P", "caFile": "/ca.pem", "keyFile": "/key.pem"}
    found = source_options(options, streaming=True).server
    assert found.source == CredentialSource(user="alice", password_env="P", ca_file="/ca.pem", key_file="/key.pem")  # noqa: S106
    assert sink_options({"tokenfile": "/token"}).server.source == CredentialSource(token_file="/token")  # noqa: S106


@pytest.mark.parametrize("name", ["password", "TOKEN"])
def test_a_secret_as_an_option_is_refused_and_not_repeated(name: str) -> None:
    with pytest.raises(OptionError, match=r"passwordEnv|tokenEnv") as refused:
        sink_options({name: SECRET})
    assert SECRET not in str(refused.value)
