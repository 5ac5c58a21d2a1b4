"""The default store: the log on disk, in this process, in one folder."""

from collections.abc import Callable, Sequence
from pathlib import Path

from tailrace.log.active_segment import is_storage_full
from tailrace.log.data_folder import PAYLOADS_FOLDER, STAGING_FOLDER
from tailrace.log.index import PartitionIndex
from tailrace.log.opening import open_log
from tailrace.log.options import DEFAULT_OPTIONS, LogOptions
from tailrace.model.clock import Clock, HybridClock, SystemClock
from tailrace.model.commit import Changes, CommitReceipt, Durability, FetchedBatches, OffsetBounds, ScannedBatches
from tailrace.model.compaction import CompactionResult, CompactionRule
from tailrace.model.errors import StorageFailedError, StorageFullError, StoreClosedError, TailraceError, UnknownPartitionError
from tailrace.model.ids import Cursor, Offset, PartitionId
from tailrace.model.limits import DEFAULT_LIMITS, MIB, Limits
from tailrace.model.stats import StoreStats
from tailrace.model.topic import TopicNames
from tailrace.store.contract import OnDone, PayloadStore, Staging
from tailrace.store.group_commit import GroupCommit
from tailrace.store.payloads import PayloadFolder
from tailrace.store.sequencer import PendingCommit, Sequencer
from tailrace.store.staging import StagingFolder


