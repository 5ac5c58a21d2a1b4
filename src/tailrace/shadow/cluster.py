"""A Kafka cluster as a client sees it: its brokers, topics and leaders, and a connection to each broker for each purpose.

What is known of topics is as old as the last `refresh`. Connections are opened when they are needed and opened anew when they
were lost; what was asked over a lost one has failed.
"""

import asyncio
import base64
from collections.abc import Sequence
from typing import NamedTuple, TypeVar
from uuid import UUID

from tailrace.model.address import Address
from tailrace.shadow.connection import BrokerConnection, Versions
from tailrace.shadow.failures import (
    COORDINATOR_MOVES,
    NOT_LEADER_OR_FOLLOWER,
    KafkaRefusalError,
    ShadowError,
    UnreachableError,
)
from tailrace.shadow.kafka_access import KafkaAccess
from tailrace.wire.message import KafkaMessage
from tailrace.wire.messages.cluster import (
    FIND_COORDINATOR_API,
    METADATA_API,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)

M = TypeVar("M", bound=KafkaMessage)

_METADATA = Versions(METADATA_API, 10, 12)
"""Since version 10 topics have ids."""
_FIND_COORDINATOR = Versions(FIND_COORDINATOR_API, 1, 3)
GROUP, TRANSACTION = 0, 1
"""The kinds of coordinators."""
_CONTROL = "control"
_COORDINATOR_SECONDS = 30.0
_COORDINATOR_PAUSE_SECONDS = 0.1


class TopicPlace(NamedTuple):
    """A topic as its cluster describes it."""

    name: str
    topic_id: str
    """As Kafka writes ids: 22 characters."""
    uuid: UUID
    leaders: Sequence[int]
    """The broker that leads each partition, or -1."""
    is_internal: bool = False

    @property
    def partitions(self) -> int:
        return len(self.leaders)


