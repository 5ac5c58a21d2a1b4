"""Checks a data folder from end to end, without changing it.

Every frame and batch is read and checked, the records inside too. Offsets must be dense, except where the index says
that compaction has removed batches, and so must cursors. The saved index must name exactly the other batches that the log
holds, with their positions. Payloads that records refer to must be there, intact. What a
crash may leave behind is a note; what must never happen is a finding.
"""

from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from tailrace.log.batch_location import BatchLocation
from tailrace.log.checkpoint import Checkpoints
from tailrace.log.content_checks import PayloadCheck, bad_batches, scan_for
from tailrace.log.data_folder import (
    LOG_FOLDER,
    PAYLOADS_FOLDER,
    STATE_FOLDER,
    FolderLock,
    describe_lost_log,
    remains_without_log,
    require_data_folder,
)
from tailrace.log.frame import BadFrameError, BatchEntry, Frame, read_effects, read_frame
from tailrace.log.high_mark import HIGH_MARK_FILE, FoundMark, read_high_mark
from tailrace.log.index import PartitionIndex, SavedIndex, describe_partition
from tailrace.log.opening import LOG_START, sync_evidence
from tailrace.log.recovery import SegmentFile, diagnose_end, frames_after, map_file, take_inventory
from tailrace.log.segment import SEGMENT_HEADER_BYTES, SegmentFolder, SegmentUsage, read_segment_header, salt_of
from tailrace.log.state import SettledState, StateDb, saved_topics
from tailrace.model.commit import UNKNOWN_TIMESTAMP
from tailrace.model.errors import CorruptionError, StorageReadError
from tailrace.model.ids import Offset, PartitionId
from tailrace.model.topic import TopicNames
from tailrace.wire.record_check import ScanRecords, plain_scan

_MAX_FINDINGS = 1000


class FsckFinding(msgspec.Struct, frozen=True):
    """A fault of the folder."""

    where: str
    what: str


class FsckReport(msgspec.Struct):
    """The result of `run_fsck`."""

    folder: Path
    findings: list[FsckFinding] = msgspec.field(default_factory=list)
    notes: list[str] = msgspec.field(default_factory=list)
    segments: int = 0
    frames: int = 0
    batches: int = 0
    records: int = 0
    partitions: int = 0
    bytes: int = 0
    payloads: int = 0
    is_cut_short: bool = False
    """Whether there were more findings than are listed."""

    def find(self, where: str, what: str) -> None:
        if len(self.findings) < _MAX_FINDINGS:
            self.findings.append(FsckFinding(where, what))
        else:
            self.is_cut_short = True


def run_fsck(folder: Path) -> FsckReport:
    """Check the folder. Raises `FolderInUseError` if a server has it open."""
    require_data_folder(folder)
    lock = FolderLock(folder)
    report = FsckReport(folder)
    try:
        if remains := remains_without_log(folder):
            report.find(LOG_FOLDER, f"{folder} {describe_lost_log(remains)}")
        with TemporaryDirectory() as empty:
            state_folder = folder / STATE_FOLDER
            has_state = (state_folder / "CURRENT").exists()
            if not has_state:
                report.notes.append("there is no checkpoint yet; the next start replays the whole log")
            state = StateDb(state_folder, read_only=True) if has_state else StateDb(Path(empty))
            try:
                payloads = PayloadCheck(folder / PAYLOADS_FOLDER)
                _FolderCheck(report, SegmentFolder(folder / LOG_FOLDER, 1), state, payloads, read_high_mark(folder)).run()
            finally:
                state.close()
    except CorruptionError as error:
        report.find(STATE_FOLDER, str(error))
    except StorageReadError as error:
        report.find(LOG_FOLDER, f"{error}. The log after it was not checked")
    finally:
        lock.release()
    return report


