"""Deletes old records: a background job moves the start of partitions whose topic is limited in seconds or bytes.

The job deletes whole batches only, and leaves at least as many bytes as the topic's limit; on request any offset can become the
start. It stops before records that are still needed: changes of tables wait for a checkpoint, which it requests, and records
that a shadow has not copied wait for it, up to a number of bytes of all partitions together and up to a time. A moved start is
logged and counted, and waiting readers of the partition are woken.
"""

import logging
from bisect import bisect_left
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from tailrace.broker.commits import Change, Committer
from tailrace.broker.isolation import AbortedTransactions, StableOffsets
from tailrace.broker.payloads import PayloadReferences
from tailrace.broker.read_threads import ReadThreads
from tailrace.broker.topics.registry import LiveTopic
from tailrace.broker.topics.topics import Topics
from tailrace.model.clock import Clock
from tailrace.model.commit import Changes, CommitReceipt
from tailrace.model.errors import OffsetOutOfRangeError, ReservedTopicError, TailraceError
from tailrace.model.ids import Offset, PartitionId
from tailrace.model.limits import Limits
from tailrace.store.contract import Store

_log = logging.getLogger(__name__)


Floor = Callable[[PartitionId], Offset | None]
"""Returns the first offset of a partition that is still needed, if there is one."""


Cover = Callable[[PartitionId, Offset], Awaitable[None]]
"""Makes the records of a partition before an offset unneeded, if that can be done quickly."""


class Trim(NamedTuple):
    partition: PartitionId
    old_start: Offset
    new_start: Offset
    wanted: Offset
    """The start if no record before it were needed."""


