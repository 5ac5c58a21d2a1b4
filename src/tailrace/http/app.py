"""The HTTP surface as one application: its endpoints, its errors, its bounds."""

from collections.abc import Sequence
from typing import Any

from litestar import Litestar, Request, Response
from litestar.di import Provide
from prometheus_client.registry import Collector

from tailrace.broker.broker import Broker
from tailrace.http.engine import Engine, NoEngine
from tailrace.http.frames import Frames
from tailrace.http.groups import GroupEndpoints
from tailrace.http.guards import is_asked_by_its_name, takes_only_its_type
from tailrace.http.health import ServerStatus, health
from tailrace.http.metrics import ServerCollector, metrics, registry_of
from tailrace.http.openapi import openapi
from tailrace.http.pipelines import BatchEndpoints, PipelineEndpoints
from tailrace.http.problems import UnexpectedErrors, exception_handlers
from tailrace.http.routes import RouteEndpoints
from tailrace.http.sql import sql
from tailrace.http.subscribe import subscribe, subscribe_by_websocket
from tailrace.http.tables import tables
from tailrace.http.topics import TopicEndpoints
from tailrace.model.limits import Limits


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
            RouteEndpoints,
            PipelineEndpoints,
            BatchEndpoints,
        ],
        dependencies={
            "broker": _given(broker),
            "engine": _given(engine or NoEngine()),
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


def _given(value: Any) -> Provide:
    return Provide(lambda: value, sync_to_thread=False)
