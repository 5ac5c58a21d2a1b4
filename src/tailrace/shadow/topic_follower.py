"""Follows the topics of a shadow: which partitions are copied, as topics come, grow and go on both sides.

A topic that is new at the origin is made in the target, and each of its partitions begins where `resumption.py` says. What
can't be copied is told and tried again, now and then; what is gone is left alone. After a cut-over the topics of the target
belong to others: one that they delete is not made again.
"""

import asyncio
import time
from collections.abc import Iterable, Mapping

from tailrace.model.backoff import Backoff
from tailrace.model.limits import DEFAULT_LIMITS
from tailrace.model.shadow import CopiedTopics, Shadow
from tailrace.model.text import counted
from tailrace.shadow.admin import ClusterAdmin, Partition
from tailrace.shadow.cluster import TopicPlace
from tailrace.shadow.failures import ShadowError
from tailrace.shadow.positions import MOST_ANCHORS
from tailrace.shadow.progress import Progress
from tailrace.shadow.reader import ClusterReader, OffsetsGone, TopicGone
from tailrace.shadow.resumption import PartitionCopy, Resumption, StoppedPartition, UnmatchedPartition
from tailrace.shadow.topics import CopiedTopic, TopicCopies
from tailrace.shadow.writer import TransactionWriter

LOOK_SECONDS = 1.0
"""How often new topics and partitions are looked for, unless that takes long."""
LOOK_SHARE = 20
"""The part of the time that may go into looking is one in so many."""
_RECHECK_SECONDS = 5.0
_LONGEST_RECHECK_SECONDS = 300.0
_ANCHORS = 200_000
"""Anchors of all partitions together."""
_LEAST_ANCHORS = 50
_WHOLE_TOPIC = -1
_MOST_NOTES = 20
_MATCHED_AT_ONCE = 4


