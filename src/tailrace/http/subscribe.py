"""`GET /api/subscribe`: all topics that match a pattern as one stream, by Server-Sent Events or by WebSocket.

The endpoint pulls from the subscription what the connection takes. While the connection takes nothing, nothing is pulled
and the subscriber is paused; after `subscriber_stall_seconds` of that it is told so and cut off.

A number always names the last cursor that was seen: what is sent begins right after it (`after`, `Last-Event-ID`).
"""

import asyncio
import re
from collections.abc import Callable
from typing import Annotated, Any

from litestar import Request, WebSocket, get
from litestar.di import NamedDependency
from litestar.handlers import websocket
from litestar.params import FromQuery
from litestar.types import ASGIApp, Receive, Scope, Send
from msgspec import Meta

from tailrace.broker.broker import Broker
from tailrace.broker.subscriptions.subscriptions import Subscription
from tailrace.http.connections import CUT, EXTENSION
from tailrace.http.description import described
from tailrace.http.frames import SSE_TYPE, Frames, sse_error, sse_sign_of_life, websocket_sign_of_life
from tailrace.http.guards import FirstLook
from tailrace.http.patience import until_gone
from tailrace.http.problems import MEDIA_TYPE, RequestRefusedError, error_body, problem_body
from tailrace.http.query import refuse_unknown
from tailrace.model.errors import InvalidRequestError, SlowSubscriberError, TailraceError
from tailrace.model.ids import Cursor
from tailrace.model.limits import Limits
from tailrace.model.pattern import parse_pattern
from tailrace.model.subscription import LogEdge, StartCursor

_LAST_EVENT_ID = "last-event-id"
_TRY_AGAIN_LATER = 1013
_SERVICE_RESTART = 1012
_NUMBER = re.compile("[0-9]{1,19}")
_NOTHING_SEEN = "-1"
_SHOWN = 40
_QUERY = ("pattern", "cursor", "after")
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
) -> ASGIApp:
    """Events of all topics that match the pattern, in the order of the log, as Server-Sent Events."""
    last_id = request.headers.get(_LAST_EVENT_ID)
    start = _after(last_id, _LAST_EVENT_ID) if last_id else _start(cursor, after)
    subscription = broker.subscriptions.subscribe(parse_pattern(pattern, limits), start)

    async def stream(scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await _stream_sse(scope, receive, send, subscription, frames, limits)
        finally:
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
        subscription = broker.subscriptions.subscribe(parse_pattern(query.get("pattern", ""), limits), start)
    except TailraceError as error:
        await _refuse(socket, error.http_status, error_body(error))
        return
    try:
        await socket.accept()
        await _stream_websocket(socket, subscription, frames, limits)
    finally:
        subscription.close()


async def _stream_sse(
    scope: Scope, receive: Receive, send: Send, subscription: Subscription, frames: Frames, limits: Limits
) -> None:
    async def push(body: bytes, more: bool = True) -> None:
        await send({"type": "http.response.body", "body": body, "more_body": more})

    cut = _exit_of(scope)
    async with until_gone(receive):
        await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
        # The head alone would wait for the first event in many clients.
        await push(sse_sign_of_life(subscription.position))
        try:
            while True:
                batches = await subscription.read(limits.subscriber_silence_seconds)
                body = frames.sse(batches) if batches else sse_sign_of_life(subscription.position)
                async with asyncio.timeout(limits.subscriber_stall_seconds):
                    await push(body)
        except TimeoutError:
            subscription.cut()
            cut(sse_error(_too_slow(limits)))
        except TailraceError as error:
            await push(sse_error(error), more=False)


async def _stream_websocket(
    socket: WebSocket[Any, Any, Any], subscription: Subscription, frames: Frames, limits: Limits
) -> None:
    cut = _exit_of(socket.scope)
    async with until_gone(socket.receive):
        try:
            while True:
                batches = await subscription.read(limits.subscriber_silence_seconds)
                text = frames.websocket(batches) if batches else websocket_sign_of_life(subscription.position)
                async with asyncio.timeout(limits.subscriber_stall_seconds):
                    await socket.send({"type": "websocket.send", "bytes": None, "text": text})
        except TimeoutError:
            subscription.cut()
            cut(_TRY_AGAIN_LATER, str(_too_slow(limits)))
        except TailraceError as error:
            await socket.close(_SERVICE_RESTART if error.retriable else _TRY_AGAIN_LATER, _short(str(error)))


def _exit_of(scope: Scope) -> Callable[..., Any]:
    """How our own listener cuts a connection; under another server it just ends."""
    exits: Any = (scope.get("extensions") or {}).get(EXTENSION, {})
    return exits.get(CUT, lambda *_: None)  # type: ignore[no-any-return]


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


def _after(text: str, name: str) -> StartCursor:
    if not _NUMBER.fullmatch(text) and text != _NOTHING_SEEN:
        raise InvalidRequestError(f"{name} is {text[:_SHOWN]!r}; it must be the number of the last cursor that was seen")
    return Cursor(int(text) + 1)


def _too_slow(limits: Limits) -> SlowSubscriberError:
    return SlowSubscriberError(f"nothing was taken for {limits.subscriber_stall_seconds} s; go on after the last cursor seen")


def _short(text: str) -> str:
    """A close frame has room for 123 bytes."""
    return text.encode()[:120].decode(errors="ignore")
