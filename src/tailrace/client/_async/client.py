"""The way in: one address, and consumers, publishers and subscribers for it."""

from typing import Any, Self
from weakref import WeakSet

from tailrace.client._async.consumer import AsyncTopicConsumer
from tailrace.client._async.publisher import AsyncPublisher
from tailrace.client._async.queue import AsyncQueueSubscription
from tailrace.client._async.subscriber import AsyncSubscriber
from tailrace.client.config import ConsumerConfig, PublisherConfig
from tailrace.client.exchange import checked_url
from tailrace.model.errors import TailraceError


class AsyncClient:
    """A server, by its address.

    Example:
        async with AsyncClient("http://127.0.0.1:8080") as client:
            async with client.publisher() as publisher:
                result = await publisher.publish("orders", {"id": 1}, key="c1")
                print(result.offset, result.cursor)
    """

    def __init__(self, url: str) -> None:
        self.url = checked_url(url)
        self._made: WeakSet[AsyncTopicConsumer | AsyncPublisher | AsyncQueueSubscription] = WeakSet()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def consumer(self, config: ConsumerConfig | None = None, **settings: Any) -> AsyncTopicConsumer:
        """A consumer, by its config or by settings as `ConsumerConfig.from_properties` takes them."""
        consumer = AsyncTopicConsumer(self.url, config or ConsumerConfig.from_properties(settings))
        self._made.add(consumer)
        return consumer

    def publisher(self, config: PublisherConfig | None = None, **settings: Any) -> AsyncPublisher:
        """A publisher, by its config or by settings as `PublisherConfig.from_properties` takes them."""
        publisher = AsyncPublisher(self.url, config or PublisherConfig.from_properties(settings))
        self._made.add(publisher)
        return publisher

    def subscriber(self) -> AsyncSubscriber:
        return AsyncSubscriber(self.url, on_made=self._made.add)

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