class TopicFollower:
    """Used by one session, between its transactions."""

    def __init__(
        self,
        shadow: Shadow,
        origin: ClusterAdmin,
        target: ClusterAdmin,
        positions: str,
        reader: ClusterReader,
        writer: TransactionWriter,
        progress: Progress,
    ) -> None:
        self._shadow = shadow
        self._origin = origin.cluster
        self._target = target.cluster
        self._reader = reader
        self._writer = writer
        self._progress = progress
        self._topics = TopicCopies(origin.cluster, target.cluster)
        self._resumption = Resumption(origin, target, positions)
        self._places: Mapping[str, TopicPlace] = {}
        self._known: dict[str, CopiedTopic] = {}
        self._left: dict[str, str] = {}
        """Topics that are left alone after the cut-over, and why."""
        self._matching: dict[Partition, asyncio.Task[PartitionCopy | StoppedPartition]] = {}
        """Partitions whose positions are being found out."""
        self._matches = asyncio.Semaphore(_MATCHED_AT_ONCE)
        self._position_notes: list[str] = []
        self._must_look = True
        self._look_at = float("-inf")
        self._recheck = Backoff(_RECHECK_SECONDS, _LONGEST_RECHECK_SECONDS)
        self._recheck_at = 0.0

    def update(self, shadow: Shadow) -> None:
        """Take the definition as it is now."""
        before, self._shadow = self._shadow, shadow
        if (before.topics, before.skipped, before.phase) != (shadow.topics, shadow.skipped, shadow.phase):
            self._must_look = True
            self._recheck_at = 0.0
        if before.phase != shadow.phase:
            self._left.clear()

    @property
    def is_due(self) -> bool:
        return self._must_look or self._reader.is_stale or time.monotonic() > self._look_at

    async def look(self) -> None:
        """Look for new topics and partitions, and prepare to copy them. Stop with those that are gone."""
        self._must_look = False
        began = time.monotonic()
        included = CopiedTopics(self._shadow, DEFAULT_LIMITS)
        places = await self._origin.refresh()
        self._places = {name: place for name, place in places.items() if included.includes(name) and not place.is_internal}
        self._forget_gone()
        self._take_matched()
        changed = [name for name, place in self._places.items() if self._needs_look(name, place)]
        if changed or time.monotonic() > self._recheck_at:
            await self._prepare(changed)
        self._reader.follow(self._places)
        targets = await self._target.refresh(list(self._known)) if self._known else {}
        self._check_targets(targets)
        self._writer.follow(targets)
        notes = [note for own in self._topics.notes.values() for note in own]
        self._progress.note("topics", [*notes, *self._left.values(), *self._position_notes, *self._matching_notes()])
        took = time.monotonic() - began
        self._look_at = time.monotonic() + max(LOOK_SECONDS, LOOK_SHARE * took)

    async def close(self) -> None:
        tasks = list(self._matching.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def lose(self, event: OffsetsGone | TopicGone) -> None:
        """Find out anew about what is gone from the origin."""
        lost = event.topic if isinstance(event, TopicGone) else event.partition[0]
        for partition in [each for each in self._progress.copies if each[0] == lost]:
            self._drop(partition)
        self._known.pop(lost, None)
        self._must_look = True

    def _needs_look(self, name: str, place: TopicPlace) -> bool:
        known = self._known.get(name)
        return name not in self._left and (known is None or known.origin.partitions != place.partitions)

    def _forget_gone(self) -> None:
        """Stop to copy topics that the origin does not have any more, or the shadow does not include."""
        progress = self._progress
        gone = {
            name
            for name, topic in self._known.items()
            if name not in self._places or self._places[name].topic_id != topic.origin.topic_id
        }
        for name in gone:
            del self._known[name]
        for partition in (*progress.copies, *progress.stopped, *self._matching):
            if partition[0] in gone or partition[0] not in self._places:
                self._drop(partition)
                progress.stopped.pop(partition, None)

    def _drop(self, partition: Partition) -> None:
        self._reader.remove([partition])
        self._progress.copies.pop(partition, None)
        self._progress.catch_up(partition)
        matching = self._matching.pop(partition, None)
        if matching is not None:
            matching.cancel()

    async def _prepare(self, changed: Iterable[str]) -> None:
        progress = self._progress
        wanted = {*changed, *(topic for topic, _ in progress.stopped)}
        if self._shadow.phase == "cut over" and self._shadow.producers == "refuse":
            there = await self._target.refresh(list(wanted)) if wanted else {}
            for name in wanted - there.keys():
                self._leave(name)
            wanted &= there.keys()
        wanted -= self._refused(wanted)
        prepared = await self._topics.prepare(wanted, self._places)
        for name, failure in self._topics.failures.items():
            progress.stopped[name, _WHOLE_TOPIC] = StoppedPartition(failure.message, failure.advice)
        for name in prepared:
            progress.stopped.pop((name, _WHOLE_TOPIC), None)
        self._known |= prepared
        new = [
            (name, number)
            for name, topic in prepared.items()
            for number in range(topic.partitions)
            if (name, number) not in progress.copies and (name, number) not in self._matching
        ]
        resumed = await self._resumption.resume(self._known, new, self._shadow.skipped)
        for partition, found in resumed.items():
            if isinstance(found, UnmatchedPartition):
                progress.stopped.pop(partition, None)
                progress.behind[partition] = found.bounds.end
                self._matching[partition] = asyncio.create_task(self._match(found))
            else:
                self._begin(partition, found)
        self._note_positions()
        if not progress.stopped:
            self._recheck.reset()
        self._recheck_at = time.monotonic() + self._recheck.next_pause() if progress.stopped else float("inf")

    def _refused(self, wanted: Iterable[str]) -> set[str]:
        """Return those of the topics that the target has refused records of, not long ago."""
        refused = set()
        for name in wanted:
            refusal = self._progress.refusals.get(name)
            if refusal is not None and refusal.until > time.monotonic():
                refused.add(name)
                self._progress.stopped[name, _WHOLE_TOPIC] = StoppedPartition(refusal.error.message, refusal.error.advice)
        return refused

    async def _match(self, unmatched: UnmatchedPartition) -> PartitionCopy | StoppedPartition:
        async with self._matches:
            return await self._resumption.match(unmatched)

    def _take_matched(self) -> None:
        """Begin to copy partitions whose positions were found out. Raises what went wrong with it."""
        for partition in [partition for partition, task in self._matching.items() if task.done()]:
            self._begin(partition, self._matching.pop(partition).result())
        self._note_positions()

    def _matching_notes(self) -> list[str]:
        if not self._matching:
            return []
        partitions = counted(len(self._matching), "partition")
        return [
            f"both sides of {partitions} are compared, to find out how far the copy came: the position is missing or too low"
        ]

    def _note_positions(self) -> None:
        self._position_notes = [*self._position_notes, *self._resumption.notes][-_MOST_NOTES:]
        self._resumption.notes.clear()

    def _begin(self, partition: Partition, found: PartitionCopy | StoppedPartition) -> None:
        progress = self._progress
        if isinstance(found, StoppedPartition):
            progress.stopped[partition] = found
            progress.catch_up(partition)
            self._recheck_at = min(self._recheck_at, time.monotonic() + _RECHECK_SECONDS)
            return
        progress.stopped.pop(partition, None)
        progress.copies[partition] = found
        found.offsets.most = max(_LEAST_ANCHORS, min(MOST_ANCHORS, _ANCHORS // len(progress.copies)))
        if found.position < found.end:
            progress.behind[partition] = found.end
        else:
            progress.catch_up(partition)
        self._reader.add(found.topic.origin, partition[1], found.position)

    def _check_targets(self, targets: Mapping[str, TopicPlace]) -> None:
        """Take note of topics that were deleted in the target, or made again, since the session began."""
        for name, topic in list(self._known.items()):
            if name in targets and targets[name].topic_id == topic.target.topic_id:
                continue
            if self._shadow.phase != "cut over":
                raise ShadowError(
                    f"topic {name!r} was deleted in the target", "It is made there again, and copied from its beginning"
                )
            self._leave(name)

    def _leave(self, name: str) -> None:
        self._left[name] = f"topic {name} was deleted in the target after the cut-over, and is not made there again"
        self._known.pop(name, None)
        for partition in [each for each in self._progress.copies if each[0] == name]:
            self._drop(partition)
