"""CreateTopics, CreatePartitions, DeleteRecords, DeleteTopics and DescribeLogDirs."""

from collections import Counter
from collections.abc import Sequence

from tailrace.kafka.access import Access
from tailrace.kafka.cluster import LOG_DIR, REPLICAS, Node
from tailrace.kafka.dispatch import ApiRoute, RequestContext
from tailrace.kafka.handlers.configs import log_without_effect
from tailrace.kafka.topic_configs import parse_configs, show_configs
from tailrace.model.errors import (
    InvalidAssignmentError,
    InvalidPartitionsError,
    InvalidReplicationError,
    InvalidRequestError,
    TailraceError,
    TopicForbiddenError,
    UnknownTopicError,
)
from tailrace.model.ids import Offset
from tailrace.model.text import counted
from tailrace.model.topic import Topic, TopicSettings
from tailrace.wire.message import NO_UUID
from tailrace.wire.messages.cluster import (
    DESCRIBE_LOG_DIRS_API,
    DescribableLogDirTopic,
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from tailrace.wire.messages.topics import (
    CREATE_PARTITIONS_API,
    CREATE_TOPICS_API,
    DELETE_RECORDS_API,
    DELETE_TOPICS_API,
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeletableTopicResult,
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)

_HIGH_WATERMARK = -1
_BROKERS_DEFAULT = -1


class TopicHandlers:
    def __init__(self, node: Node) -> None:
        self._node = node
        self._topics = node.broker.topics
        self._access = Access(node.broker)

    def routes(self) -> list[ApiRoute]:
        return [
            ApiRoute(CREATE_TOPICS_API, self.create),
            ApiRoute(CREATE_PARTITIONS_API, self.create_partitions),
            ApiRoute(DELETE_RECORDS_API, self.delete_records),
            ApiRoute(DELETE_TOPICS_API, self.delete),
            ApiRoute(DESCRIBE_LOG_DIRS_API, self.describe_log_dirs),
        ]

    async def create(self, context: RequestContext, request: CreateTopicsRequest) -> CreateTopicsResponse:
        named = Counter(topic.name for topic in request.topics)
        wanted = {topic.name: topic for topic in request.topics}
        return CreateTopicsResponse(
            topics=tuple([await self._create(topic, named[name], request.validate_only) for name, topic in wanted.items()])
        )

    async def _create(self, wanted: CreatableTopic, named: int, validate_only: bool) -> CreatableTopicResult:
        name = wanted.name
        try:
            if named > 1:
                raise InvalidRequestError(f"the request names topic {name!r} {named} times")
            # As in Kafka, an existing topic is reported before any other error of the request.
            self._topics.check_name(name)
            partitions = self._partitions_of(wanted)
            change = parse_configs(
                ((config.name, config.value) for config in wanted.configs), self._node.limits, self._node.cluster.durability
            )
            alias = change.alias if isinstance(change.alias, str) else None
            topic = None
            settings = self._topics.check_new(name, partitions, alias=alias, options=change.options)
            if not validate_only:
                topic = await self._topics.create(name, partitions, alias=alias, options=change.options, must_be_new=True)
                log_without_effect(name, change)
        except TailraceError as error:
            return CreatableTopicResult(name=name, error_code=error.kafka_code, error_message=str(error))
        if not self._topics.may("describe_configs", name):
            return CreatableTopicResult(
                name=name,
                topic_id=topic.uuid if topic else NO_UUID,
                error_message=None,
                topic_config_error_code=TopicForbiddenError.kafka_code,
            )
        return CreatableTopicResult(
            name=name,
            topic_id=topic.uuid if topic else NO_UUID,
            error_message=None,
            num_partitions=partitions,
            replication_factor=len(REPLICAS),
            configs=self._shown(topic, settings),
        )

    def _partitions_of(self, wanted: CreatableTopic) -> int:
        if wanted.assignments:
            if wanted.num_partitions != -1 or wanted.replication_factor != -1:
                raise InvalidRequestError("give assignments, or a number of partitions and replicas, not both")
            if sorted(each.partition_index for each in wanted.assignments) != list(range(len(wanted.assignments))):
                raise InvalidAssignmentError("the assigned partitions must be numbered from 0 without gaps")
            _check_assignments([each.broker_ids for each in wanted.assignments])
            return len(wanted.assignments)
        if wanted.replication_factor < len(REPLICAS) and wanted.replication_factor != _BROKERS_DEFAULT:
            raise InvalidReplicationError(
                f"the replication factor is {wanted.replication_factor}; it must be at least 1, or -1 for the default"
            )
        return self._node.settings.default_partitions if wanted.num_partitions == -1 else wanted.num_partitions

    def _shown(self, topic: Topic | None, settings: TopicSettings) -> tuple[CreatableTopicConfigs, ...]:
        return tuple(
            CreatableTopicConfigs(name=config.name, value=config.value, read_only=config.read_only, config_source=config.source)
            for config in show_configs(topic, settings, self._node.limits, self._node.cluster.durability)
        )

    async def create_partitions(self, context: RequestContext, request: CreatePartitionsRequest) -> CreatePartitionsResponse:
        return CreatePartitionsResponse(
            results=tuple([await self._grow(topic, request.validate_only) for topic in request.topics])
        )

    async def _grow(self, wanted: CreatePartitionsTopic, validate_only: bool) -> CreatePartitionsTopicResult:
        try:
            self._topics.require("alter", wanted.name)
            topic = self._topics.get(wanted.name).topic
            more = wanted.count - topic.partitions
            if more <= 0:
                raise InvalidPartitionsError(
                    f"topic {wanted.name!r} already has {counted(topic.partitions, 'partition')}; {wanted.count} is not more"
                )
            if wanted.assignments is not None:
                _check_assignments([each.broker_ids for each in wanted.assignments])
                if len(wanted.assignments) != more:
                    raise InvalidAssignmentError(
                        f"{len(wanted.assignments)} partitions are assigned, but {more} are added; assign each of them"
                    )
            if validate_only:
                self._topics.check_room(more)
            else:
                # The right to alter the topic is enough, as in Kafka.
                await self._topics.create(topic.name, wanted.count, by_server=True)
        except TailraceError as error:
            return CreatePartitionsTopicResult(name=wanted.name, error_code=error.kafka_code, error_message=str(error))
        return CreatePartitionsTopicResult(name=wanted.name)

    async def delete_records(self, context: RequestContext, request: DeleteRecordsRequest) -> DeleteRecordsResponse:
        return DeleteRecordsResponse(
            topics=tuple(
                [
                    DeleteRecordsTopicResult(
                        name=topic.name,
                        partitions=tuple([await self._delete_records(topic.name, wanted) for wanted in topic.partitions]),
                    )
                    for topic in request.topics
                ]
            )
        )

    async def _delete_records(self, topic: str, wanted: DeleteRecordsPartition) -> DeleteRecordsPartitionResult:
        index = wanted.partition_index
        before = None if wanted.offset == _HIGH_WATERMARK else Offset(wanted.offset)
        try:
            start = await self._node.broker.retention.delete_before(topic, index, before)
        except TailraceError as error:
            return DeleteRecordsPartitionResult(partition_index=index, low_watermark=-1, error_code=error.kafka_code)
        return DeleteRecordsPartitionResult(partition_index=index, low_watermark=start)

    async def delete(self, context: RequestContext, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
        wanted = request.topics or tuple(DeleteTopicState(name=name) for name in request.topic_names)
        return DeleteTopicsResponse(responses=tuple([await self._delete(topic) for topic in wanted]))

    async def _delete(self, wanted: DeleteTopicState) -> DeletableTopicResult:
        try:
            if wanted.name is not None:
                self._topics.require("drop", wanted.name)
                live = self._topics.get(wanted.name)
            else:
                live = self._topics.by_uuid(wanted.topic_id)
                if not self._topics.may("describe", live.topic.name):
                    raise TopicForbiddenError(f"you may not describe the topic with the id {wanted.topic_id}, nor drop it")
            topic = await self._topics.delete(live.topic.name)
        except TailraceError as error:
            return DeletableTopicResult(
                name=wanted.name, topic_id=wanted.topic_id, error_code=error.kafka_code, error_message=str(error)
            )
        return DeletableTopicResult(name=wanted.name or topic.name, topic_id=topic.uuid)

    def describe_log_dirs(self, context: RequestContext, request: DescribeLogDirsRequest) -> DescribeLogDirsResponse:
        if (refusal := self._access.refusal("describe", "cluster")) is not None:
            return DescribeLogDirsResponse(error_code=refusal.kafka_code)
        wanted = request.topics
        if wanted is None:
            wanted = tuple(
                DescribableLogDirTopic(topic=live.topic.name, partitions=tuple(range(len(live.partitions))))
                for live in self._topics
            )
        topics = (DescribeLogDirsTopic(name=topic.topic, partitions=tuple(self._sizes(topic))) for topic in wanted)
        return DescribeLogDirsResponse(
            results=(DescribeLogDirsResult(log_dir=LOG_DIR, topics=tuple(topic for topic in topics if topic.partitions)),)
        )

    def _sizes(self, wanted: DescribableLogDirTopic) -> list[DescribeLogDirsPartition]:
        sizes = []
        for number in wanted.partitions:
            try:
                size = self._node.broker.positions.size(wanted.topic, number)
            except UnknownTopicError:
                # Kafka leaves unknown partitions out as well.
                continue
            sizes.append(DescribeLogDirsPartition(partition_index=number, partition_size=size))
        return sizes


def _check_assignments(assignments: Sequence[Sequence[int]]) -> None:
    for servers in assignments:
        if tuple(servers) != REPLICAS:
            raise InvalidAssignmentError(
                f"a partition can't be assigned to brokers {list(servers)}; the only broker is {REPLICAS[0]}"
            )
