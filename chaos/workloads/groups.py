"""Consumer groups: members that come, go and are forgotten, and offsets that must stay."""

from collections.abc import Sequence

from chaos.api import Api
from chaos.workers.http_members import CommittedAsker, HttpMember
from chaos.workers.kafka_members import KafkaMember
from chaos.workers.librdkafka import Sender
from chaos.workers.worker import Worker
from chaos.workloads.workload import Workload

RANGE_GROUP = "groups-range"
COOPERATIVE_GROUP = "groups-cooperative"


class Groups(Workload):
    """One group of clients of both kinds, and one that shares out step by step."""

    name = "groups"

    def prepare(self, api: Api) -> None:
        self.make_topic(api, "t0", 4)
        self.make_topic(api, "t1", 2)

    def workers(self) -> Sequence[Worker]:
        site, seed, rate = self.site, self.seed, self.load.per_second
        return [
            Sender("gr-send", site, seed, rate(12), self.topics),
            KafkaMember("gr-rd-1", site, seed, rate(5), self.topics, RANGE_GROUP, "range"),
            HttpMember("gr-http-1", site, seed, rate(4), self.topics, RANGE_GROUP),
            HttpMember("gr-http-2", site, seed, rate(4), self.topics, RANGE_GROUP),
            KafkaMember("gr-rd-2", site, seed, rate(5), self.topics, COOPERATIVE_GROUP, "cooperative-sticky"),
            KafkaMember("gr-rd-3", site, seed, rate(5), self.topics, COOPERATIVE_GROUP, "cooperative-sticky"),
            CommittedAsker("gr-ask", site, seed, rate(3), (RANGE_GROUP, COOPERATIVE_GROUP)),
        ]
