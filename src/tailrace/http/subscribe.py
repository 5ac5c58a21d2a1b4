"""`GET /api/subscribe`: all topics that match a pattern as one stream, by Server-Sent Events or by WebSocket.

The endpoint pulls from the subscription what the connection takes. While the connection takes nothing, nothing is pulled
and the subscriber is paused; after `subscriber_stall_seconds` of that it is told so and cut off.

A number always names the last cursor that was seen: what is sent begins right after it (`after`, `Last-Event-ID`).
"""

import asyncio
import re
from collections.abc import Callable, Sequence
from typing import Annotated, Any, TypeVar

from litestar import Request, WebSocket, get
from litestar.di import NamedDependency
from litestar.handlers import websocket
from litestar.params import FromQuery
from litestar.types import ASGIApp, Receive, Scope, Send
from msgspec import Meta

from tailrace.broker.broker import Broker
from tailrace.broker.subscriptions.subscriptions import Subscription
from tailrace.http.connections import CUT, DRAINED, EXTENSION, LINGER_SECONDS
from tailrace.http.consuming import CorruptBatches
from tailrace.http.description import described
from tailrace.http.frames import SSE_TYPE, Frames, sse_error, sse_sign_of_life, websocket_error, websocket_sign_of_life
from tailrace.http.guards import FirstLook
from tailrace.http.patience import until_gone
from tailrace.http.problems import MEDIA_TYPE, RequestRefusedError, error_body, problem_body
from tailrace.http.query import refuse_unknown
from tailrace.http.sending import INLINE_BYTES, Sent, abort, is_taken, send_pieces
from tailrace.model.consume import EventBatch, LogEdge, StartCursor
from tailrace.model.errors import InvalidRequestError, SlowSubscriberError, TailraceError
from tailrace.model.fetch import CorruptBatch
from tailrace.model.ids import Cursor
from tailrace.model.limits import Limits
from tailrace.model.names import parse_pattern

T = TypeVar("T", bytes, str)

_LAST_EVENT_ID = "last-event-id"
_TRY_AGAIN_LATER = 1013
_SERVICE_RESTART = 1012
_NUMBER = re.compile("[0-9]{1,19}")
_NOTHING_SEEN = "-1"
_SHOWN = 40
_QUERY = ("pattern", "cursor", "after", "corrupt_batches")
SeenCursor = Annotated[str, Meta(pattern="^(-1|[0-9]*)$")]
_HEADERS = [(b"content-type", SSE_TYPE.encode()), (b"cache-control", b"no-store"), (b"x-accel-buffering", b"no")]


@get("/api/subscribe", tags=["subscriptions"], opt=described(answer_types={SSE_TYPE: str}))
async def subscribe(
    request: Request[Any, Any, Any],
    broker: NamedDependency[Broker],
    frames: NamedDependency[Frames],
    limits: NamedDependency[Limits],
    pattern: FromQuery[str],
    cursor: FromQuery[str] = "",
    after: FromQuery[SeenCursor] = "",
    corrupt_batches: FromQuery[CorruptBatches] = "report",
) -> ASGIApp:
    """Events of all topics that match the pattern, in the order of the log, as Server-Sent Events."""
    last_id = request.headers.get(_LAST_EVENT_ID)
    start = _after(last_id, _LAST_EVENT_ID) if last_id else _start(cursor, after)
    subscription = broker.subscriptions.subscribe(parse_pattern(pattern, limits), start)

    async def stream(scope: Scope, receive: Receive, send: Send) -> None:
        events = _Events(broker, subscription, limits, corrupt_batches == "skip")
        try:
            await _stream_sse(scope, receive, send, events, subscription, frames, limits)
        finally:
            events.held.close()
            subscription.close()

    return stream


@websocket("/api/subscribe")
async def subscribe_by_websocket(
    socket: WebSocket[Any, Any, Any],
    broker: NamedDependency[Broker],
    frames: NamedDependency[Frames],
    limits: NamedDependency[Limits],
    first_look: NamedDependency[FirstLook],
) -> None:
    try:
        first_look.check_socket(socket.scope)
        refuse_unknown("/api/subscribe", socket.query_params, _QUERY)
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
        await _stream_websocket(socket, events, subscription, frames, limits)
    finally:
        events.held.close()
        subscription.close()


