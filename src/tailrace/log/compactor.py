"""The compactor: keeps the last record of each key of some partitions, in closed segments.

First it reads the records that came since the last round, and notes the last offset of each key (`log.compaction_round`). Then
it rewrites the segments that hold something to remove (`log.segment_rewriter`), from the oldest on, and last it counts the
bytes of the partitions again (`log.index_compaction`). A crash at any point leaves a log in which some removable records are
gone and others are not, and the next round removes those. Whoever asks for a compaction keeps `CompactionResult.clean_end`;
before a partition's round is complete that has not moved, so no tombstone is removed while an older record of its key may be
left.

A segment belongs to all partitions, so those that are due are compacted together, as many as their keys fit into memory.
"""

import logging
import time
from bisect import bisect_left
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, closing

from tailrace.log.batch_location import base_offset_of, position_of
from tailrace.log.catalog import Catalog
from tailrace.log.checkpoint import Checkpoints
from tailrace.log.compaction_round import PartitionRound, latest_offsets
from tailrace.log.frame import BadFrameError, BatchEntry
from tailrace.log.index import IndexReader, PartitionIndex, SavedIndex
from tailrace.log.index_compaction import IndexCompaction
from tailrace.log.options import LogOptions
from tailrace.log.reader import LogReader
from tailrace.log.recovery import map_file
from tailrace.log.segment import SegmentFolder, SegmentUsage
from tailrace.log.segment_rewriter import SegmentGrewError, SegmentRewriter
from tailrace.model.clock import Clock
from tailrace.model.commit import Buffer
from tailrace.model.compaction import CompactionResult, CompactionRule
from tailrace.model.errors import CorruptionError, OffsetOutOfRangeError, StorageReadError, UnknownPartitionError
from tailrace.model.ids import Offset, PartitionId, Position
from tailrace.model.killpoint import killpoint
from tailrace.model.limits import MIB, Limits
from tailrace.model.stats import StoreStats

_READ_BYTES = 4 * MIB
_SLICE_SECONDS = 0.0002
"""Work between two pauses."""
_LAST_OFFSET = (1 << 63) - 1

Guard = Callable[[], AbstractContextManager[object]]

_logger = logging.getLogger(__name__)


