"""`GET /api/subscribe`: events of all topics that match a pattern, as Server-Sent Events or over a WebSocket.

The next events are read when the client has read the last ones, so a slow subscriber falls behind instead of filling memory,
and is disconnected when it reads nothing for too long. A subscription starts right after the last cursor that the client has
seen (`after`, `Last-Event-ID`). A batch is encoded once for all subscribers that get it.
"""

import asyncio
import re
from collections.abc import Callable, Sequence
from typing import Annotated, Any, TypeVar
from weakref import WeakKeyDictionary

import msgspec
from litestar import Request, WebSocket, get
from litestar.di import NamedDependency
from litestar.handlers import websocket
from litestar.params import FromQuery
from litestar.types import ASGIApp, Receive, Scope, Send
from msgspec import Meta

from tailrace.api.consume import CorruptBatchPolicy
from tailrace.api.messages import CorruptRange
from tailrace.broker.broker import Broker
from tailrace.broker.subscriptions.subscriptions import Subscription
from tailrace.http.connection import DISCONNECT, DRAINED, EXTENSION, LINGER_SECONDS
from tailrace.http.disconnect import until_disconnect
from tailrace.http.login_watch import until_login_ends
from tailrace.http.messages import to_read_message
from tailrace.http.openapi import describe_endpoint
from tailrace.http.problems import MEDIA_TYPE, RequestRefusedError, error_body, problem_body
from tailrace.http.request_guard import RequestGuard
from tailrace.http.requests import check_query
from tailrace.http.responses import INLINE_BYTES, Sent, abort_connection, send_pieces, send_when_writable
from tailrace.model.consume import EventBatch, LogEdge, StartCursor
from tailrace.model.errors import AuthenticationError, InvalidRequestError, SlowSubscriberError, TailraceError
from tailrace.model.fetch import CorruptBatch
from tailrace.model.ids import Cursor
from tailrace.model.limits import Limits
from tailrace.model.names import parse_pattern

SSE_TYPE = "text/event-stream"
_LAST_EVENT_ID = "last-event-id"
_TRY_AGAIN_LATER = 1013
_SERVICE_RESTART = 1012
_POLICY_VIOLATION = 1008
_LAST_MESSAGE_SECONDS = 0.5
"""How long the last message may wait for a client that reads nothing, before the connection is closed behind its back."""
_NUMBER = re.compile("[0-9]{1,19}")
_NOTHING_SEEN = "-1"
_SHOWN_CHARACTERS = 40
_QUERY = ("pattern", "cursor", "after", "corrupt_batches")
SeenCursor = Annotated[str, Meta(pattern="^(-1|[0-9]*)$")]
_HEADERS = [(b"content-type", SSE_TYPE.encode()), (b"cache-control", b"no-store"), (b"x-accel-buffering", b"no")]

T = TypeVar("T", bytes, str)


class EncodedOnce:
    """Encodes each batch once, and keeps the result as long as the batch exists."""

    def __init__(self, encode: Callable[[EventBatch], bytes]) -> None:
        self._encode = encode
        self._encoded: WeakKeyDictionary[EventBatch, bytes] = WeakKeyDictionary()

    def __call__(self, batch: EventBatch) -> bytes:
        encoded = self._encoded.get(batch)
        if encoded is None:
            encoded = self._encoded[batch] = self._encode(batch)
        return encoded


class EventEncoder:
    def __init__(self) -> None:
        self._sse = EncodedOnce(_sse_events)
        self._json = EncodedOnce(_json_events)

    def sse(self, batches: Sequence[EventBatch], corrupt: Sequence[CorruptBatch] = ()) -> bytes:
        """Encode batches for Server-Sent Events. `corrupt` are those that are skipped because they can't be decoded."""
        left_out = (b"event: corrupt\ndata: %b\n\n" % msgspec.json.encode(CorruptRange(*batch)) for batch in corrupt)
        return b"".join((*left_out, *map(self._sse, batches)))

    def websocket(self, batches: Sequence[EventBatch], corrupt: Sequence[CorruptBatch] = ()) -> str:
        left_out = b',"corrupt":' + msgspec.json.encode([CorruptRange(*batch) for batch in corrupt]) if corrupt else b""
        return b"".join((b'{"type":"events","events":[', b",".join(map(self._json, batches)), b"]", left_out, b"}")).decode()


def sse_keepalive(position: Cursor) -> bytes:
    """Return a comment, with an id from which the client can resume without searching what did not match again."""
    return b": still here\nid: %d\n\n" % (position - 1) if position else b": still here\n\n"


def websocket_error(error: TailraceError) -> str:
    return f'{{"type":"error","error":{error_body(error).decode()}}}'


def websocket_keepalive(position: Cursor) -> str:
    return f'{{"type":"alive","cursor":{position - 1}}}'


