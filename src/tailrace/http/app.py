"""The HTTP surface as one application: its endpoints, its errors, its bounds."""

from collections.abc import Sequence
from typing import Any

from litestar import Litestar, Request, Response
from litestar.di import Provide
from prometheus_client.registry import Collector

from tailrace.broker.broker import Broker
from tailrace.http.frames import Frames
from tailrace.http.groups import GroupEndpoints
from tailrace.http.guards import is_asked_by_its_name, takes_only_its_type
from tailrace.http.health import ServerStatus, health
from tailrace.http.metrics import ServerCollector, metrics, registry_of
from tailrace.http.openapi import openapi
from tailrace.http.pipelines import BatchEndpoints, PipelineEndpoints
from tailrace.http.problems import UnexpectedErrors, exception_handlers
from tailrace.http.sql import Engine, SqlParameters, sql
from tailrace.http.subscribe import subscribe, subscribe_by_websocket
from tailrace.http.tables import routes, tables
from tailrace.http.topics import TopicEndpoints
from tailrace.model.errors import InvalidRequestError
from tailrace.model.limits import Limits
from tailrace.sql.result import Result


def create_app(
    broker: Broker,
    status: ServerStatus,
    limits: Limits,
    collectors: Sequence[Collector] = (),
    *,
    engine: Engine | None = None,
    on_loopback: bool = False,
) -> Litestar:
    """`collectors`: what else is shown on the metrics page. `on_loopback`: only this machine can reach the server."""
    unexpected = UnexpectedErrors()
    registry = registry_of(broker.collector(), ServerCollector(status, unexpected), *collectors)
    return Litestar(
        [
            health,
            metrics,
            openapi,
            sql,
            subscribe,
            subscribe_by_websocket,
            TopicEndpoints,
            GroupEndpoints,
            tables,
            routes,
            PipelineEndpoints,
            BatchEndpoints,
        ],
        dependencies={
            "broker": _given(broker),
            "engine": _given(engine or _NoEngine()),
            "frames": _given(Frames()),
            "limits": _given(limits),
            "registry": _given(registry),
            "status": _given(status),
        },
        before_request=_say_what_is_allowed,
        guards=[takes_only_its_type, *([is_asked_by_its_name] if on_loopback else [])],
        exception_handlers=exception_handlers(unexpected, limits),
        request_max_body_size=limits.request_bytes,
        openapi_config=None,
        logging_config=None,
    )


async def _say_what_is_allowed(request: Request[Any, Any, Any]) -> Response[None] | None:
    """OPTIONS, which the framework answers for one handler of an address only."""
    if request.method != "OPTIONS":
        return None
    methods = {
        method
        for route in request.app.routes
        if route.path_format == request.scope["path_template"]
        for method in route.methods
    }
    return Response(None, status_code=204, headers={"allow": ", ".join(sorted(methods))})


class _NoEngine:
    """Of a server without SQL, as tests have it."""

    async def execute(self, text: str, params: SqlParameters = ()) -> list[Result]:
        raise InvalidRequestError("this server runs no SQL")


def _given(value: Any) -> Provide:
    return Provide(lambda: value, sync_to_thread=False)
