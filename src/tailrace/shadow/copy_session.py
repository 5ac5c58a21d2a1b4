"""Copies until something fails: reads the origin, and writes the target in transactions.

A session begins with the positions that the target has, and changes them only together with records. So whatever it had under
way when it ended is either all in the target or not at all, and the next session goes on exactly there.
"""

import asyncio
import logging
import subprocess
import time
from functools import cache

from tailrace.model.errors import TailraceError
from tailrace.model.limits import MIB
from tailrace.model.shadow import Shadow
from tailrace.shadow.admin import ClusterAdmin, CommittedPosition, Partition
from tailrace.shadow.cluster import KafkaCluster
from tailrace.shadow.failures import ShadowError, TopicRefusedError
from tailrace.shadow.groups import POSITIONS_PREFIX, GroupTranslation
from tailrace.shadow.packing import PackedBatch, RecordTooLargeError, pack
from tailrace.shadow.positions import encode_position
from tailrace.shadow.progress import LEAST_BYTES, Progress
from tailrace.shadow.reader import ClusterReader, FetchedPart, OffsetsGone, ReadEvent, TopicGone
from tailrace.shadow.topic_follower import LOOK_SECONDS, LOOK_SHARE, TopicFollower
from tailrace.shadow.writer import TransactionWriter, Written
from tailrace.wire.fast_rebatching import compile_joiner, load_joiner
from tailrace.wire.rebatching import PlainJoiner, RecordJoiner

_log = logging.getLogger("tailrace.shadow")

_LONGEST_SECONDS = 1.0
"""How long records are written in one transaction while there are more to read."""
_PAUSE_SECONDS = 0.02
"""Between the beginnings of two transactions, so that a steady trickle does not become a transaction for each record."""
_MOST_BYTES = 256 * MIB
"""Bytes of a transaction. It grows while they take less than `_LONGEST_SECONDS`, and shrinks when they take `_SLOW_SECONDS`."""
_SLOW_SECONDS = 5.0
_WRITTEN_AT_ONCE = 16 * MIB
_TAKE_SECONDS = 0.5
_REFRESH_SECONDS = 6 * 3600.0
"""How often positions of idle partitions are committed again: Kafka forgets them after a week."""
_POSITIONS_AT_ONCE = 500


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
        self._reader = ClusterReader(origin)
        self._reader.throttle_bytes = shadow.throttle_bytes
        self._writer = TransactionWriter(target, name, name, self._written)
        self._follower = TopicFollower(shadow, self._origin, self._target, name, self._reader, self._writer, progress)
        self._groups = GroupTranslation(self._origin, self._target, shadow.groups)
        self._moved: dict[Partition, FetchedPart] = {}
        """What was fetched last of each partition in this transaction."""
        self._target_ends: dict[Partition, int] = {}
        self._written_records = self._written_bytes = 0
        self._reader.most_bytes = progress.budget
        self._committed_at = self._refreshed_at = float("-inf")
        self._stopping = False

    def update(self, shadow: Shadow) -> None:
        """Take the definition as it is now."""
        before, self._shadow = self._shadow, shadow
        self._reader.throttle_bytes = shadow.throttle_bytes
        self._follower.update(shadow)
        if before.groups != shadow.groups:
            self._groups = GroupTranslation(self._origin, self._target, shadow.groups)

    def stop(self) -> None:
        """Let `run` return after the transaction that is under way."""
        self._stopping = True

    async def run(self) -> None:
        """Copy until `stop`. Raises `ShadowError`."""
        syncing: asyncio.Task[None] | None = None
        try:
            await self._writer.begin()
            await self._follower.look()
            self._progress.set_state("back-filling" if self._progress.behind else "live")
            syncing = asyncio.create_task(self._sync_groups())
            while not self._stopping:
                if syncing.done():
                    syncing.result()
                if self._follower.is_due:
                    await self._follower.look()
                await self._copy_some()
        except TailraceError as error:
            raise ShadowError(f"a batch can't be copied: {error}", "See the log of the broker") from error
        finally:
            if syncing is not None:
                syncing.cancel()
                await asyncio.gather(syncing, return_exceptions=True)
            await self._follower.close()
            await self._reader.close()
            self._writer.close()

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
            if passed > _LONGEST_SECONDS or size >= self._progress.budget:
                break
            event = await self._reader.take(self._pause(began))
        if self._moved:
            await self._commit()
            self._adapt(size, time.monotonic() - began)
        if isinstance(event, OffsetsGone | TopicGone):
            # Only now, when no record of it is in a transaction without its position.
            self._follower.lose(event)

    def _pause(self, began: float) -> float:
        """Return how long to wait for more before the transaction is committed."""
        if any(part.position < part.end for part in self._moved.values()):
            return began + _LONGEST_SECONDS - time.monotonic()
        return max(0.0, self._committed_at + _PAUSE_SECONDS - time.monotonic())

    def _adapt(self, size: int, seconds: float) -> None:
        progress = self._progress
        if seconds > _SLOW_SECONDS:
            progress.budget = max(LEAST_BYTES, progress.budget // 2)
        elif size >= progress.budget and seconds < _LONGEST_SECONDS:
            progress.budget = min(_MOST_BYTES, progress.budget * 2)
        self._reader.most_bytes = progress.budget

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
                batches += [(event.partition, batch) for batch in self._pack(event, copy.topic.most_bytes)]
            has_room = size < min(_WRITTEN_AT_ONCE, self._progress.budget)
            event = self._reader.take_part() if has_room else None
        if batches:
            await self._writer.write(batches)
        return size

    def _pack(self, part: FetchedPart, most_bytes: int) -> list[PackedBatch]:
        try:
            return list(pack(part.batches, part.start, most_bytes, joiner()))
        except RecordTooLargeError as error:
            topic, number = part.partition
            raise TopicRefusedError(
                topic,
                f"partition {number} of topic {topic!r} can't be copied: {error}",
                "Raise max.message.bytes of the topic in the target (kafka-configs --alter)",
            ) from error

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
                progress.refusals.pop(partition[0], None)
            if part.position >= progress.behind.get(partition, part.position + 1):
                progress.catch_up(partition)
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

    async def _sync_groups(self) -> None:
        """Keep offsets of groups in step. What goes wrong is told, and does not stop the copy."""
        took = 0.0
        while True:
            await asyncio.sleep(max(LOOK_SECONDS, LOOK_SHARE * took))
            began = time.monotonic()
            groups = self._groups
            try:
                await groups.take_over(dict(self._progress.copies))
            except ShadowError as error:
                self._progress.note("groups", [f"the offsets of groups are not kept in step: {error.message}"])
            else:
                self._progress.groups = groups.groups
                self._progress.note("groups", groups.notes)
            took = time.monotonic() - began
