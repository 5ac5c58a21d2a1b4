"""A store in memory, for tests and simulation. It keeps the contract without durability: closing it loses everything."""

import threading
from bisect import bisect_left
from collections.abc import Callable, Sequence

from tailrace.log.compaction_round import PartitionRound
from tailrace.model.clock import Clock, HybridClock, SystemClock
from tailrace.model.commit import Append, Buffer, Changes, CommitReceipt, FetchedBatches, LogBatch, OffsetBounds, ScannedBatches
from tailrace.model.compaction import CompactionResult, CompactionRule
from tailrace.model.errors import OffsetOutOfRangeError, StoreClosedError, UnknownPartitionError
from tailrace.model.ids import Cursor, Offset, PartitionId
from tailrace.model.limits import DEFAULT_LIMITS, Limits
from tailrace.model.stats import StoreStats
from tailrace.model.topic import TopicNames
from tailrace.store.contract import OnDone, PayloadStore, Staging
from tailrace.store.payloads import PayloadMemory
from tailrace.store.sequencer import PendingCommit, Sequencer
from tailrace.store.staging import StagingMemory
from tailrace.wire.batch import read_header, with_base_offset
from tailrace.wire.compaction import PlainLatestOffsets


class _MemoryPartition:
    """The batches of one partition, with the newest and the oldest timestamp of each."""

    def __init__(self) -> None:
        self.start = Offset(0)
        self.end = Offset(0)
        self.batches: list[LogBatch] = []
        self.timestamps: list[int] = []
        self.oldest: list[int] = []

    def first_holding(self, offset: int) -> int:
        return bisect_left(self.batches, offset, key=lambda batch: batch.base_offset + batch.records - 1)

    def replace(self, edits: "Sequence[tuple[LogBatch, Buffer | None]]") -> None:
        """Replace the bytes of each batch. `None` removes it."""
        rows = list(zip(edits, self.timestamps, self.oldest, strict=True))
        kept = [(held, edited, newest, oldest) for (held, edited), newest, oldest in rows if edited is not None]
        self.batches = [held._replace(batch=edited) for held, edited, _, _ in kept]
        # Where the records have no timestamps, the time of the append counts.
        heads = [read_header(edited) for _, edited, _, _ in kept]
        self.timestamps = [
            row[2] if head.max_timestamp < 0 else head.max_timestamp for row, head in zip(kept, heads, strict=True)
        ]
        self.oldest = [oldest for _, _, _, oldest in kept]

    def trim(self, start: Offset) -> None:
        self.start = max(self.start, start)
        dead = self.first_holding(self.start)
        del self.batches[:dead], self.timestamps[:dead], self.oldest[:dead]


