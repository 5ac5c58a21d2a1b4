"""The default store: the log on disk, in this process, in one folder."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tailrace.log.data_folder import PAYLOADS_FOLDER, FreeSpace
from tailrace.log.index import PartitionIndex
from tailrace.log.opening import open_log
from tailrace.log.options import DEFAULT_OPTIONS, LogOptions
from tailrace.log.writer import is_no_room
from tailrace.model.clock import Clock, HybridClock, SystemClock
from tailrace.model.commit import Changes, CommitReceipt, Durability, FetchedBatches, OffsetBounds, ScannedBatches
from tailrace.model.errors import StorageFailedError, StorageFullError, StoreClosedError, TailraceError, UnknownPartitionError
from tailrace.model.ids import Cursor, Offset, PartitionId
from tailrace.model.limits import DEFAULT_LIMITS, KIB, MIB, Limits
from tailrace.model.stats import StoreStats
from tailrace.model.topic import TopicNames
from tailrace.store.contract import PayloadStore, Staging
from tailrace.store.group_commit import GroupCommit
from tailrace.store.payloads import PayloadFolder
from tailrace.store.sequencer import Done, PendingCommit, Sequencer
from tailrace.store.staging import StagingFolder

_COPIED_AT_ONCE_BYTES = 64 * KIB


class EmbeddedStore:
    """Opened with `EmbeddedStore.open`; one per folder."""

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
        """Open or create the folder. `on_failure` is called once, from a thread of the store, if storage fails for good.

        A log that has lost its end is opened only if `accept_loss_after` names the position up to which it can be read.
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
        self._folder = folder
        self._limits = limits
        self._stats = StoreStats()
        self.topic_names = TopicNames()
        self._closed = False
        try:
            opened = open_log(
                folder, durability, options, limits, clock, self._stats, self.topic_names, self._fail, accept_loss_after
            )
        except OSError as error:
            if is_no_room(error):
                raise StorageFullError(f"{folder} can't be opened: {error}. Free some space and start again") from error
            raise StorageFailedError(f"{folder} can't be opened: {error}") from error
        self._log, self._catalog, self._settled, self._reader, self._index, self._segments = opened
        sequencer = Sequencer(HybridClock(clock, self._catalog.end.hlc), limits, *self.settled_ends())
        # Without a sync to share, large groups only keep callers waiting while there is work for them to do.
        group_bytes = limits.group_commit_bytes if durability == "fsync" else min(limits.group_commit_bytes, MIB)
        self._commits = GroupCommit(self, sequencer, limits, clock, self._stats, on_failure, group_bytes)
        self.staging: Staging = StagingFolder(folder / "staging", limits)
        self._room = FreeSpace(folder, limits.min_free_bytes, self._stats)
        self.payloads: PayloadStore = PayloadFolder(folder / PAYLOADS_FOLDER, self._room.check, self._fail)
        self._log.start()
        self._commits.start()

    def submit(self, changes: Changes, done: Done) -> PendingCommit:
        if not self._room.is_left and changes.appends:
            self._room.check()
        return self._commits.submit(changes, done)

    def commit(self, changes: Changes) -> CommitReceipt:
        if not self._room.is_left and changes.appends:
            self._room.check()
        return self._commits.commit(changes)

    def fetch(self, partition: PartitionId, offset: Offset, max_bytes: int) -> FetchedBatches:
        return self._reader.fetch(self._partition(partition), offset, max_bytes)

    def is_hot(self, partition: PartitionId, offset: Offset) -> bool:
        return self._reader.is_hot(self._partition(partition), offset)

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
        return index.size() if start is None else self._index.size_from(index, start)

    def batch_for_time(self, partition: PartitionId, timestamp_ms: int) -> Offset | None:
        place = self._index.for_time(self._partition(partition), timestamp_ms)
        return Offset(place.base_offset) if place else None

    def batch_for_size(self, partition: PartitionId, keep_bytes: int) -> Offset:
        return Offset(self._index.for_size(self._partition(partition), keep_bytes))

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
        segments = self._segments.segments
        self._stats.segments = len(segments)
        self._stats.log_bytes = sum(segment.path.stat().st_size for segment in segments if segment.path.exists())
        return self._stats

    def is_full(self) -> bool:
        return not self._room.look()

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._commits.close()
        self._segments.close()
        if self._commits.has_failed:
            self._log.abandon()
        else:
            self._log.close()

    def checkpoint(self) -> None:
        """Save the index now instead of when it is due."""
        self._log.checkpoint()

    def clean(self) -> None:
        """Run the cleaner now instead of when it is due."""
        self._log.clean()

    def persists_at_once(self, commit: PendingCommit) -> bool:
        return commit.size <= _COPIED_AT_ONCE_BYTES and self._log.writes_at_once(commit)

    def persist(self, group: Sequence[PendingCommit]) -> None:
        self._log.write(group)
        self._room.look()  # once a group, so that callers need not: what they bring in the meantime has room

    def idle(self) -> None:
        self._log.seal()

    def settled_ends(self) -> tuple[Mapping[PartitionId, Offset], Cursor]:
        ends = {partition: Offset(index.end) for partition, index in self._catalog.partitions.copy().items()}
        return ends, self._catalog.end.cursor

    def _check_open(self) -> None:
        if self._closed:
            raise StoreClosedError("the store is closed; open it again to go on")

    def _partition(self, partition: PartitionId) -> PartitionIndex:
        self._check_open()
        index = self._catalog.partitions.get(partition)
        if index is None:
            raise UnknownPartitionError.of(partition)
        return index

    def _fail(self, error: BaseException) -> None:
        self._commits.abort(error)


def _ignore(error: TailraceError) -> None:
    """Nobody asked to be told; callers of the store see the failure in their own calls."""
