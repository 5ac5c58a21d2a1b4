"""What a cluster is asked about topics, their offsets and groups, and what is changed there."""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeVar

from tailrace.shadow.cluster import GROUP, KafkaCluster, TopicPlace
from tailrace.shadow.connection import Versions
from tailrace.shadow.failures import (
    COORDINATOR_MOVES,
    GROUP_ID_NOT_FOUND,
    LEADER_MOVES,
    UNKNOWN_TOPIC_OR_PARTITION,
    UNSTABLE_OFFSET_COMMIT,
    KafkaRefusalError,
)
from tailrace.wire.messages.configs import (
    DESCRIBE_CONFIGS_API,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from tailrace.wire.messages.fetch import (
    LIST_OFFSETS_API,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from tailrace.wire.messages.group_offsets import (
    OFFSET_COMMIT_API,
    OFFSET_FETCH_API,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
)
from tailrace.wire.messages.groups import LIST_GROUPS_API, ListGroupsRequest, ListGroupsResponse
from tailrace.wire.messages.topics import (
    CREATE_PARTITIONS_API,
    CREATE_TOPICS_API,
    CreatableTopic,
    CreatableTopicConfig,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

T = TypeVar("T")

Partition = tuple[str, int]
"""The name of a topic and the number of a partition."""

EARLIEST, LATEST = -2, -1
"""Timestamps by which the ends of a partition are looked up."""

_DESCRIBE_CONFIGS = Versions(DESCRIBE_CONFIGS_API, 1, 4)
_CREATE_TOPICS = Versions(CREATE_TOPICS_API, 5, 7)
_CREATE_PARTITIONS = Versions(CREATE_PARTITIONS_API, 1, 3)
_LIST_OFFSETS = Versions(LIST_OFFSETS_API, 2, 7)
_OFFSET_FETCH = Versions(OFFSET_FETCH_API, 7, 7)
"""Since version 7 offsets of open transactions can be waited for."""
_OFFSET_COMMIT = Versions(OFFSET_COMMIT_API, 2, 8)
_LIST_GROUPS = Versions(LIST_GROUPS_API, 3, 5)

_TOPIC = 2
_OF_THE_TOPIC = 1
_DEFAULT_REPLICATION = -1
_CREATE_SECONDS = 30
_COORDINATOR_SECONDS = 30.0
_LEADER_SECONDS = 10.0
_PAUSE_SECONDS = 0.1
_COMMITTED = 1
_NO_GENERATION = -1
_METADATA = "metadata"
_CONFIGS_AT_ONCE = 200


class ConfigValue(NamedTuple):
    value: str
    is_own: bool
    """Whether the topic has a value of its own, and not that of the brokers."""


class CommittedPosition(NamedTuple):
    offset: int
    metadata: str = ""


class ClusterGroup(NamedTuple):
    name: str
    state: str
    """`Empty`, `Stable`, ...; nothing if the cluster does not say."""
    protocol: str

    @property
    def has_members(self) -> bool:
        return self.state not in ("Empty", "Dead", "")


class ClusterAdmin:
    def __init__(self, cluster: KafkaCluster) -> None:
        self.cluster = cluster

    async def configs(self, topics: Sequence[str], names: Sequence[str]) -> dict[str, dict[str, ConfigValue]]:
        """Return those configs of each topic that the cluster knows. Topics that are gone are left out."""
        found: dict[str, dict[str, ConfigValue]] = {}
        for at in range(0, len(topics), _CONFIGS_AT_ONCE):
            resources = tuple(
                DescribeConfigsResource(resource_type=_TOPIC, resource_name=topic, configuration_keys=tuple(names))
                for topic in topics[at : at + _CONFIGS_AT_ONCE]
            )
            response = await self.cluster.ask_any(
                _DESCRIBE_CONFIGS, DescribeConfigsRequest(resources=resources), DescribeConfigsResponse
            )
            for result in response.results:
                if not result.error_code:
                    found[result.resource_name] = {
                        config.name: ConfigValue(config.value or "", config.config_source == _OF_THE_TOPIC)
                        for config in result.configs
                    }
        return found

    async def create_topic(
        self, name: str, partitions: int, configs: Mapping[str, str], *, validate_only: bool = False
    ) -> KafkaRefusalError | None:
        """Create a topic, or only try it. Return why it was refused."""
        topic = CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=_DEFAULT_REPLICATION,
            configs=tuple(CreatableTopicConfig(name=key, value=value) for key, value in configs.items()),
        )
        request = CreateTopicsRequest(topics=(topic,), timeout_ms=_CREATE_SECONDS * 1000, validate_only=validate_only)
        response = await self.cluster.ask_controller(_CREATE_TOPICS, request, CreateTopicsResponse, seconds=_CREATE_SECONDS)
        (result,) = response.topics
        if not result.error_code:
            return None
        return KafkaRefusalError(
            result.error_code, f"topic {name!r} can't be created in {self.cluster.what}", result.error_message
        )

    async def create_partitions(self, topic: str, count: int) -> None:
        """Add partitions to a topic, up to this number."""
        request = CreatePartitionsRequest(
            topics=(CreatePartitionsTopic(name=topic, count=count, assignments=None),), timeout_ms=_CREATE_SECONDS * 1000
        )
        response = await self.cluster.ask_controller(
            _CREATE_PARTITIONS, request, CreatePartitionsResponse, seconds=_CREATE_SECONDS
        )
        (result,) = response.results
        if result.error_code:
            raise KafkaRefusalError(
                result.error_code, f"topic {topic!r} can't get {count} partitions in {self.cluster.what}", result.error_message
            )

    async def offsets(self, places: Iterable[TopicPlace], timestamp: int, *, committed: bool = False) -> dict[Partition, int]:
        """Return an offset of each partition that has a leader: the first, or the end, of committed records if `committed`.

        Leaders that move, or do not know yet that they lead a new partition, are waited for.
        """
        wanted = {place.name: place for place in places}
        deadline = asyncio.get_running_loop().time() + _LEADER_SECONDS
        while True:
            try:
                return await self._offsets(wanted.values(), timestamp, committed)
            except KafkaRefusalError as error:
                may_pass = error.code in (*LEADER_MOVES, UNKNOWN_TOPIC_OR_PARTITION)
                if not may_pass or asyncio.get_running_loop().time() > deadline:
                    raise
            await asyncio.sleep(_PAUSE_SECONDS)
            now = await self.cluster.refresh(list(wanted))
            # One that was deleted, or made again, is for the caller to find out.
            wanted = {
                name: now[name] if name in now and now[name].uuid == place.uuid else place for name, place in wanted.items()
            }

    async def _offsets(self, places: Iterable[TopicPlace], timestamp: int, committed: bool) -> dict[Partition, int]:
        wanted: dict[int, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
        for place in places:
            for number, leader in enumerate(place.leaders):
                if leader >= 0:
                    wanted[leader][place.name].append(number)
        found: dict[Partition, int] = {}
        for part in await asyncio.gather(
            *(self._offsets_of(leader, topics, timestamp, committed) for leader, topics in wanted.items())
        ):
            found.update(part)
        return found

    async def _offsets_of(
        self, leader: int, topics: Mapping[str, Sequence[int]], timestamp: int, committed: bool
    ) -> dict[Partition, int]:
        request = ListOffsetsRequest(
            replica_id=-1,
            isolation_level=_COMMITTED if committed else 0,
            topics=tuple(
                ListOffsetsTopic(
                    name=topic,
                    partitions=tuple(ListOffsetsPartition(partition_index=number, timestamp=timestamp) for number in numbers),
                )
                for topic, numbers in topics.items()
            ),
        )
        connection = await self.cluster.broker(leader, _METADATA)
        response = await connection.ask(_LIST_OFFSETS, request, ListOffsetsResponse)
        found = {}
        for topic in response.topics:
            for one in topic.partitions:
                if one.error_code:
                    raise KafkaRefusalError(
                        one.error_code,
                        f"{self.cluster.what} does not tell the offsets of partition {one.partition_index} of topic"
                        f" {topic.name!r}",
                    )
                found[topic.name, one.partition_index] = one.offset
        return found

    async def committed(self, group: str, partitions: Iterable[Partition] | None = None) -> dict[Partition, CommittedPosition]:
        """Return what a group has committed; of all its partitions if none are named. Open transactions are waited for."""
        topics = None if partitions is None else _by_topic(partitions)
        request = OffsetFetchRequest(
            group_id=group,
            topics=None
            if topics is None
            else tuple(
                OffsetFetchRequestTopic(name=name, partition_indexes=tuple(numbers)) for name, numbers in topics.items()
            ),
            require_stable=True,
        )
        what = f"{self.cluster.what} does not tell the offsets of group {group!r}"

        async def ask() -> dict[Partition, CommittedPosition]:
            response = await self.cluster.ask_coordinator(GROUP, group, _OFFSET_FETCH, request, OffsetFetchResponse)
            if response.error_code == GROUP_ID_NOT_FOUND:
                return {}
            if response.error_code:
                raise KafkaRefusalError(response.error_code, what)
            found = {}
            for topic in response.topics:
                for one in topic.partitions:
                    if one.error_code:
                        raise KafkaRefusalError(one.error_code, what)
                    if one.committed_offset >= 0:
                        found[topic.name, one.partition_index] = CommittedPosition(one.committed_offset, one.metadata or "")
            return found

        return await self._with_coordinator(group, ask)

    async def commit(self, group: str, offsets: Mapping[Partition, CommittedPosition]) -> dict[Partition, int]:
        """Commit offsets of a group without members. Return Kafka's error of each partition that was refused."""
        request = OffsetCommitRequest(
            group_id=group,
            generation_id_or_member_epoch=_NO_GENERATION,
            topics=tuple(
                OffsetCommitRequestTopic(
                    name=name,
                    partitions=tuple(
                        OffsetCommitRequestPartition(
                            partition_index=number,
                            committed_offset=offsets[name, number].offset,
                            committed_metadata=offsets[name, number].metadata,
                        )
                        for number in numbers
                    ),
                )
                for name, numbers in _by_topic(offsets).items()
            ),
        )

        async def ask() -> dict[Partition, int]:
            response = await self.cluster.ask_coordinator(GROUP, group, _OFFSET_COMMIT, request, OffsetCommitResponse)
            codes = {
                (topic.name, one.partition_index): one.error_code
                for topic in response.topics
                for one in topic.partitions
                if one.error_code
            }
            moved = COORDINATOR_MOVES.intersection(codes.values())
            if moved:
                raise KafkaRefusalError(moved.pop(), f"{self.cluster.what} does not take the offsets of group {group!r}")
            return codes

        return await self._with_coordinator(group, ask)

    async def groups(self) -> list[ClusterGroup]:
        """List the groups of consumers, each with its state."""
        found: dict[str, ClusterGroup] = {}
        await self.cluster.refresh([])
        for node in self.cluster.nodes:
            connection = await self.cluster.broker(node, _METADATA)
            response = await connection.ask(_LIST_GROUPS, ListGroupsRequest(), ListGroupsResponse)
            if response.error_code:
                raise KafkaRefusalError(response.error_code, f"{self.cluster.what} does not list its groups")
            for group in response.groups:
                if group.group_type.lower() != "share":
                    found[group.group_id] = ClusterGroup(group.group_id, group.group_state, group.protocol_type)
        return list(found.values())

    async def _with_coordinator(self, group: str, ask: Callable[[], Coroutine[None, None, T]]) -> T:
        """Ask the coordinator of a group, and the next one while it moves."""
        deadline = asyncio.get_running_loop().time() + _COORDINATOR_SECONDS
        while True:
            try:
                return await ask()
            except KafkaRefusalError as error:
                has_time = asyncio.get_running_loop().time() < deadline
                if not has_time or error.code not in (*COORDINATOR_MOVES, UNSTABLE_OFFSET_COMMIT):
                    raise
                if error.code in COORDINATOR_MOVES:
                    self.cluster.forget_coordinator(GROUP, group)
            await asyncio.sleep(_PAUSE_SECONDS)


def _by_topic(partitions: Iterable[Partition]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = defaultdict(list)
    for topic, number in partitions:
        found[topic].append(number)
    return found
