"""Groups of commits on their way into the log: appended, made as durable as the setting says, shown to readers.

One thread appends (`write`, `seal`); with `relaxed` durability another one syncs. The log's lock guards the catalog while a
group becomes visible.
"""

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import islice

from tailrace.log.catalog import Catalog, LogEnd
from tailrace.log.encoding import Committed, GroupFrames, Piece
from tailrace.log.frame import MAX_FRAME_BYTES, encode_head
from tailrace.log.segment import SegmentUsage
from tailrace.log.state import SettledState
from tailrace.log.writer import LogWriter
from tailrace.model.clock import Clock
from tailrace.model.commit import Durability
from tailrace.model.errors import StorageFullError
from tailrace.model.ids import Cursor, Position
from tailrace.model.killpoint import killpoint
from tailrace.model.stats import StoreStats


class GroupWriter:
    def __init__(
        self,
        writer: LogWriter,
        catalog: Catalog,
        settled: SettledState,
        lock: threading.Lock,
        durability: Durability,
        piece_bytes: int,
        clock: Clock,
        stats: StoreStats,
    ) -> None:
        self._writer = writer
        self._catalog = catalog
        self._settled = settled
        self._lock = lock
        self._least_piece_bytes = piece_bytes
        self._clock = clock
        self._stats = stats
        self._write_lock = threading.Lock()
        self._sealed = writer.position
        self.is_relaxed = durability == "relaxed"

    @property
    def position(self) -> Position:
        """Where the next group begins."""
        return self._writer.position

    @property
    def synced(self) -> Position:
        """Up to where the log is durable."""
        return self._writer.synced

    def writes_at_once(self, commit: Committed) -> bool:
        """Whether writing it takes no more than a copy: nothing to sync, no segment to begin."""
        return self.is_relaxed and not commit.changes.is_structural and not self._writer.is_full

    def write(self, group: Sequence[Committed]) -> None:
        with self._write_lock:
            writer = self._writer
            if writer.is_full:
                self._roll()
            first = writer.position
            frames = GroupFrames(group, first, writer.synced, writer.salt, self._piece_bytes(group))
            writer.append(frames.pieces())
            if not self.is_relaxed or frames.is_structural:
                self.sync()
            self._show(group, frames, first)

    def sync(self) -> None:
        """Make all that is written durable, and let RocksDB have the state that waited for it."""
        with suppress(StorageFullError), self._settled.releasing(lambda: self._writer.synced):
            started = self._clock.monotonic()
            self._writer.sync()
            self._stats.sync_seconds.observe(self._clock.monotonic() - started)

    def settle(self) -> None:
        """Before a checkpoint: all that it names is durable, seals and new segments too, and RocksDB has the state of it."""
        with self._settled.releasing(lambda: self._writer.synced):
            if self._writer.synced < self._writer.position:
                self._writer.sync()

    def seal(self) -> None:
        """Say in the log that it is durable up to here, so that later damage can't be mistaken for a torn write."""
        with self._write_lock:
            self._seal()

    def seal_if_synced(self) -> None:
        """With `relaxed` durability: what was written since the sync has its own one soon, and nobody waits for it here."""
        with self._write_lock:
            if self._writer.synced == self._writer.position:
                self._seal()

    def roll_if(self, wastes: Callable[[SegmentUsage, int], bool]) -> None:
        """Close the active segment if it says so of it and its size, so that the cleaner can have it."""
        with self._write_lock:
            active = self._catalog.active
            if not self._writer.is_empty and wastes(active, self._writer.position - active.base):
                self._roll()

    def close(self) -> None:
        """What is reserved for later groups is given back."""
        self._writer.give_back()

    def abandon(self) -> None:
        self._writer.close()

    def _piece_bytes(self, group: Sequence[Committed]) -> int:
        """Two halves: each piece handed to the disk has its price, and the first half hides most of what can be hidden."""
        if self.is_relaxed:
            return MAX_FRAME_BYTES  # without a sync to wait for, there is nothing to be gained from beginning early
        return max(self._least_piece_bytes, sum(commit.size for commit in group) // 2)

    def _seal(self) -> None:
        writer = self._writer
        if writer.position == self._sealed:
            return
        if writer.synced < writer.position:
            self.sync()
        end = self._catalog.end
        head = encode_head(writer.position, writer.synced, end.cursor, end.hlc, (), b"", 0, 0, writer.salt)
        try:
            writer.append([Piece([head], len(head), True)])
        except StorageFullError:
            return  # a seal is a help, not a promise
        self._sealed = writer.position
        with self._lock:
            self._catalog.advance(LogEnd(writer.position, end.cursor, end.hlc))

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
            changes = [commit.changes for commit in group]
            if self.is_relaxed and not frames.is_structural:
                self._settled.hold(changes)
            else:
                self._settled.apply(changes, self._writer.synced)
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