class EmbeddedStore:
    """Opened with `EmbeddedStore.open`. One process may have a folder open, once."""

    @classmethod
    def open(
        cls,
        folder: Path,
        *,
        durability: Durability = "fsync",
        clock: Clock | None = None,
        limits: Limits = DEFAULT_LIMITS,
        options: LogOptions = DEFAULT_OPTIONS,
        on_failure: Callable[[TailraceError], None] | None = None,
        accept_loss_after: int | None = None,
    ) -> "EmbeddedStore":
        """Open or create the folder. `on_failure` is called once, by a thread of the store, if storage fails for good.

        A log that has lost its end is opened only if `accept_loss_after` is the position up to which it can be read.
        Raises `FolderInUseError`, `CorruptionError`, `LostEndError`, `FormatError`.
        """
        return cls(folder, durability, clock or SystemClock(), limits, options, on_failure or _ignore, accept_loss_after)

    def __init__(
        self,
        folder: Path,
        durability: Durability,
        clock: Clock,
        limits: Limits,
        options: LogOptions,
        on_failure: Callable[[TailraceError], None],
        accept_loss_after: int | None,
    ) -> None:
        self._stats = StoreStats()
        self.topic_names = TopicNames()
        self._closed = False
        self._gap_bytes = options.gap_bytes
        try:
            self._log = log = open_log(
                folder, durability, options, limits, clock, self._stats, self.topic_names, self._fail, accept_loss_after
            )
        except OSError as error:
            if is_storage_full(error):
                raise StorageFullError(f"{folder} can't be opened: {error}. Free some space and start again") from error
            raise StorageFailedError(f"{folder} can't be opened: {error}") from error
        self._catalog, self._settled, self._reader, self._lookup = log.catalog, log.settled, log.reader, log.lookup
        self._free_space = log.free_space
        sequencer = Sequencer(HybridClock(clock, self._catalog.end.hlc), limits, *log.writer.settled_ends(), self.topic_names)
        # Without a sync to share, large groups only make callers wait that could be at work.
        group_bytes = limits.group_commit_bytes if durability == "fsync" else min(limits.group_commit_bytes, MIB)
        self._commits = GroupCommit(log.writer, sequencer, limits, clock, self._stats, on_failure, group_bytes)
        self.staging: Staging = StagingFolder(folder / STAGING_FOLDER, limits)
        self.payloads: PayloadStore = PayloadFolder(folder / PAYLOADS_FOLDER, self._free_space.check, self._fail)
        log.start()
        self._commits.start()

    def submit(self, changes: Changes, done: OnDone) -> PendingCommit:
        if not self._free_space.is_enough and changes.appends:
            self._free_space.check()
        return self._commits.submit(changes, done)

    def commit(self, changes: Changes) -> CommitReceipt:
        if not self._free_space.is_enough and changes.appends:
            self._free_space.check()
        return self._commits.commit(changes)

    def fetch(self, partition: PartitionId, offset: Offset, max_bytes: int) -> FetchedBatches:
        return self._reader.fetch(self._partition(partition), offset, max_bytes)

    def is_hot(self, partition: PartitionId, offset: Offset) -> bool:
        return self._reader.is_hot(self._partition(partition), offset)

    def fetch_cached(
        self, partition: PartitionId, offset: Offset, max_bytes: int, *, at_least_one: bool = True
    ) -> FetchedBatches | None:
        return self._reader.fetch_cached(self._partition(partition), offset, max_bytes, at_least_one=at_least_one)

    def start_reading(self, partition: PartitionId, offset: Offset, max_bytes: int) -> None:
        self._reader.start_reading(self._partition(partition), offset, max_bytes)

    def scan(self, cursor: Cursor, max_bytes: int) -> ScannedBatches:
        self._check_open()
        return self._reader.scan(cursor, max_bytes)

    def bounds(self, partition: PartitionId) -> OffsetBounds:
        return self._reader.bounds(self._partition(partition))

    def next_offset(self, partition: PartitionId) -> Offset:
        return self._commits.next_offset(partition)

    def end_cursor(self) -> Cursor:
        return self._catalog.end.cursor

    def partitions(self) -> Sequence[PartitionId]:
        return sorted(self._catalog.partitions.copy())

    def size(self, partition: PartitionId, start: Offset | None = None) -> int:
        index = self._partition(partition)
        return index.size() if start is None else self._lookup.size_from(index, start)

    def batch_for_time(self, partition: PartitionId, timestamp_ms: int) -> Offset | None:
        location = self._lookup.for_time(self._partition(partition), timestamp_ms)
        return Offset(location.base_offset) if location else None

    def batches_not_after(self, partition: PartitionId, timestamp_ms: int, within: OffsetBounds) -> Sequence[OffsetBounds]:
        return self._lookup.not_after(self._partition(partition), timestamp_ms, within, self._gap_bytes)

    def batch_for_size(self, partition: PartitionId, keep_bytes: int) -> Offset:
        return Offset(self._lookup.for_size(self._partition(partition), keep_bytes))

    def compact(
        self, rules: Sequence[CompactionRule], should_stop: Callable[[], bool] | None = None
    ) -> Sequence[CompactionResult]:
        self._check_open()
        return self._log.maintenance.compact(rules, should_stop)

    def has_batch(self, partition: PartitionId, offset: Offset) -> bool:
        index = self._partition(partition)
        held = next(self._lookup.walk(index, offset), None) if offset >= index.start else None
        return held is not None and held.base_offset <= offset and held.length > 0

    def get(self, key: bytes) -> bytes | None:
        self._check_open()
        return self._settled.get(key)

    def latest(self, key: bytes) -> bytes | None:
        self._check_open()
        return self._commits.latest(key, self._settled.get)

    def range(self, prefix: bytes, start: bytes = b"", limit: int | None = None) -> Sequence[tuple[bytes, bytes]]:
        self._check_open()
        return self._settled.range(prefix, start, limit)

    def stats(self) -> StoreStats:
        segments = self._log.segments.segments
        self._stats.segments = len(segments)
        self._stats.log_bytes = sum(segment.path.stat().st_size for segment in segments if segment.path.exists())
        return self._stats

    def is_full(self) -> bool:
        return not self._free_space.measure()

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._commits.close()
        self._log.segments.close()
        if self._commits.has_failed:
            self._log.abandon()
        else:
            self._log.close()

    def checkpoint(self) -> None:
        """Save the index now instead of when it is due."""
        self._log.maintenance.checkpoint()

    def clean(self) -> None:
        """Run the cleaner now instead of when it is due."""
        self._log.maintenance.clean()

    def _check_open(self) -> None:
        if self._closed:
            raise StoreClosedError("the store is closed; open it again to continue")

    def _partition(self, partition: PartitionId) -> PartitionIndex:
        self._check_open()
        index = self._catalog.partitions.get(partition)
        if index is None:
            raise UnknownPartitionError.of(self.topic_names.of(partition))
        return index

    def _fail(self, error: BaseException) -> None:
        self._commits.abort(error)


def _ignore(error: TailraceError) -> None:
    """Callers of the store see the failure in their own calls."""
