"""Answers that take much memory on their way to the client: sent in pieces, as the client takes them.

The room that an answer holds (`broker/reading/answers.py`) is given back when all of it is sent, or when the client has gone or
takes nothing for too long. What is left to the network's buffers is a piece or two.
"""

import asyncio
from collections.abc import Awaitable, Callable
from enum import Enum
from functools import partial
from typing import Any

import msgspec

from tailrace.broker.broker import Broker
from tailrace.broker.reading.answers import ReadAnswer
from tailrace.http.connection import ABORT, EXTENSION
from tailrace.model.limits import KIB, Limits

ASGISend = Callable[[Any], Awaitable[None]]

INLINE_BYTES = 128 * KIB
_PIECE_BYTES = 256 * KIB
_PRESSED_SECONDS = 5
"""How long a client may take nothing of an answer while others wait for its room."""
_LOOK_SECONDS = 1.0


async def encode_json(broker: Broker, answer: ReadAnswer, make: Callable[[], Any]) -> bytes:
    """An answer as JSON. A large one is made in a thread, so that others are not held up."""
    if answer.used <= INLINE_BYTES:
        return msgspec.json.encode(make())
    return await broker.threads.run(lambda: msgspec.json.encode(make()))


class HeldResponse:
    """An ASGI application that sends one body and gives its room back."""

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
    """How much of something was sent before the client took nothing for too long."""

    ALL = 1
    PART = 2
    NOTHING = 3


async def send_pieces(body: bytes, held: ReadAnswer, send: ASGISend, stall_seconds: float, *, more: bool) -> Sent:
    """Send a part of an answer as the client takes it. `more`: whether other parts follow."""
    for at in range(0, len(body) or 1, _PIECE_BYTES):
        piece = body[at : at + _PIECE_BYTES] if len(body) > _PIECE_BYTES else body
        message = {"type": "http.response.body", "body": piece, "more_body": more or at + _PIECE_BYTES < len(body)}
        if not await send_when_writable(partial(send, message), held, stall_seconds):
            return Sent.PART if at else Sent.NOTHING
    return Sent.ALL


async def send_when_writable(send: Callable[[], Awaitable[None]], held: ReadAnswer, stall_seconds: float) -> bool:
    """Send something when the client has taken what came before. It has less time while others wait for the answer's room.

    Until then nothing is written, so what was not sent in time can be sent again.
    """
    waited = 0.0
    while True:
        look_seconds = min(_LOOK_SECONDS, stall_seconds - waited)
        try:
            async with asyncio.timeout(look_seconds):
                await send()
        except TimeoutError:
            waited += look_seconds
            if waited >= stall_seconds or (held.is_pressed and waited >= _PRESSED_SECONDS):
                return False
        else:
            return True


def abort_connection(scope: Any) -> None:
    """End the connection in the middle of an answer, which the client can't take for whole then."""
    exits: Any = (scope.get("extensions") or {}).get(EXTENSION, {})
    exits.get(ABORT, lambda: None)()
