"""Keeps the offsets of consumer groups in step: what a group has committed in one cluster, it finds in the other.

An offset is translated by the records before it: the nearest pair of offsets that is known, and as many records further on both
sides. So a consumer that changes its address reads the record that it would have read. In a compacted topic records vanish on
each side at its own time, so there an offset may be that of an earlier record, never of a later one.

A group that has members in the other cluster is left alone there, and no offset is ever moved backwards.
"""

import re
from collections.abc import Mapping, Sequence

from tailrace.model.text import counted
from tailrace.shadow.admin import ClusterAdmin, ClusterGroup, CommittedPosition, Partition
from tailrace.shadow.cluster import KafkaCluster
from tailrace.shadow.contents import Span, count_records, offset_of_record
from tailrace.shadow.failures import KafkaRefusalError, ShadowError
from tailrace.shadow.resumption import PartitionCopy

POSITIONS_PREFIX = "tailrace-shadow-"
"""How the names of groups begin that hold positions of shadows."""
_HAS_MEMBERS = {22, 25, 27, 82, 110, 113}
"""Errors of a commit that mean that the group has members."""
_MOST_NAMED = 5
_MOST_MOVED = 200_000


class GroupTranslation:
    """Takes the offsets of groups from the origin to the target."""

    def __init__(self, origin: ClusterAdmin, target: ClusterAdmin, patterns: Sequence[str]) -> None:
        self._origin = origin
        self._target = target
        self._expression = re.compile("|".join(_expression(pattern) for pattern in patterns))
        self._moved: dict[tuple[str, Partition], tuple[int, int]] = {}
        """The offsets that were translated last, at the origin and in the target."""
        self._busy: set[str] = set()
        self._refused: dict[str, str] = {}

    @property
    def groups(self) -> int:
        """How many groups have offsets in the target that were set here."""
        return len({group for group, _ in self._moved})

    @property
    def notes(self) -> list[str]:
        notes = []
        if self._busy:
            named = sorted(self._busy)
            more = f" and {len(named) - _MOST_NAMED} more" if len(named) > _MOST_NAMED else ""
            notes.append(
                f"{counted(len(named), 'group')} with members in the target keep their own offsets there:"
                f" {', '.join(named[:_MOST_NAMED])}{more}"
            )
        notes += [f"the offsets of group {group} are not set in the target: {why}" for group, why in self._refused.items()]
        return notes[: _MOST_NAMED + 1]

    async def take_over(self, copies: Mapping[Partition, PartitionCopy], *, is_final: bool = False) -> None:
        """Set the offsets of all groups in the target to what they have committed at the origin.

        With `is_final` a group that can't be set raises.
        """
        busy = {group.name for group in await self._target.groups() if group.has_members}
        self._busy = set()
        self._refused = {}
        if len(self._moved) > _MOST_MOVED:
            # They are translated and compared once more.
            self._moved.clear()
        for group in await self._origin.groups():
            if not self.includes(group):
                continue
            if group.name in busy:
                self._busy.add(group.name)
                continue
            try:
                await self._take_over_one(group.name, copies)
            except KafkaRefusalError as error:
                if is_final:
                    raise
                self._refused[group.name] = error.message

    async def _take_over_one(self, group: str, copies: Mapping[Partition, PartitionCopy]) -> None:
        committed = await self._origin.committed(group)
        changed = {
            partition: position
            for partition, position in committed.items()
            if partition in copies and self._is_news(group, partition, position.offset, copies[partition])
        }
        if not changed:
            return
        there = await self._target.committed(group, changed)
        wanted: dict[Partition, CommittedPosition] = {}
        for partition, position in changed.items():
            offset = await translate(copies[partition], position.offset, self._origin.cluster, self._target.cluster)
            self._moved[group, partition] = position.offset, offset
            if partition not in there or there[partition].offset < offset:
                wanted[partition] = CommittedPosition(offset, position.metadata)
        if not wanted:
            return
        refused = await self._target.commit(group, wanted)
        for partition in refused:
            self._moved.pop((group, partition), None)
        if _HAS_MEMBERS.intersection(refused.values()):
            self._busy.add(group)
        elif refused:
            (topic, number), code = next(iter(refused.items()))
            raise KafkaRefusalError(code, f"the offset of partition {number} of topic {topic!r} can't be set")

    def _is_news(self, group: str, partition: Partition, offset: int, copy: PartitionCopy) -> bool:
        known = self._moved.get((group, partition))
        if known is None or known[0] != offset:
            return True
        # An offset that was not copied yet was translated to the end of what was.
        return known[0] > copy.position or (known[0] == copy.position and known[1] != copy.target_end)

    def includes(self, group: ClusterGroup) -> bool:
        """Return whether the offsets of a group are kept in step."""
        is_ours = group.name.startswith(POSITIONS_PREFIX)
        return not is_ours and group.protocol in ("consumer", "") and self._expression.fullmatch(group.name) is not None


async def translate(copy: PartitionCopy, offset: int, origin: KafkaCluster, target: KafkaCluster) -> int:
    """Return where the record lies in the target that is the first from an offset of the origin on."""
    if offset >= copy.position:
        return copy.target_end
    anchor = copy.offsets.before(offset)
    if anchor is None:
        return copy.target_end if copy.offsets.first is None else copy.offsets.first.target
    if offset - anchor.origin <= anchor.records:
        return anchor.target + offset - anchor.origin
    there = anchor.target + anchor.records
    if copy.topic.is_compacted:
        return there
    number = copy.number
    try:
        between = await count_records(origin, Span(copy.topic.origin, number, anchor.origin + anchor.records, offset))
        if between:
            found = await offset_of_record(target, Span(copy.topic.target, number, there, copy.target_end), between)
            there = copy.target_end if found is None else found
    except ShadowError:
        # Records before the offset were deleted, so the group would not have read them either.
        return there
    copy.offsets.learn(offset, there)
    return there


async def translate_back(copy: PartitionCopy, offset: int, origin: KafkaCluster, target: KafkaCluster) -> int:
    """Return the offset of the record at the origin that is the first from an offset of the target on."""
    if offset >= copy.target_end:
        return copy.position
    anchor = copy.offsets.before_target(offset)
    if anchor is None:
        return copy.start
    if offset - anchor.target <= anchor.records:
        return anchor.origin + offset - anchor.target
    here = anchor.origin + anchor.records
    if copy.topic.is_compacted:
        return here
    number = copy.number
    between = await count_records(target, Span(copy.topic.target, number, anchor.target + anchor.records, offset))
    if not between:
        return here
    found = await offset_of_record(origin, Span(copy.topic.origin, number, here, copy.position), between)
    return copy.position if found is None else found


def _expression(pattern: str) -> str:
    return ".*".join(map(re.escape, pattern.split("*")))
