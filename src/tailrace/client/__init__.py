"""The Python SDK: consumers, publishers, subscriptions and queues, for asyncio and without it.

    from tailrace.client import Client

    with Client("http://127.0.0.1:8080") as client:
        with client.publisher() as publisher:
            publisher.publish("orders", {"id": 1})
        with client.consumer(topic="orders", group_id="billing") as consumer:
            for record in consumer.poll():
                consumer.mark_processed(record)

Every class with I/O exists twice: `AsyncTopicConsumer` for asyncio, `TopicConsumer` for threads. All errors derive from
`TailraceError`; each says whether the same call may succeed later (`retriable`) and whether it may have taken effect
(`outcome`).
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from tailrace.client.config import (
    AutoOffsetReset,
    ConnectionConfig,
    ConsumerConfig,
    CorruptBatches,
    PublisherConfig,
    QueueConfig,
)
from tailrace.client.values import (
    CommitResult,
    ConsumerRecord,
    CopyProgress,
    CopyResult,
    Event,
    OutgoingMessage,
    PositionReset,
    PublishResult,
    QueueEvent,
    RejectedRow,
)
from tailrace.model.errors import (
    AuthenticationError,
    ClientClosedError,
    ConfigurationError,
    ConnectionLostError,
    CopyStoppedError,
    ForbiddenError,
    IllegalGenerationError,
    InvalidPatternError,
    InvalidRequestError,
    LateReceiptError,
    MessageTooLargeError,
    NoCommittedOffsetError,
    OffsetOutOfRangeError,
    OffsetRegressionError,
    OverloadedError,
    RebalanceInProgressError,
    ServerUnreachableError,
    TailraceError,
    TimeoutError,
    TlsError,
    UnknownGroupError,
    UnknownMemberError,
    UnknownTopicError,
    UnknownTopicIdError,
    UnreadableBatchError,
)

if TYPE_CHECKING:
    from tailrace.client._async.client import AsyncClient
    from tailrace.client._async.consumer import AsyncTopicConsumer
    from tailrace.client._async.publisher import AsyncDelivery, AsyncPublisher
    from tailrace.client._async.queue import AsyncQueueSubscription
    from tailrace.client._async.subscriber import AsyncEventStream, AsyncSubscriber
    from tailrace.client._sync.client import Client
    from tailrace.client._sync.consumer import TopicConsumer
    from tailrace.client._sync.publisher import Delivery, Publisher
    from tailrace.client._sync.queue import QueueSubscription
    from tailrace.client._sync.subscriber import EventStream, Subscriber

_CLASSES_WITH_IO = {
    "AsyncClient": "_async.client",
    "AsyncDelivery": "_async.publisher",
    "AsyncEventStream": "_async.subscriber",
    "AsyncPublisher": "_async.publisher",
    "AsyncQueueSubscription": "_async.queue",
    "AsyncSubscriber": "_async.subscriber",
    "AsyncTopicConsumer": "_async.consumer",
    "Client": "_sync.client",
    "Delivery": "_sync.publisher",
    "EventStream": "_sync.subscriber",
    "Publisher": "_sync.publisher",
    "QueueSubscription": "_sync.queue",
    "Subscriber": "_sync.subscriber",
    "TopicConsumer": "_sync.consumer",
}
"""Where each class is. They are imported at first use: the pipeline and the command line need only the transport, and programs
without asyncio only half of them."""

__all__ = [
    "AsyncClient",
    "AsyncDelivery",
    "AsyncEventStream",
    "AsyncPublisher",
    "AsyncQueueSubscription",
    "AsyncSubscriber",
    "AsyncTopicConsumer",
    "AuthenticationError",
    "AutoOffsetReset",
    "Client",
    "ClientClosedError",
    "CommitResult",
    "ConfigurationError",
    "ConnectionConfig",
    "ConnectionLostError",
    "ConsumerConfig",
    "ConsumerRecord",
    "CopyProgress",
    "CopyResult",
    "CopyStoppedError",
    "CorruptBatches",
    "Delivery",
    "Event",
    "EventStream",
    "ForbiddenError",
    "IllegalGenerationError",
    "InvalidPatternError",
    "InvalidRequestError",
    "LateReceiptError",
    "MessageTooLargeError",
    "NoCommittedOffsetError",
    "OffsetOutOfRangeError",
    "OffsetRegressionError",
    "OutgoingMessage",
    "OverloadedError",
    "PositionReset",
    "PublishResult",
    "Publisher",
    "PublisherConfig",
    "QueueConfig",
    "QueueEvent",
    "QueueSubscription",
    "RebalanceInProgressError",
    "RejectedRow",
    "ServerUnreachableError",
    "Subscriber",
    "TailraceError",
    "TimeoutError",
    "TlsError",
    "TopicConsumer",
    "UnknownGroupError",
    "UnknownMemberError",
    "UnknownTopicError",
    "UnknownTopicIdError",
    "UnreadableBatchError",
]


def __getattr__(name: str) -> Any:
    if name not in _CLASSES_WITH_IO:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(f"{__name__}.{_CLASSES_WITH_IO[name]}"), name)
    return found


def __dir__() -> list[str]:
    return [*globals(), *_CLASSES_WITH_IO]
