"""A process that inserts rows at a steady rate by the SDK, into one table after the other."""

import sys
import time

import msgspec

from bench.worker_process import Failed, say
from tailrace.api.sql import SqlResponse
from tailrace.client._sync.transport import Transport
from tailrace.model.errors import TailraceError

TABLES = 10
_BODY = "x" * 150


def live_table(number: int) -> str:
    return f"bench.live_{number % TABLES}"


class SendRows(msgspec.Struct, frozen=True, kw_only=True):
    first_id: int
    per_second: float
    rows: int
    """How many rows a statement inserts."""
    seconds: float


class SentRows(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    next_id: int
    seconds: float
    commits: list[float]
    """How long the requests took."""


def _send(transport: Transport, task: SendRows) -> SentRows:
    rows = task.rows
    commits = []
    next_id = task.first_id
    turn = 0
    began = now = time.monotonic()
    while now < began + task.seconds:
        values = [[number, time.time_ns(), _BODY] for number in range(next_id, next_id + rows)]
        text = f"INSERT INTO {live_table(turn)} (id, sent, body) VALUES (?, ?, ?)"
        sent = time.perf_counter()
        transport.ask("/api/sql", {"sql": text, "params": values[0] if rows == 1 else values}, SqlResponse)
        commits.append(time.perf_counter() - sent)
        turn += 1
        next_id += rows
        now = time.monotonic()
        due = began + (next_id - task.first_id) / task.per_second
        if due > now:
            time.sleep(due - now)
            now = time.monotonic()
    return SentRows(next_id=next_id, seconds=now - began, commits=commits)


def main(url: str) -> None:
    transport = Transport(url)
    for line in sys.stdin.buffer:
        try:
            say(_send(transport, msgspec.json.decode(line, type=SendRows)))
        except TailraceError as error:
            say(Failed(str(error)))


if __name__ == "__main__":
    main(sys.argv[1])
