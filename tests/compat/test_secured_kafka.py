"""The Apache Kafka that `make bench` measures with TLS and SCRAM: it checks who comes and what they do."""

import asyncio
import shutil
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from bench.kafka import secured
from bench.peers.login import Account, Logins, can_log_in
from bench.peers.secured import SecuredKafkaPeer, SecuredTailracePeer
from bench.peers.servers import MakePeer, answers_kafka
from bench.workspace import Workspace
from tests.bench.scale import TINY
from tests.compat.tools.programs import KAFKA_JARS


@pytest.fixture(autouse=True)
def with_kafka(all_clients: bool) -> None:
    if not all_clients:
        pytest.skip("starts an Apache Kafka; `make compat` plays it")
    if shutil.which("java") is None or not KAFKA_JARS.exists():
        pytest.skip("Java or Kafka's jars are not here (`make compat` gets them)")


def test_both_are_measured_with_the_same_cipher(tmp_path: Path) -> None:
    said: list[str] = []

    section = secured.run(Workspace(tmp_path, TINY, said.append), SecuredTailracePeer, partial(SecuredKafkaPeer, KAFKA_JARS))

    assert "TLSv1.3, TLS_AES_256_GCM_SHA384" in section.text
    assert said[0].endswith("beside Kafka 4.3.1")
    assert all(figure.peers and min(figure.peers.values) > 0 for figure in section.figures)


@pytest.mark.parametrize(
    "make", [pytest.param(partial(SecuredKafkaPeer, KAFKA_JARS), id="kafka"), pytest.param(SecuredTailracePeer, id="tailrace")]
)
def test_both_check_who_comes_and_what_it_does(make: MakePeer, tmp_path: Path) -> None:
    peer = make(tmp_path, "relaxed")
    peer.start()
    try:
        settings = peer.client_settings
        account = Account(settings["sasl.username"], settings["sasl.password"], settings["ssl.ca.location"])
        admin = AdminClient({"bootstrap.servers": str(peer.address), **settings})

        assert asyncio.run(Logins(peer.address, account).log_in())
        assert not can_log_in(peer.address, Account(account.user, "guessed", account.authority))
        assert not answers_kafka(peer.address)
        admin.create_topics([NewTopic("mine", 1, 1)])["mine"].result(30)
        with pytest.raises(KafkaException, match="TOPIC_AUTHORIZATION_FAILED"):
            admin.delete_topics(["mine"])["mine"].result(30)
    finally:
        peer.stop()
