"""The busiest endpoints without the framework, which would take longer for a small request than what is asked for.

Each takes a body by POST and gives one answer, so there is nothing to be routed, injected or chosen. What is checked, bounded
and answered is the same; everything but a POST to exactly their paths goes to the framework, which has and describes them too.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple

from litestar.exceptions import HTTPException

from tailrace.http.guards import JSON, FirstLook
from tailrace.http.patience import Receive
from tailrace.http.problems import MEDIA_TYPE, UnexpectedErrors, error_body, problem_body, too_large
from tailrace.model.errors import TailraceError
from tailrace.model.limits import Limits

Scope = Mapping[str, Any]
Send = Callable[[Any], Awaitable[None]]


class DirectAnswer(NamedTuple):
    body: bytes
    media_type: str = JSON


Endpoint = Callable[[bytes, Receive], Awaitable[DirectAnswer]]
"""Gets the body, and the means to learn that the client has gone."""


class DirectEndpoints:
    def __init__(
        self, endpoints: Mapping[str, Endpoint], first_look: FirstLook, unexpected: UnexpectedErrors, limits: Limits
    ) -> None:
        self._endpoints = endpoints
        self._first_look = first_look
        self._unexpected = unexpected
        self._limits = limits

    def find(self, scope: Scope) -> Endpoint | None:
        return self._endpoints.get(scope["path"]) if scope["type"] == "http" and scope["method"] == "POST" else None

    async def answer(self, endpoint: Endpoint, scope: Scope, receive: Receive, send: Send) -> None:
        status = 200
        try:
            self._first_look.check_post(scope, JSON)
            body = await self._read(scope, receive)
            if body is None:
                return
            answer = await endpoint(body, receive)
        except TailraceError as error:
            status, answer = error.http_status, DirectAnswer(error_body(error), MEDIA_TYPE)
        except HTTPException as error:
            status, answer = error.status_code, DirectAnswer(problem_body(error.status_code, error.detail), MEDIA_TYPE)
        except Exception as error:  # noqa: BLE001  the top of a request, counted and logged
            status, answer = 500, DirectAnswer(self._unexpected.tell("POST", scope["path"], error), MEDIA_TYPE)
        head = [(b"content-type", answer.media_type.encode()), (b"content-length", b"%d" % len(answer.body))]
        await send({"type": "http.response.start", "status": status, "headers": head})
        await send({"type": "http.response.body", "body": answer.body})

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
