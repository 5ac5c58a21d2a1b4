"""The SDK and the command line at a real server that demands authentication."""

import asyncio
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tailrace.client import (
    AsyncClient,
    AuthenticationError,
    Client,
    ConfigurationError,
    ConnectionConfig,
    ForbiddenError,
    TailraceError,
)
from tests.integration.cli.commands import Commands, Ended
from tests.integration.security.secured import PASSWORD, SecuredServer, secured_server, tls_server
from tests.support.certificates import Authority
from tests.support.patience import PATIENCE_SECONDS

VARIABLES = ("USER", "PASSWORD", "PASSWORD_FILE", "TOKEN", "TOKEN_FILE", "CA_FILE", "CERTIFICATE_FILE", "KEY_FILE")
GRANTS = ("CONSUME, PUBLISH ON TOPIC acme.orders", "ALL ON GROUP g", "ALL ON QUEUE q", "SELECT, INSERT ON TABLE acme.bills")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredServer]:
    with secured_server(tmp_path_factory.mktemp("server") / "data") as running:
        running.sql("CREATE TOPIC acme.orders")
        running.sql("CREATE TABLE acme.bills (id INT PRIMARY KEY, total INT)")
        yield running


@pytest.fixture(scope="module")
def user(server: SecuredServer) -> str:
    return server.create_user(*GRANTS)


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(f"TAILRACE_{name}", raising=False)


def use_everything(client: Client) -> None:
    with client, client.publisher() as publisher:
        published = publisher.publish("acme.orders", {"id": 1})
        assert published.cursor is not None
        with client.consumer(topic="acme.orders", group_id="g", poll_timeout=5_000) as consumer:
            assert consumer.poll()
        with client.subscriber().subscribe("acme.>", after=published.cursor - 1) as events:
            assert next(iter(events)).cursor == published.cursor
        with client.subscriber().subscribe_queue("acme.orders", "q", poll_timeout=5_000) as queue:
            (event, *_) = queue.poll()
            queue.ack(event)


