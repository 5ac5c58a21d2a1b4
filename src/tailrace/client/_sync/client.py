# Generated from _async/client.py by tools/generate_sync.py; change that file, then run it.

"""The entry point of the SDK: one server, and consumers, publishers and subscribers for it."""

from collections.abc import Callable
from os import PathLike, fspath
from typing import Any, Self, TypeVar
from weakref import WeakSet

import msgspec

from tailrace.client._sync.consumer import TopicConsumer
from tailrace.client._sync.publisher import Publisher
from tailrace.client._sync.queue import QueueSubscription
from tailrace.client._sync.subscriber import Subscriber
from tailrace.client.config import ConnectionConfig, ConsumerConfig, PublisherConfig
from tailrace.client.http11 import checked_url
from tailrace.client.values import PositionReset
from tailrace.model.errors import TailraceError

C = TypeVar("C", bound=ConnectionConfig)


class Client:
    """Makes consumers, publishers and subscribers for one server.

    Example:
        with Client("http://127.0.0.1:8080") as client:
            with client.publisher() as publisher:
                result = publisher.publish("orders", {"id": 1}, key="c1")
                print(result.offset, result.cursor)
    """

    def __init__(self, url: str, *, ca_file: str | PathLike[str] | None = None) -> None:
        """`ca_file` is the default of the setting of this name for everything that this client makes."""
        self.url = checked_url(url)
        self._connection_config = ConnectionConfig(ca_file=None if ca_file is None else fspath(ca_file))
        self._made: WeakSet[TopicConsumer | Publisher | QueueSubscription] = WeakSet()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def consumer(
        self,
        config: ConsumerConfig | None = None,
        on_reset: Callable[[PositionReset], None] | None = None,
        **settings: Any,
    ) -> TopicConsumer:
        """Make a consumer from its config, or from settings as `ConsumerConfig.from_properties` takes them.

        `on_reset` is called when the consumer changes its position because its topic was deleted and created again.
        """
        with_ca = self._with_ca_file(config or ConsumerConfig.from_properties(settings))
        consumer = TopicConsumer(self.url, with_ca, on_reset)
        self._made.add(consumer)
        return consumer

    def publisher(self, config: PublisherConfig | None = None, **settings: Any) -> Publisher:
        """Make a publisher from its config, or from settings as `PublisherConfig.from_properties` takes them."""
        publisher = Publisher(self.url, self._with_ca_file(config or PublisherConfig.from_properties(settings)))
        self._made.add(publisher)
        return publisher

    def subscriber(self) -> Subscriber:
        return Subscriber(self.url, self._connection_config, on_made=self._made.add)

    def close(self) -> None:
        """Close everything that this client made and that is still open: consumers, publishers, subscriptions to queues."""
        failures = []
        while self._made:
            try:
                self._made.pop().close()
            except TailraceError as error:
                failures.append(error)
        if failures:
            raise failures[0]

    def _with_ca_file(self, config: C) -> C:
        ca_file = config.ca_file or self._connection_config.ca_file
        return config if ca_file == config.ca_file else msgspec.structs.replace(config, ca_file=ca_file)
