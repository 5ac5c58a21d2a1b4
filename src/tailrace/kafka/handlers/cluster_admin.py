"""ElectLeaders, AlterPartitionReassignments, ListPartitionReassignments, AlterReplicaLogDirs and UpdateFeatures.

The cluster is one broker with one directory. It leads every partition and has its only replica, so no election is needed and
nothing can be moved.
"""

from collections.abc import Sequence

from tailrace.kafka.access import Access
from tailrace.kafka.cluster import LOG_DIR, REPLICAS, Node
from tailrace.kafka.dispatch import ApiRoute, RequestContext
from tailrace.kafka.features import SAFE_DOWNGRADE, UPGRADE, check_update
from tailrace.model.errors import (
    InvalidAssignmentError,
    InvalidRequestError,
    LogDirNotFoundError,
    NoReassignmentError,
    TailraceError,
)
from tailrace.wire.messages.cluster_admin import (
    ALTER_PARTITION_REASSIGNMENTS_API,
    ALTER_REPLICA_LOG_DIRS_API,
    ELECT_LEADERS_API,
    LIST_PARTITION_REASSIGNMENTS_API,
    UPDATE_FEATURES_API,
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
    ElectLeadersPartitionResult,
    ElectLeadersRequest,
    ElectLeadersResponse,
    FeatureUpdateKey,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
    ReplicaElectionResult,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)

_ELECTION_TYPES = (0, 1)
"""Preferred and unclean."""
_ELECTION_NOT_NEEDED = 84
_UPGRADE_TYPES_SINCE = 1


class ClusterAdminHandlers:
    def __init__(self, node: Node) -> None:
        self._topics = node.broker.topics
        self._permissions = node.broker.permissions
        self._access = Access(node.broker)

    def routes(self) -> list[ApiRoute]:
        return [
            ApiRoute(ELECT_LEADERS_API, self.elect),
            ApiRoute(ALTER_PARTITION_REASSIGNMENTS_API, self.reassign),
            ApiRoute(LIST_PARTITION_REASSIGNMENTS_API, self.reassignments),
            ApiRoute(ALTER_REPLICA_LOG_DIRS_API, self.alter_log_dirs),
            ApiRoute(UPDATE_FEATURES_API, self.update_features),
        ]

    def elect(self, context: RequestContext, request: ElectLeadersRequest) -> ElectLeadersResponse:
        if request.election_type not in _ELECTION_TYPES:
            raise InvalidRequestError(f"unknown election type {request.election_type}; use 0 (preferred) or 1 (unclean)")
        refusal = self._access.refusal("alter", "cluster")
        # As in Kafka, a request for all partitions is told only of those that needed an election.
        return ElectLeadersResponse(
            error_code=0 if refusal is None else refusal.kafka_code,
            replica_election_results=tuple(
                ReplicaElectionResult(
                    topic=topic.topic,
                    partition_result=tuple(
                        self._elect(topic.topic, number) if refusal is None else _not_elected(number, refusal)
                        for number in topic.partitions
                    ),
                )
                for topic in request.topic_partitions or ()
            ),
        )

    def _elect(self, topic: str, partition: int) -> ElectLeadersPartitionResult:
        try:
            self._topics.get(topic).partition(partition)
        except TailraceError as error:
            return _not_elected(partition, error)
        return ElectLeadersPartitionResult(
            partition_id=partition,
            error_code=_ELECTION_NOT_NEEDED,
            error_message=f"broker {REPLICAS[0]} leads the partition already; it is the only one",
        )

    def reassign(
        self, context: RequestContext, request: AlterPartitionReassignmentsRequest
    ) -> AlterPartitionReassignmentsResponse:
        self._permissions.require("alter", "cluster")
        return AlterPartitionReassignmentsResponse(
            error_message=None,
            allow_replication_factor_change=request.allow_replication_factor_change,
            responses=tuple(
                ReassignableTopicResponse(
                    name=topic.name, partitions=tuple(self._reassign(topic.name, wanted) for wanted in topic.partitions)
                )
                for topic in request.topics
            ),
        )

    def _reassign(self, topic: str, wanted: ReassignablePartition) -> ReassignablePartitionResponse:
        index = wanted.partition_index
        try:
            self._topics.get(topic).partition(index)
            _check_replicas(topic, index, wanted.replicas)
        except TailraceError as error:
            return ReassignablePartitionResponse(partition_index=index, error_code=error.kafka_code, error_message=str(error))
        return ReassignablePartitionResponse(partition_index=index, error_message=None)

    def reassignments(
        self, context: RequestContext, request: ListPartitionReassignmentsRequest
    ) -> ListPartitionReassignmentsResponse:
        self._permissions.require("describe", "cluster")
        return ListPartitionReassignmentsResponse(error_message=None)

    def alter_log_dirs(self, context: RequestContext, request: AlterReplicaLogDirsRequest) -> AlterReplicaLogDirsResponse:
        wanted = {
            (topic.name, number): each.path for each in request.dirs for topic in each.topics for number in topic.partitions
        }
        results: dict[str, list[AlterReplicaLogDirPartitionResult]] = {}
        for (topic, number), path in wanted.items():
            code = 0
            try:
                self._permissions.require("alter", "cluster")
                self._topics.get(topic).partition(number)
                if path != LOG_DIR:
                    raise LogDirNotFoundError(f"there is no log directory {path!r}; the only one is {LOG_DIR!r}")
            except TailraceError as error:
                code = error.kafka_code
            results.setdefault(topic, []).append(AlterReplicaLogDirPartitionResult(partition_index=number, error_code=code))
        return AlterReplicaLogDirsResponse(
            results=tuple(
                AlterReplicaLogDirTopicResult(topic_name=name, partitions=tuple(found)) for name, found in results.items()
            )
        )

    def update_features(self, context: RequestContext, request: UpdateFeaturesRequest) -> UpdateFeaturesResponse:
        try:
            self._permissions.require("alter", "cluster")
            for update in request.feature_updates:
                check_update(update.feature, update.max_version_level, _upgrade_type(context, update))
        except TailraceError as error:
            return UpdateFeaturesResponse(error_code=error.kafka_code, error_message=str(error))
        return UpdateFeaturesResponse(
            error_message=None,
            results=tuple(
                UpdatableFeatureResult(feature=update.feature, error_message=None) for update in request.feature_updates
            ),
        )


def _not_elected(partition: int, error: TailraceError) -> ElectLeadersPartitionResult:
    return ElectLeadersPartitionResult(partition_id=partition, error_code=error.kafka_code, error_message=str(error))


def _check_replicas(topic: str, partition: int, replicas: Sequence[int] | None) -> None:
    """Raise unless the partition is on these brokers already."""
    if replicas is None:
        raise NoReassignmentError(f"partition {partition} of {topic!r} is not being reassigned, so there is nothing to cancel")
    if tuple(replicas) != REPLICAS:
        raise InvalidAssignmentError(
            f"partition {partition} of {topic!r} can't be moved to brokers {list(replicas)}; the only broker is {REPLICAS[0]}"
        )


def _upgrade_type(context: RequestContext, update: FeatureUpdateKey) -> int:
    if context.version >= _UPGRADE_TYPES_SINCE:
        return update.upgrade_type
    return SAFE_DOWNGRADE if update.allow_downgrade else UPGRADE
