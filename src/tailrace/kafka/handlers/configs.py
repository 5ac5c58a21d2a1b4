"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs and ListConfigResources. Only configs of topics can be altered."""

import logging
from collections.abc import Iterable, Sequence

from tailrace.kafka.accepted_configs import ConfigType
from tailrace.kafka.client_telemetry import REQUESTED_METRICS
from tailrace.kafka.cluster import NODE_ID, Node
from tailrace.kafka.dispatch import ApiRoute, RequestContext
from tailrace.kafka.topic_configs import (
    ConfigEntry,
    ConfigSource,
    TopicChange,
    parse_configs,
    show_configs,
    with_defaults,
)
from tailrace.model.errors import ConfigurationError, InvalidRequestError, TailraceError
from tailrace.wire.messages.configs import (
    ALTER_CONFIGS_API,
    DESCRIBE_CONFIGS_API,
    INCREMENTAL_ALTER_CONFIGS_API,
    LIST_CONFIG_RESOURCES_API,
    AlterConfigsRequest,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResourceResponse,
    IncrementalAlterConfigsResponse,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
    ListedConfigResource,
)

_log = logging.getLogger(__name__)

_TOPIC = 2
_BROKER = 4
_BROKER_LOGGER = 8
_CLIENT_METRICS = 16
_GROUP = 32
_LISTED = (_TOPIC, _BROKER, _BROKER_LOGGER, _CLIENT_METRICS, _GROUP)
"""The types of resources that ListConfigResources knows."""
_SUBSCRIPTION = "tailrace"
"""The name of the only subscription to metrics of clients."""
_TYPES_SINCE = 1
_UNSUPPORTED_VERSION = 35
_SET = 0
_DELETE = 1


