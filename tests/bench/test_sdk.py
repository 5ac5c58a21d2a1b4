"""The checks of the SDK's benchmark pass only if everything that was sent arrived, once."""

from collections.abc import Iterator

import pytest

from bench.audit import AuditFailure
from bench.client.worker import Acknowledge, Consume, Follow, Publish, SdkProcess
from bench.http.server import HttpServer, serving
from bench.workspace import Workspace
from tests.bench.scale import TINY

MESSAGES = 30


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpServer]:
    with serving(Workspace(tmp_path_factory.mktemp("sdk"), TINY, lambda _: None), "relaxed") as running:
        running.create_topic("once")
        running.create_topic("twice")
        yield running


@pytest.fixture(scope="module")
def sdk(server: HttpServer) -> Iterator[SdkProcess]:
    with SdkProcess(server) as running:
        running.ask(Publish(topics=["once"], messages=MESSAGES, message_bytes=200))
        for _ in range(2):
            running.ask(Publish(topics=["twice"], messages=MESSAGES, message_bytes=200))
        yield running


def test_messages_have_the_size_that_is_said(server: HttpServer, sdk: SdkProcess) -> None:
    assert server.sql("SELECT count(*), min(length(value)), max(length(value)) FROM once") == [[MESSAGES, 200, 200]]


def test_what_was_published_passes(sdk: SdkProcess) -> None:
    for task in (
        Consume(topic="once", messages=MESSAGES, polled=7),
        Follow(pattern="once", after=-1, messages=MESSAGES),
        Acknowledge(topic="once", group="g", messages=MESSAGES, polled=7),
    ):
        worked = sdk.ask(task)
        assert worked.seconds > 0
        assert worked.cpu_seconds > 0


def test_a_doubled_message_is_found(sdk: SdkProcess) -> None:
    for task in (
        Consume(topic="twice", messages=2 * MESSAGES, polled=7),
        Follow(pattern="twice", after=-1, messages=2 * MESSAGES),
        Acknowledge(topic="twice", group="g", messages=2 * MESSAGES, polled=7),
    ):
        with pytest.raises(AuditFailure, match=f"{2 * MESSAGES} messages of {MESSAGES} numbers came"):
            sdk.ask(task)
