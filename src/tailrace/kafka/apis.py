"""Everything that the server answers: the table of APIs, their versions and their handlers."""

from tailrace.broker.broker import Broker
from tailrace.kafka.cluster import Cluster
from tailrace.kafka.dispatch import Dispatcher, Route
from tailrace.kafka.handlers.versions import VersionHandlers
from tailrace.kafka.traffic import Traffic
from tailrace.model.limits import Limits
from tailrace.wire.messages.api_versions import ApiVersion


def create_dispatcher(broker: Broker, cluster: Cluster, traffic: Traffic, limits: Limits) -> Dispatcher:
    def offered() -> list[ApiVersion]:
        return dispatcher.offered

    routes: list[Route] = [
        *VersionHandlers(offered).routes(),
    ]
    dispatcher = Dispatcher(routes, traffic, limits)
    return dispatcher
