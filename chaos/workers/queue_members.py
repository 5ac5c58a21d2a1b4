"""Consumers of a queue over HTTP: they take records, settle most of them, give some back and forget others."""

from collections.abc import Sequence

from chaos.api import Api, Refused
from chaos.history import Answer, Outcome, Settle, Take
from chaos.recorder import Recorder
from chaos.workers.http_topics import HttpWorker, messages_of
from chaos.workers.worker import Site, TopicShape

SURFACE = "queue"
VISIBILITY_MS = 3_000


class QueueMember(HttpWorker):
    surface = SURFACE

    def __init__(
        self, name: str, site: Site, seed: int, per_second: float, topics: Sequence[TopicShape], group: str, pattern: str
    ) -> None:
        super().__init__(name, site, seed, per_second, topics)
        self._group = group
        self._pattern = pattern

    def step(self) -> None:
        taken = take(self.site.recorder, self.api, self.name, self._group, self._pattern, self.choice.randint(1, 5))
        for receipt, value in taken:
            chance = self.choice.random()
            if chance < 0.85:
                settle(self.site.recorder, self.api, self.name, self._group, receipt, value, acked=True)
            elif chance < 0.95:
                settle(self.site.recorder, self.api, self.name, self._group, receipt, value, acked=False)


def take(
    recorder: Recorder, api: Api, worker: str, group: str, pattern: str, most: int, *, final: bool = False
) -> list[tuple[str, str]]:
    """Receipts and values of what was taken."""
    call = recorder.invoke(worker, SURFACE, Take(group, final))
    # More deliveries than a run can make: a dead letter would be a record in another topic.
    body = {"pattern": pattern, "max": most, "wait_ms": 200, "visibility_ms": VISIBILITY_MS, "max_deliveries": 100}
    try:
        messages = api.post(f"/api/queues/{group}/receive", body)["messages"]
    except Refused as error:
        recorder.complete(call, error.outcome, error=str(error))
        return []
    seen = messages_of([each["message"] for each in messages])
    recorder.complete(call, Outcome.OK, Answer(seen=tuple(seen)))
    return [(each["receipt"], one.value) for each, one in zip(messages, seen, strict=True)]


def settle(recorder: Recorder, api: Api, worker: str, group: str, receipt: str, value: str, *, acked: bool) -> None:
    call = recorder.invoke(worker, SURFACE, Settle(group, (value,), acked))
    try:
        api.post(f"/api/queues/{group}/{'ack' if acked else 'nack'}", {"receipts": [receipt]})
    except Refused as error:
        recorder.complete(call, error.outcome, error=str(error))
        return
    recorder.complete(call, Outcome.OK)
