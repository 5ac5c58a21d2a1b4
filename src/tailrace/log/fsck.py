"""Checking a data folder from end to end, without changing it.

Every frame and batch is read and checked, the records inside too; offsets and cursors must be dense; and the saved index must
name exactly the batches that the log holds, each at its place. Payloads that records refer to must be there and whole. What a
crash may leave behind is a note; what must never be is a finding.
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
from tailrace.log.index import PartitionIndex, SavedIndex
from tailrace.log.opening import LOG_START, sync_evidence
from tailrace.log.recovery import SegmentFile, diagnose_end, frames_after, map_file, take_inventory
from tailrace.log.segment import SEGMENT_HEADER_BYTES, SegmentFolder, SegmentUsage, read_segment_header, salt_of
from tailrace.log.state import SettledState, StateDb, saved_topics
from tailrace.model.errors import CorruptionError, StorageReadError
from tailrace.model.ids import Offset, PartitionId
from tailrace.model.topic import TopicNames
from tailrace.wire.record_check import ScanRecords, plain_scan

_MAX_FINDINGS = 1000


class FsckFinding(msgspec.Struct, frozen=True):
    """Something that is wrong."""

    where: str
    what: str


class FsckReport(msgspec.Struct):
    """What `check` saw."""

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
    """There were more findings than are listed."""

    def find(self, where: str, what: str) -> None:
        if len(self.findings) < _MAX_FINDINGS:
            self.findings.append(FsckFinding(where, what))
        else:
            self.is_cut_short = True


def run_fsck(folder: Path) -> FsckReport:
    """Check the folder. Raises `FolderInUseError` if a server has it open and `FormatError` if it is no data folder."""
    require_data_folder(folder)
    lock = FolderLock(folder)
    report = FsckReport(folder)
    try:
        if traces := remains_without_log(folder):
            report.find(LOG_FOLDER, f"{folder} {describe_lost_log(traces)}")
        with TemporaryDirectory() as nothing:
            state_folder = folder / STATE_FOLDER
            has_state = (state_folder / "CURRENT").exists()
            if not has_state:
                report.notes.append("there is no checkpoint yet; the next start reads the whole log")
            state = StateDb(state_folder, read_only=True) if has_state else StateDb(Path(nothing))
            try:
                payloads = PayloadCheck(folder / PAYLOADS_FOLDER)
                _Check(report, SegmentFolder(folder / LOG_FOLDER, 1), state, payloads, read_high_mark(folder)).run()
            finally:
                state.close()
    except CorruptionError as error:
        report.find(STATE_FOLDER, str(error))
    except StorageReadError as error:
        report.find(LOG_FOLDER, f"{error}. What comes after it was not checked")
    finally:
        lock.release()
    return report


class _SavedPlaces:
    """The saved index of one partition, read in step with the log."""

    def __init__(self, saved: SavedIndex, index: PartitionIndex) -> None:
        self._saved = saved
        self.index = index
        self._places: list[BatchLocation] = []
        self._next_offset = index.start
        self._load()

    def next(self) -> BatchLocation | None:
        """The place that the log must come to next; `None` when the index ends."""
        return self._places[-1] if self._places else None

    def take(self) -> None:
        place = self._places.pop()
        self._next_offset = place.base_offset + place.records
        if not self._places:
            self._load()

    def _load(self) -> None:
        chunk = next(self._saved.chunks(self.index.partition, self._next_offset), [])
        self._places = [place for place in reversed(chunk) if place.base_offset + place.records > self._next_offset]


class _Check:
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
        """The segments that a start reads."""
        self._is_cut = False
        """The log ends with a torn write; a start cuts off what is behind."""
        self._indexes: dict[PartitionId, _SavedPlaces] = {}
        self._ends: dict[PartitionId, int] = {}
        self._deleted: set[int] = set()
        self._created: set[int] = set()
        """Topics made or grown after the checkpoint."""
        self._trims: dict[PartitionId, Offset] = {}
        """After the checkpoint."""
        self._cursor = 0
        self._log_end = 0
        self._names = TopicNames()
        self._names.learn_from(saved_topics(state))
        self._scan: ScanRecords = plain_scan

    def run(self) -> None:
        usages = {usage.base: usage for usage in self._checkpoints.usages()}
        marks = dict(self._checkpoints.marks())
        files, leftovers, faults = take_inventory(self._segments, usages)
        for path in leftovers:
            self._report.notes.append(f"{path.name} was left over by the cleaner; the next start removes it")
        for name, what in faults:
            self._report.find(name, what)
        self._tail = [file for file, usage in files if usage is None or not usage.size]
        self._scan = scan_for(sum(file.path.stat().st_size for file, _ in files))
        self._load_indexes()
        for file, usage in files:
            self._segment(file, usage, marks)
        lost = diagnose_end(self._tail, len(self._tail), self._log_end, "", self._evidence)
        if lost is not None:
            self._report.find(LOG_FOLDER, str(lost))
        if self._mark.fault:
            self._report.find(HIGH_MARK_FILE, self._mark.fault)
        for position, cursor in marks.items():
            self._report.find("cursor index", f"cursor {cursor} points to position {position}, where no frame begins")
        for partition, saved in self._indexes.items():
            self._index_end(partition, saved)
        self._payloads.run(self._names, self._is_alive, self._report.find, self._report.notes.append)
        self._report.payloads = self._payloads.checked

    def _is_alive(self, partition: PartitionId, offset: Offset) -> bool:
        """Whether readers can see the record."""
        saved = self._indexes.get(partition)
        if saved is not None:
            return offset >= saved.index.start
        is_new = partition.topic_id in self._created and partition.topic_id not in self._deleted
        return is_new and offset >= self._trims.get(partition, 0)

    def _load_indexes(self) -> None:
        """The saved index as the cleaner sees it: by what was trimmed and deleted after the checkpoint, too."""
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
                self._indexes[partition] = _SavedPlaces(self._saved, index)
        self._report.partitions = len(self._indexes)

    def _segment(self, file: SegmentFile, usage: SegmentUsage | None, marks: dict[int, int]) -> None:
        self._report.segments += 1
        name = file.path.name
        if self._is_cut:
            self._report.notes.append(f"{name} is behind a write that was never acknowledged; the next start removes it")
            return
        with map_file(file.path) as data:
            self._report.bytes += len(data)
            is_whole = file.generation == 0 and file.base == self._log_end
            if usage is not None and file in self._tail:
                # The checkpoint knows all before it as closed, and the cleaner may have made that shorter.
                self._log_end = file.base
            if file in self._tail[1:] and file.base != self._log_end:
                fault = f"{name} does not follow on position {self._log_end}"
                if not self._was_durable(file, self._log_end, name, fault):
                    self._report.notes.append(f"{name} was begun when the server stopped; the next start removes it")
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
            if is_whole and header.first_cursor != self._cursor:
                self._report.find(
                    name, f"it begins with cursor {header.first_cursor}, the log before it ends with {self._cursor}"
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
                self._frame(name, frame, is_whole=file.generation == 0)
                self._records(name, frame, data, file.base)
                self._payloads.learn(frame, data, file.base)
                if marks.get(frame.position) == frame.cursor:
                    del marks[frame.position]
                at += frame.size
            self._log_end = file.base + (usage.size if usage and usage.size and file.generation == 0 else at)

    def _was_durable(self, file: SegmentFile, end: int, where: str, fault: str) -> bool:
        """Whether what is bad here was good once, by the judgement of the start; if so, it is a finding."""
        verdict = diagnose_end(self._tail, self._tail.index(file), end, "", self._evidence)
        self._is_cut = verdict is None
        if verdict is not None:
            self._report.find(where, f"{fault}. {verdict}")
        return verdict is not None

    def _bad_frame(self, file: SegmentFile, data: memoryview, at: int, salt: int, fault: str) -> int | None:
        """Say what the bad frame is, and where the next good one begins."""
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

    def _frame(self, name: str, frame: Frame, *, is_whole: bool) -> None:
        where = f"{name}, position {frame.position}"
        self._report.frames += 1
        if frame.cursor != self._cursor and (is_whole or frame.cursor < self._cursor):
            self._report.find(where, f"the frame has cursor {frame.cursor}, not {self._cursor}")
        self._cursor = frame.cursor
        if frame.effect_count:
            try:
                read_effects(frame.effects, frame.effect_count)
            except BadFrameError as error:
                self._report.find(where, str(error))
        for entry in frame.entries:
            self._report.batches += 1
            self._report.records += entry.records
            if entry.cursor != self._cursor and (is_whole or entry.cursor < self._cursor):
                self._report.find(where, f"a batch has cursor {entry.cursor}, not {self._cursor}")
            self._cursor = entry.cursor + entry.records
            self._batch(where, entry, frame)

    def _batch(self, where: str, entry: BatchEntry, frame: Frame) -> None:
        partition = entry.partition
        saved = self._indexes.get(partition)
        start = saved.index.start if saved else 0
        end = self._ends.get(partition)
        self._ends[partition] = entry.base_offset + entry.records
        label = self._names.of(partition)
        if end is not None and entry.base_offset != end and not end <= entry.base_offset <= start and saved is not None:
            self._report.find(where, f"{label}: offset {entry.base_offset} follows on {end}")
        if saved is None or frame.position >= self._stamp or entry.base_offset + entry.records <= start:
            return
        place = saved.next()
        if place is None or place.base_offset > entry.base_offset:
            self._report.find(where, f"{label}: the index does not know the batch at offset {entry.base_offset}")
            return
        while place is not None and place.base_offset < entry.base_offset:
            self._report.find(where, f"{label}: the index names a batch at offset {place.base_offset} that the log lacks")
            saved.take()
            place = saved.next()
        if place is None:
            return
        facts = (entry.base_offset, entry.records, entry.length, entry.position, entry.max_timestamp, entry.cursor)
        if facts != place[:6]:
            self._report.find(
                where, f"{label}: the index says {place[:6]} of the batch at offset {entry.base_offset}, not {facts}"
            )
        saved.take()

    def _records(self, name: str, frame: Frame, data: memoryview, base: int) -> None:
        """Look inside the batches that readers can see."""
        for entry, fault in bad_batches(frame, data, base, self._scan):
            last = Offset(entry.base_offset + entry.records - 1)
            if self._is_alive(entry.partition, last):
                where = f"{name}, position {entry.position}"
                label = self._names.of(entry.partition)
                self._report.find(where, f"{label}, offsets {entry.base_offset} to {last}: {fault}")

    def _index_end(self, partition: PartitionId, saved: _SavedPlaces) -> None:
        where = f"index of {self._names.of(partition)}"
        place = saved.next()
        if place is not None:
            self._report.find(where, f"it names a batch at offset {place.base_offset} that the log lacks")
        end = self._ends.get(partition, saved.index.end)
        # Of a partition with nothing alive, the log may hold older records than the last that are gone.
        if end < saved.index.end and saved.index.start < saved.index.end:
            self._report.find(where, f"it ends at offset {saved.index.end}, the log at {end}")
        for fault in self._saved.faults(partition):
            self._report.find(where, fault)
