"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs and ListConfigResources. Only configs of topics have an effect."""

import logging
from collections.abc import Iterable, Sequence

from tailrace.kafka.cluster import NODE_ID, Node
from tailrace.kafka.dispatch import ApiRoute, RequestContext
from tailrace.kafka.server_configs import BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP, TOPIC, ServerConfigs
from tailrace.kafka.topic_configs import (
    ConfigEntry,
    ConfigSource,
    TopicChange,
    parse_configs,
    show_configs,
    with_defaults,
)
from tailrace.model.errors import ConfigurationError, TailraceError
from tailrace.model.security import Operation
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

_LISTED = (TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP)
"""The types of resources that ListConfigResources knows."""
_TYPES_SINCE = 1
_UNSUPPORTED_VERSION = 35
_SET = 0
_DELETE = 1


class ConfigHandlers:
    def __init__(self, node: Node) -> None:
        self._node = node
        self._topics = node.broker.topics
        self._permissions = node.broker.permissions
        self._server = ServerConfigs(node)

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
        self._require("describe_configs", resource_type, name)
        if resource_type != TOPIC:
            return self._server.of(resource_type, name)
        topic = self._topics.get(name).topic
        return show_configs(topic, topic.settings, self._node.limits, self._node.cluster.durability)

    async def alter(self, context: RequestContext, request: AlterConfigsRequest) -> AlterConfigsResponse:
        responses = []
        for resource in request.resources:
            error = None
            try:
                self._require("alter_configs", resource.resource_type, resource.resource_name)
                configs = [(config.name, config.value) for config in resource.configs]
                if resource.resource_type == TOPIC:
                    change = with_defaults(self._parse(configs))
                    await self._apply(resource.resource_name, change, request.validate_only)
                else:
                    self._check_server(resource.resource_type, resource.resource_name, configs)
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
                self._require("alter_configs", resource.resource_type, resource.resource_name)
                configs = [(config.name, _wanted(config)) for config in resource.configs]
                if resource.resource_type == TOPIC:
                    await self._apply(resource.resource_name, self._parse(configs), request.validate_only)
                else:
                    self._check_server(resource.resource_type, resource.resource_name, configs)
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
        """List what has configs of its own. Groups and loggers have none."""
        self._permissions.require("describe_configs", "cluster")
        wanted = (request.resource_types or _LISTED) if context.version >= _TYPES_SINCE else (CLIENT_METRICS,)
        if not set(wanted) <= set(_LISTED):
            return ListConfigResourcesResponse(error_code=_UNSUPPORTED_VERSION)
        names = {
            TOPIC: [live.topic.name for live in self._topics],
            BROKER: [str(NODE_ID)],
            CLIENT_METRICS: self._server.subscriptions,
        }
        return ListConfigResourcesResponse(
            config_resources=tuple(
                ListedConfigResource(resource_name=name, resource_type=kind)
                for kind in dict.fromkeys(wanted)
                for name in names.get(kind, ())
            )
        )

    def _require(self, operation: Operation, resource_type: int, name: str) -> None:
        """Raise `ForbiddenError` unless the client may do this to the configs of a resource, before it is looked up."""
        if resource_type == GROUP:
            self._permissions.require(operation, "group", name)
        elif resource_type != TOPIC:
            self._permissions.require(operation, "cluster")
        elif operation == "describe_configs" or not self._topics.may("alter", name):
            # Whoever may alter a topic may alter its configs, which SQL does not tell apart.
            self._topics.require(operation, name)

    def _parse(self, configs: Iterable[tuple[str, str | None]]) -> TopicChange:
        return parse_configs(configs, self._node.limits, self._node.cluster.durability)

    async def _apply(self, topic: str, change: TopicChange, validate_only: bool) -> None:
        if validate_only:
            self._topics.check_altered(topic, change.options, alias=change.alias)
        else:
            await self._topics.alter(topic, change.options, alias=change.alias)
            log_without_effect(topic, change)

    def _check_server(self, resource_type: int, name: str, configs: Sequence[tuple[str, str | None]]) -> None:
        if without_effect := self._server.check_change(resource_type, name, configs):
            _log.warning("the broker: accepted without effect: %s; nothing is replicated", ", ".join(without_effect))


def log_without_effect(topic: str, change: TopicChange) -> None:
    if change.without_effect:
        _log.warning(
            "topic %r: accepted without effect: %s; describe the topic to see what is in force",
            topic,
            ", ".join(sorted(set(change.without_effect))),
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
