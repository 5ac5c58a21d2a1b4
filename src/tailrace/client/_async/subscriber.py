"""Subscriptions: every event of all topics that match a pattern, in the order of the log, from any cursor.

A subscription survives broken connections and restarts of the server: it continues after the last event that it has yielded,
so none is missed and none is delivered twice.
"""

import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import Any, Self
from urllib.parse import urlencode

import msgspec
from msgspec import UNSET
from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException

from tailrace.api.messages import SubscriptionMessage
from tailrace.api.server import Health
from tailrace.client._async.concurrency import pause
from tailrace.client._async.connection import AsyncWebSocket
from tailrace.client._async.queue import AsyncQueueSubscription
from tailrace.client._async.transport import AsyncTransport
from tailrace.client.config import CONNECTION_SETTINGS, ConnectionConfig, CorruptBatches, QueueConfig
from tailrace.client.credentials import ServerAccess
from tailrace.client.errors import error_from_response
from tailrace.client.http11 import checked_url, tls_error
from tailrace.client.retry import is_transient
from tailrace.client.values import Event, to_event
from tailrace.model.backoff import Backoff
from tailrace.model.consume import LogEdge
from tailrace.model.errors import ConfigurationError, ConnectionLostError, ServerUnreachableError, TailraceError
from tailrace.model.limits import DEFAULT_LIMITS
from tailrace.model.names import parse_pattern

_log = logging.getLogger("tailrace.client")

_MESSAGES = msgspec.json.Decoder(SubscriptionMessage)

_SILENCE_SECONDS = 2.5 * DEFAULT_LIMITS.subscriber_silence_seconds
"""The server sends `alive` messages more often, so a connection that is silent for this long is dead."""


class AsyncSubscriber:
    """Subscribes to topics by patterns: `orders.*` matches one more part, `orders.>` matches `orders` and everything below.

    Example:
        async with AsyncClient("http://127.0.0.1:8080") as client:
            async with client.subscriber().subscribe("orders.>", cursor="beginning") as events:
                async for event in events:
                    print(event.cursor, event.topic_name, event.value)
                    break
    """

    def __init__(
        self, url: str, config: ConnectionConfig | None = None, on_made: Callable[[AsyncQueueSubscription], None] | None = None
    ) -> None:
        """`on_made` is called with every subscription to a queue, because these must be closed."""
        self._url = checked_url(url)
        self._config = config or ConnectionConfig()
        self._on_made = on_made

    def subscribe(
        self,
        pattern: str,
        cursor: int | str = LogEdge.LATEST,
        *,
        after: int | None = None,
        corrupt_batches: CorruptBatches | str = CorruptBatches.REPORT,
    ) -> "AsyncEventStream":
        """Return a stream of the events of all topics that match.

        `after` is the cursor of the last event that was processed; the stream continues after it. A number as `cursor` means
        the same. Or `cursor` is `beginning`, for everything that is stored, or `latest`, for new events only. A stored batch
        that can't be decoded raises an error after the events before it, or is skipped if `corrupt_batches` is `skip`.
        """
        parse_pattern(pattern, DEFAULT_LIMITS)
        if after is not None:
            if cursor != LogEdge.LATEST:
                raise ConfigurationError("cursor and after both say where to start; leave one out")
            if isinstance(after, bool) or not isinstance(after, int) or after < -1:
                raise ConfigurationError(f"after is {after!r}; allowed is the cursor of an event, or -1 before the first")
            cursor = after
        if isinstance(cursor, bool) or not ((isinstance(cursor, int) and cursor >= -1) or cursor in tuple(LogEdge)):
            raise ConfigurationError(f"cursor is {cursor!r}; allowed is the cursor of an event, 'beginning' or 'latest'")
        if corrupt_batches not in tuple(CorruptBatches):
            raise ConfigurationError(f"corrupt_batches is {corrupt_batches!r}; allowed is 'report' or 'skip'")
        return AsyncEventStream(self._url, pattern, cursor, self._config, skips_corrupt=corrupt_batches == CorruptBatches.SKIP)

    def subscribe_queue(self, pattern: str, group: str, **settings: Any) -> AsyncQueueSubscription:
        """Return a subscription to the events of all topics that match. Each event goes to one consumer of the group.

        Settings are those of `QueueConfig`, as `QueueConfig.from_properties` takes them.
        """
        connection = {name: getattr(self._config, name) for name in CONNECTION_SETTINGS}
        config = QueueConfig.from_properties({**connection, **settings, "pattern": pattern, "group_id": group})
        subscription = AsyncQueueSubscription(self._url, config)
        if self._on_made is not None:
            self._on_made(subscription)
        return subscription


