"""A process that sends requests over HTTP: rows, messages and subscriptions, as fast as possible or at a steady rate.

At a steady rate each request is sent on time, whether or not the one before it is answered.
"""

import asyncio
import gc
import re
import sys
import time
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate

import msgspec
import uvloop

from bench.http.server import HttpServer
from bench.http.tasks import (
    Answer,
    AnyTask,
    ConsumeMessages,
    ConsumeSteadily,
    InsertRows,
    InsertSteadily,
    PublishMessages,
    PublishSteadily,
    Subscribe,
)
from bench.http.wire import BadAnswer, Connection, Follower, ask_all, connect, request
from bench.kafka.tasks import Delays, Done, Span
from bench.worker_process import Failed, WorkerProcess, say
from tailrace.model.address import Address, parse_address


async def ask_steadily(
    address: Address, count: int, per_second: int, make: Callable[[int, float], bytes]
) -> tuple[float, Sequence[float], Sequence[bytes]]:
    """Send requests that `make` builds from a number and the time.

    Returns when it began, the seconds until the response of each request, and the responses.
    """
    idle: list[Connection] = []
    delays = [0.0] * count
    answers = [b""] * count

    async def ask(number: int) -> None:
        sent = time.monotonic()
        connection = idle.pop() if idle else await connect(address)
        answers[number] = await connection.ask(make(number, sent))
        delays[number] = time.monotonic() - sent
        idle.append(connection)

    began = time.monotonic()
    async with asyncio.TaskGroup() as asked:
        for number in range(count):
            wait = began + number / per_second - time.monotonic()
            if wait > 0:
                await asyncio.sleep(wait)
            asked.create_task(ask(number))
    for connection in idle:
        connection.close()
    return began, delays, answers


PATH = "/api/sql"


class _Affected(msgspec.Struct):
    affected: int


async def insert(address: Address, task: InsertRows) -> Span:
    requests = [request(address, "POST", PATH, body) for body in _statements(task)]
    began, ended, answers = await ask_all(address, task.connections, requests)
    _check(answers, task.rows)
    return Span(began, ended)


async def insert_steadily(address: Address, task: InsertSteadily) -> Span:
    sql = f"INSERT INTO {task.table} (id, sent) VALUES (?, ?)"

    def make(number: int, sent: float) -> bytes:
        return request(address, "POST", PATH, msgspec.json.encode({"sql": sql, "params": [number, sent]}))

    began, _, answers = await ask_steadily(address, task.rows, task.per_second, make)
    _check(answers, task.rows)
    return Span(began, time.monotonic())


def _statements(task: InsertRows) -> Iterator[bytes]:
    into = f"INSERT INTO {task.table} (id, body) VALUES "
    body = "x" * task.body_bytes
    end = task.first_id + task.rows
    for first in range(task.first_id, end, task.rows_a_request):
        ids = range(first, min(end, first + task.rows_a_request))
        if task.form == "text":
            rows = ",".join(f"({number},'{body}')" for number in ids)
            yield msgspec.json.encode({"sql": into + rows})
        else:
            params: list[object] = [[number, body] for number in ids]
            if len(params) == 1:
                params = params[0]  # type: ignore[assignment]
            yield msgspec.json.encode({"sql": f"{into}(?, ?)", "params": params})


def _check(answers: Sequence[bytes], rows: int) -> None:
    told = sum(msgspec.json.decode(answer, type=_Affected).affected for answer in answers)
    if told != rows:
        raise BadAnswer(f"{rows} rows were sent, and {told} were said to be written")


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
    """Check that offsets have no gap and no duplicate, in a topic of one partition with no other writer."""
    records = [record for answer in answers for record in msgspec.json.decode(answer, type=_Published).records]
    offsets = {record.offset for record in records}
    if len(records) != messages or len(offsets) != messages or max(offsets) - min(offsets) != messages - 1:
        raise BadAnswer(f"{messages} messages were sent, and {len(records)} acknowledged at {len(offsets)} offsets")


_EVENT = re.compile(rb'id: (\d+)\ndata: [^\n]*?"n":(\d+),"sent":([\d.e-]+)')
_CONNECTED_AT_ONCE = 50
_SUBSCRIBE_SECONDS = 60.0


async def subscribe(address: Address, task: Subscribe, on_ready: Callable[[], None]) -> Delays:
    loop = asyncio.get_running_loop()
    left = task.subscribers * task.messages
    all_came = asyncio.Event()

    def count(events: int) -> None:
        nonlocal left
        left -= events
        if left <= 0:
            all_came.set()

    asked = request(address, "GET", f"/api/subscribe?pattern={task.pattern}", accept="text/event-stream")
    followers: list[Follower] = []
    while len(followers) < task.subscribers:
        some = min(_CONNECTED_AT_ONCE, task.subscribers - len(followers))
        opened = [await loop.create_connection(lambda: Follower(asked, count), *address) for _ in range(some)]
        followers += [follower for _, follower in opened]
        await asyncio.wait_for(asyncio.gather(*(follower.is_open for follower in followers[-some:])), _SUBSCRIBE_SECONDS)
    on_ready()
    try:
        await asyncio.wait_for(all_came.wait(), _SUBSCRIBE_SECONDS)
    except TimeoutError:
        raise BadAnswer(f"{left} of {task.subscribers * task.messages} events did not come") from None
    delays: list[float] = []
    for follower in followers:
        follower.close()
        delays += _delays(follower, task.messages)
    return Delays(delays)


def _delays(follower: Follower, messages: int) -> list[float]:
    ends = list(accumulate(len(piece) for _, piece in follower.pieces))
    delays, cursors, numbers = [], [], []
    for found in _EVENT.finditer(b"".join(piece for _, piece in follower.pieces)):
        cursors.append(int(found[1]))
        numbers.append(int(found[2]))
        delays.append(follower.pieces[bisect_left(ends, found.end())][0] - float(found[3]))
    # Publishers are independent, so numbers may arrive in another order than they were sent; cursors never.
    if sorted(numbers) != list(range(messages)) or sorted(cursors) != cursors:
        raise BadAnswer(f"a subscriber got {len(numbers)} events, not all {messages} once and in order")
    return delays


class HttpClient(WorkerProcess[AnyTask, Answer]):
    """Runs this module as a child process."""

    def __init__(self, server: HttpServer) -> None:
        super().__init__(server.name, "bench.http.client", str(server.http), answers=Answer)


def _serve_tasks(address: Address) -> None:
    for line in sys.stdin.buffer:
        task: AnyTask = msgspec.json.decode(line, type=AnyTask)
        try:
            say(uvloop.run(_do(address, task)))
        except (BadAnswer, OSError, TimeoutError) as error:
            say(Failed(f"{type(task).__name__}: {error}"))
        gc.collect()


async def _do(address: Address, task: AnyTask) -> Answer:
    match task:
        case InsertRows():
            return await insert(address, task)
        case InsertSteadily():
            return await insert_steadily(address, task)
        case PublishMessages():
            return await publish(address, task)
        case PublishSteadily():
            return await publish_steadily(address, task)
        case ConsumeMessages():
            return await consume(address, task)
        case ConsumeSteadily():
            return await consume_steadily(address, task, _say_ready)
        case Subscribe():
            return await subscribe(address, task, _say_ready)


def _say_ready() -> None:
    say(Done())


if __name__ == "__main__":
    gc.disable()  # the collector would scan every response that is kept for the check
    _serve_tasks(parse_address(sys.argv[1]))
