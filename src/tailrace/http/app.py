"""The HTTP surface as one application: a few endpoints at once, and the framework with the others when one is asked for."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from tailrace.broker.broker import Broker
from tailrace.http.consume import OCTET_STREAM, fetch_batches
from tailrace.http.disconnect import ASGIReceive
from tailrace.http.fast_endpoints import ASGISend, FastEndpoint, FastEndpoints, FastResponse, send_response
from tailrace.http.health import ServerStatus, health_of, http_status_of
from tailrace.http.messages import publish_messages
from tailrace.http.problems import MEDIA_TYPE, UnexpectedErrors, problem_body
from tailrace.http.request_guard import RequestGuard
from tailrace.model.limits import Limits

if TYPE_CHECKING:
    from prometheus_client.registry import Collector

    from tailrace.http.endpoints import LitestarApp
    from tailrace.http.sql import SqlEngine


def create_app(
    broker: Broker,
    status: ServerStatus,
    limits: Limits,
    collectors: "Sequence[Collector]" = (),
    *,
    engine: "SqlEngine | None" = None,
    on_loopback: bool = False,
) -> "Application[LitestarApp]":
    """`collectors`: what else is shown on the metrics page. `on_loopback`: only this machine can reach the server."""
    unexpected = UnexpectedErrors()
    request_guard = RequestGuard(on_loopback)

    def load_framework() -> "LitestarApp":
        from tailrace.http.endpoints import create_litestar_app
        from tailrace.http.sql import NoSqlEngine

        return create_litestar_app(broker, status, limits, collectors, engine or NoSqlEngine(), request_guard, unexpected)

    return Application(FastEndpoints(_direct(broker, status), request_guard, unexpected, limits), load_framework)


def _direct(broker: Broker, status: ServerStatus) -> Mapping[tuple[str, str], FastEndpoint]:
    async def publish(body: bytes, _: ASGIReceive) -> FastResponse:
        return FastResponse(msgspec.json.encode(await publish_messages(body, broker)))

    async def fetch(body: bytes, receive: ASGIReceive) -> FastResponse:
        with broker.answers.answer().until_sent() as answer:
            return FastResponse(await fetch_batches(body, broker, receive, answer), OCTET_STREAM, held=answer)

    async def health(_: bytes, __: ASGIReceive) -> FastResponse:
        found = health_of(broker, status)
        return FastResponse(msgspec.json.encode(found), status=http_status_of(found))

    return {
        ("POST", "/api/topics/publish"): publish,
        ("POST", "/api/topics/fetch"): fetch,
        ("GET", "/health"): health,
    }


_log = logging.getLogger("tailrace.http")

F = TypeVar("F", bound=Callable[[Any, Any, Any], Awaitable[None]])


class Application(Generic[F]):
    """`load` gives the framework. It is called in a thread, so that others are served meanwhile; again, if it failed."""

    def __init__(self, direct: FastEndpoints, load: Callable[[], F]) -> None:
        self.load = load
        self._direct = direct
        self._loading: asyncio.Future[F] | None = None
        self._framework: F | None = None

    async def __call__(self, scope: Any, receive: Any, send: ASGISend) -> None:
        endpoint = self._direct.find(scope)
        if endpoint is not None:
            await self._direct.answer(endpoint, scope, receive, send)
            return
        framework = self._framework or await self._loaded()
        if framework is not None:
            await framework(scope, receive, send)
        elif scope["type"] == "http":
            body = problem_body(503, "the server can't answer this now; its log says why")
            await send_response(FastResponse(body, MEDIA_TYPE, 503), send)

    async def _loaded(self) -> F | None:
        """`None`: it can't be loaded now. What keeps it from that may pass, such as too many open files."""
        if self._loading is None:
            self._loading = asyncio.get_running_loop().run_in_executor(None, self.load)
        loading = self._loading
        try:
            # Others wait for it too, so it outlives those who lose patience.
            self._framework = await asyncio.shield(loading)
        except Exception:  # noqa: BLE001  whatever it is, what needs no framework is served
            if self._loading is loading:
                self._loading = None
                _log.exception("the framework of HTTP can't be loaded; the next request that needs it tries again")
        return self._framework