class Retention:
    """Deletes records by age and size, and on request."""

    def __init__(
        self,
        store: Store,
        committer: Committer,
        topics: Topics,
        threads: ReadThreads,
        stable: StableOffsets,
        aborted: AbortedTransactions,
        references: PayloadReferences,
        floor: Floor,
        held_back: Callable[[PartitionId, Offset], None],
        cover: Cover,
        knows_size: Callable[[PartitionId], bool],
        holds: Callable[[], Mapping[PartitionId, Offset]],
        clock: Clock,
        limits: Limits,
        on_trim: Callable[[PartitionId], None],
    ) -> None:
        """`holds` returns for partitions that shadows copy the first offset that is not copied."""
        self._store = store
        self._committer = committer
        self._topics = topics
        self._threads = threads
        self._stable = stable
        self._aborted = aborted
        self._references = references
        self._floor = floor
        self._held_back = held_back
        self._cover = cover
        self._knows_size = knows_size
        self._holds = holds
        self._clock = clock
        self._limits = limits
        self._on_trim = on_trim
        self.held_bytes = 0
        """Bytes that were kept by the last run for shadows that have not copied them."""

    async def run_once(self) -> int:
        """Trim all topics and return how many records were deleted."""
        deleted = 0
        holds = self._holds()
        topics = [live for live in self._topics if live.topic.settings.has_retention]
        held = await self._threads.run(self._held, topics, holds) if holds else {}
        if not holds:
            self.held_bytes = 0
        for live in topics:
            if self._topics.by_id(live.topic.id) is live:
                found = await self._threads.run(self._due, live, held)
                for trim in found:
                    if trim.wanted > trim.new_start:
                        self._held_back(trim.partition, trim.wanted)
                due = [trim for trim in found if trim.new_start > trim.old_start]
                if due:
                    deleted += await self._trim(live, due)
        return deleted

    async def delete_before(self, topic: str, partition: int, offset: Offset | None) -> Offset:
        """Delete the records before `offset`, or all if it is None, and return the new start. Needs `drop`, as in Kafka."""
        self._topics.require("drop", topic)
        live = self._topics.get(topic)
        target = live.partition(partition)
        start, end = self._store.bounds(target)
        new_start = end if offset is None else offset
        if not 0 <= new_start <= end:
            raise OffsetOutOfRangeError(
                f"records before {new_start} can't be deleted: partition {partition} of {topic!r} ends at {end}", start, end
            )
        await self._cover(target, new_start)
        floor = self._floor(target)
        if floor is not None and new_start > floor:
            raise ReservedTopicError(
                f"records before {new_start} of {topic!r} can't be deleted: the server needs them from offset {floor} on"
            )
        if new_start > start:
            await self._trim(live, [Trim(target, start, new_start, new_start)])
        return self._store.bounds(target).start

    async def clear(self, topic: str) -> int:
        """Delete all records of all partitions in one commit, and return how many. Records of open transactions stay."""
        self._topics.require("drop", topic)
        live = self._topics.get(topic)
        if live.is_reserved:
            raise ReservedTopicError(f"{live.topic.name!r} is a reserved topic and can't be cleared")
        due = []
        for partition in live.partitions:
            bounds = self._store.bounds(partition)
            end = self._stable.of(partition, bounds)
            if end > bounds.start:
                due.append(Trim(partition, bounds.start, end, end))
        return await self._trim(live, due) if due else 0

    def _held(self, topics: Iterable[LiveTopic], holds: Mapping[PartitionId, Offset]) -> dict[PartitionId, Offset]:
        """Return where retention stops for the sake of shadows: as early as the limits of bytes and of time allow."""
        wanted: list[tuple[PartitionId, Offset, int]] = []
        for live in topics:
            for trim in self._due(live, {}):
                first = holds.get(trim.partition)
                if first is not None and first < trim.new_start:
                    first = max(first, trim.old_start, self._too_old(live, trim.partition))
                    size = self._size(trim.partition, first) - self._size(trim.partition, trim.new_start)
                    if size > 0:
                        wanted.append((trim.partition, first, size))
        allowed = fair_shares([size for _, _, size in wanted], self._limits.shadow_retention_bytes)
        held = {}
        for (partition, first, size), share in zip(wanted, allowed, strict=True):
            after = self._size(partition, first) - size
            held[partition] = first if share == size else max(first, self._first_to_keep(partition, after + share))
        self.held_bytes = sum(allowed)
        return held

    def _too_old(self, live: LiveTopic, partition: PartitionId) -> Offset:
        """Return the first offset that may be held although the topic's time has passed."""
        seconds = live.topic.settings.retention_seconds
        if seconds is None:
            return Offset(0)
        oldest_ms = self._clock.now_ms() - (seconds + self._limits.shadow_retention_seconds) * 1000
        first = self._store.batch_for_time(partition, oldest_ms)
        return self._store.bounds(partition).end if first is None else first

    def _size(self, partition: PartitionId, start: Offset) -> int:
        """Return the bytes of the records from this offset on, with their payloads."""
        if start >= self._store.bounds(partition).end:
            return 0
        return self._store.size(partition, start) + _SizesFrom(self._references.sizes(partition)).of(start)

    def _due(self, live: LiveTopic, held: Mapping[PartitionId, Offset]) -> list[Trim]:
        due = []
        for partition in live.partitions:
            try:
                trim = self._due_in(live, partition, held)
            except TailraceError as error:
                # The topic was deleted in the meantime, or the disk can't be read. The other partitions are still trimmed.
                _log.warning("retention failed for partition %d of %s: %s", partition.number, live.topic.name, error)
                continue
            if trim is not None:
                due.append(trim)
        return due

    def _due_in(self, live: LiveTopic, partition: PartitionId, held: Mapping[PartitionId, Offset]) -> Trim | None:
        bounds = start, end = self._store.bounds(partition)
        if start == end:
            return None
        settings = live.topic.settings
        new_start = start
        if settings.retention_seconds is not None:
            oldest_ms = self._clock.now_ms() - settings.retention_seconds * 1000
            first = self._store.batch_for_time(partition, oldest_ms)
            new_start = max(new_start, end if first is None else first)
        if settings.retention_max_bytes is not None and self._knows_size(partition):
            new_start = max(new_start, self._first_to_keep(partition, settings.retention_max_bytes))
        # The records of an open transaction stay until it is committed or aborted.
        wanted = min(new_start, self._stable.of(partition, bounds))
        floors = (self._floor(partition), held.get(partition))
        new_start = max(start, min((wanted, *(floor for floor in floors if floor is not None))))
        return Trim(partition, start, new_start, wanted) if wanted > start else None

    def _first_to_keep(self, partition: PartitionId, keep_bytes: int) -> Offset:
        """Return the last batch such that it and all after it have at least `keep_bytes`, with their payloads, as in Kafka."""
        payload_bytes = _SizesFrom(self._references.sizes(partition))
        stored_bytes = keep_bytes
        if payload_bytes.total:
            # More stored bytes have more payloads, so the smallest sufficient number of stored bytes is found by bisection.
            least = 1
            while least < stored_bytes:
                middle = (least + stored_bytes) // 2
                first = self._store.batch_for_size(partition, middle)
                if self._store.size(partition, first) + payload_bytes.of(first) >= keep_bytes:
                    stored_bytes = middle
                else:
                    least = middle + 1
        return self._store.batch_for_size(partition, stored_bytes)

    async def _trim(self, live: LiveTopic, due: list[Trim]) -> int:
        def decide() -> Changes | None:
            if self._topics.by_id(live.topic.id) is not live:
                return None
            deleted = [key for trim in due for key in self._aborted.below(trim.partition, trim.new_start)]
            return Changes(
                trims=tuple((trim.partition, trim.new_start) for trim in due), puts=tuple((key, None) for key in deleted)
            )

        def settled(receipt: CommitReceipt | None) -> int:
            if receipt is None:
                return 0
            deleted = 0
            for partition, old_start, new_start, _ in due:
                deleted += new_start - old_start
                _log.info(
                    "retention moved the start of %s, partition %d, from offset %d to %d",
                    live.topic.name,
                    partition.number,
                    old_start,
                    new_start,
                )
                self._on_trim(partition)
            live.trimmed_records += deleted
            return deleted

        return await self._committer.submit(Change(decide, settled))


def fair_shares(wanted: Sequence[int], budget: int) -> list[int]:
    """Divide a budget so that nobody gets more than is wanted, and nobody less than an equal part of what the others leave.

    >>> fair_shares([10, 500, 90], 300)
    [10, 200, 90]
    """
    shares = [0] * len(wanted)
    left = budget
    for place, at in enumerate(sorted(range(len(wanted)), key=wanted.__getitem__)):
        shares[at] = min(wanted[at], left // (len(wanted) - place))
        left -= shares[at]
    return shares


class _SizesFrom:
    """Sums sizes from any offset to the end."""

    def __init__(self, sizes: Iterable[tuple[Offset, int]]) -> None:
        self._offsets: list[int] = []
        self._sums = [0]
        for offset, size in sizes:
            self._offsets.append(offset)
            self._sums.append(self._sums[-1] + size)

    @property
    def total(self) -> int:
        return self._sums[-1]

    def of(self, start: Offset) -> int:
        return self.total - self._sums[bisect_left(self._offsets, start)]
