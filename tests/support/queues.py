"""A consumer of a queue, for tests."""

from collections.abc import Sequence
from typing import Any

from tailrace.broker.broker import Broker
from tailrace.model.queue import Delivery, ReceiveRequest, SettleResult
from tailrace.model.record import Message


class QueueConsumer:
    def __init__(self, broker: Broker, group: str = "workers", pattern: str = "jobs", **asked: Any) -> None:
        self.broker = broker
        self.group = group
        self.pattern = pattern
        self.asked = asked

    async def receive(self, most: int = 1, **asked: Any) -> list[Delivery]:
        request = {"group": self.group, "pattern": self.pattern, "max_records": most, **self.asked, **asked}
        return await self.broker.queues.receive(ReceiveRequest(**request))

    async def ack(self, *deliveries: Delivery) -> SettleResult:
        return await self.broker.queues.acknowledge(self.group, [delivery.receipt for delivery in deliveries])

    async def nack(self, *deliveries: Delivery, delay_ms: int = 0, reason: str = "") -> SettleResult:
        receipts = [delivery.receipt for delivery in deliveries]
        return await self.broker.queues.release(self.group, receipts, delay_ms, reason)

    async def extend(self, *deliveries: Delivery, visibility_ms: int = 30_000) -> SettleResult:
        return await self.broker.queues.extend(self.group, [delivery.receipt for delivery in deliveries], visibility_ms)


def values(deliveries: Sequence[Delivery]) -> list[bytes | None]:
    return [delivery.record.value for delivery in deliveries]


async def publish(broker: Broker, topic: str, *sent: bytes, key: bytes | None = None) -> None:
    await broker.publisher.publish([Message(topic, value, key) for value in sent])