class KafkaCluster:
    """Used on the event loop."""

    def __init__(self, access: KafkaAccess) -> None:
        self.access = access
        self.what = access.what
        self.cluster_id = ""
        self._brokers: dict[int, Address] = {}
        self.controller = -1
        self._connections: dict[tuple[Address, str], asyncio.Task[BrokerConnection]] = {}
        self._coordinators: dict[tuple[int, str], Address] = {}

    async def close(self) -> None:
        opened = list(self._connections.values())
        self._connections.clear()
        for task in opened:
            await self._close(task)

    async def _close(self, opened: "asyncio.Task[BrokerConnection]") -> None:
        opened.cancel()
        (done,) = await asyncio.gather(opened, return_exceptions=True)
        if isinstance(done, BrokerConnection):
            done.close()

    async def refresh(self, topics: Sequence[str] | None = None) -> dict[str, TopicPlace]:
        """Learn the brokers, and return the topics of these names that exist; all topics if there are no names."""
        asked = None if topics is None else tuple(MetadataRequestTopic(name=name) for name in topics)
        request = MetadataRequest(topics=asked, allow_auto_topic_creation=False)
        found = await (await self._any_broker()).ask(_METADATA, request, MetadataResponse)
        self.cluster_id = found.cluster_id or ""
        self.controller = found.controller_id
        self._brokers = {broker.node_id: Address(broker.host, broker.port) for broker in found.brokers}
        places = {}
        for topic in found.topics:
            if topic.error_code or topic.name is None:
                # It does not exist, or is being made or deleted, or is not ours to see.
                continue
            leaders = {partition.partition_index: partition.leader_id for partition in topic.partitions}
            places[topic.name] = TopicPlace(
                topic.name,
                show_topic_id(topic.topic_id),
                topic.topic_id,
                [leaders.get(number, -1) for number in range(max(leaders, default=-1) + 1)],
                topic.is_internal,
            )
        return places

    async def ask_any(self, used: Versions, request: KafkaMessage, response: type[M]) -> M:
        return await (await self._any_broker()).ask(used, request, response)

    async def ask_controller(self, used: Versions, request: KafkaMessage, response: type[M], *, seconds: float) -> M:
        """Ask the broker that makes topics."""
        if self.controller not in self._brokers:
            await self.refresh([])
        if self.controller not in self._brokers:
            return await self.ask_any(used, request, response)
        return await (await self.broker(self.controller, _CONTROL)).ask(used, request, response, seconds=seconds)

    async def ask_coordinator(self, kind: int, key: str, used: Versions, request: KafkaMessage, response: type[M]) -> M:
        """Ask the coordinator of a group or of a transactional id. One that has moved is for the caller to `forget`."""
        return await (await self.coordinator(kind, key)).ask(used, request, response)

    async def broker(self, node: int, purpose: str) -> BrokerConnection:
        """Return the connection to a broker that is used for this purpose alone."""
        address = self._brokers.get(node)
        if address is None:
            raise KafkaRefusalError(NOT_LEADER_OR_FOLLOWER, f"{self.what} has a partition without a leader at the moment")
        return await self._connection(address, purpose)

    async def release(self, purpose: str) -> None:
        """Close the connections that are used for this purpose."""
        for key in [key for key in self._connections if key[1] == purpose]:
            await self._close(self._connections.pop(key))

    @property
    def nodes(self) -> Sequence[int]:
        """The brokers by number."""
        return list(self._brokers)

    async def coordinator(self, kind: int, key: str) -> BrokerConnection:
        """Return a connection to the coordinator of a group or of a transactional id."""
        address = self._coordinators.get((kind, key))
        if address is None:
            address = self._coordinators[kind, key] = await self._find_coordinator(kind, key)
        return await self._connection(address, f"coordinator {kind}")

    def forget_coordinator(self, kind: int, key: str) -> None:
        """Look for the coordinator again before it is asked the next time."""
        self._coordinators.pop((kind, key), None)

    async def _find_coordinator(self, kind: int, key: str) -> Address:
        deadline = asyncio.get_running_loop().time() + _COORDINATOR_SECONDS
        while True:
            request = FindCoordinatorRequest(key=key, key_type=kind)
            found = await self.ask_any(_FIND_COORDINATOR, request, FindCoordinatorResponse)
            if not found.error_code:
                return Address(found.host, found.port)
            # The first coordinator of a cluster is there when its own topic is made.
            if found.error_code not in COORDINATOR_MOVES or asyncio.get_running_loop().time() > deadline:
                what = "transactional id" if kind == TRANSACTION else "group"
                raise KafkaRefusalError(
                    found.error_code, f"{self.what} names no coordinator of the {what} {key!r}", found.error_message
                )
            await asyncio.sleep(_COORDINATOR_PAUSE_SECONDS)

    async def _any_broker(self) -> BrokerConnection:
        addresses = [*self._brokers.values(), *self.access.addresses]
        for address in addresses:
            task = self._connections.get((address, _CONTROL))
            if task is not None and task.done() and not task.cancelled() and not task.exception() and task.result().is_open:
                return task.result()
        failure: ShadowError | None = None
        for address in dict.fromkeys(addresses):
            try:
                return await self._connection(address, _CONTROL)
            except UnreachableError as error:
                failure = error
        raise failure or UnreachableError(f"{self.what} has no address", "Give the shadow the addresses of brokers")

    async def _connection(self, address: Address, purpose: str) -> BrokerConnection:
        key = address, purpose
        task = self._connections.get(key)
        if task is not None and task.done() and (task.cancelled() or task.exception() or not task.result().is_open):
            task = None
        if task is None:
            # Shared by all who wait for it, and so not cancelled with one of them.
            task = self._connections[key] = asyncio.create_task(BrokerConnection.open(self.access, address))
        return await asyncio.shield(task)


def show_topic_id(topic_id: UUID) -> str:
    """Return the id as Kafka writes it."""
    return base64.urlsafe_b64encode(topic_id.bytes).decode().rstrip("=")