class _SavedLocations:
    """The saved index of one partition, read in step with the log."""

    def __init__(self, saved: SavedIndex, index: PartitionIndex) -> None:
        self._saved = saved
        self.index = index
        self._locations: list[BatchLocation] = []
        self._next_offset = index.start
        self._load()

    def next(self) -> BatchLocation | None:
        """Return the location of the next batch that the log must hold; `None` at the end of the index."""
        return self._locations[-1] if self._locations else None

    def take(self) -> None:
        location = self._locations.pop()
        self._next_offset = location.base_offset + location.records
        if not self._locations:
            self._load()

    def skip_removed(self, stop: int, end: int | None) -> int | None:
        """Skip batches below the offset `stop` that compaction has removed. Return where the log ends, which did at `end`."""
        while (location := self.next()) is not None and not location.length and location.base_offset < stop:
            if end is not None and location.base_offset <= end:
                end = max(end, location.end_offset)
            self.take()
        return end

    def _load(self) -> None:
        chunk = next(self._saved.chunks(self.index.partition, self._next_offset), [])
        self._locations = [
            location for location in reversed(chunk) if location.base_offset + location.records > self._next_offset
        ]


class _FolderCheck:
    def __init__(
        self, report: FsckReport, segments: SegmentFolder, state: StateDb, payloads: PayloadCheck, mark: FoundMark
    ) -> None:
        self._report = report
        self._payloads = payloads
        self._segments = segments
        self._saved = SavedIndex(state, 1)
        self._checkpoints = Checkpoints(state, self._saved)
        stamp = self._checkpoints.stamp() or LOG_START
        self._stamp = stamp.position
        self._mark = mark
        self._evidence = sync_evidence(mark.position, stamp, SettledState(state).applied())
        self._tail: list[SegmentFile] = []
        """The segments that a start replays."""
        self._is_cut = False
        """Whether the log ends with a torn write, which a start cuts off with all that is behind it."""
        self._indexes: dict[PartitionId, _SavedLocations] = {}
        self._ends: dict[PartitionId, int] = {}
        self._deleted: set[int] = set()
        self._created: set[int] = set()
        """Topics that were created or got partitions after the checkpoint."""
        self._trims: dict[PartitionId, Offset] = {}
        """New starts of partitions from after the checkpoint."""
        self._cursor = 0
        self._log_end = 0
        self._names = TopicNames()
        self._names.learn_from(saved_topics(state))
        self._scan: ScanRecords = plain_scan

    def run(self) -> None:
        usages = {usage.base: usage for usage in self._checkpoints.usages()}
        cursor_entries = dict(self._checkpoints.cursor_entries())
        files, leftovers, faults = take_inventory(self._segments, usages)
        for path in leftovers:
            self._report.notes.append(f"{path.name} was left behind by the cleaner; the next start removes it")
        for name, what in faults:
            self._report.find(name, what)
        self._tail = [file for file, usage in files if usage is None or not usage.size]
        self._scan = scan_for(sum(file.path.stat().st_size for file, _ in files))
        self._load_indexes()
        for file, usage in files:
            self._segment(file, usage, cursor_entries)
        lost = diagnose_end(self._tail, len(self._tail), self._log_end, "", self._evidence)
        if lost is not None:
            self._report.find(LOG_FOLDER, str(lost))
        if self._mark.fault:
            self._report.find(HIGH_MARK_FILE, self._mark.fault)
        for position, cursor in cursor_entries.items():
            self._report.find("cursor index", f"cursor {cursor} refers to position {position}, where no frame begins")
        for partition, saved in self._indexes.items():
            self._index_end(partition, saved)
        self._payloads.run(self._names, self._is_alive, self._report.find, self._report.notes.append)
        self._report.payloads = self._payloads.checked

    def _is_alive(self, partition: PartitionId, offset: Offset) -> bool:
        """Return whether readers can see the record."""
        saved = self._indexes.get(partition)
        if saved is not None:
            return offset >= saved.index.start
        is_new = partition.topic_id in self._created and partition.topic_id not in self._deleted
        return is_new and offset >= self._trims.get(partition, 0)

    def _load_indexes(self) -> None:
        """Load the saved index, with what was trimmed and deleted after the checkpoint applied, as the cleaner sees it."""
        indexes = self._saved.load()
        for file in self._tail:
            with map_file(file.path) as data:
                start = max(SEGMENT_HEADER_BYTES, self._stamp - file.base) - 1
                for frame in frames_after(data, start, file.base, salt_of(bytes(data[:SEGMENT_HEADER_BYTES]))):
                    if not frame.effect_count:
                        continue
                    changes = read_effects(frame.effects, frame.effect_count)
                    self._names.learn_from(changes.puts)
                    self._deleted.update(changes.drops)
                    self._created.update(topic_id for topic_id, _ in changes.creates)
                    self._trims.update(changes.trims)
                    for partition, offset in changes.trims:
                        if partition in indexes:
                            indexes[partition].start = max(indexes[partition].start, offset)
        for partition, index in indexes.items():
            if partition.topic_id not in self._deleted:
                self._indexes[partition] = _SavedLocations(self._saved, index)
        self._report.partitions = len(self._indexes)

    def _segment(self, file: SegmentFile, usage: SegmentUsage | None, cursor_entries: dict[int, int]) -> None:
        self._report.segments += 1
        name = file.path.name
        if self._is_cut:
            self._report.notes.append(f"{name} comes after a write that was never acknowledged; the next start removes it")
            return
        with map_file(file.path) as data:
            self._report.bytes += len(data)
            is_complete = file.generation == 0 and file.base == self._log_end
            if usage is not None and file in self._tail:
                # All segments before it are closed, and the cleaner may have made them shorter.
                self._log_end = file.base
            if file in self._tail[1:] and file.base != self._log_end:
                fault = f"{name} does not begin at position {self._log_end}, where the log before it ends"
                if not self._was_durable(file, self._log_end, name, fault):
                    self._report.notes.append(
                        f"{name} had just been created when the server stopped; the next start removes it"
                    )
                    return
            salt = salt_of(bytes(data[:SEGMENT_HEADER_BYTES]))
            try:
                header = read_segment_header(file.path, bytes(data[:SEGMENT_HEADER_BYTES]), file.base, file.generation)
            except CorruptionError as error:
                if file not in self._tail:
                    self._report.find(name, str(error))
                elif not self._was_durable(file, file.base, name, str(error)):
                    self._report.notes.append(f"{name} was being created when the server stopped; the next start removes it")
                return
            if is_complete and header.first_cursor != self._cursor:
                self._report.find(
                    name, f"it begins with cursor {header.first_cursor}, but the log before it ends with {self._cursor}"
                )
            self._cursor = header.first_cursor
            at = SEGMENT_HEADER_BYTES
            while at < len(data):
                try:
                    frame = read_frame(data, at, file.base + at, salt)
                except BadFrameError as error:
                    following = self._bad_frame(file, data, at, salt, str(error))
                    if following is None:
                        return
                    at = following
                    continue
                self._frame(name, frame, is_complete=file.generation == 0)
                self._records(name, frame, data, file.base)
                self._payloads.learn(frame, data, file.base)
                if cursor_entries.get(frame.position) == frame.cursor:
                    del cursor_entries[frame.position]
                at += frame.size
            self._log_end = file.base + (usage.size if usage and usage.size and file.generation == 0 else at)

    def _was_durable(self, file: SegmentFile, end: int, where: str, fault: str) -> bool:
        """Return whether what is bad here was durable once, as a start decides it. If so, it is a finding."""
        loss = diagnose_end(self._tail, self._tail.index(file), end, "", self._evidence)
        self._is_cut = loss is None
        if loss is not None:
            self._report.find(where, f"{fault}. {loss}")
        return loss is not None

    def _bad_frame(self, file: SegmentFile, data: memoryview, at: int, salt: int, fault: str) -> int | None:
        """Report the bad frame and return where the next good one begins."""
        name, base = file.path.name, file.base
        position = base + at
        where = f"{name}, position {position}"
        if file not in self._tail:
            self._report.find(where, fault)
        elif not self._was_durable(file, position, where, fault):
            self._log_end = position
            self._report.notes.append(
                f"{name} ends at position {position} with {len(data) - at} bytes that were never acknowledged;"
                " the next start cuts them off"
            )
            return None
        later = next(frames_after(data, at, base, salt), None)
        if later is None:
            self._log_end = base + len(data)
            return None
        self._cursor = later.cursor
        for entry in later.entries:
            self._ends.pop(entry.partition, None)
        return later.position - base

    def _frame(self, name: str, frame: Frame, *, is_complete: bool) -> None:
        where = f"{name}, position {frame.position}"
        self._report.frames += 1
        if frame.cursor != self._cursor and (is_complete or frame.cursor < self._cursor):
            self._report.find(where, f"the frame has cursor {frame.cursor}, expected {self._cursor}")
        self._cursor = frame.cursor
        if frame.effect_count:
            try:
                read_effects(frame.effects, frame.effect_count)
            except BadFrameError as error:
                self._report.find(where, str(error))
        for entry in frame.entries:
            self._report.batches += 1
            self._report.records += entry.records
            if entry.cursor != self._cursor and (is_complete or entry.cursor < self._cursor):
                self._report.find(where, f"a batch has cursor {entry.cursor}, expected {self._cursor}")
            self._cursor = entry.cursor + entry.records
            self._batch(where, entry, frame)

    def _batch(self, where: str, entry: BatchEntry, frame: Frame) -> None:
        partition = entry.partition
        saved = self._indexes.get(partition)
        start = saved.index.start if saved else 0
        end = self._ends.get(partition)
        if saved is not None and frame.position < self._stamp:
            end = saved.skip_removed(entry.base_offset, end)
        self._ends[partition] = entry.base_offset + entry.records
        label = describe_partition(partition, self._names)
        if end is not None and entry.base_offset != end and not end <= entry.base_offset <= start and saved is not None:
            self._report.find(where, f"{label}: a batch begins at offset {entry.base_offset}, expected {end}")
        if saved is None or frame.position >= self._stamp or entry.base_offset + entry.records <= start:
            return
        location = saved.next()
        if location is None or location.base_offset > entry.base_offset:
            self._report.find(where, f"{label}: the index lacks the batch at offset {entry.base_offset}")
            return
        while location is not None and location.base_offset < entry.base_offset:
            self._report.find(where, f"{label}: the index names a batch at offset {location.base_offset} that the log lacks")
            saved.take()
            location = saved.next()
        if location is None:
            return
        facts = (entry.base_offset, entry.records, entry.length, entry.position, entry.max_timestamp, entry.cursor)
        if facts != location[:6]:
            self._report.find(
                where, f"{label}: the index has {location[:6]} for the batch at offset {entry.base_offset}, the log has {facts}"
            )
        if location.oldest_timestamp not in (entry.oldest_timestamp, UNKNOWN_TIMESTAMP):
            self._report.find(
                where,
                f"{label}: the index has the oldest timestamp {location.oldest_timestamp} for the batch at offset"
                f" {entry.base_offset}, the log has {entry.oldest_timestamp}",
            )
        saved.take()

    def _records(self, name: str, frame: Frame, data: memoryview, base: int) -> None:
        """Check the records of batches that readers can see."""
        for entry, fault in bad_batches(frame, data, base, self._scan):
            last = Offset(entry.base_offset + entry.records - 1)
            if self._is_alive(entry.partition, last):
                where = f"{name}, position {entry.position}"
                label = describe_partition(entry.partition, self._names)
                self._report.find(where, f"{label}, offsets {entry.base_offset} to {last}: {fault}")

    def _index_end(self, partition: PartitionId, saved: _SavedLocations) -> None:
        where = f"index of {describe_partition(partition, self._names)}"
        location = saved.next()
        if location is not None:
            self._report.find(where, f"it names a batch at offset {location.base_offset} that the log lacks")
        end = self._ends.get(partition, saved.index.end)
        # Of a partition without live batches, the log may still hold records that are not the last ones.
        if end < saved.index.end and saved.index.start < saved.index.end:
            self._report.find(where, f"it ends at offset {saved.index.end}, but the log ends at {end}")
        for fault in self._saved.faults(partition):
            self._report.find(where, fault)