class AsyncEventStream:
    """Iterates over events. `cursor` is that of the last one; a program may store it to continue later."""

    def __init__(
        self, url: str, pattern: str, cursor: int | str, config: ConnectionConfig, *, skips_corrupt: bool = False
    ) -> None:
        self._skips_corrupt = skips_corrupt
        self._address = url
        self._access = ServerAccess(url, config)
        self._url = self._access.url
        self._pattern = pattern
        self._config = config
        self._start = cursor
        self._events = self._stream()
        self.cursor: int | None = cursor if isinstance(cursor, int) else None
        """The cursor of the last event that was yielded; `None` before the first."""
        self.reconnects = 0

    async def __aenter__(self) -> Self:
        """Return once the start is fixed: the stream has everything that is published from then on."""
        await self._fix_start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __aiter__(self) -> AsyncIterator[Event]:
        return self._events

    async def __anext__(self) -> Event:
        return await self._events.__anext__()

    async def close(self) -> None:
        await self._events.aclose()

    async def _stream(self) -> AsyncGenerator[Event, None]:
        await self._fix_start()
        config = self._config
        backoff = Backoff(config.retry_backoff.total_seconds(), config.retry_backoff_max.total_seconds())
        tls, headers = self._access.tls_context(), self._access.headers
        received_at = time.monotonic()
        while True:
            try:
                async with AsyncWebSocket(
                    self._websocket_url(), tls, headers, config.request_timeout.total_seconds()
                ) as socket:
                    while True:
                        message = _MESSAGES.decode(await socket.receive(_SILENCE_SECONDS))
                        received_at = time.monotonic()
                        backoff.reset()
                        if message.type == "error":
                            raise error_from_response(500, b"" if message.error is UNSET else bytes(message.error))
                        for corrupt in message.corrupt:
                            _log.warning("skipping a batch that can't be decoded: %s", msgspec.structs.asdict(corrupt))
                        for event in message.events:
                            # Something in between may have doubled the message.
                            if self.cursor is None or event.cursor > self.cursor:
                                self.cursor = event.cursor
                                yield to_event(event)
                        if message.cursor is not None:
                            self.cursor = max(message.cursor, -1 if self.cursor is None else self.cursor)
            except (OSError, WebSocketException) as error:
                failure = _failure(self._url, error)
                if not is_transient(failure) or time.monotonic() - received_at > config.api_timeout.total_seconds():
                    raise failure from error
            self.reconnects += 1
            await pause(backoff.next_pause())

    def _websocket_url(self) -> str:
        start: dict[str, int | str] = {"cursor": self._start} if self.cursor is None else {"after": self.cursor}
        policy = {"corrupt_batches": "skip"} if self._skips_corrupt else {}
        address = self._url.replace("http", "ws", 1)
        return f"{address}/api/subscribe?{urlencode({'pattern': self._pattern, **start, **policy})}"

    async def _fix_start(self) -> None:
        """Ask where the log ends, if the start is there: a connection that breaks before the first event then loses nothing."""
        if self._start == LogEdge.LATEST and self.cursor is None:
            transport = AsyncTransport(self._address, self._config)
            try:
                self.cursor = (await transport.get("/health", Health)).end_cursor - 1
            finally:
                await transport.close()


def _failure(url: str, error: Exception) -> TailraceError:
    if isinstance(error, InvalidStatus):
        return error_from_response(error.response.status_code, bytes(error.response.body or b""))
    if isinstance(error, ConnectionClosed | TimeoutError):
        return ConnectionLostError(f"the subscription to {url} broke: {error or 'nothing was received for too long'}")
    return tls_error(url, error) or ServerUnreachableError(
        f"no server answers at {url}: {error}. Is `tailrace serve` running there?"
    )
