"""The HTTP application: a few endpoints that need no framework, and Litestar with all of them, loaded when it is needed.

Litestar takes most of the time and memory that HTTP takes to load. A server that is only published to, fetched from and probed
over HTTP never loads it: it takes 9 MB less, and its first response an eighth of the time (decision 0026).
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from tailrace.broker.broker import Broker
from tailrace.http.authentication import ByBearer, HttpAuthentication, NameOfCertificate
from tailrace.http.fast_endpoints import FastEndpoints, FastResponse, fast_endpoints, send_response
from tailrace.http.fast_requests import FastRequests
from tailrace.http.health import ServerStatus
from tailrace.http.problems import MEDIA_TYPE, UnexpectedErrors, problem_body
from tailrace.http.quotas import HttpQuotas
from tailrace.http.request_guard import RequestGuard
from tailrace.http.responses import ASGISend
from tailrace.model.limits import Limits

if TYPE_CHECKING:
    from prometheus_client.registry import Collector

    from tailrace.http.endpoints import LitestarApp
    from tailrace.http.statements import SqlExecutor

_log = logging.getLogger("tailrace.http")

F = TypeVar("F", bound=Callable[[Any, Any, Any], Awaitable[None]])


class Application(Generic[F]):
    """An ASGI application. `load` returns the framework; it is called in a thread, and again if it failed."""

    def __init__(
        self,
        fast: FastEndpoints,
        load: Callable[[], F],
        fast_requests: FastRequests | None = None,
        authentication: HttpAuthentication | None = None,
        quotas: HttpQuotas | None = None,
    ) -> None:
        """Without `authentication` nobody needs to log in."""
        self.load = load
        self.fast_requests = fast_requests
        """For the listener: what is answered before it reaches the application."""
        self._fast = fast
        self._authentication = authentication
        self._quotas = quotas
        self._loading: asyncio.Future[F] | None = None
        self._framework: F | None = None

    async def __call__(self, scope: Any, receive: Any, send: ASGISend) -> None:
        if self._authentication is None:
            await self._serve(scope, receive, send)
        else:
            await self._authentication.serve(self._serve, scope, receive, send)

    async def _serve(self, scope: Any, receive: Any, send: ASGISend) -> None:
        if self._quotas is None or not self._quotas.is_on:
            await self._respond(scope, receive, send)
        else:
            await self._quotas.serve(self._respond, scope, receive, send)

    async def _respond(self, scope: Any, receive: Any, send: ASGISend) -> None:
        endpoint = self._fast.find(scope)
        if endpoint is not None:
            await self._fast.respond(endpoint, scope, receive, send)
            return
        framework = self._framework or await self._loaded()
        if framework is not None:
            await framework(scope, receive, send)
        elif scope["type"] == "http":
            body = problem_body(503, "the endpoint can't be loaded; the reason is in the log of the server")
            await send_response(FastResponse(body, MEDIA_TYPE, 503), send)

    async def _loaded(self) -> F | None:
        """Return the framework, or `None` if it can't be loaded now. The cause may pass, such as too many open files."""
        if self._loading is None:
            self._loading = asyncio.get_running_loop().run_in_executor(None, self.load)
        loading = self._loading
        try:
            # Shielded, because other requests wait for it when this one is cancelled.
            self._framework = await asyncio.shield(loading)
        except Exception:  # noqa: BLE001  fast endpoints work without the framework, whatever the error is
            if self._loading is loading:
                self._loading = None
                _log.exception("the HTTP framework can't be loaded; the next request that needs it tries again")
        return self._framework


def create_app(
    broker: Broker,
    status: ServerStatus,
    limits: Limits,
    collectors: "Sequence[Collector]" = (),
    *,
    engine: "SqlExecutor | None" = None,
    on_loopback: bool = False,
    is_tls: bool = False,
    by_bearer: ByBearer | None = None,
    name_of_certificate: NameOfCertificate | None = None,
) -> "Application[LitestarApp]":
    """Create the application.

    `collectors` add metrics; `on_loopback` says that only this machine can reach the server, `is_tls` that it is reached by
    `https://`. `by_bearer` knows tokens that are none of ours, and `name_of_certificate` whom certificates are for.
    """
    authentication = None
    if broker.permissions.is_on:
        authentication = HttpAuthentication(
            broker, status.clock, limits, is_tls=is_tls, by_bearer=by_bearer, name_of_certificate=name_of_certificate
        )
    unexpected = UnexpectedErrors()
    request_guard = RequestGuard(on_loopback)

    def load_framework() -> "LitestarApp":
        from tailrace.http.endpoints import create_litestar_app
        from tailrace.http.statements import NoSqlExecutor

        return create_litestar_app(
            broker, status, limits, collectors, engine or NoSqlExecutor(), request_guard, unexpected, authentication
        )

    fast = FastEndpoints(fast_endpoints(broker, status, engine), request_guard, unexpected, limits)
    quotas = HttpQuotas(broker)
    fast_requests = None if engine is None else FastRequests(request_guard, engine, authentication, quotas)
    return Application(fast, load_framework, fast_requests, authentication, quotas)
