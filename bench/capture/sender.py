"""A process that inserts rows into PostgreSQL at a steady rate, each in a transaction of its own.

It has a few connections, so that a commit which takes long does not hold up the others.
"""

import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import msgspec
import psycopg

from bench.peers.postgres import connect
from bench.worker_process import Failed, say
from tailrace.model.address import parse_address

_CONNECTIONS = 4
_INSERT = "INSERT INTO orders VALUES (%s, %s, %s, 'created', %s, 3, rpad('order', 80, '.'), now())"


class SendOrders(msgspec.Struct, frozen=True, kw_only=True):
    first_id: int
    first_change: int
    rows: int
    per_second: int


class SentOrders(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    committed: list[float]
    """When the COMMIT of each row had returned, by the clock that all processes of the machine share."""
    seconds: float


def main(address: str) -> None:
    with ExitStack() as stack:
        connections = [stack.enter_context(connect(parse_address(address))) for _ in range(_CONNECTIONS)]
        threads = stack.enter_context(ThreadPoolExecutor(_CONNECTIONS))
        for line in sys.stdin.buffer:
            try:
                say(_send(threads, connections, msgspec.json.decode(line, type=SendOrders)))
            except psycopg.Error as error:
                say(Failed(f"PostgreSQL refused a row: {error}"))


def _send(threads: ThreadPoolExecutor, connections: Sequence[Any], task: SendOrders) -> SentOrders:
    committed = [0.0] * task.rows
    began = time.perf_counter()

    def send(first: int) -> None:
        for number in range(first, task.rows, _CONNECTIONS):
            ahead = began + number / task.per_second - time.perf_counter()
            if ahead > 0:
                time.sleep(ahead)
            row = (task.first_id + number, task.first_change + number, number % 10_007, number % 1_000)
            connections[first].execute(_INSERT, row, prepare=True)
            committed[number] = time.perf_counter()

    list(threads.map(send, range(_CONNECTIONS)))
    return SentOrders(committed=committed, seconds=time.perf_counter() - began)


if __name__ == "__main__":
    main(sys.argv[1])