class MemoryStore:
    """Applies each commit inside `submit`, in the caller's thread."""

    def __init__(self, clock: Clock | None = None, limits: Limits = DEFAULT_LIMITS) -> None:
        self._lock = threading.RLock()
        self._limits = limits
        self._partitions: dict[PartitionId, _MemoryPartition] = {}
        self._log: list[LogBatch] = []
        self._state: dict[bytes, bytes] = {}
        self._cursor = Cursor(0)
        self._stats = StoreStats()
        self.topic_names = TopicNames()
        self._sequencer = Sequencer(HybridClock(clock or SystemClock()), limits, {}, Cursor(0), self.topic_names)
        self._closed = False
        self.staging: Staging = StagingMemory()
        self.payloads: PayloadStore = PayloadMemory()

    def submit(self, changes: Changes, done: OnDone) -> PendingCommit:
        with self._lock:
            if self._closed:
                raise StoreClosedError("the store is closed; open it again to continue")
            commit = self._sequencer.admit(changes, done)
            self._apply(commit)
            self._sequencer.settle((commit,))
            self._stats.commits += 1
            self._stats.commit_bytes += commit.size
            done(commit)
        return commit

    def commit(self, changes: Changes) -> CommitReceipt:
        return self.submit(changes, lambda _: None).receipt

    def fetch(self, partition: PartitionId, offset: Offset, max_bytes: int) -> FetchedBatches:
        with self._lock:
            stored = self._partition(partition)
            if not stored.start <= offset <= stored.end:
                raise OffsetOutOfRangeError.of(self.topic_names.of(partition), offset, stored.start, stored.end)
            found: list[LogBatch] = []
            size = 0
            for held in stored.batches[stored.first_holding(offset) :]:
                size += len(held.batch)
                if found and size > max_bytes:
                    break
                found.append(held)
            self._stats.fetches_from_memory += 1
            bounds = OffsetBounds(stored.start, stored.end)
            return FetchedBatches([held.batch for held in found], bounds, [held.cursor for held in found])

    def is_hot(self, partition: PartitionId, offset: Offset) -> bool:
        return True

    def fetch_cached(
        self, partition: PartitionId, offset: Offset, max_bytes: int, *, at_least_one: bool = True
    ) -> FetchedBatches | None:
        return None

    def start_reading(self, partition: PartitionId, offset: Offset, max_bytes: int) -> None:
        pass

    def scan(self, cursor: Cursor, max_bytes: int) -> ScannedBatches:
        with self._lock:
            found: list[LogBatch] = []
            size = 0
            for held in self._log[bisect_left(self._log, int(cursor), key=lambda batch: batch.cursor + batch.records - 1) :]:
                size += len(held.batch)
                if found and size > max_bytes:
                    return ScannedBatches(found, held.cursor)
                found.append(held)
            return ScannedBatches(found, max(cursor, self._cursor))

    def bounds(self, partition: PartitionId) -> OffsetBounds:
        with self._lock:
            stored = self._partition(partition)
            return OffsetBounds(stored.start, stored.end)

    def next_offset(self, partition: PartitionId) -> Offset:
        with self._lock:
            return self._sequencer.next_offset(partition)

    def end_cursor(self) -> Cursor:
        return self._cursor

    def partitions(self) -> Sequence[PartitionId]:
        with self._lock:
            return sorted(self._partitions)

    def size(self, partition: PartitionId, start: Offset | None = None) -> int:
        with self._lock:
            stored = self._partition(partition)
            return sum(len(held.batch) for held in stored.batches[0 if start is None else stored.first_holding(start) :])

    def batch_for_time(self, partition: PartitionId, timestamp_ms: int) -> Offset | None:
        with self._lock:
            stored = self._partition(partition)
            for held, newest in zip(stored.batches, stored.timestamps, strict=True):
                if newest >= timestamp_ms:
                    return held.base_offset
            return None

    def batches_not_after(self, partition: PartitionId, timestamp_ms: int, within: OffsetBounds) -> Sequence[OffsetBounds]:
        with self._lock:
            stored = self._partition(partition)
            found: list[OffsetBounds] = []
            for held, oldest in zip(stored.batches, stored.oldest, strict=True):
                start = max(held.base_offset, within.start)
                end = min(Offset(held.base_offset + held.records), within.end)
                if oldest > timestamp_ms or start >= end:
                    continue
                if found and found[-1].end == start:
                    start = found.pop().start
                found.append(OffsetBounds(start, end))
            return found

    def batch_for_size(self, partition: PartitionId, keep_bytes: int) -> Offset:
        with self._lock:
            stored = self._partition(partition)
            first = stored.end
            for held in reversed(stored.batches):
                if keep_bytes <= 0:
                    break
                keep_bytes -= len(held.batch)
                first = held.base_offset
            return first

    def compact(
        self, rules: Sequence[CompactionRule], should_stop: Callable[[], bool] | None = None
    ) -> Sequence[CompactionResult]:
        return [self._compact(rule) for rule in rules]

    def _compact(self, rule: CompactionRule) -> CompactionResult:
        """Compact all batches but the last one."""
        with self._lock:
            stored = self._partitions.get(rule.partition)
            if stored is None or not stored.batches:
                return CompactionResult(rule.partition, rule.clean_end, 0, 0)
            start = max(rule.clean_end, stored.start)
            stop = max(start, min(rule.stop, stored.batches[-1].base_offset))
            found = PartitionRound(rule, PlainLatestOffsets(self._limits.compaction_key_bytes), start, stop, self._limits)
            found.note([held.batch for held in stored.batches if held.base_offset + held.records > start])
            edits = [
                (held, found.edited(held.batch) if found.covers(held.base_offset + held.records) else held.batch)
                for held in stored.batches
            ]
            for held, edited in edits:
                found.count_removed(held.batch, edited)
            stored.replace(edits)
            kept = {held.base_offset: held for held in stored.batches}
            self._log = [
                kept[held.base_offset] if held.partition == rule.partition else held
                for held in self._log
                if held.partition != rule.partition or held.base_offset in kept
            ]
            return CompactionResult(
                rule.partition, Offset(max(rule.clean_end, found.end)), found.removed_records, found.removed_bytes
            )

    def has_batch(self, partition: PartitionId, offset: Offset) -> bool:
        with self._lock:
            stored = self._partition(partition)
            at = stored.first_holding(offset)
            return offset >= stored.start and at < len(stored.batches) and stored.batches[at].base_offset <= offset

    def get(self, key: bytes) -> bytes | None:
        with self._lock:
            return self._state.get(key)

    def latest(self, key: bytes) -> bytes | None:
        return self.get(key)

    def range(self, prefix: bytes, start: bytes = b"", limit: int | None = None) -> Sequence[tuple[bytes, bytes]]:
        with self._lock:
            keys = sorted(key for key in self._state if key.startswith(prefix) and key >= prefix + start)
            return [(key, self._state[key]) for key in keys[:limit]]

    def stats(self) -> StoreStats:
        return self._stats

    def is_full(self) -> bool:
        return False

    def close(self) -> None:
        with self._lock:
            self._closed = True

    def _partition(self, partition: PartitionId) -> _MemoryPartition:
        stored = self._partitions.get(partition)
        if stored is None:
            raise UnknownPartitionError.of(self.topic_names.of(partition))
        return stored

    def _apply(self, commit: PendingCommit) -> None:
        changes = commit.changes
        for topic_id, count in changes.creates:
            for index in range(count):
                self._partitions.setdefault(PartitionId(topic_id, index), _MemoryPartition())
        for topic_id in changes.drops:
            self._partitions = {
                partition: held for partition, held in self._partitions.items() if partition.topic_id != topic_id
            }
        for partition, start in changes.trims:
            self._partitions[partition].trim(start)
        for append, base in zip(changes.appends, commit.receipt.offsets, strict=True):
            self._append(append, base, commit)
        if changes.drops or changes.trims:
            alive = {(partition, held.base_offset) for partition, stored in self._partitions.items() for held in stored.batches}
            self._log = [held for held in self._log if (held.partition, held.base_offset) in alive]
        for prefix in changes.drop_prefixes:
            self._state = {key: value for key, value in self._state.items() if not key.startswith(prefix)}
        for key, value in changes.puts:
            if value is None:
                self._state.pop(key, None)
            else:
                self._state[key] = value

    def _append(self, append: Append, base: Offset, commit: PendingCommit) -> None:
        batch = with_base_offset(append.batch, base)
        stored = self._partitions[append.partition]
        held = LogBatch(self._cursor, append.partition, base, append.records, commit.receipt.hlc, batch)
        stored.batches.append(held)
        stored.timestamps.append(append.max_timestamp)
        stored.oldest.append(append.oldest_timestamp)
        stored.end = Offset(base + append.records)
        self._log.append(held)
        self._cursor = Cursor(self._cursor + append.records)