def sse_error(error: TailraceError) -> bytes:
    return b"event: error\ndata: %b\n\n" % error_body(error)


def _sse_events(batch: EventBatch) -> bytes:
    parts = []
    for record in batch.records:
        data = msgspec.json.encode(to_read_message(batch.topic, batch.partition, record))
        if b"\n" in data or b"\r" in data:
            # Line breaks of the value, which in JSON are only between tokens.
            data = b"\ndata: ".join(data.splitlines())
        parts.append(b"id: %d\ndata: %b\n\n" % (record.cursor, data))
    return b"".join(parts)


def _json_events(batch: EventBatch) -> bytes:
    return msgspec.json.encode([to_read_message(batch.topic, batch.partition, record) for record in batch.records])[1:-1]


@get("/api/subscribe", tags=["subscriptions"], opt=describe_endpoint(response_types={SSE_TYPE: str}))
async def subscribe(
    request: Request[Any, Any, Any],
    broker: NamedDependency[Broker],
    event_encoder: NamedDependency[EventEncoder],
    limits: NamedDependency[Limits],
    pattern: FromQuery[str],
    cursor: FromQuery[str] = "",
    after: FromQuery[SeenCursor] = "",
    corrupt_batches: FromQuery[CorruptBatchPolicy] = "report",
) -> ASGIApp:
    """Stream events of all topics that match a pattern, in the order of the log, as Server-Sent Events."""
    last_id = request.headers.get(_LAST_EVENT_ID)
    start = _after(last_id, _LAST_EVENT_ID) if last_id else _start(cursor, after)
    subscription = broker.subscriptions.subscribe(parse_pattern(pattern, limits), start)

    async def stream(scope: Scope, receive: Receive, send: Send) -> None:
        events = _Events(broker, subscription, limits, corrupt_batches == "skip")
        try:
            await _stream_sse(scope, receive, send, events, subscription, event_encoder, limits)
        finally:
            events.held.close()
            subscription.close()

    return stream


@websocket("/api/subscribe")
async def subscribe_by_websocket(
    socket: WebSocket[Any, Any, Any],
    broker: NamedDependency[Broker],
    event_encoder: NamedDependency[EventEncoder],
    limits: NamedDependency[Limits],
    request_guard: NamedDependency[RequestGuard],
) -> None:
    try:
        request_guard.check_websocket(socket.scope)
        check_query("/api/subscribe", socket.query_params, _QUERY)
    except RequestRefusedError as error:
        await _refuse(socket, error.status, problem_body(error.status, error.detail))
        return
    query = socket.query_params
    try:
        start = _start(query.get("cursor", ""), query.get("after", ""))
        skips_corrupt = _skips_corrupt(query.get("corrupt_batches", "report"))
        subscription = broker.subscriptions.subscribe(parse_pattern(query.get("pattern", ""), limits), start)
    except TailraceError as error:
        await _refuse(socket, error.http_status, error_body(error))
        return
    events = _Events(broker, subscription, limits, skips_corrupt)
    try:
        await socket.accept()
        await _stream_websocket(socket, events, subscription, event_encoder, limits)
    finally:
        events.held.close()
        subscription.close()


class _Events:
    """Reads and encodes the next events of a stream, and holds their memory until they are sent."""

    def __init__(self, broker: Broker, subscription: Subscription, limits: Limits, skips_corrupt: bool) -> None:
        self._broker = broker
        self._subscription = subscription
        self._limits = limits
        self._skips_corrupt = skips_corrupt
        self.held = broker.answers.answer()

    async def next(
        self, encode: Callable[[Sequence[EventBatch], Sequence[CorruptBatch]], T], alive: Callable[[Cursor], T]
    ) -> T:
        """Return the next events, or a keepalive. Large events are encoded in a thread, to keep the event loop free."""
        self.held.close()
        self.held = held = self._broker.answers.answer(skips_corrupt=self._skips_corrupt)
        batches = await self._subscription.read(self._limits.subscriber_silence_seconds, held)
        if not batches and not held.corrupt:
            return alive(self._subscription.position)
        if held.used <= INLINE_BYTES:
            return encode(batches, held.corrupt)
        body = await self._broker.threads.run(encode, batches, held.corrupt)
        held.resize(len(body))
        return body


