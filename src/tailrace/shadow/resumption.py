"""Decides where the copy of each partition goes on, when a process begins or a topic is new.

What is committed in the target says so, if it belongs to the same two topics and agrees with what both clusters hold. A
partition without a position in a topic without records is copied from its beginning. Everything else is either found out by
comparing contents (`matching.py`), or stops the partition with a reason: records are never copied twice, mixed or left out in
silence.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from tailrace.model.shadow import LostOffsets
from tailrace.shadow.admin import EARLIEST, LATEST, ClusterAdmin, CommittedPosition, Partition
from tailrace.shadow.contents import Span, has_records
from tailrace.shadow.matching import Mismatch, match_contents, match_from_start
from tailrace.shadow.positions import OffsetMap, StoredPosition, decode_position
from tailrace.shadow.topics import CopiedTopic


class PartitionCopy:
    """How far a partition is copied."""

    __slots__ = ("end", "number", "offsets", "position", "start", "target_end", "topic")

    def __init__(
        self,
        topic: CopiedTopic,
        number: int,
        position: int,
        end: int,
        start: int,
        target_end: int = 0,
        offsets: OffsetMap | None = None,
    ) -> None:
        self.topic = topic
        self.number = number
        self.position = position
        """The offset of the next record to copy. All before it is committed in the target."""
        self.end = end
        self.start = start
        self.target_end = target_end
        self.offsets = OffsetMap() if offsets is None else offsets

    @property
    def stored(self) -> StoredPosition:
        """What is committed of it."""
        return StoredPosition(
            self.position,
            self.topic.origin.topic_id,
            self.topic.target.topic_id,
            self.target_end,
            self.start,
            self.offsets.pairs(),
        )


class StoppedPartition(NamedTuple):
    """A partition that can't be copied until somebody has done something."""

    message: str
    advice: str
    lost: LostOffsets | None = None


class UnmatchedPartition(NamedTuple):
    """A partition whose position has to be found by comparing contents, which takes as long as reading it."""

    topic: CopiedTopic
    number: int
    bounds: "_Bounds"
    copy: "PartitionCopy | None"
    """What is known of it, if there is a position and the target has more records than that says."""


class _Bounds(NamedTuple):
    """The offsets of a partition in both clusters. Ends are those of committed records, but `target_log_end`."""

    start: int
    end: int
    target_start: int
    target_end: int
    target_log_end: int


