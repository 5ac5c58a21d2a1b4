"""Both clusters of a shadow for a command beside the process that copies: what is copied, as the target has it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tailrace.api.shadows import ShadowStatusResponse
from tailrace.client.credentials import ServerAccess
from tailrace.model.limits import DEFAULT_LIMITS
from tailrace.model.shadow import CopiedTopics, Shadow
from tailrace.shadow.admin import EARLIEST, LATEST, ClusterAdmin, Partition
from tailrace.shadow.cluster import KafkaCluster, TopicPlace
from tailrace.shadow.contents import Span, has_records
from tailrace.shadow.copy_session import positions_name
from tailrace.shadow.kafka_access import kafka_access, server_access
from tailrace.shadow.positions import OffsetMap, decode_position
from tailrace.shadow.resumption import PartitionCopy
from tailrace.shadow.topics import CopiedTopic, TopicCopies


class ShadowClusters:
    def __init__(self, shadow: Shadow, cluster_id: str, origin: KafkaCluster, target: KafkaCluster) -> None:
        self.shadow = shadow
        self.origin = ClusterAdmin(origin)
        self.target = ClusterAdmin(target)
        self.positions = positions_name(shadow, cluster_id)

    async def topics(self) -> dict[str, CopiedTopic]:
        """Return the topics that the shadow copies, as far as they are in the target already."""
        included = CopiedTopics(self.shadow, DEFAULT_LIMITS)
        origins = await self.origin.cluster.refresh()
        names = [name for name, place in origins.items() if included.includes(name) and not place.is_internal]
        return await TopicCopies(self.origin.cluster, self.target.cluster).find(names, origins)

    async def copies(self) -> dict[Partition, PartitionCopy]:
        """Return how far each partition is copied."""
        topics = await self.topics()
        ends = await self.origin.offsets([topic.origin for topic in topics.values()], LATEST, committed=True)
        found = {}
        for partition, committed in (await self.target.committed(self.positions)).items():
            topic = topics.get(partition[0])
            stored = decode_position(committed)
            if topic is None or stored is None or partition not in ends:
                continue
            if (stored.origin_id, stored.target_id) == (topic.origin.topic_id, topic.target.topic_id):
                found[partition] = PartitionCopy(
                    topic,
                    partition[1],
                    stored.offset,
                    ends[partition],
                    stored.start,
                    stored.target_end,
                    OffsetMap(stored.pairs),
                )
        return found

    async def has_more(self, admin: ClusterAdmin, place: TopicPlace, number: int, start: int, stop: int) -> bool:
        """Return whether a partition has committed records between two offsets."""
        # Nothing can be read behind the beginning of an open transaction.
        stable = (await admin.offsets([place], LATEST, committed=True))[place.name, number]
        stop = min(stop, stable)
        if start >= stop:
            return False
        starts = await admin.offsets([place], EARLIEST)
        return await has_records(admin.cluster, Span(place, number, max(start, starts[place.name, number]), stop))

    async def foreign_records(self) -> tuple[Partition, int] | None:
        """Return a partition of the target with records that were not copied, behind those that were, and where they begin."""
        topics = await self.topics()
        # Before the positions: what is copied meanwhile is then before a position.
        ends = await self.target.offsets([topic.target for topic in topics.values()], LATEST, committed=True)
        for partition, copy in (await self.copies()).items():
            end = ends.get(partition, 0)
            if await self.has_more(self.target, copy.topic.target, copy.number, copy.target_end, end):
                return partition, copy.target_end
        return None


@asynccontextmanager
async def shadow_clusters(found: ShadowStatusResponse, access: ServerAccess) -> AsyncIterator[ShadowClusters]:
    """Connect to both clusters of a shadow. `access` says how the server is reached over HTTP."""
    shadow = found.status.shadow
    server = KafkaCluster(server_access(found.kafka, access))
    kafka = KafkaCluster(kafka_access(shadow))
    origin, target = (server, kafka) if shadow.direction == "to" else (kafka, server)
    try:
        yield ShadowClusters(shadow, found.cluster_id, origin, target)
    finally:
        await server.close()
        await kafka.close()
