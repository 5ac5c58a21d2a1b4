"""Copies until something fails: reads the origin, writes the target in transactions, follows new topics and partitions.

A session begins with the positions that the target has, and changes them only together with records. So whatever it had under
way when it ended is either all in the target or not at all, and the next session goes on exactly there.
"""

import asyncio
import logging
import subprocess
import time
from collections.abc import Iterable, Mapping
from functools import cache

from tailrace.model.backoff import Backoff
from tailrace.model.errors import TailraceError
from tailrace.model.limits import DEFAULT_LIMITS, KIB, MIB
from tailrace.model.shadow import CopiedTopics, Shadow
from tailrace.shadow.admin import ClusterAdmin, CommittedPosition, Partition
from tailrace.shadow.cluster import KafkaCluster, TopicPlace
from tailrace.shadow.failures import ShadowError
from tailrace.shadow.groups import POSITIONS_PREFIX, GroupTranslation
from tailrace.shadow.packing import PackedBatch, RecordTooLargeError, pack
from tailrace.shadow.positions import MOST_ANCHORS, encode_position
from tailrace.shadow.progress import Progress
from tailrace.shadow.reader import ClusterReader, FetchedPart, OffsetsGone, ReadEvent, TopicGone
from tailrace.shadow.resumption import PartitionCopy, Resumption, StoppedPartition
from tailrace.shadow.topics import CopiedTopic, TopicCopies
from tailrace.shadow.writer import TransactionWriter, Written
from tailrace.wire.fast_rebatching import compile_joiner, load_joiner
from tailrace.wire.rebatching import PlainJoiner, RecordJoiner

_log = logging.getLogger("tailrace.shadow")

_LONGEST_SECONDS = 1.0
"""How long records are written in one transaction while there are more to read."""
_PAUSE_SECONDS = 0.05
"""Between the beginnings of two transactions, so that a steady trickle does not become a transaction for each record."""
_LEAST_BYTES = 256 * KIB
_FIRST_BYTES = 4 * MIB
_MOST_BYTES = 256 * MIB
"""Bytes of a transaction. It grows while they take less than `_LONGEST_SECONDS`, and shrinks when they take `_SLOW_SECONDS`."""
_SLOW_SECONDS = 5.0
_WRITTEN_AT_ONCE = 16 * MIB
_TAKE_SECONDS = 0.5
_LOOK_SECONDS = 5.0
"""How often new topics and partitions are looked for, and offsets of groups."""
_RECHECK_SECONDS = 10.0
_LONGEST_RECHECK_SECONDS = 300.0
_REFRESH_SECONDS = 6 * 3600.0
"""How often positions of idle partitions are committed again: Kafka forgets them after a week."""
_POSITIONS_AT_ONCE = 500
_ANCHORS = 200_000
"""Anchors of all partitions together."""
_LEAST_ANCHORS = 50
_WHOLE_TOPIC = -1


def positions_name(shadow: Shadow, cluster_id: str) -> str:
    """Return the transactional id of a shadow, which is the group of its positions too. The name and the server identify it."""
    return f"{POSITIONS_PREFIX}{shadow.name}-{cluster_id}"


@cache
def joiner() -> RecordJoiner:
    """Return how records are joined to batches: by machine code if it can be had."""
    found = load_joiner()
    if found is None:
        try:
            found = compile_joiner()
        except (OSError, subprocess.SubprocessError) as error:
            _log.warning("small batches are joined without compiled code, which is many times slower: %s", error)
            return PlainJoiner()
    return found


