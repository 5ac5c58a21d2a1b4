"""Opening the log of a data folder: find the last checkpoint, check the segments against it, replay what came after.

A log that ends before a position up to which it is known to have been synced is refused, unless whoever starts the server
names the position behind which all is lost. Then what was derived from the lost part is dropped, too.
"""

import logging
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from tailrace.log.active_segment import ActiveSegment
from tailrace.log.catalog import Catalog, LogEnd
from tailrace.log.checkpoint import CheckpointBacklog, Checkpoints
from tailrace.log.chunk_cache import ChunkCache
from tailrace.log.cleaner import Cleaner
from tailrace.log.compactor import Compactor
from tailrace.log.data_folder import (
    LOG_FOLDER,
    PAYLOADS_FOLDER,
    STATE_FOLDER,
    TABLES_FILE,
    FolderLock,
    FreeSpace,
    describe_lost_log,
    make_folder,
    make_private,
    move_aside,
    remains_without_log,
)
from tailrace.log.frame import BadFrameError, Frame, read_effects
from tailrace.log.high_mark import HighMark, read_high_mark
from tailrace.log.index import IndexReader, SavedIndex
from tailrace.log.index_compaction import IndexCompaction
from tailrace.log.maintenance import Maintenance
from tailrace.log.options import LogOptions
from tailrace.log.reader import LogReader
from tailrace.log.recovery import Recovery, SegmentFile, SyncEvidence, diagnose_end, take_inventory
from tailrace.log.segment import Segment, SegmentFolder, SegmentUsage, sync_file, sync_folder
from tailrace.log.segment_rewriter import SegmentRewriter
from tailrace.log.state import SettledState, StateDb
from tailrace.log.writer import LogWriter
from tailrace.model.clock import Clock, Hlc
from tailrace.model.commit import Changes, Durability
from tailrace.model.errors import CorruptionError, InvariantError, LostEndError, StorageFullError, invariant
from tailrace.model.ids import Cursor, Position
from tailrace.model.limits import Limits
from tailrace.model.stats import StoreStats
from tailrace.model.topic import TopicNames

LOG_START = LogEnd(Position(0), Cursor(0), Hlc(0))
_EFFECTS_AT_ONCE = 1000
_ABANDON_SECONDS = 5.0

_logger = logging.getLogger(__name__)


