"""A consumer of a queue on the Python SDK, which asks again by itself when an answer was lost."""

from contextlib import suppress

from chaos.history import Answer, Outcome, Place, Seen, Settle, Take
from chaos.workers.queue_members import VISIBILITY_MS
from chaos.workers.worker import Site, Worker, text
from tailrace.client import Client, QueueEvent, TailraceError

SURFACE = "sdk"
API_MS = 10_000


class SdkQueueMember(Worker):
    """Takes a few events, acknowledges most of them together, and gives the others back."""

    surface = SURFACE

    def __init__(self, name: str, site: Site, seed: int, per_second: float, group: str, pattern: str) -> None:
        super().__init__(name, site, seed, per_second)
        self._group = group
        self._client = Client(site.url)
        self._queue = self._client.subscriber().subscribe_queue(
            pattern, group, visibility_timeout=VISIBILITY_MS, api_timeout=API_MS, request_timeout=3_000, max_deliveries=100
        )

    def step(self) -> None:
        call = self.site.recorder.invoke(self.name, SURFACE, Take(self._group))
        try:
            events = self._queue.poll(timeout=0.2, max_records=5)
        except TailraceError as error:
            self.site.recorder.complete(call, Outcome(error.outcome), error=f"{type(error).__name__}: {error}")
            self.rest(0.3)
            return
        self.site.recorder.complete(call, Outcome.OK, Answer(seen=tuple(map(_seen, events))))
        for event in events:
            self._settle(event, acked=self.choice.random() < 0.9)

    def end(self) -> None:
        with suppress(TailraceError):
            self._queue.close()
        self._client.close()

    def _settle(self, event: QueueEvent, *, acked: bool) -> None:
        call = self.site.recorder.invoke(self.name, SURFACE, Settle(self._group, (text(event.payload),), acked))
        try:
            (self._queue.ack if acked else self._queue.nack)(event)
        except TailraceError as error:
            self.site.recorder.complete(call, Outcome(error.outcome), error=f"{type(error).__name__}: {error}")
            return
        self.site.recorder.complete(call, Outcome.OK)


def _seen(taken: QueueEvent) -> Seen:
    event = taken.event
    return Seen(Place(event.topic_name, event.partition_id, event.offset), text(event.payload), event.cursor)