class CopySession:
    """Used once, on the event loop."""

    def __init__(self, shadow: Shadow, name: str, origin: KafkaCluster, target: KafkaCluster, progress: Progress) -> None:
        self._shadow = shadow
        self._progress = progress
        self._origin = ClusterAdmin(origin)
        self._target = ClusterAdmin(target)
        self._topics = TopicCopies(origin, target)
        self._resumption = Resumption(self._origin, self._target, name)
        self._reader = ClusterReader(origin)
        self._reader.throttle_bytes = shadow.throttle_bytes
        self._writer = TransactionWriter(target, name, name, self._written)
        self._groups = GroupTranslation(self._origin, self._target, shadow.groups)
        self._places: Mapping[str, TopicPlace] = {}
        self._known: dict[str, CopiedTopic] = {}
        self._ends: dict[Partition, int] = {}
        """Where the partitions ended when the session began to copy them, as far as that is not copied yet."""
        self._moved: dict[Partition, FetchedPart] = {}
        """What was fetched last of each partition in this transaction."""
        self._target_ends: dict[Partition, int] = {}
        self._written_records = self._written_bytes = 0
        self._budget = _FIRST_BYTES
        self._committed_at = float("-inf")
        self._must_look = True
        self._looked_at = self._refreshed_at = float("-inf")
        self._recheck = Backoff(_RECHECK_SECONDS, _LONGEST_RECHECK_SECONDS)
        self._recheck_at = 0.0
        self._stopping = False

    def update(self, shadow: Shadow) -> None:
        """Take the definition as it is now."""
        before, self._shadow = self._shadow, shadow
        self._reader.throttle_bytes = shadow.throttle_bytes
        if before.groups != shadow.groups:
            self._groups = GroupTranslation(self._origin, self._target, shadow.groups)
        if before.topics != shadow.topics or before.skipped != shadow.skipped:
            self._must_look = True
            self._recheck_at = 0.0

    def stop(self) -> None:
        """Let `run` return after the transaction that is under way."""
        self._stopping = True

    async def run(self) -> None:
        """Copy until `stop`. Raises `ShadowError`."""
        syncing: asyncio.Task[None] | None = None
        try:
            await self._writer.begin()
            await self._look()
            self._progress.set_state("back-filling" if self._ends else "live")
            syncing = asyncio.create_task(self._sync_groups())
            while not self._stopping:
                if syncing.done():
                    syncing.result()
                if self._is_due():
                    await self._look()
                await self._copy_some()
        except RecordTooLargeError as error:
            raise ShadowError(
                str(error), "Raise max.message.bytes of the topic in the target (kafka-configs --alter)"
            ) from error
        except TailraceError as error:
            raise ShadowError(f"a batch can't be copied: {error}", "See the log of the broker") from error
        finally:
            if syncing is not None:
                syncing.cancel()
                await asyncio.gather(syncing, return_exceptions=True)
            await self._reader.close()
            self._writer.close()

    def _is_due(self) -> bool:
        return self._must_look or self._reader.is_stale or time.monotonic() > self._looked_at + _LOOK_SECONDS

    async def _look(self) -> None:
        """Look for new topics and partitions, and prepare to copy them. Stop with those that are gone."""
        self._must_look = False
        self._looked_at = time.monotonic()
        included = CopiedTopics(self._shadow, DEFAULT_LIMITS)
        places = await self._origin.cluster.refresh()
        self._places = {name: place for name, place in places.items() if included.includes(name) and not place.is_internal}
        self._forget_gone()
        changed = [name for name, place in self._places.items() if self._needs_look(name, place)]
        if changed or time.monotonic() > self._recheck_at:
            await self._prepare(changed)
        self._reader.follow(self._places)
        targets = await self._target.cluster.refresh(list(self._known)) if self._known else {}
        self._check_targets(targets)
        self._writer.follow(targets)
        self._note("topics", [note for own in self._topics.notes.values() for note in own])

    def _needs_look(self, name: str, place: TopicPlace) -> bool:
        known = self._known.get(name)
        return known is None or known.origin.partitions != place.partitions

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
        for partition in [
            each for each in (*progress.copies, *progress.stopped) if each[0] in gone or each[0] not in self._places
        ]:
            self._drop(partition)
            progress.stopped.pop(partition, None)

    def _drop(self, partition: Partition) -> None:
        self._reader.remove([partition])
        self._progress.copies.pop(partition, None)
        self._ends.pop(partition, None)
        self._moved.pop(partition, None)

    async def _prepare(self, changed: Iterable[str]) -> None:
        progress = self._progress
        again = {topic for topic, _ in progress.stopped}
        prepared = await self._topics.prepare({*changed, *again}, self._places)
        for name, failure in self._topics.failures.items():
            progress.stopped[name, _WHOLE_TOPIC] = StoppedPartition(failure.message, failure.advice)
        for name in prepared:
            progress.stopped.pop((name, _WHOLE_TOPIC), None)
        self._known |= prepared
        new = [
            (name, number)
            for name, topic in prepared.items()
            for number in range(topic.partitions)
            if (name, number) not in progress.copies
        ]
        resumed = await self._resumption.resume(self._known, new, self._shadow.skipped)
        self._note("positions", self._resumption.notes)
        most = max(_LEAST_ANCHORS, min(MOST_ANCHORS, _ANCHORS // max(1, len(progress.copies) + len(resumed))))
        for partition, found in resumed.items():
            if isinstance(found, StoppedPartition):
                progress.stopped[partition] = found
            else:
                progress.stopped.pop(partition, None)
                found.offsets.most = most
                self._begin(partition, found)
        if not progress.stopped:
            self._recheck.reset()
        self._recheck_at = time.monotonic() + self._recheck.next_pause() if progress.stopped else float("inf")

    def _begin(self, partition: Partition, copy: PartitionCopy) -> None:
        self._progress.copies[partition] = copy
        if copy.position < copy.end:
            self._ends[partition] = copy.end
        self._reader.add(copy.topic.origin, partition[1], copy.position)

    def _check_targets(self, targets: Mapping[str, TopicPlace]) -> None:
        """Raise if a topic of the target was deleted or made again since the session began."""
        for name, topic in self._known.items():
            if name not in targets or targets[name].topic_id != topic.target.topic_id:
                raise ShadowError(
                    f"topic {name!r} was deleted in the target", "It is made again, and copied from its beginning"
                )

    async def _copy_some(self) -> None:
        """Write one transaction with what there is to read, if there is anything."""
        event = await self._reader.take(_TAKE_SECONDS)
        if event is None:
            await self._refresh_positions()
            return
        began = time.monotonic()
        size = 0
        while event is not None and not isinstance(event, OffsetsGone | TopicGone):
            size += await self._write(event)
            passed = time.monotonic() - began
            if passed > _LONGEST_SECONDS or size >= self._budget:
                break
            event = await self._reader.take(self._pause(began))
        if self._moved:
            await self._commit()
            self._adapt(size, time.monotonic() - began)
        if isinstance(event, OffsetsGone | TopicGone):
            # Only now, when no record of it is in a transaction without its position.
            self._lose(event)

    def _pause(self, began: float) -> float:
        """Return how long to wait for more before the transaction is committed."""
        if any(part.position < part.end for part in self._moved.values()):
            return began + _LONGEST_SECONDS - time.monotonic()
        return max(0.0, self._committed_at + _PAUSE_SECONDS - time.monotonic())

    def _adapt(self, size: int, seconds: float) -> None:
        if seconds > _SLOW_SECONDS:
            self._budget = max(_LEAST_BYTES, self._budget // 2)
        elif size >= self._budget and seconds < _LONGEST_SECONDS:
            self._budget = min(_MOST_BYTES, self._budget * 2)

    async def _write(self, part: FetchedPart) -> int:
        """Write what was fetched, and what else is there. Return its size."""
        event: ReadEvent | None = part
        batches: list[tuple[Partition, PackedBatch]] = []
        size = 0
        while isinstance(event, FetchedPart):
            copy = self._progress.copies.get(event.partition)
            if copy is not None:
                self._moved[event.partition] = event
                size += event.size
                packed = pack(event.batches, event.start, copy.topic.most_bytes, joiner())
                batches += [(event.partition, batch) for batch in packed]
            event = self._reader.take_part() if size < _WRITTEN_AT_ONCE else None
        if batches:
            await self._writer.write(batches)
        return size

    def _written(self, written: Written) -> None:
        partition, batch, base_offset = written
        copy = self._progress.copies[partition]
        for run in batch.runs:
            copy.offsets.add(run.origin, base_offset + run.place, run.records if run.is_dense else 0)
        self._target_ends[partition] = base_offset + batch.records
        self._written_records += batch.records
        self._written_bytes += batch.size

    async def _commit(self) -> None:
        """Commit what was written with the positions behind it. Where nothing was written, positions move by themselves."""
        progress = self._progress
        self._committed_at = time.monotonic()
        if self._writer.is_open:
            await self._writer.settle()
            await self._writer.commit(
                {partition: self._position(partition, part.position) for partition, part in self._moved.items()}
            )
        for partition, part in self._moved.items():
            copy = progress.copies[partition]
            copy.position, copy.end = part.position, part.end
            copy.target_end = self._target_ends.pop(partition, copy.target_end)
            if part.batches:
                progress.copied_to[partition] = part.batches[-1].header.max_timestamp
            if part.position >= self._ends.get(partition, part.position + 1):
                del self._ends[partition]
                if not self._ends:
                    progress.set_state("live")
        progress.records += self._written_records
        progress.bytes += self._written_bytes
        self._written_records = self._written_bytes = 0
        self._moved.clear()

    def _position(self, partition: Partition, position: int) -> CommittedPosition:
        copy = self._progress.copies[partition]
        target_end = self._target_ends.get(partition, copy.target_end)
        return encode_position(copy.stored._replace(offset=position, target_end=target_end))

    async def _refresh_positions(self) -> None:
        """Commit positions again that have not moved for long, before the target forgets them."""
        if time.monotonic() < self._refreshed_at + _REFRESH_SECONDS:
            return
        partitions = list(self._progress.copies)
        for at in range(0, len(partitions), _POSITIONS_AT_ONCE):
            chosen = partitions[at : at + _POSITIONS_AT_ONCE]
            await self._writer.commit({each: self._position(each, self._progress.copies[each].position) for each in chosen})
        self._refreshed_at = time.monotonic()

    def _lose(self, event: OffsetsGone | TopicGone) -> None:
        """Find out anew about what is gone from the origin."""
        lost = event.topic if isinstance(event, TopicGone) else event.partition[0]
        for partition in [each for each in self._progress.copies if each[0] == lost]:
            self._drop(partition)
        self._known.pop(lost, None)
        self._must_look = True

    async def _sync_groups(self) -> None:
        """Keep offsets of groups in step. What goes wrong is told, and does not stop the copy."""
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            groups = self._groups
            try:
                await groups.take_over(self._progress.copies)
            except ShadowError as error:
                self._note("groups", [f"the offsets of groups are not kept in step: {error.message}"])
            else:
                self._progress.groups = groups.groups
                self._note("groups", groups.notes)

    def _note(self, subject: str, notes: Iterable[str]) -> None:
        self._progress.notes = {**self._progress.notes, subject: list(notes)}
