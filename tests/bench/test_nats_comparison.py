"""Messages through NATS are checked as strictly as those through Tailrace."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.audit import AuditFailure
from bench.kafka.tasks import Consume, CreateTopic, Load, Produce, Span
from bench.nats.client import MessagingProcess
from bench.peers.nats import NatsPeer

LOAD = Load(topic="audited", records=100, record_bytes=100)


@pytest.fixture
def nats(tmp_path: Path) -> Iterator[NatsPeer]:
    peer = NatsPeer(tmp_path, "fsync")
    peer.start()
    yield peer
    peer.stop()


@pytest.fixture
def client(nats: NatsPeer) -> Iterator[MessagingProcess]:
    client = MessagingProcess("nats-py", f"nats://{nats.address}")
    yield client
    client.close()


def test_what_came_through_once_passes_and_what_is_there_twice_does_not(client: MessagingProcess) -> None:
    client.ask(CreateTopic(LOAD))
    client.ask(Produce(LOAD))
    client.ask(Consume(LOAD))
    assert isinstance(client.receive(), Span)

    client.ask(Produce(LOAD))
    client.ask(Consume(LOAD))
    with pytest.raises(AuditFailure, match=r"doubled or out of order|holds 200 records"):
        client.receive()


def test_a_topic_that_is_not_there_ends_the_run(client: MessagingProcess) -> None:
    with pytest.raises(AuditFailure, match=r"nats-py: Produce of 'audited'"):
        client.ask(Produce(LOAD))
