"""Concurrent writers that keep book of what the server told them."""

import asyncio
from typing import NamedTuple

import httpx

ORDERS = "shop.orders"
PAYMENTS = "shop.payments"
WRITERS = 16


class Frame(NamedTuple):
    """One publish: the same number from the same writer to both topics, atomically."""

    writer: int
    number: int


class Place(NamedTuple):
    topic: str
    partition: int
    offset: int


class History:
    """What was asked for and what was answered."""

    def __init__(self) -> None:
        self.acked: dict[Frame, tuple[Place, ...]] = {}
        self.in_doubt: set[Frame] = set()
        """Sent, but the server died before it answered. Each may be there or not, but never half of it."""


async def write_until_dead(url: str, history: History) -> None:
    """All writers at once, each one frame after the other, until the server no longer answers."""
    limits = httpx.Limits(max_connections=WRITERS, max_keepalive_connections=WRITERS)
    async with httpx.AsyncClient(base_url=url, limits=limits, timeout=10) as client, asyncio.TaskGroup() as writers:
        for writer in range(WRITERS):
            writers.create_task(_write(client, writer, history))


async def _write(client: httpx.AsyncClient, writer: int, history: History) -> None:
    number = 0
    while True:
        frame = Frame(writer, number)
        message = {"key": f"writer-{writer}", "value": {"writer": writer, "number": number}}
        try:
            answer = await client.post(
                "/api/topics/publish",
                json={"messages": [{"topic": ORDERS, **message}, {"topic": PAYMENTS, **message}]},
            )
        except httpx.TransportError:
            history.in_doubt.add(frame)
            return
        answer.raise_for_status()
        history.acked[frame] = tuple(
            Place(record["topic_name"], record["partition_id"], record["offset"]) for record in answer.json()["records"]
        )
        number += 1
