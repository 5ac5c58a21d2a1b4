"""Fast path of `endpoints.py`: publish, fetch, statements of SQL and health without Litestar.

For a small request Litestar's routing, injection and response take as long as the work itself (65 of 155 µs of a publish,
decision 0027). A request takes this path if its method and path are exactly those of one of these endpoints; every other
request, such as one with a slash at the end or one that asks for rows in another form than JSON, goes to Litestar, which has
and documents these endpoints too. Checks, bounds and errors are the same. `tests/unit/http/test_fast_endpoints.py` sends
requests both ways and holds the responses equal.
"""

from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple

import msgspec

from tailrace.api.sql import SqlBody
from tailrace.broker.broker import Broker
from tailrace.broker.reading.answers import ReadAnswer
from tailrace.http.consume import OCTET_STREAM, fetch_batches
from tailrace.http.disconnect import ASGIReceive
from tailrace.http.health import ServerStatus, health_of, http_status_of
from tailrace.http.messages import publish_messages
from tailrace.http.problems import (
    MEDIA_TYPE,
    RequestRefusedError,
    UnexpectedErrors,
    error_body,
    error_headers,
    problem_body,
    too_large,
)
from tailrace.http.request_guard import JSON, RequestGuard
from tailrace.http.requests import read_body
from tailrace.http.responses import ASGIScope, ASGISend, send_held
from tailrace.http.statements import NoSqlExecutor, SqlExecutor, encode_result, run_statements
from tailrace.model.errors import TailraceError
from tailrace.model.limits import KIB, Limits

_SQL = "/api/sql"
_NO_HEADERS: Mapping[str, str] = MappingProxyType({})
_SMALL_BYTES = 16 * KIB
"""A response that does not need to be sent in pieces, nor to hold memory until it is sent."""
_PLAIN_ACCEPTS = (b"*/*", b"application/json")


class FastResponse(NamedTuple):
    body: bytes
    media_type: str = JSON
    status: int = 200
    held: ReadAnswer | None = None
    """The memory that it holds, if it may be large."""
    headers: Mapping[str, str] = _NO_HEADERS


FastEndpoint = Callable[[bytes, ASGIReceive], Awaitable[FastResponse]]
"""Gets the body, and `receive` to notice a disconnect."""


class FastEndpoints:
    def __init__(
        self,
        endpoints: Mapping[tuple[str, str], FastEndpoint],
        request_guard: RequestGuard,
        unexpected: UnexpectedErrors,
        limits: Limits,
    ) -> None:
        """`endpoints` are by method and path."""
        self._endpoints = endpoints
        self._request_guard = request_guard
        self._unexpected = unexpected
        self._limits = limits

    def find(self, scope: ASGIScope) -> FastEndpoint | None:
        if scope["type"] != "http":
            return None
        endpoint = self._endpoints.get((scope["method"], scope["path"]))
        if endpoint is not None and scope["path"] == _SQL and not _wants_json(scope):
            return None
        return endpoint

    async def respond(self, endpoint: FastEndpoint, scope: ASGIScope, receive: ASGIReceive, send: ASGISend) -> None:
        try:
            self._request_guard.check(scope, JSON)
            body = await self._read(scope, receive)
            if body is None:
                return
            response = await endpoint(body, receive)
        except TailraceError as error:
            response = FastResponse(error_body(error), MEDIA_TYPE, error.http_status, headers=error_headers(error))
        except RequestRefusedError as error:
            response = FastResponse(problem_body(error.status, error.detail), MEDIA_TYPE, error.status)
        except Exception as error:  # noqa: BLE001  the top of a request, counted and logged
            response = FastResponse(self._unexpected.report(scope["method"], scope["path"], error), MEDIA_TYPE, 500)
        if response.held is None or len(response.body) <= _SMALL_BYTES:
            if response.held is not None:
                response.held.close()
            await send_response(response, send)
        else:
            await send_held(response.body, response.media_type, response.held, scope, send, self._limits)

    async def _read(self, scope: ASGIScope, receive: ASGIReceive) -> bytes | None:
        """Return the body, or `None` if the client disconnected before it had sent all of it."""
        max_bytes = self._limits.request_bytes
        for name, value in scope["headers"]:
            if name == b"content-length" and int(value) > max_bytes:
                raise too_large(self._limits)
        parts: list[bytes] = []
        size = 0
        while True:
            message = await receive()
            if message["type"] != "http.request":
                return None
            part: bytes = message.get("body", b"")
            size += len(part)
            if size > max_bytes:
                raise too_large(self._limits)
            parts.append(part)
            if not message.get("more_body"):
                return b"".join(parts)


def _wants_json(scope: ASGIScope) -> bool:
    return all(value in _PLAIN_ACCEPTS for name, value in scope["headers"] if name == b"accept")


def fast_endpoints(
    broker: Broker, status: ServerStatus, engine: SqlExecutor | None = None
) -> Mapping[tuple[str, str], FastEndpoint]:
    """Return the endpoints by method and path."""

    async def publish(body: bytes, _: ASGIReceive) -> FastResponse:
        return FastResponse(msgspec.json.encode(await publish_messages(body, broker)))

    async def fetch(body: bytes, receive: ASGIReceive) -> FastResponse:
        with broker.answers.answer().until_sent() as answer:
            return FastResponse(await fetch_batches(body, broker, receive, answer), OCTET_STREAM, held=answer)

    async def health(_: bytes, __: ASGIReceive) -> FastResponse:
        found = health_of(broker, status)
        return FastResponse(msgspec.json.encode(found), status=http_status_of(found))

    async def sql(body: bytes, receive: ASGIReceive) -> FastResponse:
        parsed = read_body(body, SqlBody)
        at_once = None if engine is None else engine.execute_at_once(parsed.sql, parsed.params)
        if at_once is not None:
            return FastResponse(encode_result(at_once))
        with broker.answers.answer(skips_corrupt=parsed.corrupt_batches == "skip").until_sent() as answer:
            found = await run_statements(parsed, broker, engine or NoSqlExecutor(), receive, answer)
            return FastResponse(found, held=answer)

    return {
        ("POST", _SQL): sql,
        ("POST", "/api/topics/publish"): publish,
        ("POST", "/api/topics/fetch"): fetch,
        ("GET", "/health"): health,
    }


async def send_response(response: FastResponse, send: ASGISend) -> None:
    head = [(b"content-type", response.media_type.encode()), (b"content-length", b"%d" % len(response.body))]
    head += [(name.encode(), value.encode()) for name, value in response.headers.items()]
    await send({"type": "http.response.start", "status": response.status, "headers": head})
    await send({"type": "http.response.body", "body": response.body})