class _Events:
    """The next piece of a stream, encoded, with the room that it takes until it is sent."""

    def __init__(self, broker: Broker, subscription: Subscription, limits: Limits, skips_corrupt: bool) -> None:
        self._broker = broker
        self._subscription = subscription
        self._limits = limits
        self._skips_corrupt = skips_corrupt
        self.held = broker.answers.answer()

    async def next(
        self, encode: Callable[[Sequence[EventBatch], Sequence[CorruptBatch]], T], alive: Callable[[Cursor], T]
    ) -> T:
        """Large events are encoded in a thread, so that others are not held up."""
        self.held.close()
        self.held = held = self._broker.answers.answer(skips_corrupt=self._skips_corrupt)
        batches = await self._subscription.read(self._limits.subscriber_silence_seconds, held)
        if not batches and not held.corrupt:
            return alive(self._subscription.position)
        if held.used <= INLINE_BYTES:
            return encode(batches, held.corrupt)
        body = await self._broker.in_thread(encode, batches, held.corrupt)
        held.resize(len(body))
        return body


async def _stream_sse(
    scope: Scope, receive: Receive, send: Send, events: _Events, subscription: Subscription, frames: Frames, limits: Limits
) -> None:
    cut = _exit_of(scope)
    async with until_gone(receive):
        await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
        # The head alone would wait for the first event in many clients.
        await send_pieces(
            sse_sign_of_life(subscription.position), events.held, send, limits.subscriber_stall_seconds, more=True
        )
        try:
            while True:
                body = await events.next(frames.sse, sse_sign_of_life)
                sent = await send_pieces(body, events.held, send, limits.subscriber_stall_seconds, more=True)
                if sent is not Sent.ALL:
                    subscription.cut()
                    # In the middle of an event nothing can be said: the client would take it for a part of the event.
                    cut(sse_error(_too_slow(limits))) if sent is Sent.NOTHING else abort(scope)
                    return
        except TailraceError as error:
            await send({"type": "http.response.body", "body": sse_error(error), "more_body": False})


async def _stream_websocket(
    socket: WebSocket[Any, Any, Any], events: _Events, subscription: Subscription, frames: Frames, limits: Limits
) -> None:
    cut = _exit_of(socket.scope)
    drained = _exit_of(socket.scope, DRAINED, _at_once)
    async with until_gone(socket.receive):
        try:
            while True:
                text = await events.next(frames.websocket, websocket_sign_of_life)
                await socket.send({"type": "websocket.send", "bytes": None, "text": text})
                del text
                # A message is handed over whole, so its room is held until the client has taken it.
                if not await is_taken(drained, events.held, limits.subscriber_stall_seconds):
                    subscription.cut()
                    cut(_TRY_AGAIN_LATER, str(_too_slow(limits)))
                    await asyncio.sleep(LINGER_SECONDS)
                    return
        except TailraceError as error:
            if not error.retriable:
                await socket.send({"type": "websocket.send", "bytes": None, "text": websocket_error(error)})
            await socket.close(_SERVICE_RESTART if error.retriable else _TRY_AGAIN_LATER, _short(str(error)))


async def _at_once() -> None:
    pass


def _exit_of(scope: Scope, name: str = CUT, otherwise: Callable[..., Any] = lambda *_: None) -> Callable[..., Any]:
    """How our own listener cuts a connection; under another server it just ends."""
    exits: Any = (scope.get("extensions") or {}).get(EXTENSION, {})
    return exits.get(name, otherwise)  # type: ignore[no-any-return]


async def _refuse(socket: WebSocket[Any, Any, Any], status: int, body: bytes) -> None:
    """The handshake is answered as any other request would be."""
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
        raise InvalidRequestError("cursor and after both say where to begin; leave one of them out")
    if after:
        return _after(after, "after")
    if cursor in ("", LogEdge.BEGINNING, LogEdge.LATEST):
        return LogEdge(cursor or LogEdge.LATEST)
    if _NUMBER.fullmatch(cursor):
        raise InvalidRequestError(
            f"cursor is {cursor}, and whether its event has been seen is not said; after={cursor} begins with the event behind"
            f" it, after={int(cursor) - 1} with the event itself"
        )
    raise InvalidRequestError(f"cursor is {cursor[:_SHOWN]!r}; it must be 'beginning' or 'latest'. A number is given as after")


def _skips_corrupt(text: str) -> bool:
    if text not in ("report", "skip"):
        raise InvalidRequestError(f"corrupt_batches is {text[:_SHOWN]!r}; it must be 'report' or 'skip'")
    return text == "skip"


def _after(text: str, name: str) -> StartCursor:
    if not _NUMBER.fullmatch(text) and text != _NOTHING_SEEN:
        raise InvalidRequestError(f"{name} is {text[:_SHOWN]!r}; it must be the number of the last cursor that was seen")
    return Cursor(int(text) + 1)


def _too_slow(limits: Limits) -> SlowSubscriberError:
    return SlowSubscriberError(f"nothing was taken for {limits.subscriber_stall_seconds} s; go on after the last cursor seen")


def _short(text: str) -> str:
    """A close frame has room for 123 bytes."""
    return text.encode()[:120].decode(errors="ignore")
