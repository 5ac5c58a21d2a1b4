"""Subscriptions: every event of all topics that match a pattern, in the order of the log, from any cursor on.

A subscription lives through broken connections and restarts of the server: it goes on right after the last event that it has
handed out, so none is missed and none comes twice.
"""

import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import Any, Self
from urllib.parse import urlencode

import msgspec
from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException

from tailrace.client._async.concurrency import pause
from tailrace.client._async.connection import AsyncWebSocket
from tailrace.client._async.queue import AsyncQueueSubscription
from tailrace.client._async.transport import AsyncTransport
from tailrace.client.config import CONNECTION_SETTINGS, ConnectionConfig, CorruptBatches, QueueConfig
from tailrace.client.errors import error_from_response
from tailrace.client.http11 import checked_url, tls_context, tls_error
from tailrace.client.retry import is_transient
from tailrace.client.values import Event, decode_frame, to_event
from tailrace.model.backoff import Backoff
from tailrace.model.consume import LogEdge
from tailrace.model.errors import ConfigurationError, ConnectionLostError, ServerUnreachableError, TailraceError
from tailrace.model.limits import DEFAULT_LIMITS
from tailrace.model.names import parse_pattern

_log = logging.getLogger("tailrace.client")

_SILENCE_SECONDS = 2.5 * DEFAULT_LIMITS.subscriber_silence_seconds
"""The server gives signs of life more often; whoever is silent for so long is gone."""


class _Health(msgspec.Struct):
    end_cursor: int


class AsyncSubscriber:
    """Subscribes to topics by patterns: `orders.*` is one part after `orders`, `orders.>` is `orders` and everything below.

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
        """`on_made` learns of subscriptions to queues, which want to be closed."""
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
        """Events of all topics that match.

        `after` is the cursor of the last event that was dealt with; the stream goes on right after it. A number as `cursor`
        means the same. Or `cursor` is `beginning`, for everything that is there, or `latest`, for what comes from now on. A
        stored batch that can't be decoded is raised as an error, after the events before it; or it is left out, if
        `corrupt_batches` is `skip`.
        """
        parse_pattern(pattern, DEFAULT_LIMITS)
        if after is not None:
            if cursor != LogEdge.LATEST:
                raise ConfigurationError("cursor and after both say where to begin; leave one of them out")
            if isinstance(after, bool) or not isinstance(after, int) or after < -1:
                raise ConfigurationError(f"after is {after!r}; allowed is the cursor of an event, or -1 before the first")
            cursor = after
        if isinstance(cursor, bool) or not ((isinstance(cursor, int) and cursor >= -1) or cursor in tuple(LogEdge)):
            raise ConfigurationError(f"cursor is {cursor!r}; allowed is the cursor of an event, 'beginning' or 'latest'")
        if corrupt_batches not in tuple(CorruptBatches):
            raise ConfigurationError(f"corrupt_batches is {corrupt_batches!r}; allowed is 'report' or 'skip'")
        return AsyncEventStream(self._url, pattern, cursor, self._config, skips_corrupt=corrupt_batches == CorruptBatches.SKIP)

    def subscribe_queue(self, pattern: str, group: str, **settings: Any) -> AsyncQueueSubscription:
        """Events of all topics that match, shared with the other consumers of the group: each event goes to one of them.

        Settings are those of `QueueConfig`, as `QueueConfig.from_properties` takes them.
        """
        retrying = {name: getattr(self._config, name) for name in CONNECTION_SETTINGS}
        config = QueueConfig.from_properties({**retrying, **settings, "pattern": pattern, "group_id": group})
        subscription = AsyncQueueSubscription(self._url, config)
        if self._on_made is not None:
            self._on_made(subscription)
        return subscription


class AsyncEventStream:
    """An iterator of events. `cursor` is that of the last one, to be kept for later."""

    def __init__(
        self, url: str, pattern: str, cursor: int | str, config: ConnectionConfig, *, skips_corrupt: bool = False
    ) -> None:
        self._skips_corrupt = skips_corrupt
        self._url = url
        self._pattern = pattern
        self._config = config
        self._start = cursor
        self._events = self._stream()
        self.cursor: int | None = cursor if isinstance(cursor, int) else None
        """Of the last event that was handed out; `None` before the first."""
        self.reconnects = 0

    async def __aenter__(self) -> Self:
        """Returns once it is settled where the stream begins: what is published from then on is in it."""
        await self._settle_start()
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
        await self._settle_start()
        config = self._config
        backoff = Backoff(config.retry_backoff.total_seconds(), config.retry_backoff_max.total_seconds())
        trust = tls_context(self._url, config.ca_file)
        heard_at = time.monotonic()
        while True:
            try:
                async with AsyncWebSocket(self._address(), trust, config.request_timeout.total_seconds()) as socket:
                    while True:
                        frame = decode_frame(await socket.receive(_SILENCE_SECONDS))
                        heard_at = time.monotonic()
                        backoff.reset()
                        if frame.type == "error":
                            raise error_from_response(500, bytes(frame.error))
                        for corrupt in frame.corrupt:
                            _log.warning("a batch that can't be decoded is skipped: %s", corrupt)
                        for sent in frame.events:
                            # Whatever stands between may double what was sent.
                            if self.cursor is None or sent.cursor > self.cursor:
                                self.cursor = sent.cursor
                                yield to_event(sent)
                        if frame.cursor is not None:
                            self.cursor = max(frame.cursor, -1 if self.cursor is None else self.cursor)
            except (OSError, WebSocketException) as error:
                failure = _failure(self._url, error)
                if not is_transient(failure) or time.monotonic() - heard_at > config.api_timeout.total_seconds():
                    raise failure from error
            self.reconnects += 1
            await pause(backoff.next_pause())

    def _address(self) -> str:
        place: dict[str, int | str] = {"cursor": self._start} if self.cursor is None else {"after": self.cursor}
        skipping = {"corrupt_batches": "skip"} if self._skips_corrupt else {}
        address = self._url.replace("http", "ws", 1)
        return f"{address}/api/subscribe?{urlencode({'pattern': self._pattern, **place, **skipping})}"

    async def _settle_start(self) -> None:
        """A start at the end of the log is pinned, so that a connection that breaks before the first event loses nothing."""
        if self._start == LogEdge.LATEST and self.cursor is None:
            connection = AsyncTransport(self._url, self._config)
            try:
                self.cursor = (await connection.get("/health", _Health)).end_cursor - 1
            finally:
                await connection.close()


def _failure(url: str, error: Exception) -> TailraceError:
    if isinstance(error, InvalidStatus):
        return error_from_response(error.response.status_code, bytes(error.response.body or b""))
    if isinstance(error, ConnectionClosed | TimeoutError):
        return ConnectionLostError(f"the subscription to {url} broke: {error or 'nothing was heard for too long'}")
    return tls_error(url, error) or ServerUnreachableError(
        f"no server answers at {url}: {error}. Is `tailrace serve` running there?"
    )
