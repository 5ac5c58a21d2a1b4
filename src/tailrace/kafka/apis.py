"""The table of APIs that the server answers, with their versions and handlers."""

from random import SystemRandom

from tailrace.broker.broker import Broker
from tailrace.broker.security.settings import SecuritySettings
from tailrace.kafka.client_telemetry import ClientTelemetry
from tailrace.kafka.cluster import Cluster, KafkaSettings, Node
from tailrace.kafka.dispatch import ApiRoute, Dispatcher
from tailrace.kafka.fetch_sessions import FetchSessions
from tailrace.kafka.handlers.acls import AclHandlers
from tailrace.kafka.handlers.authentication import SaslHandlers
from tailrace.kafka.handlers.cluster_admin import ClusterAdminHandlers
from tailrace.kafka.handlers.configs import ConfigHandlers
from tailrace.kafka.handlers.consumer_groups import ConsumerGroupHandlers
from tailrace.kafka.handlers.fetch import FetchHandlers, ListOffsetsHandlers
from tailrace.kafka.handlers.group_offsets import GroupOffsetHandlers
from tailrace.kafka.handlers.groups import GroupHandlers
from tailrace.kafka.handlers.metadata import ClusterHandlers, MetadataHandlers, VersionHandlers
from tailrace.kafka.handlers.produce import ProduceHandlers
from tailrace.kafka.handlers.quotas import QuotaHandlers
from tailrace.kafka.handlers.scram_credentials import ScramCredentialHandlers
from tailrace.kafka.handlers.telemetry import TelemetryHandlers
from tailrace.kafka.handlers.topics import TopicHandlers
from tailrace.kafka.handlers.transactions import ProducerHandlers, TransactionHandlers, TransactionQueryHandlers
from tailrace.kafka.metrics import Traffic
from tailrace.kafka.sasl import ByBearer, KafkaAuthentication, NameOfCertificate
from tailrace.kafka.throttling import Throttle
from tailrace.model.clock import Clock
from tailrace.model.limits import Limits
from tailrace.wire.messages.cluster import ApiVersion

_SESSION_BITS = 31


def create_dispatcher(
    broker: Broker, cluster: Cluster, settings: KafkaSettings, traffic: Traffic, clock: Clock, limits: Limits
) -> Dispatcher:
    def offered() -> list[ApiVersion]:
        return dispatcher.offered

    random = SystemRandom()
    sessions = FetchSessions(clock, limits, lambda: random.getrandbits(_SESSION_BITS))
    node = Node(broker, cluster, settings, limits)
    routes: list[ApiRoute] = [
        *VersionHandlers(offered).routes(),
        *ClusterHandlers(node).routes(),
        *MetadataHandlers(node).routes(),
        *ProduceHandlers(broker).routes(),
        *ProducerHandlers(broker).routes(),
        *FetchHandlers(broker, sessions).routes(),
        *ListOffsetsHandlers(broker).routes(),
        *GroupHandlers(broker).routes(),
        *ConsumerGroupHandlers(broker, limits).routes(),
        *GroupOffsetHandlers(broker).routes(),
        *TransactionHandlers(broker).routes(),
        *TransactionQueryHandlers(broker).routes(),
        *TopicHandlers(node).routes(),
        *ConfigHandlers(node).routes(),
        *ClusterAdminHandlers(node).routes(),
        *AclHandlers(broker, limits).routes(),
        *SaslHandlers().routes(),
        *ScramCredentialHandlers(broker).routes(),
        *QuotaHandlers(broker).routes(),
    ]
    if settings.client_telemetry:
        traffic.telemetry = ClientTelemetry(clock, limits, settings)
        routes += TelemetryHandlers(traffic.telemetry, limits).routes()
    throttle = Throttle(broker.quotas, (route.api for route in routes))
    dispatcher = Dispatcher(routes, traffic, limits, is_secured=broker.permissions.is_on, throttle=throttle)
    return dispatcher


def create_authentication(
    broker: Broker,
    settings: SecuritySettings,
    clock: Clock,
    limits: Limits,
    *,
    by_bearer: ByBearer | None = None,
    name_of_certificate: NameOfCertificate | None = None,
) -> KafkaAuthentication | None:
    """Return what the listener needs to authenticate its clients, or `None` if everybody may send requests."""
    if not broker.permissions.is_on:
        return None
    return KafkaAuthentication(
        broker.authenticator,
        broker.users,
        broker.audit,
        settings,
        clock,
        limits,
        by_bearer or broker.oidc.by_bearer,
        name_of_certificate,
    )
