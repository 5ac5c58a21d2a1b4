"""The log at work: appends groups of commits, makes them durable, shows them to readers, saves checkpoints.

One thread appends (`write`, `seal`), one maintains (checkpoints and cleaning), with `relaxed` durability one more syncs, and
any thread reads. The lock guards the catalog while a group becomes visible, a checkpoint takes its cut or the cleaner moves
places. `log.opening` builds it.
"""

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import islice

from tailrace.log.catalog import Catalog, LogEnd
from tailrace.log.checkpoint import Checkpoints
from tailrace.log.cleaner import Cleaner
from tailrace.log.encoding import Committed, GroupFrames, Piece
from tailrace.log.frame import MAX_FRAME_BYTES, head_bytes
from tailrace.log.heap import give_back_memory
from tailrace.log.lock import FolderLock
from tailrace.log.options import LogOptions
from tailrace.log.settled import SettledState
from tailrace.log.state import StateDb
from tailrace.log.usage import SegmentUsage
from tailrace.log.writer import LogWriter, is_no_room
from tailrace.model.clock import Clock
from tailrace.model.durability import Durability
from tailrace.model.errors import StorageFullError
from tailrace.model.ids import Cursor, Position
from tailrace.model.killpoint import killpoint
from tailrace.model.limits import MIB
from tailrace.model.stats import StoreStats

_LAG = 4
"""How many checkpoints' worth of unsaved log make the writer wait for the checkpoint."""

_ABANDON_SECONDS = 5.0
_NO_ROOM_PAUSE_SECONDS = 0.5
_EVICTED_AT_ONCE = 1_000
"""Batches that leave the cache while the writer and readers wait."""
_WORTH_TRIMMING_BYTES = 4 * MIB

_logger = logging.getLogger(__name__)


