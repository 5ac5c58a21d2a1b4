"""MirrorMaker 2 between Apache Kafka and Tailrace, both ways and exactly once."""

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bench.peers.kafka import KafkaPeer
from bench.peers.servers import free_address
from tests.compat.clients.confluent import Adapter
from tests.compat.contract import Incoming, Outgoing, Start
from tests.compat.tools import topics
from tests.compat.tools.commands import CommandLine
from tests.compat.tools.programs import KAFKA_JARS, MIRROR_MAKER, java, tool
from tests.support.eventually import eventually
from tests.support.logged_process import LoggedProcess
from tests.support.server import ServerProcess

PARTITIONS = 3
ROUND = 3_000
CONFIGS = {"retention.ms": str(20 * 365 * 86_400_000), "max.message.bytes": "2000000"}
SOME_TIME_MS = 1_700_000_000_000
WAYS = ("tailrace->kafka", "kafka->tailrace")
"""Topics are called `mirrored` at their source, and get its name in front at the target."""


@pytest.fixture
def apache(tmp_path: Path) -> Iterator[KafkaPeer]:
    folder = tmp_path / "apache"
    folder.mkdir()
    peer = KafkaPeer(KAFKA_JARS, folder, "relaxed")
    peer.start()
    yield peer
    peer.stop()


@pytest.fixture
def sides(own_server: ServerProcess, apache: KafkaPeer) -> dict[str, str]:
    return {"tailrace": own_server.kafka, "kafka": str(apache.address)}


def settings(sides: dict[str, str]) -> str:
    given: dict[str, object] = {
        "clusters": "tailrace, kafka",
        "replication.factor": 1,
        "refresh.topics.interval.seconds": 1,
        "refresh.groups.interval.seconds": 1,
        "sync.group.offsets.interval.seconds": 1,
        "sync.topic.configs.interval.seconds": 1,
        "emit.checkpoints.interval.seconds": 1,
        "emit.heartbeats.interval.seconds": 1,
        "offset.lag.max": 0,
        "dedicated.mode.enable.internal.rest": "true",
        "listeners": f"http://{free_address()}",
    }
    for name, address in sides.items():
        given[f"{name}.bootstrap.servers"] = address
        given[f"{name}.exactly.once.source.support"] = "enabled"
        # As long as a transaction of a MirrorMaker that was killed may stay open.
        given[f"{name}.producer.transaction.timeout.ms"] = 10_000
    for way in WAYS:
        given[f"{way}.enabled"] = "true"
        given[f"{way}.topics"] = "mirrored"
        given[f"{way}.sync.group.offsets.enabled"] = "true"
    for topic in ("checkpoints", "heartbeats", "offset-syncs"):
        given[f"{topic}.topic.replication.factor"] = 1
    for topic in ("offset", "status", "config"):
        given[f"{topic}.storage.replication.factor"] = 1
    return "".join(f"{name} = {value}\n" for name, value in given.items())


def fill(client: Adapter, first: int) -> None:
    records = [
        Outgoing(
            key=f"k{number % 50}".encode() if number % 7 else None,
            value=f"v{number}".encode() if number % 11 else None,
            headers=[("number", str(number).encode()), ("empty", None)],
            partition=number % PARTITIONS,
            timestamp_ms=SOME_TIME_MS + number,
        )
        for number in range(first, first + ROUND)
    ]
    client.produce("mirrored", records, codec="lz4" if first else "none")


def mirrored(client: Adapter, topic: str, count: int) -> list[list[Incoming]]:
    """Return what is in the partitions of a topic, without the offsets, which markers of transactions shift."""
    shares = [range(partition, count, PARTITIONS) for partition in range(PARTITIONS)]
    return [
        [each._replace(offset=0) for each in client.read(topic, number, Start("beginning"), len(share), committed_only=True)]
        for number, share in enumerate(shares)
    ]


@tool(
    MIRROR_MAKER,
    "Both ways between Tailrace and Apache Kafka, exactly once, over kills of MirrorMaker and of the server: records with "
    "keys, headers and timestamps; new topics and their configs; offsets of groups",
)
@pytest.mark.timeout(900)
def test_topics_are_mirrored_both_ways_exactly_once(own_server: ServerProcess, sides: dict[str, str], tmp_path: Path) -> None:
    file = tmp_path / "mirror.properties"
    file.write_text(settings(sides))
    clients = {name: Adapter(address) for name, address in sides.items()}
    for client in clients.values():
        client.create_topic("mirrored", PARTITIONS, CONFIGS)
        fill(client, 0)
        client.join("readers", "mirrored")
        assert len(client.poll(ROUND, 60)) == ROUND
        client.commit()
        client.leave()

    ways = [way.split("->") for way in WAYS]

    def await_copies(is_enough: Callable[[int], bool]) -> None:
        for source, target in ways:
            name = f"{source}.mirrored"
            eventually(lambda: name in topics.names(sides[target]), name)  # noqa: B023
            eventually(lambda: is_enough(len(topics.read(sides[target], name))), f"copies from {source}")  # noqa: B023

    def start(number: int) -> LoggedProcess:
        return LoggedProcess(java("org.apache.kafka.connect.mirror.MirrorMaker", str(file)), tmp_path / f"mirror-{number}.log")

    for number in range(3):
        with start(number):
            await_copies(lambda count: count > number * ROUND)  # noqa: B023
            if number == 2:
                own_server.kill()
                own_server.start()
            for client in clients.values():
                fill(client, (number + 1) * ROUND)
        # It is killed here, with much to copy.
    with start(3):
        await_copies(lambda count: count == 4 * ROUND)
        for source, target in ways:
            _check_groups_and_configs(CommandLine(sides[target]), source)
    for source, target in ways:
        there = mirrored(clients[target], f"{source}.mirrored", 4 * ROUND)
        assert there == mirrored(clients[source], "mirrored", 4 * ROUND)
        assert {each.headers[0][0] for share in there for each in share} == {"number"}


def _check_groups_and_configs(target: CommandLine, source: str) -> None:
    """The group goes on at the target behind nothing that it has not read at the source, and the topic has the same configs."""
    topic = f"{source}.mirrored"

    def committed() -> dict[int, int]:
        rows = target.table("kafka-consumer-groups", "--describe", "--group", "readers")
        return {int(row["PARTITION"]): int(row["CURRENT-OFFSET"]) for row in rows if row["TOPIC"] == topic}

    eventually(lambda: len(committed()) == PARTITIONS, "offsets of the group")
    offsets = committed()
    skipped = Counter(each.partition for each in topics.read(target.bootstrap, topic) if each.offset < offsets[each.partition])
    assert sum(skipped.values()) > 0, "the offsets were not translated"
    assert max(skipped.values()) <= ROUND // PARTITIONS, "the group would lose records"
    described = "\n".join(target.lines("kafka-configs", "--describe", "--topic", topic))
    for name, value in CONFIGS.items():
        assert f"{name}={value} " in described
