"""Everything that the server answers: the table of APIs, their versions and their handlers."""

from random import SystemRandom

from tailrace.broker.broker import Broker
from tailrace.kafka.cluster import Cluster
from tailrace.kafka.dispatch import Dispatcher, Route
from tailrace.kafka.fetch_sessions import FetchSessions
from tailrace.kafka.handlers.cluster import ClusterHandlers
from tailrace.kafka.handlers.configs import ConfigHandlers
from tailrace.kafka.handlers.fetch import FetchHandlers
from tailrace.kafka.handlers.group_offsets import GroupOffsetHandlers
from tailrace.kafka.handlers.groups import GroupHandlers
from tailrace.kafka.handlers.metadata import MetadataHandlers
from tailrace.kafka.handlers.positions import PositionHandlers
from tailrace.kafka.handlers.produce import ProduceHandlers
from tailrace.kafka.handlers.producers import ProducerHandlers
from tailrace.kafka.handlers.topics import TopicHandlers
from tailrace.kafka.handlers.transaction_queries import TransactionQueryHandlers
from tailrace.kafka.handlers.transactions import TransactionHandlers
from tailrace.kafka.handlers.versions import VersionHandlers
from tailrace.kafka.node import Node
from tailrace.kafka.settings import KafkaSettings
from tailrace.kafka.traffic import Traffic
from tailrace.model.clock import Clock
from tailrace.model.limits import Limits
from tailrace.wire.messages.api_versions import ApiVersion

_SESSION_BITS = 31


def create_dispatcher(
    broker: Broker, cluster: Cluster, settings: KafkaSettings, traffic: Traffic, clock: Clock, limits: Limits
) -> Dispatcher:
    def offered() -> list[ApiVersion]:
        return dispatcher.offered

    random = SystemRandom()
    sessions = FetchSessions(clock, limits, lambda: random.getrandbits(_SESSION_BITS))
    node = Node(broker, cluster, settings, limits)
    routes: list[Route] = [
        *VersionHandlers(offered).routes(),
        *ClusterHandlers(cluster).routes(),
        *MetadataHandlers(node).routes(),
        *ProduceHandlers(broker).routes(),
        *ProducerHandlers(broker).routes(),
        *FetchHandlers(broker, sessions).routes(),
        *PositionHandlers(broker).routes(),
        *GroupHandlers(broker).routes(),
        *GroupOffsetHandlers(broker).routes(),
        *TransactionHandlers(broker).routes(),
        *TransactionQueryHandlers(broker).routes(),
        *TopicHandlers(node).routes(),
        *ConfigHandlers(node).routes(),
    ]
    dispatcher = Dispatcher(routes, traffic, limits)
    return dispatcher
