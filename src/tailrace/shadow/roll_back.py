"""Rolls a cut-over back: the topics are those of the origin again, as long as nothing else was written to the target.

What consumers have read in the target meanwhile they do not read again: the offsets of their groups are taken back.
"""

from collections.abc import Mapping

from tailrace.api.shadows import ShadowStatusResponse
from tailrace.model.text import counted
from tailrace.shadow.admin import CommittedPosition, Partition
from tailrace.shadow.cut_over import CutOverError, Tell
from tailrace.shadow.failures import KafkaRefusalError
from tailrace.shadow.groups import GroupTranslation, translate_back
from tailrace.shadow.resumption import PartitionCopy
from tailrace.shadow.server_api import ShadowApi
from tailrace.shadow.shadow_clusters import ShadowClusters


class RollBack:
    """Takes a cut-over back, or says whether that can be done."""

    def __init__(self, api: ShadowApi, clusters: ShadowClusters, tell: Tell, *, is_rehearsal: bool = False) -> None:
        self._api = api
        self._clusters = clusters
        self._tell = tell
        self._is_rehearsal = is_rehearsal

    async def run(self, found: ShadowStatusResponse) -> None:
        """Roll back. Raises `CutOverError`, `ShadowError` or an error of the server."""
        shadow = found.status.shadow
        if shadow.phase != "cut over":
            raise CutOverError(f"shadow {shadow.name!r} is not cut over, it is {shadow.phase}")
        await self._check_untouched()
        self._tell("check", "nothing else was written to the target")
        copies = await self._clusters.copies()
        if self._is_rehearsal:
            self._tell("groups", f"the offsets of groups in {counted(len(copies), 'partition')} would be taken back")
            return
        moved = await self._take_back_groups(copies)
        self._tell("groups", f"offsets of {counted(moved, 'group')} are taken back")
        await self._api.roll_back(f"the cut-over was rolled back by {self._api.owner}")
        self._tell("roll back", "topics take records at the origin again, and are copied as before")
        # Kafka can't be fenced, so somebody may have written between the check and now.
        await self._check_untouched()

    async def _check_untouched(self) -> None:
        foreign = await self._clusters.foreign_records()
        if foreign is not None:
            (topic, number), offset = foreign
            raise CutOverError(
                f"records were written to partition {number} of topic {topic!r} in the target, from offset {offset} on, and the"
                " origin does not have them, so the cut-over can't be rolled back any more"
            )

    async def _take_back_groups(self, copies: Mapping[Partition, PartitionCopy]) -> int:
        clusters = self._clusters
        wanted = GroupTranslation(clusters.origin, clusters.target, clusters.shadow.groups)
        moved = 0
        for group in await clusters.target.groups():
            if not wanted.includes(group):
                continue
            there = await clusters.target.committed(group.name)
            here = await clusters.origin.committed(group.name)
            news: dict[Partition, CommittedPosition] = {}
            for partition, position in there.items():
                if partition not in copies:
                    continue
                offset = await translate_back(
                    copies[partition], position.offset, clusters.origin.cluster, clusters.target.cluster
                )
                if partition not in here or here[partition].offset < offset:
                    news[partition] = CommittedPosition(offset, position.metadata)
            if news:
                moved += await self._set(group.name, news)
            if group.has_members:
                self._tell("groups", f"{group.name} has members in the target: what they read from now on is not taken back")
        return moved

    async def _set(self, group: str, offsets: Mapping[Partition, CommittedPosition]) -> bool:
        try:
            refused = await self._clusters.origin.commit(group, offsets)
        except KafkaRefusalError as error:
            self._tell("groups", error.message)
            return False
        if refused:
            self._tell("groups", f"{group} has members at the origin, and keeps its offsets there")
        return not refused