class Resumption:
    def __init__(self, origin: ClusterAdmin, target: ClusterAdmin, group: str) -> None:
        self._origin = origin
        self._target = target
        self._group = group
        self._skipped: Sequence[LostOffsets] = ()
        self.notes: list[str] = []

    async def resume(
        self, topics: Mapping[str, CopiedTopic], partitions: Iterable[Partition], skipped: Sequence[LostOffsets]
    ) -> dict[Partition, PartitionCopy | StoppedPartition | UnmatchedPartition]:
        """Return how each partition goes on, as far as that is quick. `skipped` says what may be left out."""
        self._skipped = skipped
        wanted = list(partitions)
        committed = await self._target.committed(self._group, wanted)
        bounds = await self._bounds([topics[name] for name in dict.fromkeys(name for name, _ in wanted)])
        found: dict[Partition, PartitionCopy | StoppedPartition | UnmatchedPartition] = {}
        for partition in wanted:
            known = committed.get(partition)
            found[partition] = await self._resume_one(topics[partition[0]], partition[1], known, bounds[partition])
        return found

    async def _bounds(self, topics: Sequence[CopiedTopic]) -> dict[Partition, _Bounds]:
        origins, targets = [topic.origin for topic in topics], [topic.target for topic in topics]
        # Beginnings after ends, so that records that are deleted meanwhile are noticed.
        ends = await self._origin.offsets(origins, LATEST, committed=True)
        starts = await self._origin.offsets(origins, EARLIEST)
        target_ends = await self._target.offsets(targets, LATEST, committed=True)
        target_log_ends = await self._target.offsets(targets, LATEST)
        target_starts = await self._target.offsets(targets, EARLIEST)
        return {
            partition: _Bounds(
                start, ends[partition], target_starts[partition], target_ends[partition], target_log_ends[partition]
            )
            for partition, start in starts.items()
            if partition in ends and partition in target_starts and partition in target_log_ends
        }

    async def match(self, unmatched: UnmatchedPartition) -> PartitionCopy | StoppedPartition:
        """Find the position of a partition by comparing what both clusters hold."""
        topic, number, bounds, copy = unmatched
        if copy is None:
            return await self._match_all(topic, number, bounds)
        return await self._match_rest(copy, bounds)

    async def _resume_one(
        self, topic: CopiedTopic, number: int, committed: CommittedPosition | None, bounds: _Bounds
    ) -> PartitionCopy | StoppedPartition | UnmatchedPartition:
        stored = None if committed is None else decode_position(committed)
        if stored is None:
            return await self._begin(topic, number, bounds)
        if stored.origin_id != topic.origin.topic_id:
            return StoppedPartition(
                f"topic {topic.name!r} was deleted at the origin and made again, and the target has records of the deleted one",
                "Delete the topic in the target, and it is copied from its beginning; or leave it out of the shadow's topics",
            )
        if stored.target_id != topic.target.topic_id:
            self.notes.append(f"topic {topic.name} was made again in the target, and is copied there again")
            return await self._begin(topic, number, bounds)
        return await self._go_on(topic, number, stored, bounds)

    async def _go_on(
        self, topic: CopiedTopic, number: int, stored: StoredPosition, bounds: _Bounds
    ) -> PartitionCopy | StoppedPartition | UnmatchedPartition:
        name = f"partition {number} of topic {topic.name!r}"
        if bounds.end < stored.offset:
            return StoppedPartition(
                f"{name} ends at offset {bounds.end} of the origin, and is copied up to {stored.offset}: the origin has lost"
                " records, or was restored from an older copy",
                "Restore the origin, or delete the topic in the target, and it is copied from its beginning",
            )
        if bounds.target_log_end < stored.target_end:
            return StoppedPartition(
                f"{name} ends at offset {bounds.target_log_end} of the target, and was copied up to {stored.target_end} there:"
                " the target has lost records",
                "Delete the topic in the target, and it is copied from its beginning",
            )
        offsets = OffsetMap(stored.pairs)
        copy = PartitionCopy(topic, number, stored.offset, bounds.end, stored.start, stored.target_end, offsets)
        if await self._has_more(topic, number, stored.target_end, bounds):
            return UnmatchedPartition(topic, number, bounds, copy)
        return self._skip_lost(copy, bounds.start)

    async def _match_rest(self, copy: PartitionCopy, bounds: _Bounds) -> PartitionCopy | StoppedPartition:
        """Find out whether records behind a position are copies: then somebody has moved the position back. Or others write."""
        topic, number = copy.topic, copy.number
        span = Span(topic.origin, number, max(copy.position, bounds.start), bounds.end)
        behind = Span(topic.target, number, max(copy.target_end, bounds.target_start), bounds.target_end)
        found = await match_from_start(self._origin.cluster, span, self._target.cluster, behind)
        name = f"partition {number} of topic {topic.name!r}"
        if isinstance(found, Mismatch):
            self.notes.append(
                f"{name} has records in the target, from offset {found.target_offset} on, that others have written"
            )
        else:
            copy.position, copy.target_end = found.position, found.target_end
            for anchor in found.offsets.pairs():
                copy.offsets.add(*anchor)
            self.notes.append(f"the position of {name} was behind its records in the target; it is {found.position} again")
        return self._skip_lost(copy, bounds.start)

    def _skip_lost(self, copy: PartitionCopy, start: int) -> PartitionCopy | StoppedPartition:
        """Go on behind records that were deleted, if there are any and somebody has allowed it."""
        if copy.position >= start:
            return copy
        lost = LostOffsets(copy.topic.name, copy.number, copy.position, start, copy.topic.origin.topic_id)
        for allowed in self._skipped:
            same = (allowed.topic, allowed.partition, allowed.topic_id) == (lost.topic, lost.partition, lost.topic_id)
            if same and allowed.start <= lost.start and lost.end <= allowed.end:
                copy.position = start
                return copy
        return StoppedPartition(
            f"offsets {lost.start} to {lost.end - 1} of partition {copy.number} of topic {lost.topic!r} were deleted at the"
            " origin before they were copied",
            "Let the copy go on without them: ALTER SHADOW ... SKIP LOST. Longer retention at the origin prevents it",
            lost,
        )

    async def _begin(self, topic: CopiedTopic, number: int, bounds: _Bounds) -> PartitionCopy | UnmatchedPartition:
        """Copy a partition without a position from its beginning, unless it has records in the target."""
        if await self._has_more(topic, number, bounds.target_start, bounds):
            return UnmatchedPartition(topic, number, bounds, None)
        return PartitionCopy(topic, number, bounds.start, bounds.end, bounds.start)

    async def _match_all(self, topic: CopiedTopic, number: int, bounds: _Bounds) -> PartitionCopy | StoppedPartition:
        span = Span(topic.origin, number, bounds.start, bounds.end)
        there = Span(topic.target, number, bounds.target_start, bounds.target_end)
        found = await match_contents(self._origin.cluster, span, self._target.cluster, there)
        name = f"partition {number} of topic {topic.name!r}"
        if isinstance(found, Mismatch):
            return StoppedPartition(
                f"{name} has records in the target and no position there, and the record at offset {found.target_offset} of the"
                " target is not one that would have been copied there",
                "Delete the topic in the target, and it is copied from its beginning; or leave it out of the shadow's topics",
            )
        self.notes.append(f"{name} had no position in the target; its records there say that it is {found.position}")
        return PartitionCopy(topic, number, found.position, bounds.end, bounds.start, found.target_end, found.offsets)

    async def _has_more(self, topic: CopiedTopic, number: int, start: int, bounds: _Bounds) -> bool:
        """Return whether the target has committed records from an offset on."""
        span = Span(topic.target, number, max(start, bounds.target_start), bounds.target_end)
        return await has_records(self._target.cluster, span)
