"""The cleaner frees the disk space of batches that retention or a deleted topic has removed.

It works on closed segments. A segment without live batches is deleted. One that is mostly dead, or that holds records of a
deleted topic, is rewritten under the next generation with only its live batches (`log.segment_rewriter`). RocksDB decides which
generation counts: the new file is durable before the switch, the old one is removed after it, and what a crash leaves behind is
removed at the next start.
"""

import logging
import threading
from struct import Struct

from tailrace.log.catalog import Catalog
from tailrace.log.checkpoint import Checkpoints
from tailrace.log.frame import BadFrameError
from tailrace.log.index import SavedIndex
from tailrace.log.options import LogOptions
from tailrace.log.segment import SegmentFolder, SegmentUsage
from tailrace.log.segment_rewriter import SegmentRewriter
from tailrace.log.state import SEGMENT, StateDb
from tailrace.model.errors import StorageReadError
from tailrace.model.killpoint import killpoint
from tailrace.model.stats import StoreStats

_U64 = Struct(">Q")

_logger = logging.getLogger(__name__)


class Cleaner:
    """Runs in the maintenance thread, on segments that a checkpoint has closed."""

    def __init__(
        self,
        catalog: Catalog,
        saved: SavedIndex,
        checkpoints: Checkpoints,
        state: StateDb,
        segments: SegmentFolder,
        rewriter: SegmentRewriter,
        lock: threading.Lock,
        options: LogOptions,
        stats: StoreStats,
    ) -> None:
        self._catalog = catalog
        self._saved = saved
        self._checkpoints = checkpoints
        self._state = state
        self._segments = segments
        self._rewriter = rewriter
        self._lock = lock
        self._options = options
        self._stats = stats

    def is_worth_cleaning(self, usage: SegmentUsage, size: int) -> bool:
        """Return whether a segment of this size is worth rewriting."""
        partitions = self._catalog.partitions
        return usage.holds_deleted(partitions) or usage.live_bytes(partitions) <= size * (1 - self._options.clean_dead_ratio)

    def run(self) -> None:
        """Clean all closed segments that are worth it."""
        self._prune_index()
        for usage in list(self._checkpoints.usages()):
            if not usage.size:
                continue
            if not usage.live_bytes(self._catalog.partitions):
                self._delete(usage)
            elif self.is_worth_cleaning(usage, usage.size):
                try:
                    self._rewrite(usage)
                except (BadFrameError, StorageReadError) as error:
                    # What can't be read can't be copied. The segment stays as it is, and the others are cleaned.
                    _logger.error("segment %s can't be cleaned: %s", self._segments.at(usage.base).path.name, error)

    def _prune_index(self) -> None:
        batch = self._state.batch()
        for index in list(self._catalog.partitions.values()):
            if index.start > index.pruned:
                index.pruned = index.start
                self._saved.prune(batch, index.partition, index.start)
        self._state.write(batch)

    def _delete(self, usage: SegmentUsage) -> None:
        killpoint("clean.before")
        segment = self._segments.at(usage.base)
        batch = self._state.batch()
        batch.delete(SEGMENT + _U64.pack(usage.base))
        self._rewriter.delete_cursor_entries(batch, segment)
        with self._lock, self._segments.moving():
            self._state.write(batch)
            self._segments.replace(segment, None)
        killpoint("clean.switched")
        self._state.flush()
        self._segments.delete(segment)
        self._stats.segments_deleted += 1
        self._stats.cleaned_bytes += usage.size
        _logger.info("segment %s deleted: it holds no live batches", segment.path.name)

    def _rewrite(self, usage: SegmentUsage) -> None:
        name = self._segments.at(usage.base).path.name
        size = self._rewriter.rewrite(usage)
        self._stats.segments_rewritten += 1
        self._stats.cleaned_bytes += usage.size - size
        _logger.info("segment %s rewritten: %d of %d bytes kept", name, size, usage.size)
