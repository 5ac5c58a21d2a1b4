"""The endpoints, their errors and bounds, in Litestar: all that is not answered past it (`direct`).

Litestar loads plugins for the classes of pydantic and attrs wherever these are installed: a fifth of the server's start, and
memory for nothing. No setting turns that off, so this replaces the method that chooses them, which is not part of Litestar's
interface. With a Litestar that chooses elsewhere the server would work as before and only start slower; a test says so.
"""

from collections.abc import Sequence
from typing import Any

from litestar import Litestar, Request, Response
from litestar.di import Provide
from litestar.plugins import PluginProtocol
from litestar.plugins.core import MsgspecDIPlugin
from prometheus_client.registry import Collector

from tailrace.broker.broker import Broker
from tailrace.broker.sql_metrics import SqlCollector
from tailrace.http.engine import Engine
from tailrace.http.frames import Frames
from tailrace.http.front import front
from tailrace.http.groups import GroupEndpoints
from tailrace.http.guards import JSON, TAKES, FirstLook
from tailrace.http.handlers import exception_handlers
from tailrace.http.members import MemberEndpoints
from tailrace.http.openapi import openapi, parameter_names
from tailrace.http.pipelines import BatchEndpoints, PipelineEndpoints
from tailrace.http.problems import UnexpectedErrors
from tailrace.http.query import refuse_unknown
from tailrace.http.queues import QueueEndpoints
from tailrace.http.routes import RouteEndpoints
from tailrace.http.sql import sql
from tailrace.http.status import ServerStatus
from tailrace.http.subscribe import subscribe, subscribe_by_websocket
from tailrace.http.tables import tables
from tailrace.http.topics import TopicEndpoints
from tailrace.http.watching import ServerCollector, health, metrics, registry_of
from tailrace.model.limits import Limits


class Framework(Litestar):
    @staticmethod
    def _get_default_plugins(plugins: list[PluginProtocol]) -> list[PluginProtocol]:
        return [*plugins, MsgspecDIPlugin()]


def create_framework(
    broker: Broker,
    status: ServerStatus,
    limits: Limits,
    collectors: Sequence[Collector],
    engine: Engine,
    first_look: FirstLook,
    unexpected: UnexpectedErrors,
) -> Framework:
    """`collectors`: what else is shown on the metrics page."""
    registry = registry_of(
        broker.collector(), SqlCollector(broker.changes.stats), ServerCollector(status, unexpected), *collectors
    )

    # Not a guard in the framework's sense, because those cost a copy of the handler each time.
    async def look(request: Request[Any, Any, Any]) -> Response[None] | None:
        first_look.check(request.scope, request.route_handler.opt.get(TAKES, JSON))
        # Others may have their own ways with the rest: Prometheus names metrics, browsers come from wherever.
        if request.scope["query_string"] and request.scope["path"].startswith("/api/"):
            refuse_unknown(request.scope["path"], request.query_params, parameter_names(request.route_handler))
        return _allowed(request) if request.scope["method"] == "OPTIONS" else None

    return Framework(
        [
            front,
            health,
            metrics,
            openapi,
            sql,
            subscribe,
            subscribe_by_websocket,
            TopicEndpoints,
            GroupEndpoints,
            MemberEndpoints,
            QueueEndpoints,
            tables,
            RouteEndpoints,
            PipelineEndpoints,
            BatchEndpoints,
        ],
        dependencies={
            "broker": _given(broker),
            "engine": _given(engine),
            "first_look": _given(first_look),
            "frames": _given(Frames()),
            "limits": _given(limits),
            "registry": _given(registry),
            "status": _given(status),
        },
        before_request=look,
        exception_handlers=exception_handlers(unexpected, limits),
        request_max_body_size=limits.request_bytes,
        openapi_config=None,
        logging_config=None,
    )


def _allowed(request: Request[Any, Any, Any]) -> Response[None]:
    """The answer to OPTIONS, which the framework gives for one handler of an address only."""
    template = request.scope["path_template"]
    methods = {method for route in request.app.routes if route.path_format == template for method in route.methods}
    return Response(None, status_code=204, headers={"allow": ", ".join(sorted(methods))})


def _given(value: Any) -> Provide:
    return Provide(lambda: value, sync_to_thread=False)
