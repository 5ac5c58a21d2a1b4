"""Responses that may be large: sent in pieces, as the client reads them.

The memory that a response holds (`broker/reading/answers.py`) is released when all of it is sent, or when the client has
disconnected or reads nothing for too long. At most a piece or two wait in the buffers of the network.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from enum import Enum
from functools import partial
from typing import Any

import msgspec

from tailrace.broker.broker import Broker
from tailrace.broker.reading.answers import ReadAnswer
from tailrace.http.connection import ABORT, EXTENSION
from tailrace.model.limits import KIB, Limits

ASGIScope = Mapping[str, Any]
ASGISend = Callable[[Any], Awaitable[None]]

INLINE_BYTES = 128 * KIB
_PIECE_BYTES = 256 * KIB
_PRESSED_SECONDS = 5
"""How long a client may read nothing of a response while others wait for its memory."""
_CHECK_SECONDS = 1.0


async def encode_json(broker: Broker, answer: ReadAnswer, make: Callable[[], Any]) -> bytes:
    """Make a response and encode it as JSON; a large one in a thread, so that it does not block the event loop."""
    if answer.used <= INLINE_BYTES:
        return msgspec.json.encode(make())
    return await broker.threads.run(lambda: msgspec.json.encode(make()))


class HeldResponse:
    """An ASGI application that sends one body and releases its memory."""

    def __init__(self, body: bytes, media_type: str, held: ReadAnswer, limits: Limits) -> None:
        self._body = body
        self._media_type = media_type
        self._held = held
        self._limits = limits

    async def __call__(self, scope: Any, receive: Any, send: ASGISend) -> None:
        await send_held(self._body, self._media_type, self._held, scope, send, self._limits)


async def send_held(body: bytes, media_type: str, held: ReadAnswer, scope: Any, send: ASGISend, limits: Limits) -> None:
    head = [(b"content-type", media_type.encode()), (b"content-length", b"%d" % len(body))]
    try:
        held.resize(len(body))
        await send({"type": "http.response.start", "status": 200, "headers": head})
        if await send_pieces(body, held, send, limits.unsent_seconds, more=False) is not Sent.ALL:
            abort_connection(scope)
    finally:
        held.close()


class Sent(Enum):
    """How much was sent before the client read nothing for too long."""

    ALL = 1
    PART = 2
    NOTHING = 3


async def send_pieces(body: bytes, held: ReadAnswer, send: ASGISend, stall_seconds: float, *, more: bool) -> Sent:
    """Send a part of a response as the client reads it. `more` says whether other parts follow."""
    for at in range(0, len(body) or 1, _PIECE_BYTES):
        piece = body[at : at + _PIECE_BYTES] if len(body) > _PIECE_BYTES else body
        message = {"type": "http.response.body", "body": piece, "more_body": more or at + _PIECE_BYTES < len(body)}
        if not await send_when_writable(partial(send, message), held, stall_seconds):
            return Sent.PART if at else Sent.NOTHING
    return Sent.ALL


async def send_when_writable(send: Callable[[], Awaitable[None]], held: ReadAnswer, stall_seconds: float) -> bool:
    """Send when the client has read what was sent before. Return false if it does not in time.

    It has less time while others wait for the memory of the response. Nothing is written before, so what was not sent in time
    can be sent again.
    """
    waited = 0.0
    while True:
        check_seconds = min(_CHECK_SECONDS, stall_seconds - waited)
        try:
            async with asyncio.timeout(check_seconds):
                await send()
        except TimeoutError:
            waited += check_seconds
            if waited >= stall_seconds or (held.is_pressed and waited >= _PRESSED_SECONDS):
                return False
        else:
            return True


def abort_connection(scope: Any) -> None:
    """Close the connection in the middle of a response, so that the client does not take it for complete."""
    callbacks: Any = (scope.get("extensions") or {}).get(EXTENSION, {})
    callbacks.get(ABORT, lambda: None)()