class Log:
    def __init__(
        self,
        *,
        folder_lock: FolderLock,
        state: StateDb,
        settled: SettledState,
        catalog: Catalog,
        checkpoints: Checkpoints,
        writer: LogWriter,
        cleaner: Cleaner,
        lock: threading.Lock,
        durability: Durability,
        options: LogOptions,
        clock: Clock,
        stats: StoreStats,
        saved: Position,
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self._folder_lock = folder_lock
        self._state = state
        self._settled = settled
        self._catalog = catalog
        self._checkpoints = checkpoints
        self._writer = writer
        self._cleaner = cleaner
        self._lock = lock
        self._relaxed = durability == "relaxed"
        self._options = options
        self._clock = clock
        self._stats = stats
        self._on_failure = on_failure
        self._write_lock = threading.Lock()
        self._maintenance_lock = threading.Lock()
        self._checkpoint_due = threading.Event()
        self._checkpoint_done = threading.Event()
        self._unsynced = threading.Event()
        self._stopping = threading.Event()
        self._sealed = writer.position
        self._saved = saved
        self._no_room: StorageFullError | None = None
        self._threads = [threading.Thread(target=self._maintain, name="tailrace-maintenance", daemon=True)]
        if self._relaxed:
            self._threads.append(threading.Thread(target=self._sync_soon, name="tailrace-sync", daemon=True))

    def start(self) -> None:
        """Begin to maintain the log."""
        for thread in self._threads:
            thread.start()

    def writes_at_once(self, commit: Committed) -> bool:
        """Whether writing it takes no more than a copy: nothing to sync, no segment to begin, no checkpoint to wait for."""
        return self._relaxed and not commit.changes.is_structural and not self._writer.is_full and not self._unsaved(_LAG)

    def write(self, group: Sequence[Committed]) -> None:
        """Append the group, make it as durable as the setting says, and show it to readers."""
        self._await_checkpoint()
        with self._write_lock:
            self._write(group)
        # To look is a tenth of what it takes to set it. Where it is set, the sync that clears it has not begun.
        if self._relaxed and not self._unsynced.is_set():
            self._unsynced.set()
        if self._unsaved(1):
            self._checkpoint_due.set()

    def _write(self, group: Sequence[Committed]) -> None:
        writer = self._writer
        if writer.is_full:
            self._roll()
        first = writer.position
        frames = GroupFrames(group, first, writer.synced, self._piece_bytes(group))
        writer.append(frames.pieces())
        if not self._relaxed or frames.is_structural:
            self._sync()
        self._show(group, frames, first)

    def _piece_bytes(self, group: Sequence[Committed]) -> int:
        """Two halves: each piece handed to the disk has its price, and the first half hides most of what can be hidden."""
        if self._relaxed:
            return MAX_FRAME_BYTES  # without a sync to wait for, there is nothing to be gained from beginning early
        return max(self._options.piece_bytes, sum(commit.size for commit in group) // 2)

    def seal(self) -> None:
        """Say in the log that it is durable up to here, so that later damage can't be mistaken for a torn write."""
        with self._write_lock:
            self._seal()

    def _seal_if_synced(self) -> None:
        """With `relaxed` durability: what was written since the sync has its own one soon, and nobody waits for it here."""
        with self._write_lock:
            if self._writer.synced == self._writer.position:
                self._seal()

    def _seal(self) -> None:
        writer = self._writer
        if writer.position == self._sealed:
            return
        if writer.synced < writer.position:
            self._sync()
        end = self._catalog.end
        head = head_bytes(writer.position, writer.synced, end.cursor, end.hlc, (), b"", 0, 0)
        try:
            writer.append([Piece([head], len(head), True)])
        except StorageFullError:
            return  # a seal is a help, not a promise
        self._sealed = writer.position
        with self._lock:
            self._catalog.advance(LogEnd(writer.position, end.cursor, end.hlc))

    def checkpoint(self) -> None:
        """Save the catalog, so that a start reads only what comes after."""
        with self._upkeep():
            self._checkpoint()

    def clean(self) -> None:
        """One pass of the cleaner: give back the room of what is no longer needed."""
        with self._upkeep():
            active = self._catalog.active
            with self._write_lock:
                size = self._writer.position - active.base
                if not self._writer.is_empty and self._cleaner.wastes(active, size):
                    self._roll()
            self._checkpoint()
            self._cleaner.run()

    def close(self) -> None:
        """Called when nothing is written any more."""
        self._stopping.set()
        self._checkpoint_due.set()
        self._unsynced.set()
        for thread in self._threads:
            if thread.is_alive():
                thread.join()
        try:
            self.seal()
            with suppress(StorageFullError):  # the next start replays instead
                self.checkpoint()
            self._writer.give_back()
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Let go of all files as they are, after a failure: what is on disk decides."""
        self._stopping.set()
        self._checkpoint_due.set()
        self._unsynced.set()
        for thread in self._threads:
            # Whatever it is in the middle of uses these files. It meets the failure, too, and ends.
            if thread.is_alive() and thread is not threading.current_thread():
                thread.join(_ABANDON_SECONDS)
        self._writer.close()
        self._state.close()
        self._folder_lock.release()

    def _roll(self) -> None:
        cursor = self._catalog.end.cursor
        self._writer.roll(cursor)
        with self._lock:
            self._catalog.enter_segment(SegmentUsage(self._writer.base, 0, cursor))

    def _show(self, group: Sequence[Committed], frames: GroupFrames, position: Position) -> None:
        """Let readers see the group, which begins at `position`."""
        batches = frames.batches
        killpoint("apply.before")
        if frames.has_state:
            apply = self._settled.apply if not self._relaxed or frames.is_structural else self._settled.hold
            apply([commit.changes for commit in group])
        catalog = self._catalog
        with self._lock:
            if batches:
                catalog.mark(group[0].cursor, position)
            if frames.is_structural:
                shown = iter(batches)
                for commit in group:
                    catalog.change(commit.changes)
                    catalog.append(islice(shown, len(commit.changes.appends)))
            else:
                catalog.append(batches)
            catalog.advance(LogEnd(Position(frames.position), Cursor(frames.cursor), group[-1].hlc))
        killpoint("apply.after")

    def _sync(self) -> None:
        with suppress(StorageFullError), self._settled.releasing():
            started = self._clock.monotonic()
            self._writer.sync()
            self._stats.sync_seconds.observe(self._clock.monotonic() - started)

    def _unsaved(self, factor: int) -> bool:
        return (
            self._catalog.unsaved_batches >= factor * self._options.checkpoint_batches
            or self._writer.position - self._saved >= factor * self._options.checkpoint_bytes
        )

    def _await_checkpoint(self) -> None:
        """Bound the replay after a crash: when checkpoints fall behind, writing waits for them."""
        while self._unsaved(_LAG) and not self._stopping.is_set():
            if self._no_room is not None:
                raise self._no_room.afresh()
            self._checkpoint_done.clear()
            self._checkpoint_due.set()
            self._checkpoint_done.wait(timeout=1.0)

    def _checkpoint(self) -> None:
        started = self._clock.monotonic()
        with self._lock:
            cut = self._catalog.cut()
        try:
            with self._settled.releasing():
                if self._relaxed:
                    self._writer.sync()
            self._checkpoints.save(cut)
        except BaseException:
            with self._lock:
                self._catalog.not_saved(cut)
            raise
        with self._lock:
            self._catalog.saved(cut)
        self._saved = cut.end.position
        self._stats.checkpoints += 1
        self._stats.checkpoint_seconds.observe(self._clock.monotonic() - started)
        self._checkpoint_done.set()

    def _forget_aged(self) -> None:
        """Readers at the tail have long been served; whoever comes later finds the batches on disk."""
        has_more = True
        before = self._stats.cached_bytes
        while has_more:
            with self._lock:
                has_more = self._catalog.evict_aged(_EVICTED_AT_ONCE)
        with self._lock:
            self._catalog.age()
        if before - self._stats.cached_bytes >= _WORTH_TRIMMING_BYTES:
            give_back_memory()

    @contextmanager
    def _upkeep(self) -> Iterator[None]:
        """One at a time. Where it fails for another reason than want of room, the log must not go on."""
        with self._maintenance_lock:
            try:
                yield
            except BaseException as error:
                if not is_no_room(error):
                    self._on_failure(error)
                raise

    def _maintain(self) -> None:
        now = self._clock.monotonic()
        next_clean = now + self._options.clean_interval_seconds
        next_aging = now + self._options.cache_seconds
        while True:
            self._checkpoint_due.wait(timeout=max(0.0, min(next_clean, next_aging) - self._clock.monotonic()))
            # Cleared before the look at `_stopping`, which `close` sets first: so its wake-up is never lost.
            self._checkpoint_due.clear()
            if self._stopping.is_set():
                return
            try:
                if self._clock.monotonic() >= next_aging:
                    self._forget_aged()
                    next_aging = self._clock.monotonic() + self._options.cache_seconds
                if self._unsaved(1):
                    self.checkpoint()
                if self._clock.monotonic() >= next_clean:
                    self.clean()
                    next_clean = self._clock.monotonic() + self._options.clean_interval_seconds
                self._no_room = None
            except BaseException as error:  # noqa: BLE001  the top of the thread; `_upkeep` has told of the failure
                if not is_no_room(error):
                    return
                self._no_room = StorageFullError(f"{error}. Until there is room, nothing more can be taken")
                _logger.warning("no room to save the index or to clean up, trying again soon: %s", error)
                self._stopping.wait(timeout=_NO_ROOM_PAUSE_SECONDS)
                self._checkpoint_due.set()

    def _sync_soon(self) -> None:
        while True:
            self._unsynced.wait()
            self._stopping.wait(timeout=self._options.relaxed_sync_seconds)
            self._unsynced.clear()
            if self._stopping.is_set():
                return
            try:
                self._sync()
                self._seal_if_synced()
            except BaseException as error:  # noqa: BLE001  the top of the thread: a failed sync ends the store
                self._on_failure(error)
                return
