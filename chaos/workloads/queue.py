"""The plain log: sends and reads of assigned partitions by Kafka clients of two kinds."""

from collections.abc import Sequence

from chaos.api import Api
from chaos.workers import aio, librdkafka
from chaos.workers.http_topics import BoundsAsker
from chaos.workers.worker import Worker
from chaos.workloads.workload import Workload


class Queue(Workload):
    name = "queue"

    def prepare(self, api: Api) -> None:
        for number in range(3):
            self.make_topic(api, f"t{number}", 3)

    def workers(self) -> Sequence[Worker]:
        site, seed, rate = self.site, self.seed, self.load.per_second
        return [
            librdkafka.Sender("rd-send-1", site, seed, rate(12), self.topics),
            librdkafka.Sender("rd-send-2", site, seed, rate(12), self.topics),
            aio.AioSender("aio-send", site, seed, rate(15), self.topics),
            librdkafka.Reader("rd-read-1", site, seed, rate(10), self.topics),
            librdkafka.Reader("rd-read-2", site, seed, rate(10), self.topics, committed=False),
            aio.AioReader("aio-read", site, seed, rate(10), self.topics),
            BoundsAsker("bounds", site, seed, rate(4), self.topics),
        ]