class Log:
    """An open log: its parts, and its threads from the start to the end.

    One thread writes groups (`store.group_commit`), one does maintenance, one records how far the log is synced, with `relaxed`
    durability one more syncs, and any thread reads.
    """

    def __init__(
        self,
        folder_lock: FolderLock,
        state: StateDb,
        settled: SettledState,
        catalog: Catalog,
        segments: SegmentFolder,
        reader: LogReader,
        lookup: IndexReader,
        writer: LogWriter,
        maintenance: Maintenance,
        high_mark: HighMark,
        free_space: FreeSpace,
    ) -> None:
        self._folder_lock = folder_lock
        self._high_mark = high_mark
        self.state = state
        self.settled = settled
        self.catalog = catalog
        self.segments = segments
        self.reader = reader
        self.lookup = lookup
        self.writer = writer
        self.maintenance = maintenance
        self.free_space = free_space
        self._threads = [threading.Thread(target=maintenance.run, name="tailrace-maintenance", daemon=True)]
        if writer.is_relaxed:
            self._threads.append(threading.Thread(target=writer.sync_in_background, name="tailrace-sync", daemon=True))

    def start(self) -> None:
        for thread in self._threads:
            thread.start()
        self._high_mark.start()

    def close(self) -> None:
        """Seal the log, save a checkpoint and release the folder. Called when nothing is written any more."""
        self._stop()
        for thread in self._threads:
            if thread.is_alive():
                thread.join()
        self.maintenance.await_compaction()
        try:
            self.writer.seal()
            with suppress(StorageFullError):  # the next start replays instead
                self.maintenance.checkpoint()
            self.writer.release_reserved()
            self._high_mark.finish(self.writer.synced)
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Close all files as they are, after a failure: what is on disk decides."""
        self._stop()
        for thread in self._threads:
            # A thread at work still uses these files. It meets the failure, too, and ends.
            if thread.is_alive() and thread is not threading.current_thread():
                thread.join(_ABANDON_SECONDS)
        self.maintenance.await_compaction(_ABANDON_SECONDS)
        self.writer.close()
        self._high_mark.close()
        self.state.close()
        self._folder_lock.release()

    def _stop(self) -> None:
        self.writer.stop()
        self.maintenance.stop()
        self._high_mark.stop()


def open_log(
    folder: Path,
    durability: Durability,
    options: LogOptions,
    limits: Limits,
    clock: Clock,
    stats: StoreStats,
    topic_names: TopicNames,
    on_failure: Callable[[BaseException], None],
    accept_loss_after: int | None,
) -> Log:
    """Open or create the log of a folder. The caller starts it.

    `accept_loss_after` is the position up to which the log can be read, if the loss of all behind it is accepted.
    """
    make_folder(folder)
    folder_lock = FolderLock(folder)

    def opened(accepted: int | None) -> Log:
        return _open(folder, folder_lock, durability, options, limits, clock, stats, topic_names, on_failure, accepted)

    try:
        make_private(folder)
        try:
            log = opened(None)
        except LostEndError as lost:
            if accept_loss_after != lost.end or not lost.can_be_accepted:
                raise
            _accept(folder, lost)
            return opened(lost.end)
        if accept_loss_after is not None:
            _logger.warning("--accept-loss-after %d was not needed: the log has lost nothing", accept_loss_after)
        return log
    except BaseException:
        folder_lock.release()
        raise


def _open(
    folder: Path,
    folder_lock: FolderLock,
    durability: Durability,
    options: LogOptions,
    limits: Limits,
    clock: Clock,
    stats: StoreStats,
    topic_names: TopicNames,
    on_failure: Callable[[BaseException], None],
    accepted: int | None,
) -> Log:
    mark = read_high_mark(folder)
    if mark.fault:
        _logger.warning("the high mark of the log in %s is damaged: %s", folder, mark.fault)
    if accepted is None and (remains := remains_without_log(folder)):
        raise LostEndError(f"{folder} {describe_lost_log(remains)}", 0).acceptable()
    for name in (LOG_FOLDER, STATE_FOLDER):
        make_folder(folder / name)
    state = StateDb(folder / STATE_FOLDER)
    high_mark: HighMark | None = None
    try:
        started = clock.monotonic()
        saved = SavedIndex(state, options.index_chunk_batches)
        lookup = IndexReader(saved)
        checkpoints = Checkpoints(state, saved)
        settled = SettledState(state)
        stamp = checkpoints.stamp() or LOG_START
        catalog = Catalog(saved.load(), stamp, lookup, stats, limits.tail_cache_bytes, options.cursor_stride_bytes)
        segments = SegmentFolder(folder / LOG_FOLDER, limits.open_segments)
        usages = {usage.base: usage for usage in checkpoints.usages()}
        files = _files_to_replay(segments, usages, stamp)
        _sync_files(files)
        applied = settled.applied()
        evidence = sync_evidence(mark.position, stamp, applied)
        if accepted is not None:
            evidence = [SyncEvidence("--accept-loss-after", Position(accepted))]
        recovery = Recovery(files, stamp.position, evidence)
        try:
            _replay(recovery, usages, catalog, settled, applied, stats)
        except LostEndError as lost:
            # RocksDB can't go back. If it holds state of what is lost, it has to be rebuilt, which takes the whole log.
            if max(stamp.position, applied) <= lost.end:
                raise lost.acceptable() from None
            raise _loss_below_state(segments, lost, evidence) from None
        high_mark = HighMark(folder, on_failure)
        segment = ActiveSegment(folder / LOG_FOLDER, segments, options.segment_bytes, high_mark.note)
        _resume(segment, recovery, catalog)
        high_mark.write(segment.synced)
        _logger.info("log opened: %d frames replayed, %d torn bytes cut off", stats.replayed_frames, recovery.tail.torn_bytes)
        stats.torn_bytes = recovery.tail.torn_bytes
        stats.replay_seconds = clock.monotonic() - started
        lock = threading.Lock()
        backlog = CheckpointBacklog(catalog, segment, options, stamp.position)
        free_space = FreeSpace(folder, limits.min_free_bytes, stats)
        writer = LogWriter(
            segment, catalog, settled, lock, backlog, high_mark, free_space, durability, options, clock, stats, on_failure
        )
        reader = LogReader(
            catalog, lookup, ChunkCache(saved, segments), checkpoints, segments, lock, options, stats, topic_names
        )
        rewriter = SegmentRewriter(catalog, saved, state, segments, lock, options)
        cleaner = Cleaner(catalog, saved, checkpoints, state, segments, rewriter, lock, options, stats)
        index_compaction = IndexCompaction(catalog, saved, lookup, checkpoints, state, segments, lock)
        compactor = Compactor(
            catalog,
            saved,
            lookup,
            reader,
            checkpoints,
            segments,
            rewriter,
            index_compaction,
            options,
            limits,
            clock,
            stats,
        )
        maintenance = Maintenance(
            writer, catalog, backlog, checkpoints, cleaner, compactor, lock, options, clock, stats, on_failure
        )
    except BaseException:
        if high_mark is not None:
            high_mark.close()
        state.close()
        raise
    return Log(folder_lock, state, settled, catalog, segments, reader, lookup, writer, maintenance, high_mark, free_space)


def sync_evidence(mark: Position, stamp: LogEnd, applied: Position) -> list[SyncEvidence]:
    """Return what is recorded outside the log about how far it was synced."""
    return [
        SyncEvidence("the high mark", mark),
        SyncEvidence("the last checkpoint", stamp.position),
        SyncEvidence("the state", applied),
    ]


def _loss_below_state(segments: SegmentFolder, lost: LostEndError, evidence: Sequence[SyncEvidence]) -> CorruptionError:
    """Return the loss as seen from the beginning of the log, if the whole log is there, so that it can be accepted.

    A start from a checkpoint does not see up to where the log can be read below the checkpoint.
    """
    if not _has_all_history(segments):
        return lost
    files = [SegmentFile(*found) for found in segments.list_files()]
    recovery = Recovery(files, 0, ())
    for _ in recovery.good_frames():
        pass
    loss = diagnose_end(files, len(files), recovery.tail.end, "", evidence)
    return loss.acceptable() if isinstance(loss, LostEndError) else lost


def _accept(folder: Path, lost: LostEndError) -> None:
    """Rename what was derived from lost records, if it can be rebuilt from those that are left."""
    segments = SegmentFolder(folder / LOG_FOLDER, 1)
    _logger.warning("the log in %s continues at position %d; the loss of everything after it was accepted", folder, lost.end)
    if _has_all_history(segments):
        move_aside(folder / STATE_FOLDER)
    if not segments.list_files():
        # They belong to a log of which nothing is left; the new log has other topic ids.
        move_aside(folder / TABLES_FILE)
        move_aside(folder / PAYLOADS_FOLDER)


def _has_all_history(segments: SegmentFolder) -> bool:
    """Return whether the log is complete from its beginning, as it was written."""
    end = 0
    for path, base, generation in segments.list_files():
        if base != end or generation:
            return False
        end = base + path.stat().st_size
    return True


def _files_to_replay(segments: SegmentFolder, usages: dict[Position, SegmentUsage], stamp: LogEnd) -> list[SegmentFile]:
    """Register closed segments, remove files that the cleaner left behind, and return the files to replay."""
    files, leftovers, faults = take_inventory(segments, usages)
    if faults:
        described = "; ".join(f"{name}: {what}" for name, what in faults)
        raise CorruptionError(f"segments differ from the checkpoint: {described}. Restore the folder from a backup")
    if stamp.position and all(usage is not None and usage.size for _, usage in files):
        raise CorruptionError(
            f"the segment that holds position {stamp.position}, where the log continues, is missing."
            " Restore the folder from a backup"
        )
    for path in leftovers:
        path.unlink()
    replayed = []
    for file, usage in files:
        if usage is None or not usage.size:
            replayed.append(file)
        else:
            segments.add(Segment(file.path, usage.base, file.generation, usage.first_cursor))
    return replayed


def _sync_files(files: Sequence[SegmentFile]) -> None:
    """Sync the tail, which a killed process may have left in the page cache only. Nothing may depend on it before that."""
    for file in files:
        sync_file(file.path)
    if files:
        sync_folder(files[0].path.parent)


def _replay(
    recovery: Recovery,
    usages: dict[Position, SegmentUsage],
    catalog: Catalog,
    settled: SettledState,
    applied: Position,
    stats: StoreStats,
) -> None:
    """Apply all frames after the checkpoint. `applied` is the position that the state has recorded already.

    It stays recorded if the log turns out to end before it.
    """
    entered = 0
    waiting: list[Changes] = []
    for frame in recovery.frames():
        entered = _enter(recovery.segments, entered, usages, catalog)
        try:
            changes = _apply(frame, catalog)
        except (InvariantError, BadFrameError, KeyError) as error:
            raise CorruptionError(
                f"the frame at position {frame.position} does not fit the log before it: {error}."
                " Restore the folder from a backup"
            ) from error
        if changes is not None:
            waiting.append(changes)
        stats.replayed_frames += 1
        stats.replayed_bytes += frame.size
        if len(waiting) >= _EFFECTS_AT_ONCE:
            settled.apply(waiting, max(applied, catalog.end.position))
            waiting.clear()
    _enter(recovery.segments, entered, usages, catalog)
    settled.apply(waiting, max(applied, catalog.end.position))


def _apply(frame: Frame, catalog: Catalog) -> Changes | None:
    """Apply a frame to the catalog as when it was written. Return its changes other than batches."""
    invariant(frame.cursor == catalog.end.cursor, f"it begins with cursor {frame.cursor}, expected {catalog.end.cursor}")
    changes = read_effects(frame.effects, frame.effect_count) if frame.effect_count else None
    if changes is not None:
        catalog.change(changes)
    if frame.entries:
        catalog.index_cursor(frame.cursor, frame.position)
        catalog.append(
            (partition, base, records, length, position, newest, oldest, cursor, None)
            for partition, base, cursor, records, length, _, newest, oldest, position in frame.entries
        )
    catalog.advance(LogEnd(Position(frame.position + frame.size), frame.end_cursor, frame.hlc))
    return changes


def _enter(segments: Sequence[Segment], entered: int, usages: dict[Position, SegmentUsage], catalog: Catalog) -> int:
    """Enter the segments that the replay has reached, empty ones too. Return how many have been entered."""
    for segment in segments[entered:]:
        catalog.enter_segment(usages.get(segment.base) or SegmentUsage(segment.base, segment.generation, segment.first_cursor))
    return len(segments)


def _resume(active: ActiveSegment, recovery: Recovery, catalog: Catalog) -> None:
    """Continue behind the last good frame, in a segment of the current format."""
    tail = recovery.tail
    for segment in tail.segments:
        active.segments.add(segment)
    if tail.segments:
        active.resume(tail.segments[-1], tail.end)
    if not active.is_current_format:
        active.begin(tail.end, catalog.end.cursor)
        catalog.enter_segment(SegmentUsage(tail.end, 0, catalog.end.cursor))
    catalog.advance(LogEnd(active.position, catalog.end.cursor, catalog.end.hlc))
    active.sync()
