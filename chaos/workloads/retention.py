"""Retention under readers that are too slow for it: they must be told, and nothing may go early."""

from collections.abc import Sequence

from chaos.api import Api
from chaos.workers.http_topics import BoundsAsker, HttpReader
from chaos.workers.librdkafka import Reader, Sender
from chaos.workers.worker import Worker
from chaos.workloads.workload import Workload

KEEP_BYTES = 60_000
PADDING = 1_500


class Retention(Workload):
    """Topics keep so little that a slow reader falls off, and segments die and are cleaned."""

    name = "retention"

    def prepare(self, api: Api) -> None:
        self.make_topic(api, "t0", 2, kept=False, retention_max_bytes=KEEP_BYTES)
        self.make_topic(api, "t1", 1, kept=False, retention_max_bytes=KEEP_BYTES)

    def workers(self) -> Sequence[Worker]:
        site, seed, rate = self.site, self.seed, self.load.per_second
        return [
            Sender("re-send", site, seed, rate(12), self.topics, padding=PADDING),
            Reader("re-read", site, seed, rate(10), self.topics),
            Reader("re-slow", site, seed, rate(0.5), self.topics, slow=True, reassign=0),
            HttpReader("re-http", site, seed, rate(2), self.topics),
            BoundsAsker("re-bounds", site, seed, rate(4), self.topics),
        ]