async def _stream_sse(
    scope: Scope,
    receive: Receive,
    send: Send,
    events: _Events,
    subscription: Subscription,
    event_encoder: EventEncoder,
    limits: Limits,
) -> None:
    disconnect = _callback_of(scope)
    async with until_disconnect(receive):
        await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
        # Many clients do not report the head before they get a part of the body.
        await send_pieces(sse_keepalive(subscription.position), events.held, send, limits.subscriber_stall_seconds, more=True)
        is_sending = False
        try:
            with until_login_ends():
                while True:
                    body = await events.next(event_encoder.sse, sse_keepalive)
                    is_sending = True
                    sent = await send_pieces(body, events.held, send, limits.subscriber_stall_seconds, more=True)
                    is_sending = False
                    if sent is not Sent.ALL:
                        subscription.cut()
                        # After a part of an event an error would be taken for the rest of the event.
                        disconnect(sse_error(_too_slow(limits))) if sent is Sent.NOTHING else abort_connection(scope)
                        return
        except TailraceError as error:
            if is_sending:
                abort_connection(scope)
                return
            try:
                async with asyncio.timeout(_LAST_MESSAGE_SECONDS):
                    await send({"type": "http.response.body", "body": sse_error(error), "more_body": False})
            except TimeoutError:
                disconnect(sse_error(error))


async def _stream_websocket(
    socket: WebSocket[Any, Any, Any], events: _Events, subscription: Subscription, event_encoder: EventEncoder, limits: Limits
) -> None:
    disconnect = _callback_of(socket.scope)
    drained = _callback_of(socket.scope, DRAINED, _no_wait)
    async with until_disconnect(socket.receive):
        try:
            with until_login_ends():
                while True:
                    text = await events.next(event_encoder.websocket, websocket_keepalive)
                    await socket.send({"type": "websocket.send", "bytes": None, "text": text})
                    del text
                    # The transport gets the whole message, so its memory is held until the client has read it.
                    if not await send_when_writable(drained, events.held, limits.subscriber_stall_seconds):
                        subscription.cut()
                        disconnect(_TRY_AGAIN_LATER, str(_too_slow(limits)))
                        await asyncio.sleep(LINGER_SECONDS)
                        return
        except TailraceError as error:
            code = _SERVICE_RESTART if error.retriable else _TRY_AGAIN_LATER
            code = _POLICY_VIOLATION if isinstance(error, AuthenticationError) else code
            try:
                async with asyncio.timeout(_LAST_MESSAGE_SECONDS):
                    if not error.retriable:
                        await socket.send({"type": "websocket.send", "bytes": None, "text": websocket_error(error)})
                    await socket.close(code, _short(str(error)))
            except TimeoutError:
                disconnect(code, _short(str(error)))
                await asyncio.sleep(LINGER_SECONDS)


async def _no_wait() -> None:
    pass


def _callback_of(scope: Scope, name: str = DISCONNECT, otherwise: Callable[..., Any] = lambda *_: None) -> Callable[..., Any]:
    """Return a callback of our listener's connection; under another server, one that does nothing."""
    callbacks: Any = (scope.get("extensions") or {}).get(EXTENSION, {})
    return callbacks.get(name, otherwise)  # type: ignore[no-any-return]


async def _refuse(socket: WebSocket[Any, Any, Any], status: int, body: bytes) -> None:
    """Answer the handshake with an error, as any other request."""
    await socket.receive()
    send: Any = socket.send
    await send(
        {
            "type": "websocket.http.response.start",
            "status": status,
            "headers": [(b"content-type", MEDIA_TYPE.encode())],
        }
    )
    await send({"type": "websocket.http.response.body", "body": body, "more_body": False})


def _start(cursor: str, after: str) -> StartCursor:
    if after and cursor:
        raise InvalidRequestError("cursor and after both say where to start; send one of them")
    if after:
        return _after(after, "after")
    if cursor in ("", LogEdge.BEGINNING, LogEdge.LATEST):
        return LogEdge(cursor or LogEdge.LATEST)
    if _NUMBER.fullmatch(cursor):
        raise InvalidRequestError(
            f"cursor must be 'beginning' or 'latest', not {cursor}; use after={cursor} to start with the next event, or"
            f" after={int(cursor) - 1} to start with the event at this cursor"
        )
    raise InvalidRequestError(
        f"cursor must be 'beginning' or 'latest', not {cursor[:_SHOWN_CHARACTERS]!r}; send a number as after"
    )


def _skips_corrupt(text: str) -> bool:
    if text not in ("report", "skip"):
        raise InvalidRequestError(f"corrupt_batches is {text[:_SHOWN_CHARACTERS]!r}; it must be 'report' or 'skip'")
    return text == "skip"


def _after(text: str, name: str) -> StartCursor:
    if not _NUMBER.fullmatch(text) and text != _NOTHING_SEEN:
        raise InvalidRequestError(f"{name} is {text[:_SHOWN_CHARACTERS]!r}; it must be the last cursor that was seen, a number")
    return Cursor(int(text) + 1)


def _too_slow(limits: Limits) -> SlowSubscriberError:
    return SlowSubscriberError(
        f"the subscriber read nothing for {limits.subscriber_stall_seconds} s; resume after the last cursor seen"
    )


def _short(text: str) -> str:
    """Shorten a text to fit into a close frame, which holds 123 bytes."""
    return text.encode()[:120].decode(errors="ignore")
