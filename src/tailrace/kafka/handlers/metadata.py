"""Metadata, DescribeTopicPartitions, DescribeCluster, FindCoordinator and ApiVersions. The cluster has one broker."""

from collections.abc import Callable, Iterable, Sequence
from itertools import islice

import msgspec

from tailrace.broker.topics.registry import LiveTopic
from tailrace.kafka.access import Access
from tailrace.kafka.cluster import NODE_ID, NOT_ASKED, REPLICAS, Node
from tailrace.kafka.dispatch import ApiRoute, RequestContext
from tailrace.kafka.features import EPOCH, finalized_features, supported_features
from tailrace.model.errors import (
    InvalidRequestError,
    InvalidTopicNameError,
    TailraceError,
    TopicForbiddenError,
    UnknownTopicError,
)
from tailrace.model.names import check_topic_name, is_reserved
from tailrace.wire.batch import LEADER_EPOCH
from tailrace.wire.message import NO_UUID
from tailrace.wire.messages.cluster import (
    API_VERSIONS_API,
    DESCRIBE_CLUSTER_API,
    FIND_COORDINATOR_API,
    METADATA_API,
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    FoundCoordinator,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from tailrace.wire.messages.topics import (
    DESCRIBE_TOPIC_PARTITIONS_API,
    DescribeTopicPartitionsCursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)

_NULL_NAMES_SINCE = 12
_MAX_PARTITIONS = 2_000
"""The most partitions in one response to DescribeTopicPartitions, as in Kafka."""
_GROUP = 0
_TRANSACTION = 1
_MANY_KEYS_SINCE = 4
_INVALID_REQUEST = 42


class MetadataHandlers:
    def __init__(self, node: Node) -> None:
        self._node = node
        self._topics = node.broker.topics
        self._access = Access(node.broker)

    def routes(self) -> list[ApiRoute]:
        return [
            ApiRoute(METADATA_API, self.metadata),
            ApiRoute(DESCRIBE_TOPIC_PARTITIONS_API, self.describe_partitions),
        ]

    async def metadata(self, context: RequestContext, request: MetadataRequest) -> MetadataResponse:
        host, port = self._node.cluster.address
        # In version 0 an empty list means all topics; later versions use null for that.
        if request.topics is None or (context.version == 0 and not request.topics):
            topics = [_described(live, live.topic.name) for live in self._topics.visible()]
        else:
            may_create = request.allow_auto_topic_creation
            topics = [await self._find(wanted, may_create, context.version) for wanted in request.topics]
        if request.include_topic_authorized_operations:
            topics = [self._with_operations(topic) for topic in topics]
        return MetadataResponse(
            brokers=(MetadataResponseBroker(node_id=NODE_ID, host=host, port=port),),
            cluster_id=self._node.cluster.cluster_id,
            controller_id=NODE_ID,
            topics=tuple(topics),
            cluster_authorized_operations=self._access.on_cluster()
            if request.include_cluster_authorized_operations
            else NOT_ASKED,
        )

    def _with_operations(self, topic: MetadataResponseTopic) -> MetadataResponseTopic:
        if topic.error_code == TopicForbiddenError.kafka_code:
            return topic
        return msgspec.structs.replace(topic, topic_authorized_operations=self._access.on_topic(topic.name or ""))

    async def _find(self, wanted: MetadataRequestTopic, may_create: bool, version: int) -> MetadataResponseTopic:
        name = wanted.name
        try:
            if name is None:
                live = self._topics.readable_by_uuid(wanted.topic_id)
                self._topics.require("describe", live.topic.name)
                return _described(live, live.topic.name)
            if wanted.topic_id != NO_UUID:
                raise InvalidRequestError("give the name or the id of a topic, not both")
            self._topics.require("describe", name)
            found = self._topics.find(name) or self._topics.patterns.find(name)
            if found is None:
                check_topic_name(name, self._node.limits)
                if may_create and is_reserved(name):
                    # This code makes every producer fail at once: nobody can create this topic.
                    raise InvalidTopicNameError(f"topic {name!r} does not exist, and its name is reserved for the server")
                if may_create and self._node.settings.auto_create_topics:
                    await self._topics.create(name, self._node.settings.default_partitions)
                found = self._topics.get(name)
            return _described(found, name)
        except TailraceError as error:
            known_name = "" if name is None and version < _NULL_NAMES_SINCE else name
            return MetadataResponseTopic(error_code=error.kafka_code, name=known_name, topic_id=wanted.topic_id)

    def describe_partitions(
        self, context: RequestContext, request: DescribeTopicPartitionsRequest
    ) -> DescribeTopicPartitionsResponse:
        limit = min(max(1, request.response_partition_limit), _MAX_PARTITIONS)
        names: Iterable[str] = sorted({topic.name for topic in request.topics})
        if not request.topics:
            names = [live.topic.name for live in self._topics.visible()]
        cursor = request.cursor or DescribeTopicPartitionsCursor()
        topics = []
        for name in names:
            if name < cursor.topic_name:
                continue
            try:
                self._topics.require("describe", name)
                live = self._topics.readable(name)
            except TopicForbiddenError as error:
                topics.append(DescribeTopicPartitionsResponseTopic(error_code=error.kafka_code, name=name))
                continue
            except (InvalidTopicNameError, UnknownTopicError) as error:
                topics.append(
                    DescribeTopicPartitionsResponseTopic(
                        error_code=error.kafka_code, name=name, topic_authorized_operations=self._access.on_topic(name)
                    )
                )
                continue
            first = cursor.partition_index if name == cursor.topic_name else 0
            if first < 0:
                raise InvalidRequestError(f"the cursor has partition {first}; it must not be negative")
            if limit == 0:
                return DescribeTopicPartitionsResponse(
                    topics=tuple(topics), next_cursor=DescribeTopicPartitionsCursor(topic_name=name)
                )
            numbers = list(islice(range(first, len(live.partitions)), limit))
            limit -= len(numbers)
            topics.append(
                DescribeTopicPartitionsResponseTopic(
                    name=name,
                    topic_id=live.topic.uuid,
                    partitions=tuple(_described_partition(number) for number in numbers),
                    topic_authorized_operations=self._access.on_topic(name),
                )
            )
            end = first + len(numbers)
            if end < len(live.partitions):
                return DescribeTopicPartitionsResponse(
                    topics=tuple(topics), next_cursor=DescribeTopicPartitionsCursor(topic_name=name, partition_index=end)
                )
        return DescribeTopicPartitionsResponse(topics=tuple(topics))


def _described(live: LiveTopic, name: str) -> MetadataResponseTopic:
    """Describe a topic under the name that the client used, which may be its alias."""
    return MetadataResponseTopic(
        name=name,
        topic_id=live.topic.uuid,
        partitions=tuple(
            MetadataResponsePartition(
                partition_index=number,
                leader_id=NODE_ID,
                leader_epoch=LEADER_EPOCH,
                replica_nodes=REPLICAS,
                isr_nodes=REPLICAS,
            )
            for number in range(len(live.partitions))
        ),
    )


def _described_partition(number: int) -> DescribeTopicPartitionsResponsePartition:
    return DescribeTopicPartitionsResponsePartition(
        partition_index=number,
        leader_id=NODE_ID,
        leader_epoch=LEADER_EPOCH,
        replica_nodes=REPLICAS,
        isr_nodes=REPLICAS,
        eligible_leader_replicas=(),
        last_known_elr=(),
    )


class ClusterHandlers:
    def __init__(self, node: Node) -> None:
        self._cluster = node.cluster
        self._access = Access(node.broker)

    def routes(self) -> list[ApiRoute]:
        return [
            ApiRoute(DESCRIBE_CLUSTER_API, self.describe),
            ApiRoute(FIND_COORDINATOR_API, self.find_coordinator),
        ]

    def describe(self, context: RequestContext, request: DescribeClusterRequest) -> DescribeClusterResponse:
        host, port = self._cluster.address
        return DescribeClusterResponse(
            endpoint_type=request.endpoint_type,
            cluster_id=self._cluster.cluster_id,
            controller_id=NODE_ID,
            brokers=(DescribeClusterBroker(broker_id=NODE_ID, host=host, port=port),),
            cluster_authorized_operations=self._access.on_cluster()
            if request.include_cluster_authorized_operations
            else NOT_ASKED,
        )

    def find_coordinator(self, context: RequestContext, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
        host, port = self._cluster.address
        if request.key_type not in (_GROUP, _TRANSACTION):
            problem = f"unknown key type {request.key_type}; use {_GROUP} (group) or {_TRANSACTION} (transaction)"
            refused = tuple(_no_coordinator(key, _INVALID_REQUEST, problem) for key in request.coordinator_keys)
            return _without_coordinator(_INVALID_REQUEST, problem, refused)
        if context.version < _MANY_KEYS_SINCE and (error := self._refusal(request.key_type, request.key)) is not None:
            return _without_coordinator(error.kafka_code, str(error))
        return FindCoordinatorResponse(
            error_message=None,
            node_id=NODE_ID,
            host=host,
            port=port,
            coordinators=tuple(
                FoundCoordinator(key=key, node_id=NODE_ID, host=host, port=port, error_message=None)
                if (error := self._refusal(request.key_type, key)) is None
                else _no_coordinator(key, error.kafka_code, str(error))
                for key in request.coordinator_keys
            ),
        )

    def _refusal(self, key_type: int, key: str) -> TailraceError | None:
        return self._access.refusal("describe", "group" if key_type == _GROUP else "transactional_id", key)


def _no_coordinator(key: str, code: int, message: str) -> FoundCoordinator:
    return FoundCoordinator(key=key, node_id=-1, host="", port=-1, error_code=code, error_message=message)


def _without_coordinator(code: int, message: str, coordinators: tuple[FoundCoordinator, ...] = ()) -> FindCoordinatorResponse:
    return FindCoordinatorResponse(
        error_code=code, error_message=message, node_id=-1, host="", port=-1, coordinators=coordinators
    )


class VersionHandlers:
    def __init__(self, offered: Callable[[], Sequence[ApiVersion]]) -> None:
        self._offered = offered

    def routes(self) -> list[ApiRoute]:
        return [ApiRoute(API_VERSIONS_API, self.versions)]

    def versions(self, context: RequestContext, request: ApiVersionsRequest) -> ApiVersionsResponse:
        return ApiVersionsResponse(
            api_keys=tuple(self._offered()),
            supported_features=supported_features(context.version),
            finalized_features_epoch=EPOCH,
            finalized_features=finalized_features(),
        )
