"""Tables and their change topics: rows and events tell the same, whatever happens between the two."""

from collections.abc import Sequence

from chaos.api import Api
from chaos.history import Seen
from chaos.workers.tables import CREATE, TableReader, TableWriter, change_seen, read_table
from chaos.workers.worker import TopicShape, Worker
from chaos.workloads.workload import Workload

TABLES = ("shop.orders", "shop.customers")


class Tables(Workload):
    name = "tables"

    def prepare(self, api: Api) -> None:
        for table in TABLES:
            api.sql(CREATE.format(table))
            self.declare(TopicShape(f"_changes.{table}", 1), table=table)

    def workers(self) -> Sequence[Worker]:
        site, seed, rate = self.site, self.seed, self.load.per_second
        return [
            TableWriter("tb-write-1", site, seed, rate(12), TABLES),
            TableWriter("tb-write-2", site, seed, rate(12), TABLES),
            TableReader("tb-read", site, seed, rate(4), TABLES),
        ]

    def translate(self, seen: Seen) -> Seen:
        return change_seen(seen)

    def finish(self, api: Api) -> None:
        for table in TABLES:
            read_table(self.site.recorder, api, "tb-final", table, final=True)
