"""Writes groups of commits to the log: encodes and appends them, makes them durable as configured, shows them to readers.

One thread calls `write` and `seal` (`store.group_commit`). With `relaxed` durability another thread syncs. The log's lock
guards the catalog while a group becomes visible.
"""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from typing import Protocol

from tailrace.log.active_segment import ActiveSegment, EncodedFrames
from tailrace.log.catalog import Catalog, LogEnd, NewBatch
from tailrace.log.checkpoint import CheckpointBacklog
from tailrace.log.data_folder import FreeSpace
from tailrace.log.frame import (
    MAX_FRAME_BYTES,
    ONE_BATCH_HEAD_BYTES,
    encode_effects,
    encode_entry,
    encode_head,
    fast_encode_head,
    head_size,
)
from tailrace.log.high_mark import HighMark
from tailrace.log.options import LogOptions
from tailrace.log.segment import SegmentUsage
from tailrace.log.state import SettledState
from tailrace.model.clock import Clock, Hlc
from tailrace.model.commit import Append, Buffer, Changes, Durability
from tailrace.model.errors import StorageFullError
from tailrace.model.ids import Cursor, Offset, PartitionId, Position
from tailrace.model.killpoint import killpoint
from tailrace.model.limits import KIB
from tailrace.model.stats import StoreStats
from tailrace.wire.batch import with_base_offset

_COPIED_AT_ONCE_BYTES = 64 * KIB


class SequencedCommit(Protocol):
    """A commit that has its offsets and its cursor."""

    @property
    def changes(self) -> Changes: ...
    @property
    def only(self) -> Append | None:
        """The batch, if the commit is one batch and nothing else."""

    @property
    def hlc(self) -> Hlc: ...
    @property
    def cursor(self) -> Cursor: ...
    @property
    def offsets(self) -> Sequence[Offset]: ...
    @property
    def size(self) -> int:
        """Approximate size in bytes."""


