"""Routing by Spark's own connector for Kafka, beside the pipeline: the same changes, from a topic of Kafka to another."""

from collections.abc import Iterator
from itertools import count

import msgspec
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from bench.audit import AuditFailure
from bench.http.server import HttpServer
from bench.kafka.client import end_offsets
from bench.peers.servers import Peer
from bench.spark.job import Batches, RouteTopic, SparkJob
from bench.spark.router import BODY_BYTES, RoutingRounds, condition, load_changes, routing
from bench.workspace import Workspace, settle_disk
from tailrace.model.address import Address

PARTITIONS = 2
_TIMESTAMP = 1_700_000_000_000
_ANSWER_SECONDS = 30.0
_FLUSH_SECONDS = 120.0
_AT_ONCE = 10_000


def create_topic(address: Address, topic: str) -> None:
    # Without a reference the client would be gone before the response.
    admin = AdminClient({"bootstrap.servers": str(address)})
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(_ANSWER_SECONDS)


def produce_changes(address: Address, topic: str, changes: int, body_bytes: int) -> None:
    """Yield what Tailrace has in the change topic of a table: one event for each row."""
    create_topic(address, topic)
    producer = Producer({"bootstrap.servers": str(address), "linger.ms": 50, "queue.buffering.max.messages": 10 * _AT_ONCE})
    for number, (key, value) in enumerate(_events(changes, body_bytes)):
        producer.produce(topic, value, key)
        if number % _AT_ONCE == 0:
            producer.flush(_FLUSH_SECONDS)
    if producer.flush(_FLUSH_SECONDS) or records_in(address, topic) != changes:
        raise AuditFailure(f"Kafka did not take all {changes} change events")


def records_in(address: Address, topic: str) -> int:
    places = [TopicPartition(topic, number) for number in range(PARTITIONS)]
    return sum(end_offsets(AdminClient({"bootstrap.servers": str(address)}), places).values())


def _events(changes: int, body_bytes: int) -> Iterator[tuple[bytes, bytes]]:
    body = "x" * body_bytes
    for number in range(changes):
        key = {"id": number}
        event = {"op": "insert", "key": key, "old": None, "new": {"id": number, "body": body}, "ts": _TIMESTAMP, "tx": "1"}
        yield msgspec.json.encode(key), msgspec.json.encode(event)


WARM_UP_ROUNDS = 2
"""Rounds of each side to warm up: Java compiles most in the first."""
_SOURCE = "changes"


class ConnectorRoute:
    """Reads the same events again in each round, from a topic of Kafka to a new one."""

    def __init__(self, workspace: Workspace, kafka: Peer, job: SparkJob) -> None:
        self._ground = workspace
        self._kafka = kafka
        self._job = job
        self._changes = workspace.scale.spark.changes
        self._targets = (f"routed_{number}" for number in count())

    def load(self) -> None:
        produce_changes(self._kafka.address, _SOURCE, self._changes, BODY_BYTES)

    def route(self) -> float:
        """Return changes per second, by the time within batches, without the first."""
        target = next(self._targets)
        create_topic(self._kafka.address, target)
        where = condition(1, 0).replace("id", "change.new.id")
        settle_disk()
        with self._ground.folder() as checkpoint:
            task = RouteTopic(_SOURCE, target, where, self._ground.scale.spark.changes_a_batch, str(checkpoint / "query"))
            told = self._job.ask(task)
        assert isinstance(told, Batches), told
        found = records_in(self._kafka.address, target)
        if sum(told.rows) != self._changes or found != (self._changes + 1) // 2:
            raise AuditFailure(f"{self._kafka.name}: {found} of {self._changes} changes were routed")
        return sum(told.rows[1:]) / sum(told.seconds[1:])


def compare_routing(workspace: Workspace, server: HttpServer, connector: ConnectorRoute) -> dict[str, list[float]]:
    """Return changes per second of each side, `ours` and `theirs`, round by round."""
    scale = workspace.scale.spark
    workspace.say(f"{scale.changes:,} changes for the connector and for the pipeline")
    connector.load()
    table = load_changes(server, "bench.beside", 1, scale.changes)
    with routing(server, scale.changes_a_batch, workspace.root / "pipeline") as router:
        rounds = RoutingRounds(server, router, table, scale.changes_a_batch)

        def by_connector() -> float:
            with router.held_up():
                return connector.route()

        def by_pipeline() -> float:
            return rounds.next(scale.changes).changes_per_second

        workspace.say("both get warm")
        rounds.first()
        for _ in range(WARM_UP_ROUNDS - 1):
            by_pipeline()
        for _ in range(WARM_UP_ROUNDS):
            by_connector()
        sides = {"ours": by_pipeline, "theirs": by_connector}
        found: dict[str, list[float]] = {name: [] for name in sides}
        for turn in range(scale.routed_rounds):
            workspace.say(f"routed in turn, round {turn + 1} of {scale.routed_rounds}")
            for name in sorted(sides, reverse=turn % 2 == 1):
                found[name].append(sides[name]())
        rounds.check()
    return found
