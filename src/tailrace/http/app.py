"""The HTTP surface as one application: its endpoints, its errors, its bounds."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from litestar import Litestar
from litestar.di import Provide
from prometheus_client.registry import Collector

from tailrace.broker.broker import Broker
from tailrace.broker.sql_metrics import SqlCollector
from tailrace.http.application import Application
from tailrace.http.direct import DirectAnswer, DirectEndpoints, Endpoint
from tailrace.http.engine import Engine, NoEngine
from tailrace.http.fetching import BYTES, fetch, fetched
from tailrace.http.frames import Frames
from tailrace.http.groups import GroupEndpoints
from tailrace.http.guards import FirstLook
from tailrace.http.health import health
from tailrace.http.members import MemberEndpoints
from tailrace.http.metrics import ServerCollector, metrics, registry_of
from tailrace.http.openapi import openapi
from tailrace.http.patience import Receive
from tailrace.http.pipelines import BatchEndpoints, PipelineEndpoints
from tailrace.http.problems import UnexpectedErrors, exception_handlers
from tailrace.http.queues import QueueEndpoints
from tailrace.http.routes import RouteEndpoints
from tailrace.http.sql import sql
from tailrace.http.status import ServerStatus
from tailrace.http.subscribe import subscribe, subscribe_by_websocket
from tailrace.http.tables import tables
from tailrace.http.topics import TopicEndpoints, published
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
    first_look = FirstLook(on_loopback)
    registry = registry_of(
        broker.collector(), SqlCollector(broker.changes.stats), ServerCollector(status, unexpected), *collectors
    )
    app = Application(
        [
            health,
            metrics,
            openapi,
            sql,
            subscribe,
            subscribe_by_websocket,
            TopicEndpoints,
            fetch,
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
            "engine": _given(engine or NoEngine()),
            "first_look": _given(first_look),
            "frames": _given(Frames()),
            "limits": _given(limits),
            "registry": _given(registry),
            "status": _given(status),
        },
        before_request=first_look,
        exception_handlers=exception_handlers(unexpected, limits),
        request_max_body_size=limits.request_bytes,
        openapi_config=None,
        logging_config=None,
    )
    app.direct = DirectEndpoints(_direct(broker), first_look, unexpected, limits)
    return app


def _direct(broker: Broker) -> Mapping[str, Endpoint]:
    async def publish_directly(body: bytes, _: Receive) -> DirectAnswer:
        return DirectAnswer(msgspec.json.encode(await published(body, broker)))

    async def fetch_directly(body: bytes, receive: Receive) -> DirectAnswer:
        return DirectAnswer(await fetched(body, broker, receive), BYTES)

    return {"/api/topics/publish": publish_directly, "/api/topics/fetch": fetch_directly}


def _given(value: Any) -> Provide:
    return Provide(lambda: value, sync_to_thread=False)
