"""Compacts topics: a background job has the store keep the last record of each key of partitions that are due.

A partition is due when enough of its bytes have come since its last compaction, or when the oldest of them are too old. The job
says which records may go (`CompactionRule`) and remembers how far each compaction came, and when, in the state of the
partition. A tombstone is removed by a later compaction, once the time of that which removed the records before it is long
enough ago. So a reader that is not further behind than `delete_retention_seconds` sees it. For shadows that have not copied a
tombstone it stays longer, up to `shadow_retention_seconds`.

Aborted transactions are forgotten when their records are gone for as long, and their markers by the compaction after that: a
reader that is told of an aborted transaction must find its marker.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import msgspec

from tailrace.broker import keys
from tailrace.broker.commits import Change, Committer
from tailrace.broker.isolation import AbortedTransactions, StableOffsets
from tailrace.broker.read_threads import ReadThreads
from tailrace.broker.settings import BrokerSettings
from tailrace.broker.topics.registry import LiveTopic
from tailrace.broker.topics.topics import Topics
from tailrace.model.clock import Clock
from tailrace.model.commit import Changes
from tailrace.model.compaction import CompactionResult, CompactionRule
from tailrace.model.errors import StoreClosedError, TailraceError
from tailrace.model.ids import Offset, PartitionId
from tailrace.model.limits import Limits
from tailrace.store.contract import Store
from tailrace.wire.batch import read_header

_MOST_STEPS = 64
_ABORTED_SECONDS = 300
"""How long aborted transactions are remembered at least after their records were removed: a subscriber may still hold these in
memory and not have asked yet whether they are visible."""
_MOST_FORGOTTEN = 10_000
"""Aborted transactions of a partition that are forgotten after one compaction."""

_log = logging.getLogger(__name__)


class CompactionStep(msgspec.Struct, frozen=True, array_like=True):
    """How far a compaction came, and when it was complete."""

    clean_end: int
    done_ms: int


class CompactionState(msgspec.Struct, frozen=True, array_like=True):
    """The compactions of a partition, in order. Those whose tombstones have all expired are one step."""

    steps: Sequence[CompactionStep] = ()

    @property
    def clean_end(self) -> int:
        return self.steps[-1].clean_end if self.steps else 0

    def expired_end(self, now_ms: int, retention_seconds: int) -> int:
        """Return below which offset tombstones may be removed."""
        before = now_ms - retention_seconds * 1000
        return max((step.clean_end for step in self.steps if step.done_ms <= before), default=0)

    def after(self, clean_end: int, now_ms: int, expired_end: int) -> "CompactionState":
        """Return the state after a compaction that has removed the tombstones below `expired_end`."""
        expired = [step for step in self.steps if step.clean_end <= expired_end][-1:]
        steps = [*expired, *(step for step in self.steps if step.clean_end > expired_end)]
        if clean_end > self.clean_end:
            steps.append(CompactionStep(clean_end, now_ms))
        if len(steps) > _MOST_STEPS:
            # The tombstones of the older of two steps stay as long as those of the newer one.
            del steps[len(expired)]
        return CompactionState(steps)


class Compaction:
    """Compacts the partitions that are due, all at once, in a thread of its own."""

    def __init__(
        self,
        store: Store,
        committer: Committer,
        topics: Topics,
        threads: ReadThreads,
        stable: StableOffsets,
        aborted: AbortedTransactions,
        holds: Callable[[], Mapping[PartitionId, Offset]],
        on_unread: Callable[[PartitionId, Offset, Offset], Awaitable[None]],
        clock: Clock,
        limits: Limits,
        settings: BrokerSettings,
        on_compacted: Callable[[PartitionId], None],
    ) -> None:
        """`holds` returns for partitions that shadows copy the first offset that is not copied. `on_unread` is called when
        tombstones between two offsets of a partition may be removed that are not copied, `on_compacted` for each partition that
        has lost records.
        """
        self._store = store
        self._committer = committer
        self._topics = topics
        self._threads = threads
        self._stable = stable
        self._aborted = aborted
        self._holds = holds
        self._on_unread = on_unread
        self._clock = clock
        self._limits = limits
        self._roll_seconds = settings.compaction_roll_seconds
        self._on_compacted = on_compacted
        self._thread = ThreadPoolExecutor(1, "tailrace-compaction")
        self._is_closed = False
        self._rolled_at = clock.monotonic()
        self._counted: set[PartitionId] = set()
        """Partitions that were compacted since the start, so that the store knows how many bytes they have."""

    def knows_size(self, partition: PartitionId) -> bool:
        """Return whether the size of a partition is that of its records.

        After a crash during a compaction it may be too large, until the next one.
        """
        return partition in self._counted or self._store.get(keys.compaction_key(partition)) is None

    async def run_once(self) -> int:
        """Compact all partitions that are due, and return how many records were removed."""
        rules: list[CompactionRule] = []
        holds = self._holds()
        for live in self._topics:
            if live.topic.settings.is_compacted:
                rules += await self._threads.run(self._due, live, holds)
        if not rules or self._is_closed:
            return 0
        if any(rule.rolls for rule in rules):
            self._rolled_at = self._clock.monotonic()
        loop = asyncio.get_running_loop()
        results = await loop.run_in_executor(self._thread, self._store.compact, rules, self._is_closing)
        await self._remember(rules, results)
        for rule in rules:
            if rule.expired_end > holds.get(rule.partition, rule.expired_end):
                await self._on_unread(rule.partition, holds[rule.partition], rule.expired_end)
        return sum(result.removed_records for result in results)

    def close(self) -> None:
        """Break off a compaction."""
        self._is_closed = True
        self._thread.shutdown(wait=True, cancel_futures=True)

    def _is_closing(self) -> bool:
        return self._is_closed

    def _due(self, live: LiveTopic, holds: Mapping[PartitionId, Offset]) -> list[CompactionRule]:
        due = []
        for partition in live.partitions:
            try:
                rule = self._due_in(live, partition, holds.get(partition))
            except StoreClosedError:
                raise
            except TailraceError as error:
                # The topic was deleted in the meantime, or the disk can't be read. The other partitions are still compacted.
                _log.warning("compaction failed for partition %d of %s: %s", partition.number, live.topic.name, error)
                continue
            if rule is not None:
                due.append(rule)
        return due

    def _due_in(self, live: LiveTopic, partition: PartitionId, hold: Offset | None) -> CompactionRule | None:
        bounds = start, end = self._store.bounds(partition)
        state = self._state(partition)
        settings = live.topic.settings
        now_ms = self._clock.now_ms()
        clean_end = Offset(min(max(state.clean_end, start), end))
        # The records of an open transaction stay until it is committed or aborted.
        stop = self._stable.of(partition, bounds)
        if settings.min_compaction_lag_seconds:
            young = self._store.batch_for_time(partition, now_ms - settings.min_compaction_lag_seconds * 1000 + 1)
            stop = stop if young is None else min(stop, young)
        has_to_count = state.steps and partition not in self._counted
        if stop <= clean_end:
            return CompactionRule(partition, clean_end, clean_end, Offset(0), removes_expired=False) if has_to_count else None
        is_overdue = self._is_overdue(partition, clean_end, settings.max_compaction_lag_seconds, now_ms)
        size_above = self._store.size(partition, stop) if stop < end else 0
        dirty = self._store.size(partition, clean_end) - size_above
        total = self._store.size(partition) - size_above
        if not is_overdue and dirty * 100 < total * max(1, settings.min_dirty_percent) and not has_to_count:
            return None
        return CompactionRule(
            partition,
            clean_end,
            stop,
            min(clean_end, self._expired_end(state, settings.delete_retention_seconds, now_ms, hold)),
            removes_expired=False,
            aborted=tuple(self._aborted.ended(partition)),
            rolls=is_overdue or self._clock.monotonic() - self._rolled_at >= self._roll_seconds,
        )

    def _expired_end(self, state: CompactionState, seconds: int, now_ms: int, hold: Offset | None) -> Offset:
        """Return below which offset tombstones may be removed. Those from `hold` on wait longer to be copied."""
        expired_end = Offset(state.expired_end(now_ms, seconds))
        if hold is None or expired_end <= hold:
            return expired_end
        return max(hold, Offset(state.expired_end(now_ms, seconds + self._limits.shadow_retention_seconds)))

    def _is_overdue(self, partition: PartitionId, clean_end: Offset, most_seconds: int | None, now_ms: int) -> bool:
        """Return whether the first record that was never compacted is too old."""
        if most_seconds is None:
            return False
        batches = self._store.fetch(partition, clean_end, 1).batches
        return bool(batches) and read_header(batches[0]).max_timestamp <= now_ms - most_seconds * 1000

    def _state(self, partition: PartitionId) -> CompactionState:
        packed = self._store.get(keys.compaction_key(partition))
        return CompactionState() if packed is None else msgspec.msgpack.decode(packed, type=CompactionState)

    async def _remember(self, rules: Sequence[CompactionRule], results: Sequence[CompactionResult]) -> None:
        now_ms = self._clock.now_ms()
        by_partition = {rule.partition: rule for rule in rules}
        found = await self._threads.run(
            lambda: [change for result in results for change in self._changes(by_partition[result.partition], result, now_ms)]
        )

        def decide() -> Changes | None:
            # Nothing is written for a topic after its state was dropped.
            puts = [put for partition, put in found if self._topics.by_id(partition.topic_id) is not None]
            return Changes(puts=puts) if puts else None

        await self._committer.submit(Change(decide, lambda _: None))
        for result in results:
            self._counted.add(result.partition)
            if result.removed_records:
                live = self._topics.by_id(result.partition.topic_id)
                _log.info(
                    "%d records of partition %d of %s were compacted, up to offset %d",
                    result.removed_records,
                    result.partition.number,
                    "a deleted topic" if live is None else live.topic.name,
                    result.clean_end,
                )
                self._on_compacted(result.partition)

    def _changes(
        self, rule: CompactionRule, result: CompactionResult, now_ms: int
    ) -> "list[tuple[PartitionId, tuple[bytes, bytes | None]]]":
        """Return the changes of state after the compaction of a partition."""
        partition, before = rule.partition, self._state(rule.partition)
        if result.clean_end <= before.clean_end:
            return []
        after = before.after(result.clean_end, now_ms, rule.expired_end)
        changes: list[tuple[bytes, bytes | None]] = [(keys.compaction_key(partition), msgspec.msgpack.encode(after))]
        forgotten_end = Offset(min(rule.expired_end, before.expired_end(now_ms, _ABORTED_SECONDS)))
        changes += [(key, None) for key in self._aborted.below(partition, forgotten_end)[:_MOST_FORGOTTEN]]
        return [(partition, change) for change in changes]
