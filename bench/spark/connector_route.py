"""The same changes routed by the pipeline and by a query of Spark's own connector for Kafka, in turn."""

from itertools import count

from bench.audit import AuditFailure
from bench.ground import Ground, settle_disk
from bench.http.server import HttpServer
from bench.peers.contract import Peer
from bench.spark import kafka_events
from bench.spark.changes import BODY_BYTES, condition, load_changes
from bench.spark.job import SparkJob
from bench.spark.router import RoutingRounds, routing
from bench.spark.tasks import Batches, RouteTopic

WARM_UP_ROUNDS = 2
"""Of each side; Java's compiler has most to do in the first."""
_SOURCE = "changes"


class ConnectorRoute:
    """Reads the same events again in each round, from a topic of Kafka to a new one."""

    def __init__(self, ground: Ground, kafka: Peer, job: SparkJob) -> None:
        self._ground = ground
        self._kafka = kafka
        self._job = job
        self._changes = ground.scale.spark.changes
        self._targets = (f"routed_{number}" for number in count())

    def load(self) -> None:
        kafka_events.produce_changes(self._kafka.address, _SOURCE, self._changes, BODY_BYTES)

    def route(self) -> float:
        """Changes a second, by the time within batches, without the first."""
        target = next(self._targets)
        kafka_events.create_topic(self._kafka.address, target)
        where = condition(1, 0).replace("id", "change.new.id")
        settle_disk()
        with self._ground.folder() as checkpoint:
            task = RouteTopic(_SOURCE, target, where, self._ground.scale.spark.changes_a_batch, str(checkpoint / "query"))
            told = self._job.ask(task)
        assert isinstance(told, Batches), told
        found = kafka_events.records_in(self._kafka.address, target)
        if sum(told.rows) != self._changes or found != (self._changes + 1) // 2:
            raise AuditFailure(f"{self._kafka.name}: {found} of {self._changes} changes were routed")
        return sum(told.rows[1:]) / sum(told.seconds[1:])


def compare_routing(ground: Ground, server: HttpServer, connector: ConnectorRoute) -> dict[str, list[float]]:
    """Changes a second of each side, `ours` and `theirs`, round by round."""
    scale = ground.scale.spark
    ground.say(f"{scale.changes:,} changes for the connector and for the pipeline")
    connector.load()
    table = load_changes(server, "bench.beside", 1, scale.changes)
    with routing(server, scale.changes_a_batch, ground.root / "pipeline") as router:
        rounds = RoutingRounds(server, router, table, scale.changes_a_batch)

        def by_connector() -> float:
            with router.held_up():
                return connector.route()

        def by_pipeline() -> float:
            return rounds.next(scale.changes).changes_per_second

        ground.say("both get warm")
        rounds.first()
        for _ in range(WARM_UP_ROUNDS - 1):
            by_pipeline()
        for _ in range(WARM_UP_ROUNDS):
            by_connector()
        sides = {"ours": by_pipeline, "theirs": by_connector}
        found: dict[str, list[float]] = {name: [] for name in sides}
        for turn in range(scale.routed_rounds):
            ground.say(f"routed in turn, round {turn + 1} of {scale.routed_rounds}")
            for name in sorted(sides, reverse=turn % 2 == 1):
                found[name].append(sides[name]())
        rounds.check()
    return found
