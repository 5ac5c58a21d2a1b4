"""The way in: one address, and consumers, publishers and subscribers for it."""

from collections.abc import Callable
from os import PathLike, fspath
from typing import Any, Self, TypeVar
from weakref import WeakSet

import msgspec

from tailrace.client._async.consumer import AsyncTopicConsumer
from tailrace.client._async.publisher import AsyncPublisher
from tailrace.client._async.queue import AsyncQueueSubscription
from tailrace.client._async.subscriber import AsyncSubscriber
from tailrace.client.config import ConnectionConfig, ConsumerConfig, PublisherConfig
from tailrace.client.http11 import checked_url
from tailrace.client.values import PositionReset
from tailrace.model.errors import TailraceError

C = TypeVar("C", bound=ConnectionConfig)


class AsyncClient:
    """A server, by its address.

    Example:
        async with AsyncClient("http://127.0.0.1:8080") as client:
            async with client.publisher() as publisher:
                result = await publisher.publish("orders", {"id": 1}, key="c1")
                print(result.offset, result.cursor)
    """

    def __init__(self, url: str, *, ca_file: str | PathLike[str] | None = None) -> None:
        """`ca_file` is the setting of this name for all that is made here and has none of its own."""
        self.url = checked_url(url)
        self._connecting = ConnectionConfig(ca_file=None if ca_file is None else fspath(ca_file))
        self._made: WeakSet[AsyncTopicConsumer | AsyncPublisher | AsyncQueueSubscription] = WeakSet()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def consumer(
        self,
        config: ConsumerConfig | None = None,
        on_reset: Callable[[PositionReset], None] | None = None,
        **settings: Any,
    ) -> AsyncTopicConsumer:
        """A consumer, by its config or by settings as `ConsumerConfig.from_properties` takes them.

        `on_reset` learns when the consumer goes elsewhere because its topic was deleted and made again.
        """
        trusting = self._trusting(config or ConsumerConfig.from_properties(settings))
        consumer = AsyncTopicConsumer(self.url, trusting, on_reset)
        self._made.add(consumer)
        return consumer

    def publisher(self, config: PublisherConfig | None = None, **settings: Any) -> AsyncPublisher:
        """A publisher, by its config or by settings as `PublisherConfig.from_properties` takes them."""
        publisher = AsyncPublisher(self.url, self._trusting(config or PublisherConfig.from_properties(settings)))
        self._made.add(publisher)
        return publisher

    def subscriber(self) -> AsyncSubscriber:
        return AsyncSubscriber(self.url, self._connecting, on_made=self._made.add)

    async def close(self) -> None:
        """Close what this client made and nobody has closed yet: consumers, publishers and subscriptions to queues."""
        failures = []
        while self._made:
            try:
                await self._made.pop().close()
            except TailraceError as error:
                failures.append(error)
        if failures:
            raise failures[0]

    def _trusting(self, config: C) -> C:
        ca_file = config.ca_file or self._connecting.ca_file
        return config if ca_file == config.ca_file else msgspec.structs.replace(config, ca_file=ca_file)
