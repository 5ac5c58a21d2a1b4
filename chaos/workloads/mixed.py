"""One set of topics by all surfaces: Kafka clients, HTTP, SQL and the SDK write it and read it at the same time."""

from collections.abc import Sequence

from chaos.api import Api
from chaos.workers import aio, librdkafka
from chaos.workers.http_topics import BoundsAsker, HttpPublisher, HttpReader
from chaos.workers.sdk import SdkPublisher, SdkReader
from chaos.workers.sql_topics import SqlPublisher, SqlReader
from chaos.workers.worker import Worker
from chaos.workloads.workload import Workload


class Mixed(Workload):
    name = "mixed"

    def prepare(self, api: Api) -> None:
        self.make_topic(api, "t0", 3)
        self.make_topic(api, "t1", 1)

    def workers(self) -> Sequence[Worker]:
        site, seed, rate = self.site, self.seed, self.load.per_second
        return [
            librdkafka.Sender("mx-rd-send", site, seed, rate(6), self.topics),
            aio.AioSender("mx-aio-send", site, seed, rate(6), self.topics),
            HttpPublisher("mx-http-send", site, seed, rate(6), self.topics),
            SqlPublisher("mx-sql-send", site, seed, rate(4), self.topics),
            SdkPublisher("mx-sdk-send", site, seed, rate(6), self.topics),
            librdkafka.Reader("mx-rd-read", site, seed, rate(6), self.topics),
            aio.AioReader("mx-aio-read", site, seed, rate(6), self.topics),
            HttpReader("mx-http-read", site, seed, rate(6), self.topics),
            SqlReader("mx-sql-read", site, seed, rate(2), self.topics),
            SdkReader("mx-sdk-read", site, seed, rate(6), self.topics),
            BoundsAsker("mx-bounds", site, seed, rate(3), self.topics),
        ]
