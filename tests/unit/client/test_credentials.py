"""Credentials come from settings, the address or the environment, and are shown nowhere."""

import base64
import pickle
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tailrace.client import ConfigurationError, ConnectionConfig, ConsumerConfig, PublisherConfig
from tailrace.client.credentials import CredentialSource, ServerAccess, split_url, with_defaults
from tailrace.client.http11 import DirectAddress, HttpRequest, checked_url, encode_request
from tailrace.model.server_credentials import CERTIFICATE_VARIABLE

URL = "http://127.0.0.1:8080"
SECRET = "planted-secret"  # noqa: S105
NONE = ConnectionConfig()
BASIC = "Basic " + base64.b64encode(f"alice:{SECRET}".encode()).decode()
BEARER = f"Bearer {SECRET}"


def authorization(config: ConnectionConfig = NONE, url: str = URL, **environment: str) -> str | None:
    return ServerAccess(url, config, {f"TAILRACE_{name}": value for name, value in environment.items()}).authorization


def test_settings_win_over_the_address_and_that_over_the_environment() -> None:
    token: dict[str, Any] = {"TOKEN": "from-environment"}
    assert authorization() is None
    assert authorization(ConnectionConfig(user="alice", password=SECRET), **token) == BASIC
    assert authorization(ConnectionConfig(token=SECRET), USER="alice", PASSWORD="other") == BEARER  # noqa: S106
    assert authorization(url=f"http://alice:{SECRET}@127.0.0.1", **token) == BASIC
    assert authorization(ConnectionConfig(token=SECRET), f"http://alice:{SECRET}@127.0.0.1") == BEARER
    assert authorization(**token) == "Bearer from-environment"
    assert authorization(TOKEN=SECRET, USER="alice", PASSWORD="other") == BEARER  # noqa: S106
    assert authorization(USER="alice", PASSWORD=SECRET) == BASIC
    assert authorization(ConnectionConfig(user="alice"), PASSWORD=SECRET) == BASIC


def test_secrets_come_from_the_first_line_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text(f"{SECRET}\r\nmore")
    assert authorization(TOKEN_FILE=str(file)) == BEARER
    assert authorization(USER="alice", PASSWORD_FILE=str(file)) == BASIC
    assert CredentialSource(user="alice", password_file=str(file)).settings() == {"user": "alice", "password": SECRET}
    assert CredentialSource(token_file=str(file), ca_file="ca").settings() == {"token": SECRET, "ca_file": "ca"}
    for broken in ("", "\n"):
        file.write_text(broken)
        with pytest.raises(ConfigurationError, match="is empty"):
            CredentialSource(token_file=str(file)).settings()
    with pytest.raises(ConfigurationError, match=r"can.t read .*/nothing"):
        authorization(TOKEN_FILE=str(tmp_path / "nothing"))


def test_a_source_names_variables_and_has_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    source = CredentialSource(user="alice", password_env="PASSWORD_OF_ALICE")  # noqa: S106
    with pytest.raises(ConfigurationError, match="PASSWORD_OF_ALICE"):
        source.settings()
    monkeypatch.setenv("PASSWORD_OF_ALICE", SECRET)
    assert source.settings()["password"] == SECRET
    assert SECRET.encode() not in pickle.dumps(source) + repr(source).encode() + msgspec.json.encode(source)


@pytest.mark.parametrize(
    ("config", "wrong"),
    [
        (ConnectionConfig(user="alice"), "no password for user 'alice'"),
        (ConnectionConfig(password=SECRET), "no user"),
        (ConnectionConfig(user="alice", password=SECRET, token=SECRET), "both given"),
        (ConnectionConfig(user="a:b", password=SECRET), "without ':'"),
        (ConnectionConfig(token=f"{SECRET}\n"), "the token has characters"),
    ],
)
def test_errors_have_no_secret(config: ConnectionConfig, wrong: str) -> None:
    with pytest.raises(ConfigurationError, match=wrong) as refused:
        ServerAccess(URL, config, {})
    assert SECRET not in str(refused.value)


@pytest.mark.parametrize("name", ["password", "token"])
def test_a_secret_of_a_wrong_type_is_not_shown(name: str) -> None:
    with pytest.raises(ConfigurationError, match=f"{name} is \\.\\.\\.") as refused:
        ConnectionConfig(**{name: [SECRET]})  # type: ignore[arg-type]
    assert SECRET not in str(refused.value)


def test_configs_hide_their_secrets() -> None:
    given = {"user": "alice", "password": SECRET, "token": SECRET}
    configs = (
        ConnectionConfig(**given),  # type: ignore[arg-type]
        PublisherConfig(**given),  # type: ignore[arg-type]
        ConsumerConfig(topic="a", group_id="g", **given),  # type: ignore[arg-type]
        ServerAccess(URL, ConnectionConfig(token=SECRET), {}),
        ServerAccess(f"http://alice:{SECRET}@127.0.0.1", NONE, {}),
    )
    for config in configs:
        assert SECRET not in repr(config) + str(config)
    assert "user='alice'" in repr(configs[0])
    assert SECRET not in str(ConsumerConfig(topic="a", group_id="g", token=SECRET).__rich_repr__())


def test_an_address_is_shown_without_its_password() -> None:
    assert split_url("https://al%20ice:se%40cret@[::1]:8443/x/") == ("https://[::1]:8443/x", ("al ice", "se@cret"))
    assert split_url(URL) == (URL, None)
    for wrong in (f"ftp://alice:{SECRET}@server", f"http://alice:{SECRET}@server:99999"):
        with pytest.raises(ConfigurationError) as refused:
            checked_url(wrong)
        assert SECRET not in str(refused.value)


def test_a_client_completes_what_a_config_lacks_and_mixes_no_logins() -> None:
    defaults = ConnectionConfig(user="alice", password=SECRET, ca_file="ca")
    assert with_defaults(PublisherConfig(), defaults) == PublisherConfig(user="alice", password=SECRET, ca_file="ca")
    own = with_defaults(PublisherConfig(token="own"), defaults)  # noqa: S106
    assert (own.user, own.password, own.token, own.ca_file) == (None, None, "own", "ca")


def test_a_process_of_the_server_trusts_the_certificate_that_it_was_given() -> None:
    environment = {"TAILRACE_CA_FILE": "authorities"}
    assert ServerAccess(URL, NONE, environment).ca_file == "authorities"
    assert ServerAccess(URL, NONE, {**environment, CERTIFICATE_VARIABLE: "pinned"}).ca_file is None
    assert ServerAccess(URL, ConnectionConfig(ca_file="own"), environment).ca_file == "own"


def test_the_header_is_sent_before_the_body() -> None:
    address = DirectAddress("127.0.0.1", 8080, b"127.0.0.1:8080", b"")
    head, _, body = encode_request(HttpRequest("POST", "/x", "1", b"{}"), address, b"authorization: Basic x\r\n").partition(
        b"\r\n\r\n"
    )
    assert b"authorization: Basic x" in head.split(b"\r\n")
    assert body == b"{}"
