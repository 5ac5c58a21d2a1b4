"""A Kafka listener that asks for authentication, with its broker, in a thread of the test's process."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from tailrace.broker.broker import Broker
from tailrace.broker.security.settings import SecuritySettings
from tailrace.model.security import Grant, Operation, ResourceKind
from tests.support.patience import PATIENCE_SECONDS
from tests.support.sasl import REQUIRED, SecuredKafka, secured_kafka

T = TypeVar("T")


class SecuredKafkaThread:
    """`with SecuredKafkaThread() as kafka:` runs it; clients connect to `kafka.address`."""

    def __init__(self, security: SecuritySettings = REQUIRED) -> None:
        self._security = security
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._ready = threading.Event()
        self._stopping = asyncio.Event()
        self._kafka: SecuredKafka | None = None

    def __enter__(self) -> "SecuredKafkaThread":
        self._thread.start()
        assert self._ready.wait(PATIENCE_SECONDS)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join(PATIENCE_SECONDS)
        assert not self._thread.is_alive()
        self._loop.close()

    @property
    def address(self) -> str:
        assert self._kafka is not None
        return self._kafka.address

    def run(self, work: Callable[[Broker], Coroutine[Any, Any, T]]) -> T:
        """Run something with the broker, as the server."""
        assert self._kafka is not None
        return asyncio.run_coroutine_threadsafe(work(self._kafka.broker), self._loop).result(PATIENCE_SECONDS)

    def closed(self, reason: str) -> int:
        """Return how many connections were closed for a reason."""
        assert self._kafka is not None
        return self._kafka.traffic.closed[reason]

    def grant(self, name: str, operation: Operation, kind: ResourceKind, resource: str) -> None:
        self.run(lambda broker: broker.grants.add([_grant(name, operation, kind, resource)]))

    def revoke(self, name: str, operation: Operation, kind: ResourceKind, resource: str) -> None:
        gone = _grant(name, operation, kind, resource)
        self.run(lambda broker: broker.grants.remove(lambda grant: grant == gone))

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._serve())

    async def _serve(self) -> None:
        async with secured_kafka(self._security) as self._kafka:
            self._ready.set()
            await self._stopping.wait()


def _grant(name: str, operation: Operation, kind: ResourceKind, resource: str) -> Grant:
    return Grant(principal=name, operation=operation, kind=kind, name=resource)
