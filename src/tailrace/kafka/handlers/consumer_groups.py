"""Groups of the consumer protocol (KIP-848): ConsumerGroupHeartbeat and ConsumerGroupDescribe."""

from collections.abc import Iterable, Iterator, Mapping
from uuid import UUID

from tailrace.broker.broker import Broker
from tailrace.kafka.access import Access
from tailrace.kafka.cluster import NOT_ASKED
from tailrace.kafka.dispatch import ApiRoute, RequestContext
from tailrace.kafka.handlers.groups import group_error_code
from tailrace.model.consumer_group import ConsumerHeartbeat, ConsumerMemberDescription, DescribedPartitions
from tailrace.model.errors import InvalidRequestError, TailraceError, TopicForbiddenError
from tailrace.model.limits import Limits
from tailrace.wire.messages.consumer_groups import (
    CONSUMER_GROUP_DESCRIBE_API,
    CONSUMER_GROUP_HEARTBEAT_API,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    DescribedAssignment,
    DescribedConsumerGroup,
    DescribedConsumerMember,
    DescribedTopicPartitions,
    HeartbeatAssignment,
    HeartbeatTopicPartitions,
)

_ID_OF_CLIENT = 1
"""The first version in which a new member makes its id itself."""
_UNCHANGED = -1
_CLASSIC_MEMBER, _CONSUMER_MEMBER = 0, 1


class ConsumerGroupHandlers:
    def __init__(self, broker: Broker, limits: Limits) -> None:
        self._groups = broker.consumer_groups
        self._access = Access(broker)
        self._limits = limits

    def routes(self) -> list[ApiRoute]:
        return [
            ApiRoute(CONSUMER_GROUP_HEARTBEAT_API, self.heartbeat),
            ApiRoute(CONSUMER_GROUP_DESCRIBE_API, self.describe),
        ]

    async def heartbeat(
        self, context: RequestContext, request: ConsumerGroupHeartbeatRequest
    ) -> ConsumerGroupHeartbeatResponse:
        timeout_ms = request.rebalance_timeout_ms
        try:
            if context.version >= _ID_OF_CLIENT and not request.member_id:
                raise InvalidRequestError("the member id is empty; the client makes it, and keeps it while it runs")
            result = await self._groups.heartbeat(
                ConsumerHeartbeat(
                    request.group_id,
                    request.member_id,
                    request.member_epoch,
                    context.client_id or "",
                    f"/{context.client.host}",
                    request.instance_id,
                    request.rack_id,
                    None if timeout_ms == _UNCHANGED else timeout_ms,
                    request.subscribed_topic_names,
                    request.subscribed_topic_regex,
                    request.server_assignor,
                    None if request.topic_partitions is None else _owned(request.topic_partitions),
                )
            )
        except TailraceError as error:
            return ConsumerGroupHeartbeatResponse(error_code=group_error_code(error), error_message=str(error))
        return ConsumerGroupHeartbeatResponse(
            member_id=result.member_id,
            member_epoch=result.epoch,
            heartbeat_interval_ms=self._limits.group_consumer_heartbeat_interval_ms,
            assignment=None if result.assigned is None else _assignment(result.assigned),
        )

    def describe(self, context: RequestContext, request: ConsumerGroupDescribeRequest) -> ConsumerGroupDescribeResponse:
        asks = request.include_authorized_operations
        return ConsumerGroupDescribeResponse(groups=tuple(self._described(name, asks) for name in request.group_ids))

    def _described(self, name: str, asks_for_operations: bool) -> DescribedConsumerGroup:
        try:
            group = self._groups.describe(name)
            if not self._access.may_describe_all({topic for member in group.members for topic in _topics_of(member)}):
                # It does not say which, as in Kafka.
                raise TopicForbiddenError(f"group {name!r} reads topics that you may not describe")
        except TailraceError as error:
            return DescribedConsumerGroup(group_id=name, error_code=group_error_code(error), error_message=str(error))
        return DescribedConsumerGroup(
            group_id=name,
            group_state=group.state,
            group_epoch=group.epoch,
            # The target is made at once with each epoch.
            assignment_epoch=group.epoch,
            assignor_name=group.assignor,
            members=tuple(
                DescribedConsumerMember(
                    member_id=member.member_id,
                    instance_id=member.instance_id,
                    rack_id=member.rack_id,
                    member_epoch=member.epoch,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    subscribed_topic_names=member.topic_names,
                    subscribed_topic_regex=member.topic_pattern,
                    assignment=_described_assignment(member.assigned),
                    target_assignment=_described_assignment(member.target),
                    member_type=_CLASSIC_MEMBER if member.is_classic else _CONSUMER_MEMBER,
                )
                for member in group.members
            ),
            authorized_operations=self._access.on_group(name) if asks_for_operations else NOT_ASKED,
        )


def _topics_of(member: ConsumerMemberDescription) -> Iterator[str]:
    yield from member.topic_names
    for each in (*member.assigned, *member.target):
        yield each.topic


def _owned(topics: Iterable[HeartbeatTopicPartitions]) -> Mapping[UUID, frozenset[int]]:
    owned: dict[UUID, frozenset[int]] = {}
    for topic in topics:
        owned[topic.topic_id] = owned.get(topic.topic_id, frozenset()) | frozenset(topic.partitions)
    return owned


def _assignment(assigned: Mapping[UUID, frozenset[int]]) -> HeartbeatAssignment:
    return HeartbeatAssignment(
        topic_partitions=tuple(
            HeartbeatTopicPartitions(topic_id=topic, partitions=tuple(sorted(numbers))) for topic, numbers in assigned.items()
        )
    )


def _described_assignment(assignment: Iterable[DescribedPartitions]) -> DescribedAssignment:
    return DescribedAssignment(
        topic_partitions=tuple(
            DescribedTopicPartitions(topic_id=each.topic_uuid, topic_name=each.topic, partitions=each.partitions)
            for each in assignment
        )
    )
