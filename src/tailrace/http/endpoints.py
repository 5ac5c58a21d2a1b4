"""The Litestar application: all endpoints, their errors and bounds. `fast_endpoints.py` is the fast path of three of them."""

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
from tailrace.http.authentication import HttpAuthentication
from tailrace.http.groups import GroupEndpoints, MemberEndpoints
from tailrace.http.health import ServerStatus
from tailrace.http.login import log_in, log_out, whoami
from tailrace.http.monitoring import ServerCollector, create_registry, health, index_page, metrics
from tailrace.http.openapi import PATH, openapi, parameter_names
from tailrace.http.pipelines import BatchEndpoints, PipelineEndpoints
from tailrace.http.problems import (
    MEDIA_TYPE,
    RequestRefusedError,
    UnexpectedErrors,
    error_body,
    error_headers,
    problem_body,
    too_large,
)
from tailrace.http.queues import QueueEndpoints
from tailrace.http.request_guard import CONTENT_TYPE, JSON, RequestGuard
from tailrace.http.requests import check_query
from tailrace.http.shadows import ShadowEndpoints
from tailrace.http.sources import SnapshotEndpoints, SourceEndpoints
from tailrace.http.sql import sql
from tailrace.http.statements import SqlExecutor
from tailrace.http.subscribe import EventEncoder, subscribe, subscribe_by_websocket
from tailrace.http.tables import RouteEndpoints, copy_rows, tables, views
from tailrace.http.topics import TopicEndpoints
from tailrace.model.errors import TailraceError
from tailrace.model.limits import Limits

_Request = Request[Any, Any, Any]


class LitestarApp(Litestar):
    """Litestar without its plugins for pydantic and attrs, which it loads wherever these are installed.

    They take 12 MB, 16 % of the memory of a server that has loaded Litestar, and none of our classes needs them. No setting
    turns them off, so this overrides the private method that chooses them. If a later Litestar chooses elsewhere, the server
    works as before with more memory; `tests/unit/http/test_endpoints.py` notices.
    """

    @staticmethod
    def _get_default_plugins(plugins: list[PluginProtocol]) -> list[PluginProtocol]:
        return [*plugins, MsgspecDIPlugin()]


def create_litestar_app(
    broker: Broker,
    status: ServerStatus,
    limits: Limits,
    collectors: Sequence[Collector],
    engine: SqlExecutor,
    request_guard: RequestGuard,
    unexpected: UnexpectedErrors,
    authentication: HttpAuthentication | None = None,
) -> LitestarApp:
    """Create the application. `collectors` add metrics to `/metrics`."""
    registry = create_registry(
        BrokerCollector(broker), SqlCollector(broker.changes.stats), ServerCollector(status, unexpected), *collectors
    )

    # Not a guard of Litestar, because guards copy the handler for each request.
    async def check_request(request: _Request) -> Response[None] | None:
        request_guard.check(request.scope, request.route_handler.opt.get(CONTENT_TYPE, JSON))
        # Only under /api: Prometheus selects metrics by query, and links to the index page may carry anything.
        if request.scope["query_string"] and request.scope["path"].startswith("/api/"):
            check_query(request.scope["path"], request.query_params, parameter_names(request.route_handler))
        return _allowed_methods(request) if request.scope["method"] == "OPTIONS" else None

    return LitestarApp(
        [
            index_page,
            health,
            metrics,
            openapi,
            log_in,
            log_out,
            whoami,
            sql,
            subscribe,
            subscribe_by_websocket,
            TopicEndpoints,
            GroupEndpoints,
            MemberEndpoints,
            QueueEndpoints,
            tables,
            views,
            copy_rows,
            RouteEndpoints,
            PipelineEndpoints,
            SourceEndpoints,
            SnapshotEndpoints,
            ShadowEndpoints,
            BatchEndpoints,
        ],
        dependencies={
            "authentication": _constant(authentication),
            "broker": _constant(broker),
            "engine": _constant(engine),
            "request_guard": _constant(request_guard),
            "event_encoder": _constant(EventEncoder()),
            "limits": _constant(limits),
            "registry": _constant(registry),
            "status": _constant(status),
        },
        before_request=check_request,
        exception_handlers=exception_handlers(unexpected, limits),
        request_max_body_size=limits.request_bytes,
        openapi_config=None,
        logging_config=None,
    )


def _allowed_methods(request: _Request) -> Response[None]:
    """Answer OPTIONS with the methods of all handlers of the path; Litestar knows only one of them."""
    template = request.scope["path_template"]
    methods = {method for route in request.app.routes if route.path_format == template for method in route.methods}
    return Response(None, status_code=204, headers={"allow": ", ".join(sorted(methods))})


def _constant(value: Any) -> Provide:
    return Provide(lambda: value, sync_to_thread=False)


def exception_handlers(unexpected: UnexpectedErrors, limits: Limits) -> ExceptionHandlersMap:
    def unexpected_error(request: _Request, error: Exception) -> Response[bytes]:
        return Response(unexpected.report(request.method, request.url.path, error), status_code=500, media_type=MEDIA_TYPE)

    def refused(request: _Request, error: HTTPException) -> Response[bytes]:
        if error.status_code >= HTTPStatus.INTERNAL_SERVER_ERROR:
            return unexpected_error(request, error)
        return _http_response(request, error)

    def refused_body(request: _Request, _: RequestEntityTooLarge) -> Response[bytes]:
        return _error_response(request, too_large(limits))

    return {
        TailraceError: _error_response,
        RequestRefusedError: _refused_response,
        RequestEntityTooLarge: refused_body,
        HTTPException: refused,
        Exception: unexpected_error,
    }


def _error_response(_: _Request, error: TailraceError) -> Response[bytes]:
    return Response(error_body(error), status_code=error.http_status, media_type=MEDIA_TYPE, headers=error_headers(error))


def _refused_response(_: _Request, error: RequestRefusedError) -> Response[bytes]:
    return Response(problem_body(error.status, error.detail), status_code=error.status, media_type=MEDIA_TYPE)


def _http_response(request: _Request, error: HTTPException) -> Response[bytes]:
    """Describe an error that Litestar raises itself."""
    detail = error.detail
    if error.status_code == HTTPStatus.NOT_FOUND:
        detail = f"{request.url.path} does not exist; {PATH} lists all endpoints"
    elif error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        # Litestar joins a set, so that the order of the methods differs from run to run.
        allowed = sorted(set((error.headers or {}).get("allow", "").split(", ")) - {"OPTIONS"})
        detail = f"{request.url.path} does not support {request.method}; use {' or '.join(allowed)}"
    elif isinstance(error, ValidationException) and isinstance(error.extra, list):
        detail = "; ".join(f"{fault.get('key')}: {fault.get('message')}" for fault in error.extra if isinstance(fault, dict))
    body = problem_body(error.status_code, detail)
    return Response(body, status_code=error.status_code, media_type=MEDIA_TYPE, headers=error.headers)
