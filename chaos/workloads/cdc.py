"""Changes of tables through routes: a pipeline on Spark moves them, is killed, comes back: none is lost, none comes twice."""

import time
from collections.abc import Sequence

from chaos.api import Api, Refused
from chaos.history import Seen
from chaos.stage import Stage
from chaos.workers.tables import CREATE, TableReader, TableWriter, change_seen, read_table, routed_seen
from chaos.workers.worker import TopicShape, Worker
from chaos.workloads.workload import Workload

TABLE = "crm.people"
ROUTED = ("cdc.all", "cdc.again")
PARTITIONS = 3
CAUGHT_UP_SECONDS = 150.0
_ROUTE = "ALTER TOPIC {} ADD SOURCE {} ON INSERT, UPDATE, DELETE WITH (payload = 'diff')"


class Cdc(Workload):
    name = "cdc"

    def prepare(self, api: Api) -> None:
        api.sql(CREATE.format(TABLE))
        self.declare(TopicShape(f"_changes.{TABLE}", 1), table=TABLE)
        for topic in ROUTED:
            api.create_topic(topic, PARTITIONS)
            self.declare(TopicShape(topic, PARTITIONS), table=TABLE, routed=True)
            api.sql(_ROUTE.format(topic, TABLE))

    def attend(self, stage: Stage) -> None:
        stage.pipeline.start(stage.url)
        stage.pipeline.await_running(stage.server.url)

    def workers(self) -> Sequence[Worker]:
        site, seed, rate = self.site, self.seed, self.load.per_second
        return [
            TableWriter("cd-write-1", site, seed, rate(12), (TABLE,)),
            TableWriter("cd-write-2", site, seed, rate(12), (TABLE,)),
            TableReader("cd-read", site, seed, rate(2), (TABLE,)),
        ]

    def translate(self, seen: Seen) -> Seen:
        return change_seen(seen) if seen.place.topic.startswith("_changes.") else routed_seen(seen)

    def finish(self, api: Api) -> None:
        """Wait until the pipeline has come to the end of the changes."""
        changes = api.sql(f"SELECT count(*) FROM _changes.{TABLE}")["rows"][0][0]
        deadline = time.monotonic() + CAUGHT_UP_SECONDS
        while time.monotonic() < deadline and any(_count(api, topic) < changes for topic in ROUTED):
            time.sleep(0.5)
        read_table(self.site.recorder, api, "cd-final", TABLE, final=True)


def _count(api: Api, topic: str) -> int:
    try:
        count: int = api.sql(f"SELECT count(*) FROM {topic}")["rows"][0][0]
    except Refused:
        return 0
    return count
