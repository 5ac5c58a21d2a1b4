"""A Kafka of three brokers, of which one after the other is killed: leaders and coordinators move."""

import time
from collections.abc import Iterator

import pytest

from tailrace.model.address import Address
from tests.compat.tools.programs import KAFKA_JARS
from tests.integration.shadow.test_faults import PARTITIONS, load
from tests.support.apache_kafka import ApacheKafka
from tests.support.ports import free_port
from tests.support.proxy import FaultyProxy
from tests.support.shadow_pair import ShadowPair, TestedShadow, beside

BROKERS = 3
SECONDS = 150.0


class Cluster:
    """Three brokers, each of which is a controller too."""

    def __init__(self, brokers: list[ApacheKafka]) -> None:
        self.brokers = brokers
        self.address = ",".join(broker.address for broker in brokers)

    def start(self) -> None:
        for broker in self.brokers:
            broker.launch()
        for broker in self.brokers:
            broker.await_ready()

    def kill(self) -> None:
        for broker in self.brokers:
            broker.kill()


class ClusterPair(ShadowPair):
    cluster: Cluster


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterPair]:
    folder = tmp_path_factory.mktemp("brokers")
    listeners = [Address("127.0.0.1", free_port()) for _ in range(BROKERS)]
    controllers = [Address("127.0.0.1", free_port()) for _ in range(BROKERS)]
    voters = ",".join(f"{number}@{controller}" for number, controller in enumerate(controllers, 1))
    replicated = {
        "controller.quorum.voters": voters,
        "default.replication.factor": BROKERS,
        "min.insync.replicas": 2,
        "offsets.topic.replication.factor": BROKERS,
        "transaction.state.log.replication.factor": BROKERS,
        "transaction.state.log.min.isr": 2,
        "broker.session.timeout.ms": 3_000,
        "broker.heartbeat.interval.ms": 500,
        "replica.lag.time.max.ms": 3_000,
        "controller.quorum.election.timeout.ms": 500,
        "controller.quorum.fetch.timeout.ms": 1_000,
    }
    brokers = [
        ApacheKafka(
            KAFKA_JARS,
            folder / f"broker-{number}",
            listens,
            None,
            {"node.id": number, "listeners": f"PLAINTEXT://{listens},CONTROLLER://{controller}", **replicated},
        )
        for number, (listens, controller) in enumerate(zip(listeners, controllers, strict=True), 1)
    ]
    cluster = Cluster(brokers)
    try:
        cluster.start()
        with FaultyProxy(f"http://{listeners[0]}") as unused, beside(folder, cluster, unused) as running:
            found = ClusterPair(running.server, cluster, unused)
            found.cluster = cluster
            yield found
    finally:
        cluster.kill()


def test_leaders_and_coordinators_move_while_topics_are_copied(shadow: TestedShadow, pair: ClusterPair) -> None:
    shadow.origin.create(shadow.topic(), PARTITIONS)
    shadow.create()
    with load(shadow.origin, shadow.topic()):
        for broker in pair.cluster.brokers:
            time.sleep(1)  # under load
            broker.kill()
            time.sleep(5)  # until another one leads
            broker.start()
            shadow.await_state("live", seconds=SECONDS)
    shadow.await_equal(seconds=SECONDS)
    shadow.command("verify")
