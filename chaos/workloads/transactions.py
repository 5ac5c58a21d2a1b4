"""Transactions: records go in, come out doubled, and the place of the reader moves with them."""

from collections.abc import Sequence

from chaos.api import Api
from chaos.workers.http_members import CommittedAsker
from chaos.workers.librdkafka import Reader, Sender
from chaos.workers.transactions import Processor
from chaos.workers.worker import Worker
from chaos.workloads.workload import Workload

GROUP = "transactions"


class Transactions(Workload):
    name = "transactions"

    def prepare(self, api: Api) -> None:
        self._source = self.make_topic(api, "in", 2)
        self._target = self.make_topic(api, "out", 3)

    def workers(self) -> Sequence[Worker]:
        site, seed, rate = self.site, self.seed, self.load.per_second
        first, second = self._source.places
        return [
            Sender("tx-send", site, seed, rate(6), [self._source]),
            Processor("tx-1", site, seed, rate(4), [first], self._target, GROUP),
            Processor("tx-2", site, seed, rate(4), [second], self._target, GROUP),
            Reader("tx-read-1", site, seed, rate(8), [self._target]),
            Reader("tx-read-2", site, seed, rate(4), [self._target], committed=False),
            CommittedAsker("tx-ask", site, seed, rate(2), (GROUP,)),
        ]
