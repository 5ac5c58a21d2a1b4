"""Fetches, what they found, and those that wait."""

import asyncio

from tailrace.broker.broker import Broker
from tailrace.model.fetch import PartitionBatches, PartitionFetch
from tailrace.model.ids import Offset
from tests.support.aio import until
from tests.support.batches import values_of
from tests.support.brokers import raw

BATCH_BYTES = len(raw("t", 0, b"0").batch)
"""The size of a batch with one small record."""
LONG_MS = 20_000
"""Longer than any test should wait."""


def at(offset: int, partition: int = 0, topic: str = "t", max_bytes: int = 1_000_000) -> PartitionFetch:
    return PartitionFetch(topic, partition, Offset(offset), max_bytes)


def values(answers: list[PartitionBatches]) -> list[list[bytes]]:
    for answer in answers:
        assert answer.error is None
    return [values_of(answer.batches) for answer in answers]


def waiting(broker: Broker, *wanted: PartitionFetch, min_bytes: int = 1) -> "asyncio.Task[list[PartitionBatches]]":
    return asyncio.create_task(broker.fetcher.fetch(wanted, min_bytes=min_bytes, max_wait_ms=LONG_MS))


async def settled_in(broker: Broker, waiters: int = 1) -> None:
    await until(lambda: len(broker.waiting_fetches) == waiters)
