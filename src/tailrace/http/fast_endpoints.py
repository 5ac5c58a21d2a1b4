"""The busiest endpoints without the framework, which would take longer for a small request than what is asked for.

Each takes a body, or none, and gives one answer, so there is nothing to be routed, injected or chosen. What is checked, bounded
and answered is the same; everything else than exactly their methods and paths goes to the framework, which has and
describes them too.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple

from tailrace.broker.reading.answers import ReadAnswer
from tailrace.http.disconnect import ASGIReceive
from tailrace.http.problems import MEDIA_TYPE, RequestRefusedError, UnexpectedErrors, error_body, problem_body, too_large
from tailrace.http.request_guard import JSON, RequestGuard
from tailrace.http.responses import send_held
from tailrace.model.errors import TailraceError
from tailrace.model.limits import Limits

ASGIScope = Mapping[str, Any]
ASGISend = Callable[[Any], Awaitable[None]]


class FastResponse(NamedTuple):
    body: bytes
    media_type: str = JSON
    status: int = 200
    held: ReadAnswer | None = None
    """The room that it takes, where it may take much."""


FastEndpoint = Callable[[bytes, ASGIReceive], Awaitable[FastResponse]]
"""Gets the body, and the means to learn that the client has gone."""


class FastEndpoints:
    def __init__(
        self,
        endpoints: Mapping[tuple[str, str], FastEndpoint],
        request_guard: RequestGuard,
        unexpected: UnexpectedErrors,
        limits: Limits,
    ) -> None:
        """`endpoints` are found by method and path."""
        self._endpoints = endpoints
        self._request_guard = request_guard
        self._unexpected = unexpected
        self._limits = limits

    def find(self, scope: ASGIScope) -> FastEndpoint | None:
        return self._endpoints.get((scope["method"], scope["path"])) if scope["type"] == "http" else None

    async def answer(self, endpoint: FastEndpoint, scope: ASGIScope, receive: ASGIReceive, send: ASGISend) -> None:
        try:
            self._request_guard.check(scope, JSON)
            body = await self._read(scope, receive)
            if body is None:
                return
            answer = await endpoint(body, receive)
        except TailraceError as error:
            answer = FastResponse(error_body(error), MEDIA_TYPE, error.http_status)
        except RequestRefusedError as error:
            answer = FastResponse(problem_body(error.status, error.detail), MEDIA_TYPE, error.status)
        except Exception as error:  # noqa: BLE001  the top of a request, counted and logged
            answer = FastResponse(self._unexpected.tell(scope["method"], scope["path"], error), MEDIA_TYPE, 500)
        if answer.held is None:
            await send_response(answer, send)
        else:
            await send_held(answer.body, answer.media_type, answer.held, scope, send, self._limits)

    async def _read(self, scope: ASGIScope, receive: ASGIReceive) -> bytes | None:
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


async def send_response(answer: FastResponse, send: ASGISend) -> None:
    head = [(b"content-type", answer.media_type.encode()), (b"content-length", b"%d" % len(answer.body))]
    await send({"type": "http.response.start", "status": answer.status, "headers": head})
    await send({"type": "http.response.body", "body": answer.body})