class Compactor:
    """Used by one thread at a time."""

    def __init__(
        self,
        catalog: Catalog,
        saved: SavedIndex,
        lookup: IndexReader,
        reader: LogReader,
        checkpoints: Checkpoints,
        segments: SegmentFolder,
        rewriter: SegmentRewriter,
        index_compaction: IndexCompaction,
        options: LogOptions,
        limits: Limits,
        clock: Clock,
        stats: StoreStats,
    ) -> None:
        self._catalog = catalog
        self._saved = saved
        self._lookup = lookup
        self._reader = reader
        self._checkpoints = checkpoints
        self._segments = segments
        self._rewriter = rewriter
        self._index_compaction = index_compaction
        self._options = options
        self._limits = limits
        self._clock = clock
        self._stats = stats
        self._counted: set[PartitionId] = set()
        """Partitions whose bytes were counted again since the start. Before, a crash may have left that half done."""
        self.has_counted = False
        """Whether the last run has counted bytes again."""

    def run(
        self, rules: Sequence[CompactionRule], compacting: Guard, exclusively: Guard, check_running: Callable[[], None]
    ) -> Sequence[CompactionResult]:
        """Compact partitions, after a checkpoint.

        `compacting` is entered for each segment, to exclude the cleaner, `exclusively` for each change of the index, to exclude
        checkpoints, too. `check_running` raises when it is time to stop.
        """
        started = self._clock.monotonic()
        self.has_counted = False
        pause = _Pauses(self._options.compaction_share, check_running)
        results = {rule.partition: CompactionResult(rule.partition, rule.clean_end, 0, 0) for rule in rules}
        waiting = list(rules)
        while waiting:
            rounds = self._noted(waiting, pause)
            killpoint("compact.noted")
            self._rewrite(rounds, compacting, exclusively, pause)
            for partition, found in rounds.items():
                index = self._catalog.partitions.get(partition)
                if index is None or index.is_dropped:
                    waiting = [rule for rule in waiting if rule.partition != partition]
                    continue
                if found.has_work or partition not in self._counted:
                    with exclusively():
                        self._index_compaction.run(index, found.end, pause.rest)
                    self._counted.add(partition)
                    self.has_counted = True
                before = results[partition]
                results[partition] = CompactionResult(
                    partition,
                    before.clean_end if found.has_failed else Offset(max(before.clean_end, found.end)),
                    before.removed_records + found.removed_records,
                    before.removed_bytes + found.removed_bytes,
                )
                self._stats.compacted_records += found.removed_records
                self._stats.compacted_bytes += found.removed_bytes
                waiting = [rule for rule in waiting if rule.partition != partition]
                if found.is_full and not found.has_failed and found.end > found.start:
                    waiting.insert(0, found.rule._replace(clean_end=Offset(found.end)))
                elif found.is_full:
                    _logger.error(
                        "%s can't be compacted: the keys of one batch do not fit into compaction_key_bytes (%d)",
                        self._reader.topic_names.of(partition),
                        self._limits.compaction_key_bytes,
                    )
        self._stats.compactions += 1
        self._stats.compaction_seconds.observe(self._clock.monotonic() - started)
        return list(results.values())

    def _noted(self, rules: Sequence[CompactionRule], pause: "_Pauses") -> dict[PartitionId, PartitionRound]:
        """Note keys of the first partitions, as many as there is room for. Return the rounds of these."""
        closed_end = self._closed_end()
        keys = latest_offsets(self._limits, sum(max(0, rule.stop - rule.clean_end) for rule in rules))
        rounds: dict[PartitionId, PartitionRound] = {}
        for rule in rules:
            index = self._catalog.partitions.get(rule.partition)
            start = rule.clean_end if index is None else max(rule.clean_end, index.start)
            stop = start if index is None else max(start, min(rule.stop, self._compactable_end(index, closed_end)))
            found = rounds[rule.partition] = PartitionRound(rule, keys, start, stop, self._limits)
            if index is not None:
                self._note(index, found, pause)
            if found.is_full:
                if len(rounds) > 1 and found.end == found.start:
                    # It gets all of the memory in the next round.
                    del rounds[rule.partition]
                break
        return rounds

    def _note(self, index: PartitionIndex, found: PartitionRound, pause: "_Pauses") -> None:
        has_more = found.end < found.stop
        while has_more:
            try:
                fetched = self._reader.fetch(index, found.end, _READ_BYTES)
            except OffsetOutOfRangeError as error:
                # Retention has moved the start meanwhile.
                found.end = max(found.end, error.start)
                has_more = found.end < found.stop
                continue
            except UnknownPartitionError:
                return
            except (CorruptionError, StorageReadError) as error:
                _logger.error(
                    "%s can't be compacted from offset %d on: %s",
                    self._reader.topic_names.of(index.partition),
                    found.end,
                    error,
                )
                return
            for batch in fetched.batches:
                has_more = found.note((batch,))
                pause.between()
                if not has_more:
                    return
            has_more = bool(fetched.batches) and has_more

    def _rewrite(
        self, rounds: dict[PartitionId, PartitionRound], compacting: Guard, exclusively: Guard, pause: "_Pauses"
    ) -> None:
        """Rewrite the closed segments that hold something to remove."""

        def edit(entry: BatchEntry, batch: Buffer) -> Buffer | None:
            found = rounds.get(entry.partition)
            if found is None or not found.covers(entry.base_offset + entry.records):
                return batch
            edited = found.edited(batch)
            found.count_removed(batch, edited)
            return edited

        rounds = {partition: found for partition, found in rounds.items() if found.has_work}
        ends = {partition: self._segment_of(partition, found.end) for partition, found in rounds.items()}
        for base in [usage.base for usage in self._checkpoints.usages() if usage.size]:
            with compacting():
                usage = self._checkpoints.usage(base)
                if usage is None:
                    continue
                here = [found for partition, found in rounds.items() if partition in usage.spans and base <= ends[partition]]
                if not here:
                    continue
                counts = [(each, each.removed_records, each.removed_bytes) for each in here]
                name = self._segments.at(base).path.name
                try:
                    if self._holds_removable(usage, rounds, pause):
                        size = self._rewriter.rewrite(usage, edit, exclusively, pause.between)
                        self._stats.segments_rewritten += 1
                        self._stats.cleaned_bytes += usage.size - size
                        _logger.info("segment %s compacted: %d of %d bytes kept", name, size, usage.size)
                except (BadFrameError, StorageReadError, SegmentGrewError) as error:
                    _logger.error("segment %s can't be compacted: %s", name, error)
                    for each, records, removed_bytes in counts:
                        each.removed_records, each.removed_bytes, each.has_failed = records, removed_bytes, True

    def _holds_removable(self, usage: SegmentUsage, rounds: dict[PartitionId, PartitionRound], pause: "_Pauses") -> bool:
        segment = self._segments.at(usage.base)
        with map_file(segment.path) as data, closing(self._rewriter.live_frames(segment, data)) as frames:
            for _, live in frames:
                pause.between()
                for entry in live:
                    found = rounds.get(entry.partition)
                    if found is not None and found.covers(entry.base_offset + entry.records):
                        first = entry.position - segment.base
                        batch = bytes(data[first : first + entry.length])
                        if found.edited(batch) is not batch:
                            return True
        return False

    def _closed_end(self) -> Position:
        """Return the position below which all segments are closed and saved."""
        return min((usage.base for usage in self._checkpoints.usages() if not usage.size), default=Position(0))

    def _compactable_end(self, index: PartitionIndex, closed_end: Position) -> int:
        """Return the offset of the first batch that must stay: in a segment that is not closed, or the last one of all.

        So a reader always finds a batch after those that were removed.
        """
        recent = index.locations
        if recent and (position_of(recent[0]) < closed_end):
            at = bisect_left(recent, closed_end, key=position_of)
            return base_offset_of(recent[min(at, len(recent) - 1)])
        first = base_offset_of(recent[0]) if recent else None
        below = _LAST_OFFSET if first is None else first - 1
        while chunk := self._saved.chunk_holding(index.partition, max(0, below)):
            inside = [location.base_offset for location in chunk if location.position >= closed_end]
            first = inside[0] if inside else first
            if len(inside) < len(chunk):
                break
            below = chunk[0].base_offset - 1
            if below < 0:
                break
        if first is not None:
            return first
        return chunk[-1].base_offset if chunk else index.start

    def _segment_of(self, partition: PartitionId, offset: int) -> Position:
        """Return the base of the last segment that may hold batches of the partition below the offset."""
        index = self._catalog.partitions.get(partition)
        above = next((each for each in self._lookup.walk(index, offset) if each.length), None) if index else None
        return self._segments.base_of(above.position) if above else self._catalog.end.position


class _Pauses:
    """Leaves the processor to others for a part of the time."""

    def __init__(self, share: float, check_running: Callable[[], None]) -> None:
        self._idle = (1 - share) / share
        self._check_running = check_running
        self._since = time.perf_counter()

    def between(self) -> None:
        """Pause if there was enough work since the last pause. Raises when it is time to stop."""
        if time.perf_counter() - self._since >= _SLICE_SECONDS:
            self._check_running()
            self.rest()

    def rest(self) -> None:
        """Pause if there was enough work since the last pause."""
        worked = time.perf_counter() - self._since
        if worked >= _SLICE_SECONDS:
            time.sleep(worked * self._idle)
            self._since = time.perf_counter()
