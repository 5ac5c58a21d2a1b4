"""Queues: members share the records of topics, settle them, give them back, and forget some."""

import time
from collections.abc import Sequence

from chaos.api import Api
from chaos.workers.librdkafka import Sender
from chaos.workers.queue_members import VISIBILITY_MS, QueueMember, settle, take
from chaos.workers.sdk_queue import SdkQueueMember
from chaos.workers.worker import Worker
from chaos.workloads.workload import Workload

GROUP = "queues-workers"
PATTERN = "queues.*"
EMPTY_SECONDS = 60.0


class Queues(Workload):
    name = "queues"

    def prepare(self, api: Api) -> None:
        self.make_topic(api, "t0", 2)
        self.make_topic(api, "t1", 1)

    def workers(self) -> Sequence[Worker]:
        site, seed, rate = self.site, self.seed, self.load.per_second
        return [
            Sender("qu-send", site, seed, rate(5), self.topics),
            QueueMember("qu-http-1", site, seed, rate(4), self.topics, GROUP, PATTERN),
            QueueMember("qu-http-2", site, seed, rate(4), self.topics, GROUP, PATTERN),
            SdkQueueMember("qu-sdk", site, seed, rate(4), GROUP, PATTERN),
        ]

    def finish(self, api: Api) -> None:
        """Take and acknowledge until nothing has come for longer than anybody may keep a record."""
        deadline = time.monotonic() + EMPTY_SECONDS
        last = time.monotonic()
        while time.monotonic() < min(last + VISIBILITY_MS / 1000 + 1, deadline):
            taken = take(self.site.recorder, api, "qu-final", GROUP, PATTERN, 200, final=True)
            for receipt, value in taken:
                settle(self.site.recorder, api, "qu-final", GROUP, receipt, value, acked=True)
                last = time.monotonic()
