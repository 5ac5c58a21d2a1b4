"""Messages over HTTP, as a client publishes and consumes them. Each has a number, or the time at which it left."""

import time
from collections.abc import Callable, Sequence

import msgspec

from bench.http.pace import ask_steadily
from bench.http.tasks import ConsumeMessages, ConsumeSteadily, PublishMessages, PublishSteadily
from bench.http.wire import BadAnswer, ask_all, connect, request
from bench.kafka.tasks import Delays, Span
from tailrace.model.address import Address

PUBLISH, CONSUME = "/api/topics/publish", "/api/topics/consume"
_WAIT_MS = 1_000
_PATIENCE_SECONDS = 30.0
_POLLED_MESSAGES = 1_000


class _PublishedRecord(msgspec.Struct):
    offset: int
    duplicate: bool


class _Published(msgspec.Struct):
    records: list[_PublishedRecord]


class _Numbered(msgspec.Struct):
    n: int


class _Sent(msgspec.Struct):
    sent: float


class _NumberedMessage(msgspec.Struct):
    value: _Numbered


class _SentMessage(msgspec.Struct):
    value: _Sent


class _Place(msgspec.Struct):
    next_offset: int


class _NumberedPage(msgspec.Struct):
    messages: list[_NumberedMessage]


class _SentPage(msgspec.Struct):
    messages: list[_SentMessage]
    next_offset: int


async def publish(address: Address, task: PublishMessages) -> Span:
    fill = "x" * task.body_bytes
    end = task.first + task.messages
    requests = []
    for first in range(task.first, end, task.messages_a_request):
        numbers = range(first, min(end, first + task.messages_a_request))
        sent = [{"topic": task.topic, "value": {"n": number, "fill": fill}} for number in numbers]
        requests.append(request(address, "POST", PUBLISH, msgspec.json.encode({"messages": sent})))
    began, ended, answers = await ask_all(address, task.connections, requests)
    _check_offsets(answers, task.messages)
    return Span(began, ended)


async def publish_steadily(address: Address, task: PublishSteadily) -> Delays:
    def make(number: int, sent: float) -> bytes:
        message = {"topic": task.topic, "value": {"n": number, "sent": sent}}
        return request(address, "POST", PUBLISH, msgspec.json.encode({"messages": [message]}))

    _, delays, answers = await ask_steadily(address, task.messages, task.per_second, make)
    _check_offsets(answers, task.messages)
    return Delays(delays)


async def consume(address: Address, task: ConsumeMessages) -> Span:
    answers = []
    connection = await connect(address)
    place = read = 0
    began = time.monotonic()
    while place < task.messages:
        question = {"topic": task.topic, "partition_id": 0, "start": place, "limit": task.messages_a_request}
        answer = await connection.ask(request(address, "POST", CONSUME, msgspec.json.encode(question)))
        answers.append(answer)
        following = msgspec.json.decode(answer, type=_Place).next_offset
        if following <= place:
            raise BadAnswer(f"{task.topic!r} ends at {place}, and {task.messages} messages were published")
        place = following
    ended = time.monotonic()
    connection.close()
    numbers = [each.value.n for answer in answers for each in msgspec.json.decode(answer, type=_NumberedPage).messages]
    read = len(numbers)
    if read != task.messages or len(set(numbers)) != read or max(numbers) != read - 1:
        raise BadAnswer(f"{task.topic!r} gave {read} messages of {len(set(numbers))} numbers, and {task.messages} were sent")
    return Span(began, ended)


async def consume_steadily(address: Address, task: ConsumeSteadily, on_ready: Callable[[], None]) -> Delays:
    connection = await connect(address)
    delays: list[float] = []
    place = 0
    deadline = time.monotonic() + _PATIENCE_SECONDS
    on_ready()
    while len(delays) < task.messages:
        question = {
            "topic": task.topic, "partition_id": 0, "start": place, "limit": _POLLED_MESSAGES, "timeout_ms": _WAIT_MS,
        }  # fmt: skip
        answer = await connection.ask(request(address, "POST", CONSUME, msgspec.json.encode(question)))
        came = time.monotonic()
        page = msgspec.json.decode(answer, type=_SentPage)
        place = page.next_offset
        delays += [came - message.value.sent for message in page.messages]
        if page.messages:
            deadline = came + _PATIENCE_SECONDS
        elif came > deadline:
            raise BadAnswer(f"{task.topic!r} gave {len(delays)} of {task.messages} messages")
    connection.close()
    if len(delays) != task.messages:
        raise BadAnswer(f"{task.topic!r} gave {len(delays)} messages, and {task.messages} were expected")
    return Delays(delays)


def _check_offsets(answers: Sequence[bytes], messages: int) -> None:
    """Each has an offset of its own, without a gap, in a topic of one partition that nobody else writes to."""
    records = [record for answer in answers for record in msgspec.json.decode(answer, type=_Published).records]
    offsets = {record.offset for record in records}
    if len(records) != messages or len(offsets) != messages or max(offsets) - min(offsets) != messages - 1:
        raise BadAnswer(f"{messages} messages were sent, and {len(records)} acknowledged at {len(offsets)} offsets")