def test_a_client_logs_in_by_password_token_address_and_environment(
    server: SecuredServer, user: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, token = server.create_token(user)
    file = tmp_path / "secret"
    use_everything(Client(server.url, user=user, password=PASSWORD))
    use_everything(Client(server.url, token=token))
    use_everything(Client(server.url.replace("//", f"//{user}:{PASSWORD}@")))
    for variables in (
        {"USER": user, "PASSWORD": PASSWORD},
        {"USER": user, "PASSWORD_FILE": PASSWORD},
        {"TOKEN": token},
        {"TOKEN_FILE": token},
    ):
        with monkeypatch.context() as environment:
            for name, value in variables.items():
                if name.endswith("_FILE"):
                    file.write_text(value + "\n")
                environment.setenv(f"TAILRACE_{name}", str(file) if name.endswith("_FILE") else value)
            use_everything(Client(server.url))


def test_an_asynchronous_client_logs_in(server: SecuredServer, user: str) -> None:
    async def use() -> None:
        async with AsyncClient(server.url, user=user, password=PASSWORD) as client, client.publisher() as publisher:
            published = await publisher.publish("acme.orders", {"id": 1})
            assert published.cursor is not None
            async with client.consumer(topic="acme.orders", group_id="g", poll_timeout=5_000) as consumer:
                assert await consumer.poll()
            async with client.subscriber().subscribe("acme.>", after=published.cursor - 1) as events:
                assert (await anext(events)).cursor == published.cursor

    asyncio.run(asyncio.wait_for(use(), PATIENCE_SECONDS))


def test_who_is_wrong_or_may_not_gets_an_error_of_its_class_at_once(
    server: SecuredServer, user: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    stranger = server.create_user()
    planted = "planted-and-wrong-secret"
    wrong: list[dict[str, Any]] = [{}, {"user": user, "password": planted}, {"token": planted}]
    for given in wrong:
        client = Client(server.url, **given)
        errors = failures(client)
        assert [type(error) for error in errors] == [AuthenticationError] * len(errors)
        shown = [
            repr(errors),
            str(errors),
            repr(client),
            repr(ConnectionConfig(**given)),
            *map(str, caplog.records),
            caplog.text,
        ]
        assert [text for text in shown if planted in text] == []
        assert not any(error.retriable for error in errors)
    for error in failures(Client(server.url, user=stranger, password=PASSWORD)):
        assert isinstance(error, ForbiddenError)


def failures(client: Client) -> list[TailraceError]:
    def publish() -> None:
        with client.publisher() as publisher:
            publisher.publish("acme.orders", 1)

    def poll() -> None:
        with client.consumer(topic="acme.orders", group_id="g") as consumer:
            consumer.poll()

    def subscribe() -> None:
        with client.subscriber().subscribe("acme.orders", cursor="beginning") as events:
            next(iter(events))

    found = []
    with client:
        for action in (publish, poll, subscribe):
            with pytest.raises(TailraceError) as raised:
                action()
            found.append(raised.value)
    return found


def test_a_subscription_ends_with_its_token(server: SecuredServer, user: str) -> None:
    token_id, token = server.create_token(user)
    with Client(server.url, token=token) as client, client.subscriber().subscribe("acme.>") as events:
        server.sql(f"DROP TOKEN '{token_id}'")
        with pytest.raises(AuthenticationError):
            next(iter(events))


def test_a_client_trusts_and_shows_certificates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    authority = Authority(tmp_path)
    mine, foreign = authority.client("user_1"), Authority(tmp_path, "other").client("user_1")
    with tls_server(tmp_path / "data", authority) as server:
        server.sql("CREATE TOPIC acme.orders")
        user = server.create_user(*GRANTS[:3])
        assert user == "user_1"
        certificate: dict[str, Any] = {"certificate_file": mine.certificate, "key_file": mine.key}
        use_everything(Client(server.url, ca_file=authority.file, **certificate))
        use_everything(Client(server.url, ca_file=authority.file, user=user, password=PASSWORD))
        asyncio.run(asyncio.wait_for(publish_once(server.url, ca_file=authority.file, **certificate), PATIENCE_SECONDS))
        with Client(server.url, ca_file=authority.file) as client, pytest.raises(AuthenticationError):
            failing_publish(client)
        wrong: dict[str, Any] = {"certificate_file": foreign.certificate, "key_file": foreign.key}
        with Client(server.url, ca_file=authority.file, **wrong) as client, pytest.raises(TailraceError):
            failing_publish(client)
        monkeypatch.setenv("TAILRACE_CA_FILE", str(authority.file))
        monkeypatch.setenv("TAILRACE_CERTIFICATE_FILE", str(mine.certificate))
        monkeypatch.setenv("TAILRACE_KEY_FILE", str(mine.key))
        use_everything(Client(server.url))
        with Commands(server.url) as commands:
            assert commands.done("topics", "list", "--json").objects[0]["name"] == "acme.orders"


async def publish_once(url: str, **settings: Any) -> None:
    async with AsyncClient(url, **settings) as client, client.publisher() as publisher:
        await publisher.publish("acme.orders", 1)


def failing_publish(client: Client) -> None:
    with client.publisher(api_timeout=500) as publisher:
        publisher.publish("acme.orders", 1)


@pytest.fixture
def tailrace(server: SecuredServer) -> Iterator[Commands]:
    with Commands(server.url) as commands:
        yield commands


def refused(ended: Ended, *words: str) -> None:
    assert ended.code == 1
    assert len(ended.err.strip().splitlines()) == 1, ended.err
    assert [word for word in words if word not in ended.err] == []


COMMANDS = (
    ("sql", "-c", "SELECT id FROM acme.bills"),
    ("topics", "list"),
    ("topics", "describe", "acme.orders"),
    ("groups", "list"),
    ("routes", "list"),
    ("publish", "acme.orders", "1"),
    ("consume", "acme.orders", "-n", "1"),
    ("copy", "acme.bills", "to", "-", "--format", "csv"),
)


@pytest.mark.parametrize("command", COMMANDS, ids=[words[0] + "_" + words[1] for words in COMMANDS])
def test_a_command_logs_in_by_files_and_variables(
    server: SecuredServer,
    user: str,
    tailrace: Commands,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    command: tuple[str, ...],
) -> None:
    _, token = server.create_token(user)
    (tmp_path / "password").write_text(f"{PASSWORD}\n")
    (tmp_path / "token").write_text(token)
    refused(tailrace.run(*command), "does not know who you are", "--user", "TAILRACE_TOKEN")
    tailrace.done(*command, "--user", user, "--password-file", str(tmp_path / "password"))
    tailrace.done(*command, "--token-file", str(tmp_path / "token"))
    refused(tailrace.run(*command, "--user", user), "there is no password for user")
    monkeypatch.setenv("TAILRACE_TOKEN", token)
    tailrace.done(*command)
    monkeypatch.setenv("TAILRACE_TOKEN", "planted-wrong-token")
    ended = tailrace.run(*command)
    refused(ended, "does not know who you are")
    assert "planted" not in ended.err


def test_a_command_says_what_somebody_may_not_do(
    server: SecuredServer, tailrace: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TAILRACE_USER", server.create_user())
    monkeypatch.setenv("TAILRACE_PASSWORD", PASSWORD)
    refused(
        tailrace.run("publish", "acme.orders", "1"), "may not publish topic 'acme.orders'", "have an administrator grant it"
    )
    refused(tailrace.run("topics", "describe", "nothing"), "may not describe topic 'nothing'")


def test_a_password_is_asked_for_on_a_terminal(server: SecuredServer, user: str) -> None:
    command = [sys.executable, "-m", "tailrace", "sql", "--server", server.url, "--user", user, "-c", "SELECT 40 + 2 AS sum"]
    parent, child = os.openpty()
    process = subprocess.Popen(
        command, stdin=child, stdout=child, stderr=child, start_new_session=True, env={**os.environ, "TERM": "dumb"}
    )
    os.close(child)
    shown = b""
    try:
        while b"Password of" not in shown:
            shown += os.read(parent, 4096)
        os.write(parent, f"{PASSWORD}\n".encode())
        while True:
            try:
                more = os.read(parent, 4096)
            except OSError:
                break  # the terminal ends with the process
            if not more:
                break
            shown += more
        assert process.wait(PATIENCE_SECONDS) == 0, shown
    finally:
        process.kill()
        process.wait()
        os.close(parent)
    assert b"42" in shown
    assert PASSWORD.encode() not in shown


def test_no_secret_is_a_flag(tailrace: Commands) -> None:
    for flag in ("--password", "--token"):
        assert tailrace.run("topics", "list", flag, "secret").code == 2


def test_settings_that_contradict_each_other_are_refused_before_anything_is_sent(tmp_path: Path) -> None:
    for given in (
        {"user": "alice"},
        {"password": PASSWORD},
        {"user": "alice", "password": PASSWORD, "token": "t"},
        {"user": "a:b", "password": PASSWORD},
        {"token": "with space"},
    ):
        with pytest.raises(ConfigurationError) as refused_settings:
            failing_publish(Client("http://127.0.0.1:9", **given))
        assert PASSWORD not in str(refused_settings.value)
