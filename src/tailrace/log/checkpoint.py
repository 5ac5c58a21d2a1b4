"""Checkpoints: the catalog as it is saved, so that a start reads only what comes after.

A checkpoint is one atomic write to RocksDB that ends with a stamp: up to there the log need not be read again.
"""

import threading
from collections.abc import Iterator
from struct import Struct

from tailrace.log.active_segment import ActiveSegment
from tailrace.log.catalog import Catalog, CheckpointData, LogEnd
from tailrace.log.index import SavedIndex
from tailrace.log.options import LogOptions
from tailrace.log.segment import SegmentUsage
from tailrace.log.state import CURSOR, META, SEGMENT, StateDb
from tailrace.model.clock import Hlc
from tailrace.model.errors import FormatError, StorageFullError
from tailrace.model.ids import Cursor, Position
from tailrace.model.killpoint import killpoint

_STAMP = META + b"stamp"
_STAMP_VALUE = Struct(">HQQQ")
_FORMAT_VERSION = 3
"""Of the state. Older ones can be read, too. What only format 1 has is replaced when all counters are saved (`SavedCounters`);
chunks of formats 1 and 2, which have no oldest timestamps, stay as they are (`log.batch_location`)."""
_U64 = Struct(">Q")
_FAR_BEHIND = 4
"""How many checkpoints' worth of unsaved log make writers wait."""
_RECHECK_SECONDS = 1.0


class Checkpoints:
    """Saves checkpoints and reads the last one."""

    def __init__(self, state: StateDb, saved: SavedIndex) -> None:
        self._state = state
        self._saved = saved

    def stamp(self) -> LogEnd | None:
        """Return the end of the log as of the last checkpoint."""
        packed = self._state.get(_STAMP)
        if packed is None:
            return None
        version, position, cursor, hlc = _STAMP_VALUE.unpack(packed)
        if version > _FORMAT_VERSION:
            raise FormatError(
                f"the folder's state has format {version}; this version of Tailrace reads up to {_FORMAT_VERSION}: upgrade"
            )
        return LogEnd(Position(position), Cursor(cursor), Hlc(hlc))

    def save(self, data: CheckpointData) -> None:
        """Save a checkpoint, durably. Everything before `data.end` must be durable in the log already."""
        killpoint("checkpoint.before")
        batch = self._state.batch()
        for topic_id in data.dropped:
            self._saved.drop_topic(batch, topic_id)
        for index, locations in data.partitions:
            self._saved.save(batch, index.key, locations)
        self._saved.counters.save(batch, data.end.position, data.counters, are_all=data.has_all_counters)
        for usage, packed in data.usages:
            batch.put(SEGMENT + _U64.pack(usage.base), packed)
        for cursor, position in data.cursor_entries:
            batch.put(CURSOR + _U64.pack(cursor), _U64.pack(position))
        batch.put(_STAMP, _STAMP_VALUE.pack(_FORMAT_VERSION, *data.end))
        self._state.write(batch)
        killpoint("checkpoint.written")
        self._state.flush()
        killpoint("checkpoint.after")

    def usages(self) -> Iterator[SegmentUsage]:
        """Yield the usage of every segment that the last checkpoint knew, in order."""
        for key, packed in self._state.items(SEGMENT):
            yield SegmentUsage.unpack(_U64.unpack_from(key, 1)[0], packed)

    def usage(self, base: Position) -> SegmentUsage | None:
        """Return the usage of a segment, if the log still has the segment."""
        packed = self._state.get(SEGMENT + _U64.pack(base))
        return None if packed is None else SegmentUsage.unpack(base, packed)

    def cursor_entries(self) -> Iterator[tuple[int, int]]:
        """Yield position and cursor of every saved entry of the cursor index."""
        for key, packed in self._state.items(CURSOR):
            yield _U64.unpack(packed)[0], _U64.unpack_from(key, 1)[0]

    def cursor_entry_before(self, cursor: int) -> tuple[int, int] | None:
        """Return cursor and position of the last saved entry at or before the cursor."""
        held = self._state.at_or_before(CURSOR, CURSOR + _U64.pack(cursor))
        return (_U64.unpack_from(held[0], 1)[0], _U64.unpack(held[1])[0]) if held else None


class CheckpointBacklog:
    """How much of the log is not covered by the last checkpoint, and the wait of writers while that is too much."""

    def __init__(self, catalog: Catalog, segment: ActiveSegment, options: LogOptions, saved: Position) -> None:
        self._catalog = catalog
        self._segment = segment
        self._options = options
        self._saved = saved
        """The position up to which a start need not replay the log."""
        self.wake_up = threading.Event()
        """Set to wake the maintenance thread."""
        self.storage_full: StorageFullError | None = None
        """Why no checkpoint can be saved at the moment."""
        self._progress = threading.Event()
        self._is_stopped = False

    @property
    def is_due(self) -> bool:
        """Whether the next checkpoint should be saved."""
        return self._exceeds(1)

    @property
    def is_far_behind(self) -> bool:
        """Whether the next group has to wait for a checkpoint."""
        return self._exceeds(_FAR_BEHIND)

    def wait_until_near(self) -> None:
        """Wait before more is written, which bounds the replay after a crash. Raises `StorageFullError` on a full disk."""
        while self.is_far_behind and not self._is_stopped:
            if self.storage_full is not None:
                raise self.storage_full.afresh()
            self._progress.clear()
            self.wake_up.set()
            self._progress.wait(timeout=_RECHECK_SECONDS)

    def note_group(self) -> None:
        """A group was written: wake the maintenance thread if a checkpoint is due."""
        if self.is_due:
            self.wake_up.set()

    def note_saved(self, position: Position) -> None:
        """A checkpoint covers the log up to this position."""
        self._saved = position
        self._progress.set()

    def stop(self) -> None:
        """Wake the maintenance thread so that it ends. Writers do not wait from now on."""
        self._is_stopped = True
        self.wake_up.set()

    def _exceeds(self, checkpoints: int) -> bool:
        return (
            self._catalog.unsaved_batches >= checkpoints * self._options.checkpoint_batches
            or self._segment.position - self._saved >= checkpoints * self._options.checkpoint_bytes
        )
