"""Configs that belong to no topic: of the broker, of groups, and of the subscription to metrics of clients.

They are set in the configuration file and shown as they are in force. Nothing can be set through Kafka's API but throttles of
replication, which are accepted without effect because nothing is replicated. What was never set may be deleted.
"""

from collections.abc import Iterable, Sequence

from tailrace.kafka.accepted_configs import ConfigType
from tailrace.kafka.client_telemetry import REQUESTED_METRICS
from tailrace.kafka.cluster import NODE_ID, Node
from tailrace.kafka.topic_configs import ConfigEntry, ConfigSource
from tailrace.model.errors import ConfigurationError, InvalidRequestError

TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
"""The types of resources that have configs in Kafka."""
SUBSCRIPTION = "tailrace"
"""The name of the only subscription to metrics of clients."""
THROTTLES = (
    "follower.replication.throttled.rate",
    "leader.replication.throttled.rate",
    "replica.alter.log.dirs.io.max.bytes.per.second",
)
"""Configs of the broker that `kafka-reassign-partitions` sets and deletes."""
_READ_ONLY = {
    BROKER: "configs of the broker are read-only here: set them",
    CLIENT_METRICS: (
        "the subscription to metrics of clients is read-only here: set kafka.client_telemetry and"
        " kafka.telemetry_interval_seconds"
    ),
    GROUP: (
        "groups have no configs of their own: set limits.group_consumer_session_timeout_ms and"
        " limits.group_consumer_heartbeat_interval_ms, which hold for all of them,"
    ),
}
_WHERE = "in the server's configuration file and start it again"


class ServerConfigs:
    def __init__(self, node: Node) -> None:
        self._node = node
        self.subscriptions = (SUBSCRIPTION,) if node.settings.client_telemetry else ()

    def of(self, resource_type: int, name: str) -> Sequence[ConfigEntry]:
        """Return the configs of a resource that is no topic. Raises if there is none of this name."""
        if resource_type == BROKER:
            if name not in ("", str(NODE_ID)):
                raise InvalidRequestError(f"unknown broker {name!r}; the only broker is {NODE_ID}")
            return self._of_broker() if name else ()
        if resource_type == GROUP:
            if not name:
                raise InvalidRequestError("the name of the group is empty")
            return self._of_groups()
        if resource_type == CLIENT_METRICS:
            if name not in self.subscriptions:
                raise InvalidRequestError(f"there is no subscription to client metrics {name!r}")
            return self._of_subscription()
        raise InvalidRequestError(
            f"resource type {resource_type} has no configs; use {TOPIC} (topic), {BROKER} (broker), {CLIENT_METRICS}"
            f" (client metrics) or {GROUP} (group)"
        )

    def check_change(self, resource_type: int, name: str, configs: Iterable[tuple[str, str | None]]) -> list[str]:
        """Return the names of what is accepted without effect. Raises for what can't be changed. A null value deletes."""
        if resource_type == CLIENT_METRICS:
            raise ConfigurationError(f"{_READ_ONLY[CLIENT_METRICS]} {_WHERE}")
        static = {entry.name for entry in self.of(resource_type, name) if entry.source is ConfigSource.STATIC_BROKER}
        without_effect = []
        for config, value in configs:
            if value is None and config not in static:
                continue
            if value is None or resource_type != BROKER or config not in THROTTLES:
                raise ConfigurationError(f"{config!r} can't be changed: {_READ_ONLY[resource_type]} {_WHERE}")
            if not (value.isascii() and value.isdigit()):
                raise ConfigurationError(f"{config} must be a number of bytes, 0 or more, not {value!r}")
            without_effect.append(config)
        return without_effect

    def _of_broker(self) -> list[ConfigEntry]:
        auto_create = "true" if self._node.settings.auto_create_topics else "false"
        values = (
            ("advertised.listeners", f"PLAINTEXT://{self._node.cluster.address}", ConfigType.STRING),
            ("auto.create.topics.enable", auto_create, ConfigType.BOOLEAN),
            ("broker.id", str(NODE_ID), ConfigType.INT),
            ("compression.type", "producer", ConfigType.STRING),
            ("default.replication.factor", "1", ConfigType.INT),
            ("log.cleanup.policy", "delete", ConfigType.LIST),
            ("message.max.bytes", str(self._node.limits.batch_bytes), ConfigType.INT),
            ("min.insync.replicas", "1", ConfigType.INT),
            ("num.partitions", str(self._node.settings.default_partitions), ConfigType.INT),
            ("socket.request.max.bytes", str(self._node.limits.request_bytes), ConfigType.INT),
        )
        return [_read_only(name, value, kind, "Set in the configuration file.") for name, value, kind in values]

    def _of_groups(self) -> list[ConfigEntry]:
        limits = self._node.limits
        values = (
            ("consumer.heartbeat.interval.ms", limits.group_consumer_heartbeat_interval_ms),
            ("consumer.session.timeout.ms", limits.group_consumer_session_timeout_ms),
        )
        documentation = "Set in the configuration file, for all groups of the consumer protocol."
        return [
            ConfigEntry(
                name,
                str(value),
                ConfigType.INT,
                ConfigSource.DEFAULT,
                documentation,
                read_only=True,
                server_name=f"group.{name}",
            )
            for name, value in values
        ]

    def _of_subscription(self) -> list[ConfigEntry]:
        interval_ms = self._node.settings.telemetry_interval_seconds * 1000
        return [
            _read_only("interval.ms", str(interval_ms), ConfigType.INT, "How often clients push their metrics."),
            _read_only("match", "", ConfigType.LIST, "All clients."),
            _read_only(
                "metrics", ",".join(REQUESTED_METRICS), ConfigType.LIST, "Prefixes of the names of metrics that are pushed."
            ),
        ]


def _read_only(name: str, value: str, kind: ConfigType, documentation: str) -> ConfigEntry:
    return ConfigEntry(name, value, kind, ConfigSource.STATIC_BROKER, documentation, read_only=True)
