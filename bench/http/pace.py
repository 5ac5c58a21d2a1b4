"""Requests at an even pace, each on its time whether the one before it is answered or not."""

import asyncio
import time
from collections.abc import Callable, Sequence

from bench.http.wire import Connection, connect
from tailrace.model.address import Address


async def ask_steadily(
    address: Address, count: int, per_second: int, make: Callable[[int, float], bytes]
) -> tuple[float, Sequence[float], Sequence[bytes]]:
    """`make` gets a number and the time. When it began; for each request the seconds until its answer; the answers."""
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
