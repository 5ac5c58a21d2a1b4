"""Consumers of a queue, over HTTP and on the Python SDK: they receive records, ack most, nack some and forget others."""

from collections.abc import Sequence
from contextlib import suppress

from chaos.api import RefusedError, RunApi
from chaos.history import CallAnswer, CallOutcome, RecordLocation, SeenRecord, SettleCall, TakeCall
from chaos.recorder import Recorder
from chaos.workers.http_topics import HttpWorker, messages_of
from chaos.workers.worker import RunTopic, Worker, WorkerContext, text
from tailrace.client import Client, QueueEvent, TailraceError

QUEUE_SURFACE = "queue"
VISIBILITY_MS = 3_000


class QueueMember(HttpWorker):
    surface = QUEUE_SURFACE

    def __init__(
        self,
        name: str,
        context: WorkerContext,
        seed: int,
        per_second: float,
        topics: Sequence[RunTopic],
        group: str,
        pattern: str,
    ) -> None:
        super().__init__(name, context, seed, per_second, topics)
        self._group = group
        self._pattern = pattern

    def step(self) -> None:
        taken = take(self.context.recorder, self.api, self.name, self._group, self._pattern, self.choice.randint(1, 5))
        for receipt, value in taken:
            chance = self.choice.random()
            if chance < 0.85:
                settle(self.context.recorder, self.api, self.name, self._group, receipt, value, acked=True)
            elif chance < 0.95:
                settle(self.context.recorder, self.api, self.name, self._group, receipt, value, acked=False)


def take(
    recorder: Recorder, api: RunApi, worker: str, group: str, pattern: str, most: int, *, final: bool = False
) -> list[tuple[str, str]]:
    """Receive records. Return their receipts and values."""
    call = recorder.invoke(worker, QUEUE_SURFACE, TakeCall(group, final))
    # More deliveries than a run can make, because a dead letter would be a record in another topic.
    body = {"pattern": pattern, "max": most, "wait_ms": 200, "visibility_ms": VISIBILITY_MS, "max_deliveries": 100}
    try:
        messages = api.post(f"/api/queues/{group}/receive", body)["messages"]
    except RefusedError as error:
        recorder.complete(call, error.outcome, error=str(error))
        return []
    seen = messages_of([each["message"] for each in messages])
    recorder.complete(call, CallOutcome.OK, CallAnswer(seen=tuple(seen)))
    return [(each["receipt"], one.value) for each, one in zip(messages, seen, strict=True)]


def settle(recorder: Recorder, api: RunApi, worker: str, group: str, receipt: str, value: str, *, acked: bool) -> None:
    call = recorder.invoke(worker, QUEUE_SURFACE, SettleCall(group, (value,), acked))
    try:
        api.post(f"/api/queues/{group}/{'ack' if acked else 'nack'}", {"receipts": [receipt]})
    except RefusedError as error:
        recorder.complete(call, error.outcome, error=str(error))
        return
    recorder.complete(call, CallOutcome.OK)


SDK_SURFACE = "sdk"
SDK_API_MS = 10_000


class SdkQueueMember(Worker):
    """Receives a few events, acks most of them together, and nacks the others."""

    surface = SDK_SURFACE

    def __init__(self, name: str, context: WorkerContext, seed: int, per_second: float, group: str, pattern: str) -> None:
        super().__init__(name, context, seed, per_second)
        self._group = group
        self._client = Client(context.url)
        self._queue = self._client.subscriber().subscribe_queue(
            pattern, group, visibility_timeout=VISIBILITY_MS, api_timeout=SDK_API_MS, request_timeout=3_000, max_deliveries=100
        )

    def step(self) -> None:
        call = self.context.recorder.invoke(self.name, SDK_SURFACE, TakeCall(self._group))
        try:
            events = self._queue.poll(timeout=0.2, max_records=5)
        except TailraceError as error:
            self.context.recorder.complete(call, CallOutcome(error.outcome), error=f"{type(error).__name__}: {error}")
            self.pause(0.3)
            return
        self.context.recorder.complete(call, CallOutcome.OK, CallAnswer(seen=tuple(map(_seen, events))))
        for event in events:
            self._settle(event, acked=self.choice.random() < 0.9)

    def end(self) -> None:
        with suppress(TailraceError):
            self._queue.close()
        self._client.close()

    def _settle(self, event: QueueEvent, *, acked: bool) -> None:
        call = self.context.recorder.invoke(self.name, SDK_SURFACE, SettleCall(self._group, (text(event.payload),), acked))
        try:
            (self._queue.ack if acked else self._queue.nack)(event)
        except TailraceError as error:
            self.context.recorder.complete(call, CallOutcome(error.outcome), error=f"{type(error).__name__}: {error}")
            return
        self.context.recorder.complete(call, CallOutcome.OK)


def _seen(taken: QueueEvent) -> SeenRecord:
    event = taken.event
    return SeenRecord(RecordLocation(event.topic_name, event.partition_id, event.offset), text(event.payload), event.cursor)
