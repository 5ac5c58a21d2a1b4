"""The HTTP surface as one application: its endpoints, its errors, its bounds."""

from collections.abc import Sequence

from litestar import Litestar
from litestar.di import Provide
from prometheus_client.registry import Collector

from tailrace.broker.broker import Broker
from tailrace.http.health import ServerStatus, health
from tailrace.http.metrics import ServerCollector, metrics, registry_of
from tailrace.http.pipelines import BatchEndpoints, PipelineEndpoints
from tailrace.http.problems import UnexpectedErrors, exception_handlers
from tailrace.http.topics import TopicEndpoints
from tailrace.model.limits import Limits


def create_app(broker: Broker, status: ServerStatus, limits: Limits, collectors: Sequence[Collector] = ()) -> Litestar:
    """`collectors`: what else is shown on the metrics page."""
    unexpected = UnexpectedErrors()
    registry = registry_of(broker.collector(), ServerCollector(status, unexpected), *collectors)
    return Litestar(
        [health, metrics, TopicEndpoints, PipelineEndpoints, BatchEndpoints],
        dependencies={
            "broker": Provide(lambda: broker, sync_to_thread=False),
            "status": Provide(lambda: status, sync_to_thread=False),
            "registry": Provide(lambda: registry, sync_to_thread=False),
            "limits": Provide(lambda: limits, sync_to_thread=False),
        },
        exception_handlers=exception_handlers(unexpected, limits),
        request_max_body_size=limits.request_bytes,
        openapi_config=None,
        logging_config=None,
    )
