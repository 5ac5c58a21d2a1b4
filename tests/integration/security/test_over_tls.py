"""The SDK and the command line log in over TLS, by password and token, from settings and from the environment."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tailrace.client import AsyncClient, AuthenticationError, Client, TailraceError
from tests.integration.cli.commands import Commands
from tests.integration.security.secured import PASSWORD, SecuredServer, tls_server
from tests.support.certificates import Authority
from tests.support.patience import PATIENCE_SECONDS

TOPIC = "acme.orders"
VARIABLES = ("USER", "PASSWORD", "PASSWORD_FILE", "TOKEN", "TOKEN_FILE", "CA_FILE", "CERTIFICATE_FILE", "KEY_FILE")


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(f"TAILRACE_{name}", raising=False)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, authority: Authority) -> Iterator[SecuredServer]:
    with tls_server(tmp_path_factory.mktemp("server") / "data", authority) as running:
        running.sql(f"CREATE TOPIC {TOPIC}")
        yield running


@pytest.fixture(scope="module")
def user(server: SecuredServer) -> str:
    return server.create_user(f"CONSUME, PUBLISH ON TOPIC {TOPIC}", "ALL ON GROUP g")


@pytest.fixture(params=["password", "token", "certificate"])
def given(request: pytest.FixtureRequest, server: SecuredServer, user: str, authority: Authority) -> dict[str, str]:
    """Settings of a client, whose names in capitals are those of the variables."""
    if request.param == "password":
        return {"ca_file": str(authority.file), "user": user, "password": PASSWORD}
    if request.param == "token":
        return {"ca_file": str(authority.file), "token": server.create_token(user)[1]}
    shown = authority.client(user)
    return {"ca_file": str(authority.file), "certificate_file": str(shown.certificate), "key_file": str(shown.key)}


def use(url: str, settings: dict[str, Any]) -> None:
    with Client(url, **settings) as client, client.publisher() as publisher:
        published = publisher.publish(TOPIC, {"id": 1})
        assert published.cursor is not None
        with client.consumer(topic=TOPIC, group_id="g", poll_timeout=5_000) as consumer:
            assert consumer.poll()
        with client.subscriber().subscribe(TOPIC, after=published.cursor - 1) as events:
            assert next(iter(events)).cursor == published.cursor


async def use_asynchronously(url: str, settings: dict[str, Any]) -> None:
    async with AsyncClient(url, **settings) as client, client.publisher() as publisher:
        published = await publisher.publish(TOPIC, {"id": 1})
        assert published.cursor is not None
        async with client.subscriber().subscribe(TOPIC, after=published.cursor - 1) as events:
            assert (await anext(events)).cursor == published.cursor


def test_both_clients_log_in_from_settings_and_the_environment(
    server: SecuredServer, given: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    use(server.url, given)
    asyncio.run(asyncio.wait_for(use_asynchronously(server.url, given), PATIENCE_SECONDS))
    with pytest.raises(AuthenticationError):
        use(server.url, {"ca_file": given["ca_file"]})
    for name, value in given.items():
        monkeypatch.setenv(f"TAILRACE_{name.upper()}", value)
    use(server.url, {})
    asyncio.run(asyncio.wait_for(use_asynchronously(server.url, {}), PATIENCE_SECONDS))
    monkeypatch.delenv("TAILRACE_CA_FILE")
    with pytest.raises(TailraceError, match="not trusted"):
        use(server.url, {})


def test_a_command_logs_in_from_flags_and_the_environment(
    server: SecuredServer, given: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flags = ["--ca-file", given["ca_file"]]
    for name in given.keys() & {"password", "token"}:
        file = tmp_path / name
        file.write_text(given[name])
        flags += [f"--{name}-file", str(file)]
    if "user" in given:
        flags += ["--user", given["user"]]
    with Commands(server.url) as commands:
        if "certificate_file" not in given:  # which has no flag
            commands.done("publish", TOPIC, "1", *flags)
        assert commands.run("publish", TOPIC, "1", "--ca-file", given["ca_file"]).code == 1
        for name, value in given.items():
            monkeypatch.setenv(f"TAILRACE_{name.upper()}", value)
        commands.done("publish", TOPIC, "1")
        assert TOPIC in commands.done("topics", "list").out
