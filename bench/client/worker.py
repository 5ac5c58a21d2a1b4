"""A process that uses the SDK: the tasks that it gets and its answers, as lines of JSON."""

import gc
import sys
import time
from collections.abc import Sequence
from itertools import islice
from uuid import uuid4

import msgspec

from bench.audit import AuditFailure
from bench.http.server import HttpServer
from bench.worker_process import Failed, WorkerProcess, say
from tailrace.client import Client, TailraceError


class Publish(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """Publish numbered messages of one size to topics in turn."""

    topics: Sequence[str]
    messages: int
    message_bytes: int


class Consume(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """Poll everything from the start and mark each record. The numbers are checked."""

    topic: str
    messages: int
    polled: int


class Follow(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """Read events of a pattern after a cursor. The numbers are checked."""

    pattern: str
    after: int
    messages: int


class Acknowledge(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """Poll events of a queue and acknowledge each on its own. The numbers are checked."""

    topic: str
    group: str
    messages: int
    polled: int


class Worked(msgspec.Struct, frozen=True, tag=True):
    """The time that a task took, and the CPU time of this process."""

    seconds: float
    cpu_seconds: float
    cursor: int = -1
    """The cursor of the last message that was published."""


AnyTask = Publish | Consume | Follow | Acknowledge
Answer = Worked | Failed


_PATIENCE_SECONDS = 30.0


class SdkProcess(WorkerProcess[AnyTask, Worked]):
    """Runs this module as a child process."""

    def __init__(self, server: HttpServer) -> None:
        super().__init__(server.name, "bench.client.worker", server.url, answers=Worked)


class _Numbered(msgspec.Struct):
    n: int


class _Clock:
    def __init__(self) -> None:
        self._began = time.monotonic()
        self._used = time.process_time()

    def stop(self, cursor: int = -1) -> Worked:
        return Worked(time.monotonic() - self._began, time.process_time() - self._used, cursor)


def _publish(client: Client, task: Publish) -> Worked:
    frame = len(msgspec.json.encode({"n": 10**9, "fill": ""}))
    fill = "x" * (task.message_bytes - frame)
    values = [{"n": 10**9 + number, "fill": fill} for number in range(task.messages)]
    topics = task.topics
    with client.publisher() as publisher:
        publisher.publish_batch([])
        clock = _Clock()
        deliveries = [publisher.send(topics[number % len(topics)], value) for number, value in enumerate(values)]
        publisher.flush()
        cursors = [delivery.result().cursor or -1 for delivery in deliveries[-1:]]
        worked = clock.stop(cursors[0])
        places = {(result.topic_name, result.offset) for result in (delivery.result() for delivery in deliveries)}
    if len(places) != task.messages:
        raise AuditFailure(f"{task.messages} messages were sent, and {len(places)} places acknowledged")
    return worked


def _consume(client: Client, task: Consume) -> Worked:
    payloads: list[bytes | None] = []
    with client.consumer(topic=task.topic, group_id=uuid4().hex, max_poll_records=task.polled) as consumer:
        consumer.position()
        clock = _Clock()
        while len(payloads) < task.messages:
            records = consumer.poll(timeout=_PATIENCE_SECONDS)
            if not records:
                raise AuditFailure(f"{task.topic!r} gave {len(payloads)} of {task.messages} messages")
            for record in records:
                payloads.append(record.payload)
                consumer.mark_processed(record)
        worked = clock.stop()
    _check(payloads, task.messages)
    return worked


def _follow(client: Client, task: Follow) -> Worked:
    with client.subscriber().subscribe(task.pattern, task.after) as events:
        clock = _Clock()
        payloads = [event.payload for event in islice(events, task.messages)]
        worked = clock.stop()
    _check(payloads, task.messages)
    return worked


def _acknowledge(client: Client, task: Acknowledge) -> Worked:
    payloads: list[bytes | None] = []
    with client.subscriber().subscribe_queue(task.topic, task.group, max_poll_records=task.polled) as queue:
        clock = _Clock()
        while len(payloads) < task.messages:
            events = queue.poll(timeout=_PATIENCE_SECONDS, max_records=min(task.polled, task.messages - len(payloads)))
            if not events:
                raise AuditFailure(f"{task.topic!r} gave {len(payloads)} of {task.messages} events")
            for event in events:
                payloads.append(event.payload)
                queue.ack_async(event)
        queue.flush()
        worked = clock.stop()
    _check(payloads, task.messages)
    return worked


def _check(payloads: Sequence[bytes | None], messages: int) -> None:
    numbers = {msgspec.json.decode(payload or b"{}", type=_Numbered).n for payload in payloads}
    if len(payloads) != messages or len(numbers) != messages:
        raise AuditFailure(f"{len(payloads)} messages of {len(numbers)} numbers came, and {messages} were expected")


def _do(client: Client, task: AnyTask) -> Worked:
    match task:
        case Publish():
            return _publish(client, task)
        case Consume():
            return _consume(client, task)
        case Follow():
            return _follow(client, task)
        case Acknowledge():
            return _acknowledge(client, task)


def _serve(url: str) -> None:
    client = Client(url)
    for line in sys.stdin.buffer:
        task: AnyTask = msgspec.json.decode(line, type=AnyTask)
        answer: Answer
        try:
            answer = _do(client, task)
        except (AuditFailure, TailraceError) as error:
            answer = Failed(f"{type(task).__name__}: {error}")
        say(answer)
        gc.collect()


if __name__ == "__main__":
    gc.disable()  # the collector would scan every message that is kept for the check
    _serve(sys.argv[1])
