"""INSERTs, as a client sends them."""

import time
from collections.abc import Iterator, Sequence

import msgspec

from bench.http.pace import ask_steadily
from bench.http.tasks import InsertRows, InsertSteadily
from bench.http.wire import BadAnswer, ask_all, request
from bench.kafka.tasks import Span
from tailrace.model.address import Address

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