class ConfigHandlers:
    def __init__(self, node: Node) -> None:
        self._node = node
        self._topics = node.broker.topics
        self._subscriptions = (_SUBSCRIPTION,) if node.settings.client_telemetry else ()

    def routes(self) -> list[ApiRoute]:
        return [
            ApiRoute(DESCRIBE_CONFIGS_API, self.describe),
            ApiRoute(ALTER_CONFIGS_API, self.alter),
            ApiRoute(INCREMENTAL_ALTER_CONFIGS_API, self.alter_some),
            ApiRoute(LIST_CONFIG_RESOURCES_API, self.list_resources),
        ]

    def describe(self, context: RequestContext, request: DescribeConfigsRequest) -> DescribeConfigsResponse:
        return DescribeConfigsResponse(results=tuple(self._describe(resource, request) for resource in request.resources))

    def _describe(self, resource: DescribeConfigsResource, request: DescribeConfigsRequest) -> DescribeConfigsResult:
        try:
            configs = self._configs_of(resource.resource_type, resource.resource_name)
        except TailraceError as error:
            return DescribeConfigsResult(
                error_code=error.kafka_code,
                error_message=str(error),
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
        wanted = resource.configuration_keys
        return DescribeConfigsResult(
            error_message=None,
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
            configs=tuple(_shown(config, request) for config in configs if wanted is None or config.name in wanted),
        )

    def _configs_of(self, resource_type: int, name: str) -> Sequence[ConfigEntry]:
        if resource_type == _TOPIC:
            topic = self._topics.get(name).topic
            return show_configs(topic, topic.settings, self._node.limits, self._node.cluster.durability)
        if resource_type == _BROKER:
            if name not in ("", str(NODE_ID)):
                raise InvalidRequestError(f"unknown broker {name!r}; the only broker is {NODE_ID}")
            return self._server_configs() if name else ()
        if resource_type == _CLIENT_METRICS:
            if name not in self._subscriptions:
                raise InvalidRequestError(f"there is no subscription to client metrics {name!r}")
            return self._subscription_configs()
        raise InvalidRequestError(
            f"resource type {resource_type} has no configs; use {_TOPIC} (topic), {_BROKER} (broker) or {_CLIENT_METRICS}"
            " (client metrics)"
        )

    def _subscription_configs(self) -> list[ConfigEntry]:
        interval_ms = self._node.settings.telemetry_interval_seconds * 1000
        values = (
            ("interval.ms", str(interval_ms), ConfigType.INT, "How often clients push their metrics."),
            ("match", "", ConfigType.LIST, "All clients."),
            ("metrics", ",".join(REQUESTED_METRICS), ConfigType.LIST, "Prefixes of the names of metrics that are pushed."),
        )
        return [
            ConfigEntry(name, value, kind, ConfigSource.STATIC_BROKER, documentation, read_only=True)
            for name, value, kind, documentation in values
        ]

    def _server_configs(self) -> list[ConfigEntry]:
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
        return [
            ConfigEntry(name, value, kind, ConfigSource.STATIC_BROKER, "Set in the configuration file.", read_only=True)
            for name, value, kind in values
        ]

    async def alter(self, context: RequestContext, request: AlterConfigsRequest) -> AlterConfigsResponse:
        responses = []
        for resource in request.resources:
            error = None
            try:
                _check_is_topic(resource.resource_type)
                change = with_defaults(self._parse((config.name, config.value) for config in resource.configs))
                await self._apply(resource.resource_name, change, request.validate_only)
            except TailraceError as caught:
                error = caught
            responses.append(
                AlterConfigsResourceResponse(
                    error_code=error.kafka_code if error else 0,
                    error_message=str(error) if error else None,
                    resource_type=resource.resource_type,
                    resource_name=resource.resource_name,
                )
            )
        return AlterConfigsResponse(responses=tuple(responses))

    async def alter_some(
        self, context: RequestContext, request: IncrementalAlterConfigsRequest
    ) -> IncrementalAlterConfigsResponse:
        responses = []
        for resource in request.resources:
            error = None
            try:
                _check_is_topic(resource.resource_type)
                change = self._parse((config.name, _wanted(config)) for config in resource.configs)
                await self._apply(resource.resource_name, change, request.validate_only)
            except TailraceError as caught:
                error = caught
            responses.append(
                IncrementalAlterConfigsResourceResponse(
                    error_code=error.kafka_code if error else 0,
                    error_message=str(error) if error else None,
                    resource_type=resource.resource_type,
                    resource_name=resource.resource_name,
                )
            )
        return IncrementalAlterConfigsResponse(responses=tuple(responses))

    def list_resources(self, context: RequestContext, request: ListConfigResourcesRequest) -> ListConfigResourcesResponse:
        """List what has configs. Groups and loggers have none."""
        wanted = (request.resource_types or _LISTED) if context.version >= _TYPES_SINCE else (_CLIENT_METRICS,)
        if not set(wanted) <= set(_LISTED):
            return ListConfigResourcesResponse(error_code=_UNSUPPORTED_VERSION)
        names = {
            _TOPIC: [live.topic.name for live in self._topics],
            _BROKER: [str(NODE_ID)],
            _CLIENT_METRICS: self._subscriptions,
        }
        return ListConfigResourcesResponse(
            config_resources=tuple(
                ListedConfigResource(resource_name=name, resource_type=kind)
                for kind in dict.fromkeys(wanted)
                for name in names.get(kind, ())
            )
        )

    def _parse(self, configs: Iterable[tuple[str, str | None]]) -> TopicChange:
        return parse_configs(configs, self._node.limits, self._node.cluster.durability)

    async def _apply(self, topic: str, change: TopicChange, validate_only: bool) -> None:
        if validate_only:
            self._topics.check_altered(topic, change.options, alias=change.alias)
        else:
            await self._topics.alter(topic, change.options, alias=change.alias)
            log_without_effect(topic, change)


def log_without_effect(topic: str, change: TopicChange) -> None:
    if change.without_effect:
        _log.warning(
            "topic %r: accepted without effect: %s; describe the topic to see what is in force",
            topic,
            ", ".join(sorted(set(change.without_effect))),
        )


def _check_is_topic(resource_type: int) -> None:
    if resource_type != _TOPIC:
        raise ConfigurationError(
            "only topic configs can be altered; those of the broker are read-only here: set them in the server's configuration"
            " file and start it again"
        )


def _wanted(config: IncrementalAlterableConfig) -> str | None:
    if config.config_operation == _DELETE:
        return None
    if config.config_operation != _SET or config.value is None:
        raise ConfigurationError(f"{config.name} can be set or deleted; append and subtract are not supported")
    return config.value


def _shown(config: ConfigEntry, request: DescribeConfigsRequest) -> DescribeConfigsResourceResult:
    synonyms = []
    if config.source is ConfigSource.TOPIC:
        synonyms.append(DescribeConfigsSynonym(name=config.name, value=config.value, source=config.source))
    if config.source is not ConfigSource.TOPIC or config.default is not None:
        synonyms.append(
            DescribeConfigsSynonym(
                name=config.server_name or config.name,
                value=config.value if config.default is None else config.default,
                source=ConfigSource.DEFAULT if config.source is ConfigSource.TOPIC else config.source,
            )
        )
    return DescribeConfigsResourceResult(
        name=config.name,
        value=config.value,
        read_only=config.read_only,
        config_source=config.source,
        synonyms=tuple(synonyms) if request.include_synonyms else (),
        config_type=config.type,
        documentation=config.documentation if request.include_documentation else None,
    )
