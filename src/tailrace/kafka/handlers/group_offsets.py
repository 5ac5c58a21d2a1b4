"""Committed offsets of groups: OffsetCommit, OffsetFetch and OffsetDelete."""

from collections.abc import Iterable
from itertools import groupby
from uuid import UUID

from tailrace.broker.broker import Broker
from tailrace.kafka.access import Access
from tailrace.kafka.dispatch import ApiRoute, RequestContext
from tailrace.kafka.handlers.groups import group_error_code
from tailrace.model.errors import IllegalGenerationError, TailraceError, UnknownGroupError, UnknownTopicError
from tailrace.model.group import NO_MEMBER, CommittedOffset, MemberIdentity, OffsetCommit
from tailrace.model.ids import Offset
from tailrace.wire.messages.group_offsets import (
    OFFSET_COMMIT_API,
    OFFSET_DELETE_API,
    OFFSET_FETCH_API,
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
    OffsetDeleteRequest,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

_UNKNOWN_TOPIC_ID = 100
_BY_TOPIC_ID = 10
"""The first version of OffsetCommit and OffsetFetch that names topics by id."""
_CODE_OF_ALL_SINCE = 2
"""The first version of OffsetFetch with an error code for all partitions."""
_MANY_GROUPS = 8
_KNOWS_EPOCHS = 9
"""The first version of OffsetCommit and OffsetFetch with the epochs of members of the consumer protocol."""
_UNSUPPORTED_VERSION = 35
_NOTHING_COMMITTED = -1


class GroupOffsetHandlers:
    def __init__(self, broker: Broker) -> None:
        self._topics = broker.topics
        self._offsets = broker.offsets
        self._groups = broker.groups
        self._permissions = broker.permissions
        self._access = Access(broker)
        self._removal = broker.group_removal
        self._transactions = broker.transaction_queries

    def routes(self) -> list[ApiRoute]:
        return [
            ApiRoute(OFFSET_COMMIT_API, self.commit),
            ApiRoute(OFFSET_FETCH_API, self.fetch),
            ApiRoute(OFFSET_DELETE_API, self.delete),
        ]

    async def commit(self, context: RequestContext, request: OffsetCommitRequest) -> OffsetCommitResponse:
        member = MemberIdentity(request.member_id, request.generation_id_or_member_epoch, request.group_instance_id)
        by_id = context.version >= _BY_TOPIC_ID
        names = [self._name_by_id(topic.topic_id) if by_id else topic.name for topic in request.topics]
        commits = [
            OffsetCommit(
                name,
                partition.partition_index,
                Offset(partition.committed_offset),
                partition.committed_leader_epoch,
                partition.committed_metadata or "",
            )
            for name, topic in zip(names, request.topics, strict=True)
            if name is not None
            for partition in topic.partitions
        ]
        if (refusal := self._access.refusal("consume", "group", request.group_id)) is not None:
            return OffsetCommitResponse(topics=tuple(_all_rejected(topic, refusal.kafka_code) for topic in request.topics))
        if context.version < _KNOWS_EPOCHS and self._groups.is_consumer_member(request.group_id, request.member_id):
            return OffsetCommitResponse(topics=tuple(_all_rejected(topic, _UNSUPPORTED_VERSION) for topic in request.topics))
        try:
            outcomes = iter(await self._groups.commit(request.group_id, member, commits))
        except TailraceError as error:
            code = self._commit_error_code(context, request.group_id, error)
            return OffsetCommitResponse(topics=tuple(_all_rejected(topic, code) for topic in request.topics))
        return OffsetCommitResponse(
            topics=tuple(
                _all_rejected(topic, _UNKNOWN_TOPIC_ID)
                if name is None
                else OffsetCommitResponseTopic(
                    name=topic.name,
                    topic_id=topic.topic_id,
                    partitions=tuple(
                        OffsetCommitResponsePartition(
                            partition_index=partition.partition_index, error_code=group_error_code(next(outcomes))
                        )
                        for partition in topic.partitions
                    ),
                )
                for name, topic in zip(names, request.topics, strict=True)
            )
        )

    def fetch(self, context: RequestContext, request: OffsetFetchRequest) -> OffsetFetchResponse:
        if context.version >= _MANY_GROUPS:
            by_id = context.version >= _BY_TOPIC_ID
            return OffsetFetchResponse(
                groups=tuple(self._fetched(group, by_id, request.require_stable) for group in request.groups)
            )
        wanted = None
        if request.topics is not None:
            wanted = tuple(
                OffsetFetchRequestTopics(name=topic.name, partition_indexes=topic.partition_indexes) for topic in request.topics
            )
        group = self._fetched(OffsetFetchRequestGroup(group_id=request.group_id, topics=wanted), False, request.require_stable)
        if group.error_code and context.version < _CODE_OF_ALL_SINCE:
            nothing = [(each.name, [_nothing(n, group.error_code) for n in each.partition_indexes]) for each in wanted or ()]
            topics = (OffsetFetchResponseTopics(name=name, partitions=tuple(partitions)) for name, partitions in nothing)
            group = OffsetFetchResponseGroup(group_id=request.group_id, topics=tuple(topics))
        return OffsetFetchResponse(
            error_code=group.error_code,
            topics=tuple(
                OffsetFetchResponseTopic(
                    name=topic.name,
                    partitions=tuple(
                        OffsetFetchResponsePartition(
                            partition_index=partition.partition_index,
                            committed_offset=partition.committed_offset,
                            committed_leader_epoch=partition.committed_leader_epoch,
                            metadata=partition.metadata,
                            error_code=partition.error_code,
                        )
                        for partition in topic.partitions
                    ),
                )
                for topic in group.topics
            ),
        )

    async def delete(self, context: RequestContext, request: OffsetDeleteRequest) -> OffsetDeleteResponse:
        try:
            self._permissions.require("drop", "group", request.group_id)
            self._groups.describe(request.group_id)
        except TailraceError as error:
            return OffsetDeleteResponse(error_code=group_error_code(error))
        return OffsetDeleteResponse(topics=tuple([await self._delete_in(request.group_id, topic) for topic in request.topics]))

    def _fetched(self, wanted: OffsetFetchRequestGroup, by_id: bool, require_stable: bool) -> OffsetFetchResponseGroup:
        group = wanted.group_id
        if (refusal := self._access.refusal("describe", "group", group)) is not None:
            return OffsetFetchResponseGroup(group_id=group, error_code=refusal.kafka_code)
        if wanted.member_id is not None or wanted.member_epoch >= 0:
            try:
                self._groups.check_fetch(group, MemberIdentity(wanted.member_id or NO_MEMBER, wanted.member_epoch))
            except TailraceError as error:
                return OffsetFetchResponseGroup(group_id=group, error_code=group_error_code(error))
        if wanted.topics is None:
            by_topic = groupby(self._offsets.committed_by(group), lambda committed: committed.topic)
            topics = [self._all_in(group, topic, committed, require_stable) for topic, committed in by_topic]
        else:
            topics = [self._fetched_in(group, topic, by_id, require_stable) for topic in wanted.topics]
        return OffsetFetchResponseGroup(group_id=group, topics=tuple(topics))

    def _fetched_in(
        self, group: str, wanted: OffsetFetchRequestTopics, by_id: bool, require_stable: bool
    ) -> OffsetFetchResponseTopics:
        name = self._name_by_id(wanted.topic_id) if by_id else wanted.name
        return OffsetFetchResponseTopics(
            name=wanted.name,
            topic_id=wanted.topic_id,
            partitions=tuple(self._committed(group, name, number, require_stable) for number in wanted.partition_indexes),
        )

    def _committed(self, group: str, topic: str | None, partition: int, require_stable: bool) -> OffsetFetchResponsePartitions:
        if topic is None:
            return _nothing(partition, _UNKNOWN_TOPIC_ID)
        try:
            self._topics.require("describe", topic)
            if require_stable:
                self._transactions.check_offset_stable(group, topic, partition)
            committed = self._offsets.committed(group, topic, partition)
        except UnknownTopicError:
            # Kafka's coordinator does not know which topics exist, so clients expect no error for an unknown topic.
            return _nothing(partition)
        except TailraceError as error:
            return _nothing(partition, group_error_code(error))
        return _nothing(partition) if committed is None else _something(committed)

    def _all_in(
        self, group: str, topic: str, committed: Iterable[CommittedOffset], require_stable: bool
    ) -> OffsetFetchResponseTopics:
        return OffsetFetchResponseTopics(
            name=topic,
            topic_id=self._topics.readable(topic).topic.uuid,
            partitions=tuple(self._committed(group, topic, each.partition, require_stable) for each in committed),
        )

    async def _delete_in(self, group: str, topic: OffsetDeleteRequestTopic) -> OffsetDeleteResponseTopic:
        results = []
        for number in (partition.partition_index for partition in topic.partitions):
            code = 0
            try:
                await self._removal.delete_offsets(group, topic.name, [number])
            except TailraceError as error:
                code = group_error_code(error)
            results.append(OffsetDeleteResponsePartition(partition_index=number, error_code=code))
        return OffsetDeleteResponseTopic(name=topic.name, partitions=tuple(results))

    def _commit_error_code(self, context: RequestContext, group: str, error: TailraceError) -> int:
        if isinstance(error, IllegalGenerationError) and context.version >= _KNOWS_EPOCHS:
            try:
                self._groups.describe(group)
            except UnknownGroupError as unknown:
                return unknown.kafka_code
        return group_error_code(error)

    def _name_by_id(self, topic_id: UUID) -> str | None:
        try:
            return self._topics.readable_by_uuid(topic_id).topic.name
        except UnknownTopicError:
            return None


def _all_rejected(topic: OffsetCommitRequestTopic, code: int) -> OffsetCommitResponseTopic:
    return OffsetCommitResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=tuple(
            OffsetCommitResponsePartition(partition_index=partition.partition_index, error_code=code)
            for partition in topic.partitions
        ),
    )


def _something(committed: CommittedOffset) -> OffsetFetchResponsePartitions:
    return OffsetFetchResponsePartitions(
        partition_index=committed.partition,
        committed_offset=committed.offset,
        committed_leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
    )


def _nothing(partition: int, code: int = 0) -> OffsetFetchResponsePartitions:
    return OffsetFetchResponsePartitions(partition_index=partition, committed_offset=_NOTHING_COMMITTED, error_code=code)
