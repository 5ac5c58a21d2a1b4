"""The client and the command line behind TLS: what is trusted, and what is said where it is not."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tailrace.cli.errors import ExitCode
from tailrace.client import AsyncClient, Client, ConfigurationError, ConsumerConfig, PublisherConfig, TlsError
from tests.integration.cli.commands import Commands
from tests.support.aio import on_loop
from tests.support.tls import TlsFront, make_certificate


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_certificate(tmp_path_factory.mktemp("certificate"))


@pytest.fixture
def front(url: str, certificate: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TlsFront]:
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    with TlsFront(url, certificate) as running:
        yield running


def test_everything_goes_over_tls_to_a_server_that_is_trusted(front: TlsFront, certificate: Path, topic: str) -> None:
    with Client(front.url, ca_file=certificate) as client:
        with client.publisher() as publisher:
            publisher.publish(topic, {"id": 1})
        with client.consumer(ConsumerConfig(topic=topic, group_id=topic)) as consumer:
            assert [record.value for record in consumer.poll(timeout=30)] == [{"id": 1}]
        with client.subscriber().subscribe(topic, cursor="beginning") as events:
            assert next(iter(events)).value == {"id": 1}
        with client.subscriber().subscribe_queue(topic, f"{topic}-queue") as queue:
            (event,) = queue.poll(timeout=30)
            queue.ack(event)
    assert event.value == {"id": 1}


@on_loop
async def test_coroutines_go_over_tls_too(front: TlsFront, certificate: Path, topic: str) -> None:
    async with AsyncClient(front.url, ca_file=certificate) as client:
        async with client.publisher() as publisher:
            await publisher.publish(topic, {"id": 1})
        async with client.consumer(topic=topic, group_id=topic) as consumer:
            assert [record.value for record in await consumer.poll(timeout=30)] == [{"id": 1}]
        async with client.subscriber().subscribe(topic, cursor="beginning") as events:
            assert (await anext(aiter(events))).value == {"id": 1}


def test_one_setting_is_enough_and_has_the_name_that_clients_of_kafka_know(
    front: TlsFront, certificate: Path, topic: str
) -> None:
    trusting = PublisherConfig.from_properties({"ssl.ca.location": certificate})
    with Client(front.url, ca_file="/is/not/there") as client, client.publisher(trusting) as publisher:
        assert publisher.publish(topic, {"id": 1}).offset == 0


def test_the_environment_may_name_whom_to_trust(
    front: TlsFront, certificate: Path, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    with Client(front.url) as client, client.publisher() as publisher:
        assert publisher.publish(topic, {"id": 1}).offset == 0


def test_a_server_with_an_untrusted_certificate_is_rejected_at_once(front: TlsFront, topic: str) -> None:
    with Client(front.url) as client:
        with client.publisher() as publisher, pytest.raises(TlsError, match=r"not trusted: self-signed certificate.*ca_file"):
            publisher.publish(topic, {"id": 1})
        with (
            client.subscriber().subscribe(topic, cursor="beginning") as events,
            pytest.raises(TlsError, match=r"not trusted: self-signed certificate.*ca_file") as caught,
        ):
            next(iter(events))
    assert (caught.value.retriable, caught.value.outcome) == (False, "failed")


@on_loop
async def test_a_server_with_an_untrusted_certificate_is_rejected_by_coroutines_too(front: TlsFront, topic: str) -> None:
    async with AsyncClient(front.url) as client:
        async with client.publisher() as publisher:
            with pytest.raises(TlsError, match="not trusted: self-signed certificate"):
                await publisher.publish(topic, {"id": 1})
        async with client.subscriber().subscribe(topic, cursor="beginning") as events:
            with pytest.raises(TlsError, match="not trusted: self-signed certificate"):
                await anext(aiter(events))


def test_a_certificate_for_another_name_is_rejected(front: TlsFront, certificate: Path, topic: str) -> None:
    with (
        Client(f"https://localhost:{front.port}", ca_file=certificate) as client,
        client.publisher() as publisher,
        pytest.raises(TlsError, match=r"not trusted: Hostname mismatch, certificate is not valid for 'localhost'$"),
    ):
        publisher.publish(topic, {"id": 1})


def test_a_server_without_tls_is_another_error_than_a_missing_one(url: str, topic: str) -> None:
    with (
        Client(url.replace("http", "https")) as client,
        client.publisher() as publisher,
        pytest.raises(TlsError, match=r"TLS failed with https://.*http://\?"),
    ):
        publisher.publish(topic, {"id": 1})


def test_a_file_that_holds_no_certificates_is_named(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.pem"
    with pytest.raises(ConfigurationError, match=r"ca_file is '.*wrong.pem', which can't be read"):
        Client("https://127.0.0.1:1", ca_file=wrong).publisher()
    wrong.write_text("nothing of the kind")
    with pytest.raises(ConfigurationError, match=r"ca_file is '.*wrong.pem', which can't be read"):
        Client("https://127.0.0.1:1", ca_file=wrong).publisher()


@pytest.mark.parametrize("is_known", [True, False])
def test_the_command_line_trusts_whom_the_environment_names(
    front: TlsFront, certificate: Path, is_known: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if is_known:
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    ended = Commands(front.url).run("topics", "list")
    if is_known:
        assert (ended.code, ended.err) == (0, "")
    else:
        assert "is not trusted: self-signed certificate" in ended.err
        assert "SSL_CERT_FILE" in ended.err
        assert ended.code == ExitCode.UNREACHABLE
