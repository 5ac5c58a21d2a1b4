"""The endpoints, their errors and bounds, in Litestar: all that is not answered past it (`direct`).

Litestar loads plugins for the classes of pydantic and attrs wherever these are installed: a fifth of the server's start, and
memory for nothing. No setting turns that off, so this replaces the method that chooses them, which is not part of Litestar's
interface. With a Litestar that chooses elsewhere the server would work as before and only start slower; a test says so.
"""

from collections.abc import Sequence
from http import HTTPStatus
from typing import Any

from litestar import Litestar, Request, Response
from litestar.di import Provide
from litestar.exceptions import HTTPException, ValidationException
from litestar.exceptions.http_exceptions import RequestEntityTooLarge
from litestar.plugins import PluginProtocol
from litestar.plugins.core import MsgspecDIPlugin
from litestar.types import ExceptionHandlersMap
from prometheus_client.registry import Collector

from tailrace.broker.broker import Broker
from tailrace.broker.metrics import BrokerCollector, SqlCollector
from tailrace.http.groups import GroupEndpoints, MemberEndpoints
from tailrace.http.health import ServerStatus
from tailrace.http.monitoring import ServerCollector, create_registry, health, index_page, metrics
from tailrace.http.openapi import PATH, openapi, parameter_names
from tailrace.http.pipelines import BatchEndpoints, PipelineEndpoints
from tailrace.http.problems import MEDIA_TYPE, RequestRefusedError, UnexpectedErrors, error_body, problem_body, too_large
from tailrace.http.queues import QueueEndpoints
from tailrace.http.request_guard import JSON, TAKES, RequestGuard
from tailrace.http.requests import refuse_unknown
from tailrace.http.sql import SqlEngine, sql
from tailrace.http.subscribe import EventEncoder, subscribe, subscribe_by_websocket
from tailrace.http.tables import RouteEndpoints, tables
from tailrace.http.topics import TopicEndpoints
from tailrace.model.errors import TailraceError
from tailrace.model.limits import Limits


class LitestarApp(Litestar):
    @staticmethod
    def _get_default_plugins(plugins: list[PluginProtocol]) -> list[PluginProtocol]:
        return [*plugins, MsgspecDIPlugin()]


def create_litestar_app(
    broker: Broker,
    status: ServerStatus,
    limits: Limits,
    collectors: Sequence[Collector],
    engine: SqlEngine,
    request_guard: RequestGuard,
    unexpected: UnexpectedErrors,
) -> LitestarApp:
    """`collectors`: what else is shown on the metrics page."""
    registry = create_registry(
        BrokerCollector(broker), SqlCollector(broker.changes.stats), ServerCollector(status, unexpected), *collectors
    )

    # Not a guard in the framework's sense, because those cost a copy of the handler each time.
    async def look(request: Request[Any, Any, Any]) -> Response[None] | None:
        request_guard.check(request.scope, request.route_handler.opt.get(TAKES, JSON))
        # Others may have their own ways with the rest: Prometheus names metrics, browsers come from wherever.
        if request.scope["query_string"] and request.scope["path"].startswith("/api/"):
            refuse_unknown(request.scope["path"], request.query_params, parameter_names(request.route_handler))
        return _allowed(request) if request.scope["method"] == "OPTIONS" else None

    return LitestarApp(
        [
            index_page,
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
            "request_guard": _given(request_guard),
            "frames": _given(EventEncoder()),
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


_Request = Request[Any, Any, Any]


def exception_handlers(unexpected: UnexpectedErrors, limits: Limits) -> ExceptionHandlersMap:
    def unforeseen(request: _Request, error: Exception) -> Response[bytes]:
        return Response(unexpected.tell(request.method, request.url.path, error), status_code=500, media_type=MEDIA_TYPE)

    def refused(request: _Request, error: HTTPException) -> Response[bytes]:
        return (
            unforeseen(request, error)
            if error.status_code >= HTTPStatus.INTERNAL_SERVER_ERROR
            else _http_response(request, error)
        )

    def refused_body(request: _Request, _: RequestEntityTooLarge) -> Response[bytes]:
        return _error_response(request, too_large(limits))

    return {
        TailraceError: _error_response,
        RequestRefusedError: _refused_response,
        RequestEntityTooLarge: refused_body,
        HTTPException: refused,
        Exception: unforeseen,
    }


def _error_response(_: _Request, error: TailraceError) -> Response[bytes]:
    return Response(error_body(error), status_code=error.http_status, media_type=MEDIA_TYPE)


def _refused_response(_: _Request, error: RequestRefusedError) -> Response[bytes]:
    return Response(problem_body(error.status, error.detail), status_code=error.status, media_type=MEDIA_TYPE)


def _http_response(request: _Request, error: HTTPException) -> Response[bytes]:
    """What the framework itself refuses."""
    detail = error.detail
    if error.status_code == HTTPStatus.NOT_FOUND:
        detail = f"there is no {request.url.path}; {PATH} lists what there is"
    elif error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        detail = f"{request.url.path} does not take {request.method}"
    elif isinstance(error, ValidationException) and isinstance(error.extra, list):
        detail = "; ".join(f"{fault.get('key')}: {fault.get('message')}" for fault in error.extra if isinstance(fault, dict))
    body = problem_body(error.status_code, detail)
    return Response(body, status_code=error.status_code, media_type=MEDIA_TYPE, headers=error.headers)
