"""What retention and compaction leave until shadows have copied it."""

from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import NamedTuple

import msgspec

from tailrace.broker.shadows.shadows import Shadows
from tailrace.broker.topics.topics import Topics
from tailrace.model.errors import UnknownShadowError
from tailrace.model.ids import Offset, PartitionId
from tailrace.model.shadow import LostOffsets, Shadow, ShadowPartition, ShadowStatus
from tailrace.store.contract import Store

_MOST_NOTES = 100


class CopiedPartition(NamedTuple):
    progress: ShadowPartition
    lost_records: int
    """Offsets that were deleted here before they were copied."""


class ShadowHolds:
    """Knows how far the topics of this server are copied to Kafkas, from the reports of the processes that copy them.

    A partition of which nothing was reported, because the server was started just now or because nobody copies, is not copied.
    """

    def __init__(self, store: Store, topics: Topics, shadows: Shadows) -> None:
        self._store = store
        self._topics = topics
        self._shadows = shadows

    def current(self) -> Mapping[PartitionId, Offset]:
        """Return the first offset that is not copied, of all partitions that shadows copy."""
        first: dict[PartitionId, Offset] = {}
        for shadow in self._shadows:
            if shadow.direction == "to":
                reported = self._reported(shadow)
                included = self._shadows.topics_of(shadow)
                for live in self._topics:
                    if included.includes(live.topic.name):
                        for partition in live.partitions:
                            position = reported.get(partition, Offset(0))
                            first[partition] = min(position, first.get(partition, position))
        return first

    def partitions(self, status: ShadowStatus) -> list[CopiedPartition]:
        """Return what was reported of each partition of a shadow, with the records that retention has removed before."""
        found = []
        for one in status.report.partitions:
            partition = self._partition(one) if status.shadow.direction == "to" else None
            start = 0 if partition is None else self._store.bounds(partition).start
            found.append(CopiedPartition(one, max(0, start - one.position)))
        return found

    async def note_lost_deletions(self, partition: PartitionId, start: Offset, end: Offset) -> None:
        """Note with the shadows that copy a partition that tombstones between these offsets may be gone."""
        live = self._topics.by_id(partition.topic_id)
        if live is None:
            return
        lost = LostOffsets(live.topic.name, partition.number, start, end, live.topic.kafka_id)
        for shadow in self._shadows:
            is_behind = shadow.direction == "to" and self._reported(shadow).get(partition, start) < end
            if is_behind and self._shadows.topics_of(shadow).includes(live.topic.name):
                with suppress(UnknownShadowError):
                    await self._shadows.alter(shadow, partial(_with_lost_deletions, lost))

    def _reported(self, shadow: Shadow) -> dict[PartitionId, Offset]:
        """Return the positions that were reported."""
        report = self._shadows.last_report(shadow)
        found = {self._partition(one): Offset(one.position) for one in (() if report is None else report.partitions)}
        return {partition: position for partition, position in found.items() if partition is not None}

    def _partition(self, one: ShadowPartition) -> PartitionId | None:
        """Return the partition that a report means; `None` if it was deleted, even if there is another of its name now."""
        live = self._topics.find(one.topic)
        is_there = live is not None and live.topic.kafka_id == one.topic_id and 0 <= one.partition < len(live.partitions)
        return live.partitions[one.partition] if live is not None and is_there else None


def _with_lost_deletions(lost: LostOffsets, shadow: Shadow) -> Shadow:
    """Return the shadow with this note. An earlier one on the same partition becomes part of it, and the oldest go first."""
    others = [one for one in shadow.lost_deletions if (one.topic_id, one.partition) != (lost.topic_id, lost.partition)]
    same = [one for one in shadow.lost_deletions if (one.topic_id, one.partition) == (lost.topic_id, lost.partition)]
    start = min((lost.start, *(one.start for one in same)))
    noted = (*others, LostOffsets(lost.topic, lost.partition, start, lost.end, lost.topic_id))[-_MOST_NOTES:]
    return msgspec.structs.replace(shadow, lost_deletions=noted)