class LogWriter:
    """The only writer of a log."""

    def __init__(
        self,
        segment: ActiveSegment,
        catalog: Catalog,
        settled: SettledState,
        lock: threading.Lock,
        backlog: CheckpointBacklog,
        high_mark: HighMark,
        free_space: FreeSpace,
        durability: Durability,
        options: LogOptions,
        clock: Clock,
        stats: StoreStats,
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self._segment = segment
        self._catalog = catalog
        self._settled = settled
        self._lock = lock
        self._backlog = backlog
        self._high_mark = high_mark
        self._free_space = free_space
        self._options = options
        self._clock = clock
        self._stats = stats
        self._on_failure = on_failure
        self._write_lock = threading.Lock()
        self._sealed = segment.position
        self._unsynced = threading.Event()
        self._stopping = threading.Event()
        self.is_relaxed = durability == "relaxed"

    @property
    def position(self) -> Position:
        """Where the next group begins."""
        return self._segment.position

    @property
    def synced(self) -> Position:
        """Up to where the log is durable."""
        return self._segment.synced

    def settled_ends(self) -> tuple[Mapping[PartitionId, Offset], Cursor]:
        """Return where each partition and the log end for readers."""
        ends = {partition: Offset(index.end) for partition, index in self._catalog.partitions.copy().items()}
        return ends, self._catalog.end.cursor

    def writes_at_once(self, commit: SequencedCommit) -> bool:
        """Return whether writing the commit takes no more than a copy: no sync, new segment or checkpoint to wait for."""
        return (
            commit.size <= _COPIED_AT_ONCE_BYTES
            and self.is_relaxed
            and not commit.changes.is_structural
            and not self._segment.is_full
            and not self._backlog.is_far_behind
            and not self._high_mark.is_far_behind
        )

    def write(self, group: Sequence[SequencedCommit]) -> None:
        """Append the group, make it durable as configured, and show it to readers.

        Raises `StorageFullError` if nothing of the group was written.
        """
        self._backlog.wait_until_near()
        self._high_mark.wait_until_near()
        with self._write_lock:
            segment = self._segment
            if segment.is_full:
                self._roll()
            first = segment.position
            frames = GroupFrames(group, first, segment.synced, segment.salt, self._run_bytes(group))
            segment.append(frames.encode())
            if not self.is_relaxed or frames.is_structural:
                self.sync()
            self._show(group, frames, first)
        # `is_set` takes a tenth of the time of `set`. While the event is set, the sync that clears it has not begun.
        if self.is_relaxed and not self._unsynced.is_set():
            self._unsynced.set()
        self._backlog.note_group()
        self._free_space.measure()  # once for each group, so that callers need not

    def sync(self) -> None:
        """Make all that is written durable, then pass the state that waited for it to RocksDB."""
        with suppress(StorageFullError), self._settled.releasing(lambda: self._segment.synced):
            started = self._clock.monotonic()
            self._segment.sync()
            self._stats.sync_seconds.observe(self._clock.monotonic() - started)

    def sync_for_checkpoint(self) -> None:
        """Make all that a checkpoint names durable, seals and new segments too, and pass its state to RocksDB.

        Unlike `sync`, this raises `StorageFullError` if RocksDB has no space for the state.
        """
        with self._settled.releasing(lambda: self._segment.synced):
            if self._segment.synced < self._segment.position:
                self._segment.sync()

    def seal(self) -> None:
        """Record in the log that it is durable up to here, so that later damage can't be mistaken for a torn write."""
        with self._write_lock:
            self._seal()

    def roll_if(self, is_worth_cleaning: Callable[[SegmentUsage, int], bool]) -> None:
        """Close the active segment if the function returns true for its usage and size, so that it can be cleaned."""
        with self._write_lock:
            active = self._catalog.active
            if not self._segment.is_empty and is_worth_cleaning(active, self._segment.position - active.base):
                self._roll()

    def sync_in_background(self) -> None:
        """With `relaxed` durability: sync shortly after each write, until `stop`. Runs in a thread of its own."""
        while True:
            self._unsynced.wait()
            self._stopping.wait(timeout=self._options.relaxed_sync_seconds)
            self._unsynced.clear()
            if self._stopping.is_set():
                return
            try:
                self.sync()
                with self._write_lock:
                    # What was written since is synced soon; nothing here waits for it.
                    if self._segment.synced == self._segment.position:
                        self._seal()
            except BaseException as error:  # noqa: BLE001  the top of the thread: a failed sync ends the store
                self._on_failure(error)
                return

    def stop(self) -> None:
        """End the thread that syncs."""
        self._stopping.set()
        self._unsynced.set()

    def release_reserved(self) -> None:
        """Give back the disk blocks that are reserved for later groups."""
        self._segment.release_reserved()

    def close(self) -> None:
        """Close the files as they are."""
        self._segment.close()

    def _run_bytes(self, group: Sequence[SequencedCommit]) -> int:
        """Return how many bytes to encode before the disk begins to write them.

        Half of the group: each run costs a call, and the first half hides most of what can be hidden.
        """
        if self.is_relaxed:
            return MAX_FRAME_BYTES  # without a sync to wait for, beginning early gains nothing
        return max(self._options.piece_bytes, sum(commit.size for commit in group) // 2)

    def _seal(self) -> None:
        segment = self._segment
        if segment.position == self._sealed:
            return
        if segment.synced < segment.position:
            self.sync()
        end = self._catalog.end
        head = encode_head(segment.position, segment.synced, end.cursor, end.hlc, (), b"", 0, 0, segment.salt)
        try:
            segment.append([EncodedFrames([head], len(head), True)])
        except StorageFullError:
            return  # a seal helps recovery and is not promised to anybody
        self._sealed = segment.position
        with self._lock:
            self._catalog.advance(LogEnd(segment.position, end.cursor, end.hlc))

    def _roll(self) -> None:
        cursor = self._catalog.end.cursor
        self._segment.roll(cursor)
        with self._lock:
            self._catalog.enter_segment(SegmentUsage(self._segment.base, 0, cursor))

    def _show(self, group: Sequence[SequencedCommit], frames: "GroupFrames", position: Position) -> None:
        """Let readers see the group, which begins at `position`."""
        batches = frames.batches
        killpoint("apply.before")
        if frames.has_state:
            changes = [commit.changes for commit in group]
            if self.is_relaxed and not frames.is_structural:
                self._settled.hold(changes)
            else:
                self._settled.apply(changes, self._segment.synced)
        catalog = self._catalog
        with self._lock:
            if batches:
                catalog.index_cursor(group[0].cursor, position)
            if frames.is_structural:
                shown = iter(batches)
                for commit in group:
                    catalog.change(commit.changes)
                    catalog.append(islice(shown, len(commit.changes.appends)))
            else:
                catalog.append(batches)
            catalog.advance(LogEnd(Position(frames.position), Cursor(frames.cursor), group[-1].hlc))
        killpoint("apply.after")


class GroupFrames:
    """The frames of a group, from `position` on, and the batches to show to readers.

    Frames are encoded in runs, each when it is asked for, so that the disk can write one while the next is encoded. The
    attributes describe the whole group once all runs have been taken.
    """

    def __init__(self, group: Sequence[SequencedCommit], position: int, synced: int, salt: int, run_bytes: int) -> None:
        self._group = group
        self._synced = synced
        self._salt = salt
        self._run_bytes = run_bytes
        self.position = position
        """Where the next frame begins."""
        self.cursor = 0
        self.batches: list[NewBatch] = []
        self.has_state = False
        self.is_structural = False

    def encode(self) -> Iterator[EncodedFrames]:
        """Yield the frames of all commits.

        The loop holds the fast path of `_encode_commit`: a commit of one batch and nothing else (`only` is set), which is the
        commonest by far. `tests/unit/log/test_writer.py` holds both equal.
        """
        synced, salt = self._synced, self._salt
        batches = self.batches
        begun = position = self.position
        full = begun + self._run_bytes
        buffers: list[Buffer] = []
        cursor: int = 0
        for commit in self._group:
            if position >= full:
                yield EncodedFrames(buffers, position - begun, False)
                buffers = []
                begun = position
                full = begun + self._run_bytes
            only = commit.only
            if only is None:
                self.position = position
                buffers += self._encode_commit(commit)
                position, cursor = self.position, self.cursor
                continue
            cursor = commit.cursor
            partition, batch, records, timestamp, _, oldest = only
            (base,) = commit.offsets
            batch = with_base_offset(batch, base)
            length = len(batch)
            buffers.append(
                fast_encode_head(position, synced, cursor, commit.hlc, partition, base, records, batch, timestamp, oldest, salt)
            )
            buffers.append(batch)
            at = position + ONE_BATCH_HEAD_BYTES
            batches.append((partition, base, records, length, at, timestamp, oldest, cursor, batch))
            position = at + length
            cursor += records
        self.position, self.cursor = position, cursor
        yield EncodedFrames(buffers, position - begun, True)

    def _encode_commit(self, commit: SequencedCommit) -> list[Buffer]:
        """Encode a commit of any kind as the frame at `position`."""
        appends = commit.changes.appends
        effects, effect_count = encode_effects(commit.changes)
        self.has_state |= effect_count > 0
        self.is_structural |= commit.changes.is_structural
        cursor: int = commit.cursor
        start = at = self.position + head_size(len(appends), len(effects))
        entries = []
        bodies: list[Buffer] = []
        for (partition, batch, records, timestamp, _, oldest), base in zip(appends, commit.offsets, strict=True):
            batch = with_base_offset(batch, base)
            length = len(batch)
            entries.append(encode_entry(partition, base, cursor, records, batch, timestamp, oldest))
            bodies.append(batch)
            self.batches.append((partition, base, records, length, at, timestamp, oldest, cursor, batch))
            at += length
            cursor += records
        head = encode_head(
            self.position, self._synced, commit.cursor, commit.hlc, entries, effects, effect_count, at - start, self._salt
        )
        self.position, self.cursor = at, cursor
        return [head, *bodies]
