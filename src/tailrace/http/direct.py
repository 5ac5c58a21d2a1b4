"""The busiest endpoints without the framework, which would take longer for a small request than what is asked for.

Each takes a body, or none, and gives one answer, so there is nothing to be routed, injected or chosen. What is checked, bounded
and answered is the same; everything else than exactly their methods and paths goes to the framework, which has and
describes them too.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple

from tailrace.broker.reading.answers import ReadAnswer
from tailrace.http.guards import JSON, FirstLook
from tailrace.http.patience import Receive
from tailrace.http.problems import MEDIA_TYPE, RequestRefusedError, UnexpectedErrors, error_body, problem_body, too_large
from tailrace.http.sending import send_held
from tailrace.model.errors import TailraceError
from tailrace.model.limits import Limits

Scope = Mapping[str, Any]
Send = Callable[[Any], Awaitable[None]]


class DirectAnswer(NamedTuple):
    body: bytes
    media_type: str = JSON
    status: int = 200
    held: ReadAnswer | None = None
    """The room that it takes, where it may take much."""


Endpoint = Callable[[bytes, Receive], Awaitable[DirectAnswer]]
"""Gets the body, and the means to learn that the client has gone."""


class DirectEndpoints:
    def __init__(
        self, endpoints: Mapping[tuple[str, str], Endpoint], first_look: FirstLook, unexpected: UnexpectedErrors, limits: Limits
    ) -> None:
        """`endpoints` are found by method and path."""
        self._endpoints = endpoints
        self._first_look = first_look
        self._unexpected = unexpected
        self._limits = limits

    def find(self, scope: Scope) -> Endpoint | None:
        return self._endpoints.get((scope["method"], scope["path"])) if scope["type"] == "http" else None

    async def answer(self, endpoint: Endpoint, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            self._first_look.check(scope, JSON)
            body = await self._read(scope, receive)
            if body is None:
                return
            answer = await endpoint(body, receive)
        except TailraceError as error:
            answer = DirectAnswer(error_body(error), MEDIA_TYPE, error.http_status)
        except RequestRefusedError as error:
            answer = DirectAnswer(problem_body(error.status, error.detail), MEDIA_TYPE, error.status)
        except Exception as error:  # noqa: BLE001  the top of a request, counted and logged
            answer = DirectAnswer(self._unexpected.tell(scope["method"], scope["path"], error), MEDIA_TYPE, 500)
        if answer.held is None:
            await send_answer(answer, send)
        else:
            await send_held(answer.body, answer.media_type, answer.held, scope, send, self._limits)

    async def _read(self, scope: Scope, receive: Receive) -> bytes | None:
        """The body. `None`: the client has gone before it had sent all of it."""
        most = self._limits.request_bytes
        for name, value in scope["headers"]:
            if name == b"content-length" and int(value) > most:
                raise too_large(self._limits)
        parts: list[bytes] = []
        size = 0
        while True:
            message = await receive()
            if message["type"] != "http.request":
                return None
            part: bytes = message.get("body", b"")
            size += len(part)
            if size > most:
                raise too_large(self._limits)
            parts.append(part)
            if not message.get("more_body"):
                return b"".join(parts)


async def send_answer(answer: DirectAnswer, send: Send) -> None:
    head = [(b"content-type", answer.media_type.encode()), (b"content-length", b"%d" % len(answer.body))]
    await send({"type": "http.response.start", "status": answer.status, "headers": head})
    await send({"type": "http.response.body", "body": answer.body})
