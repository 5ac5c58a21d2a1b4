"""Salvage: makes a new data folder from everything that is intact in a damaged one.

The new folder replaces the old one: it has the same topics, offsets, groups and other state, and the same id of the log. It
gets a copy of the state as of the last checkpoint, and every good batch and change that readers can still see, in the order of
the log. Where records are lost, a batch that is never shown takes their offsets, so that all others keep theirs and no offset
is assigned twice. Cursors are new, and higher than all old ones: a reader that continues from an old one reads some records
again and misses none. The damaged folder is only read.
"""

import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec

from tailrace.log.catalog import CheckpointData, LogEnd
from tailrace.log.checkpoint import Checkpoints
from tailrace.log.content_checks import record_fault, scan_for
from tailrace.log.data_folder import (
    LOG_FOLDER,
    PAYLOADS_FOLDER,
    STAGING_FOLDER,
    STATE_FOLDER,
    FolderLock,
    make_folder,
    require_data_folder,
)
from tailrace.log.frame import BadFrameError, BatchEntry, Frame, batch_fault, read_effects, read_frame
from tailrace.log.index import PartitionIndex, SavedIndex, describe_partition
from tailrace.log.options import DEFAULT_OPTIONS
from tailrace.log.recovery import SegmentFile, frames_after, map_file, take_inventory
from tailrace.log.segment import (
    SEGMENT_HEADER_BYTES,
    SegmentFolder,
    SegmentUsage,
    encode_segment_header,
    new_salt,
    read_segment_header,
    salt_of,
)
from tailrace.log.state import CHUNK, COUNTERS, CURSOR, OLD_COUNTER, OLD_TIME, SEGMENT, StateDb, after_prefix, saved_topics
from tailrace.model.clock import Hlc
from tailrace.model.commit import Append, Changes
from tailrace.model.errors import CorruptionError, TailraceError
from tailrace.model.ids import Cursor, Offset, PartitionId, Position
from tailrace.model.limits import MIB
from tailrace.model.topic import TopicNames
from tailrace.store.embedded import EmbeddedStore
from tailrace.wire.control import encode_filler, encode_gap

_COPIED_FOLDERS = (PAYLOADS_FOLDER, STAGING_FOLDER)
_COPIED_FILES = "tables.db*"
_KINDS_OF_THE_OLD_LOG = (CHUNK, COUNTERS, CURSOR, SEGMENT, OLD_COUNTER, OLD_TIME)
_COMMIT_BYTES = 4 * MIB
_FILLER_RECORDS = 50_000
_MOST_GAP = (1 << 31) - 1
_UNKNOWN_END = LogEnd(Position(0), Cursor(0), Hlc(0))


class Omission(msgspec.Struct, frozen=True):
    """Something that is not in the new folder."""

    where: str
    """The file and the position."""
    what: str
    """Topic, partition and offsets, if they are known."""
    size: int | None
    """In bytes; `None` if it is not known."""
    why: str


class SalvageResult(msgspec.Struct):
    """What a salvage kept and lost."""

    batches: int = 0
    records: int = 0
    bytes: int = 0
    lost_records: int = 0
    """The number of offsets that have no record in the new folder."""
    left_out: int = 0
    first_cursor: int = 0
    """The first cursor of the new folder."""


OnOmission = Callable[[Omission], None]
OnProgress = Callable[[int, int], None]
"""Called with the bytes of the log that are done, and the bytes in total."""


def salvage(source: Path, target: Path, on_left_out: OnOmission, on_progress: OnProgress) -> SalvageResult:
    """Make the folder `target` from what is intact in `source`. Raises `TailraceError` if that is not possible at all."""
    require_data_folder(source)
    _check_target(source, target)
    lock = FolderLock(source)
    try:
        for name in (target, target / LOG_FOLDER, target / STATE_FOLDER):
            make_folder(name)
        try:
            result = _Salvage(source, target, on_left_out, on_progress).run()
        except BaseException:
            # The folder was empty before, and half a salvage is worse than none.
            shutil.rmtree(target, ignore_errors=True)
            raise
    finally:
        lock.release()
    return result


class _Salvage:
    def __init__(self, source: Path, target: Path, on_left_out: OnOmission, on_progress: OnProgress) -> None:
        self._source = source
        self._target = target
        self._on_left_out = on_left_out
        self._on_progress = on_progress
        self._result = SalvageResult()
        self._names = TopicNames()
        self._starts: dict[PartitionId, Offset] = {}
        """Where partitions start for readers, as of the checkpoint."""
        self._known_ends: dict[PartitionId, Offset] = {}
        """Where partitions end at least, according to the checkpoint."""
        self._ends: dict[PartitionId, Offset] = {}
        """Where partitions end in the new folder, with the appends that are not committed yet."""
        self._removed: dict[PartitionId, list[tuple[int, int]]] = {}
        """Offsets whose records a compaction has removed: where each range of them begins and ends, in order."""
        self._waiting: list[Append] = []
        self._waiting_bytes = 0

    def run(self) -> SalvageResult:
        state = self._copied_state()
        try:
            files, stamp = self._prepare(state)
        finally:
            state.close()
        sizes = {file.path: file.path.stat().st_size for file in files}
        self._scan = scan_for(sum(sizes.values()))
        # Relaxed is enough: the new folder is not used before it is complete.
        self._store = EmbeddedStore.open(self._target, durability="relaxed", options=DEFAULT_OPTIONS)
        try:
            behind = 0
            for file in files:
                for frame, data in self._frames(file):
                    self._frame(file, frame, data, has_effects=frame.position >= stamp.position)
                    self._on_progress(behind + frame.position + frame.size - file.base, sum(sizes.values()))
                behind += sizes[file.path]
            for partition, end in self._known_ends.items():
                if partition in self._ends:
                    self._fill(partition, end, "log", "the checkpoint names these records, but the log does not hold them")
            self._commit()
        finally:
            self._store.close()
        for name in _COPIED_FOLDERS:
            if (self._source / name).is_dir():
                shutil.copytree(self._source / name, self._target / name)
        for path in self._source.glob(_COPIED_FILES):
            shutil.copy2(path, self._target / path.name)
        return self._result

    def _copied_state(self) -> StateDb:
        folder = self._target / STATE_FOLDER
        if (self._source / STATE_FOLDER / "CURRENT").exists():
            shutil.copytree(self._source / STATE_FOLDER, folder, dirs_exist_ok=True)
            try:
                return StateDb(folder)
            except CorruptionError as error:
                self._leave_out(STATE_FOLDER, "the state as of the last checkpoint", None, str(error))
                shutil.rmtree(folder)
                folder.mkdir(mode=0o700)
        return StateDb(folder)

    def _prepare(self, state: StateDb) -> tuple[list[SegmentFile], LogEnd]:
        """Turn the copied state into that of a new, empty log. Return the files to read, and the old checkpoint's end."""
        saved = SavedIndex(state, DEFAULT_OPTIONS.index_chunk_batches)
        checkpoints = Checkpoints(state, saved)
        stamp = checkpoints.stamp() or _UNKNOWN_END
        usages = {usage.base: usage for usage in checkpoints.usages()}
        found, _, faults = take_inventory(SegmentFolder(self._source / LOG_FOLDER, 1), usages)
        files = [file for file, _ in found]
        for name, fault in faults:
            self._leave_out(name, "a segment of the log", None, fault)
        if not stamp.position and files and (files[0].base or files[0].generation):
            raise CorruptionError(
                f"{self._source} has no readable state, and its log has been cleaned: its topics are unknown."
                " Restore the folder from a backup"
            )
        self._names.learn_from(saved_topics(state))
        indexes = []
        for partition, index in saved.load().items():
            fresh = PartitionIndex(partition)
            fresh.start, fresh.running = index.start, index.running
            fresh.end = _first_base(saved, partition, index.start, default=index.end)
            indexes.append(fresh)
            self._removed[partition] = [
                (location.base_offset, location.end_offset)
                for location in saved.locations(partition, index.start)
                if not location.length
            ]
            self._starts[partition] = Offset(index.start)
            self._known_ends[partition] = Offset(index.end)
            self._ends[partition] = Offset(fresh.end)
        end = _end_of(files, stamp)
        self._result.first_cursor = end.cursor
        usage = SegmentUsage(end.position, 0, end.cursor)
        batch = state.batch()
        for kind in _KINDS_OF_THE_OLD_LOG:
            batch.delete_range(kind, after_prefix(kind))
        state.write(batch)
        segment = SegmentFolder(self._target / LOG_FOLDER, 1).path(end.position, 0)
        segment.write_bytes(encode_segment_header(end.position, 0, end.cursor, new_salt()))
        segment.chmod(0o600)
        begin = LogEnd(Position(end.position + SEGMENT_HEADER_BYTES), end.cursor, end.hlc)
        counters = [index.pack_counters() for index in indexes]
        checkpoints.save(
            CheckpointData(begin, [(index, ()) for index in indexes], counters, True, (), [(usage, usage.pack())], ())
        )
        return files, stamp

    def _frames(self, file: SegmentFile) -> Iterator[tuple[Frame, memoryview]]:
        """Yield frames with a good head, in order. The bytes between them are left out."""
        name = file.path.name
        with map_file(file.path) as data:
            try:
                read_segment_header(file.path, bytes(data[:SEGMENT_HEADER_BYTES]), file.base, file.generation)
            except CorruptionError as error:
                self._leave_out(name, "the header of the segment", None, str(error))
            salt = salt_of(bytes(data[:SEGMENT_HEADER_BYTES]))
            at = SEGMENT_HEADER_BYTES
            while at < len(data):
                try:
                    frame = read_frame(data, at, file.base + at, salt, check_batches=False)
                except BadFrameError as error:
                    later = next(frames_after(data, at, file.base, salt), None)
                    end = len(data) if later is None else later.position - file.base
                    what = (
                        "bytes at the end that hold no frame"
                        if later is None
                        else "a frame, with the changes that it may have held"
                    )
                    self._leave_out(f"{name}, position {file.base + at}", what, end - at, str(error))
                    at = end
                    continue
                yield frame, data
                at += frame.size

    def _frame(self, file: SegmentFile, frame: Frame, data: memoryview, *, has_effects: bool) -> None:
        if has_effects and frame.effect_count:
            self._change(f"{file.path.name}, position {frame.position}", frame)
        for entry in frame.entries:
            partition = entry.partition
            last = entry.base_offset + entry.records - 1
            end = self._ends.get(partition)
            if end is None or last < max(self._starts.get(partition, 0), end):
                continue  # its topic was deleted, or retention removed it, or a crash of the cleaner left it twice
            where = f"{file.path.name}, position {entry.position}"
            batch = data[entry.position - file.base : entry.position - file.base + entry.length]
            fault = batch_fault(batch, entry.base_offset, entry.crc) or record_fault(entry, batch, self._scan)
            self._fill(partition, entry.base_offset, where, "they are missing; the bytes that held them are damaged or gone")
            if fault:
                self._fill(partition, Offset(last + 1), where, fault, entry.length)
            else:
                self._keep(entry, bytes(batch))

    def _change(self, where: str, frame: Frame) -> None:
        """Apply the changes of state of a frame, as far as they are possible without what is lost."""
        self._commit()
        try:
            changes = read_effects(frame.effects, frame.effect_count)
        except BadFrameError as error:
            self._leave_out(where, "changes of topics and state", len(frame.effects), str(error))
            return
        self._names.learn_from(changes.puts)
        known = {partition.topic_id for partition in self._ends}
        creates = [
            (topic_id, count) for topic_id, count in changes.creates if PartitionId(topic_id, count - 1) not in self._ends
        ]
        drops = [topic_id for topic_id in changes.drops if topic_id in known]
        for topic_id, count in creates:
            for number in range(count):
                self._ends.setdefault(PartitionId(topic_id, number), Offset(0))
        for partition in [partition for partition in self._ends if partition.topic_id in drops]:
            del self._ends[partition]
        trims = []
        for partition, start in changes.trims:
            if partition in self._ends:
                self._starts[partition] = max(self._starts.get(partition, Offset(0)), start)
                trims.append((partition, min(start, self._ends[partition])))
        self._store.commit(changes._replace(creates=creates, drops=drops, trims=trims))

    def _keep(self, entry: BatchEntry, batch: bytes) -> None:
        self._append(
            Append(entry.partition, batch, entry.records, entry.max_timestamp, entry.base_offset, entry.oldest_timestamp)
        )
        self._result.batches += 1
        self._result.records += entry.records
        self._result.bytes += entry.length

    def _fill(self, partition: PartitionId, end: Offset, where: str, why: str, size: int | None = None) -> None:
        """Fill the offsets up to `end`, whose records are lost, with batches that are never shown."""
        for begin, stop in self._removed.get(partition, ()):
            if begin <= self._ends[partition] < min(stop, end):
                self._gap(partition, min(stop, end))
        first = self._ends[partition]
        if end <= first:
            return
        self._leave_out(where, f"{describe_partition(partition, self._names)}, offsets {first} to {end - 1}", size, why)
        self._result.lost_records += end - first
        for at in range(first, end, _FILLER_RECORDS):
            count = min(_FILLER_RECORDS, end - at)
            self._append(Append(partition, encode_filler(count), count, 0, Offset(at)))

    def _gap(self, partition: PartitionId, end: int) -> None:
        """Let a batch that is never shown take the offsets up to `end`, whose records a compaction has removed."""
        while (first := self._ends[partition]) < end:
            count = min(_MOST_GAP, end - first)
            self._append(Append(partition, encode_gap(count), count, 0, Offset(first)))

    def _append(self, append: Append) -> None:
        self._waiting.append(append)
        self._waiting_bytes += len(append.batch)
        self._ends[append.partition] = Offset(append.base_offset + append.records)
        if self._waiting_bytes >= _COMMIT_BYTES:
            self._commit()

    def _commit(self) -> None:
        if self._waiting:
            self._store.commit(Changes(appends=self._waiting))
            self._waiting, self._waiting_bytes = [], 0

    def _leave_out(self, where: str, what: str, size: int | None, why: str) -> None:
        self._result.left_out += 1
        self._on_left_out(Omission(where, what, size, why))


def _check_target(source: Path, target: Path) -> None:
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise TailraceError(f"{target} is not an empty folder; name one that is empty or does not exist")
    if target.resolve().is_relative_to(source.resolve()):
        raise TailraceError(f"{target} is inside {source}, which must not be changed; name another folder")


def _first_base(saved: SavedIndex, partition: PartitionId, start: int, *, default: int) -> int:
    """Return the base offset of the first batch that readers can see, according to the saved index."""
    return next((location.base_offset for location in saved.locations(partition, start)), default)


def _end_of(files: Sequence[SegmentFile], stamp: LogEnd) -> LogEnd:
    """Return an end that no position, cursor or timestamp of the old log is beyond."""
    position, cursor, hlc = stamp
    for file in files:
        size = file.path.stat().st_size
        if file.base + size <= stamp.position:
            continue
        with map_file(file.path) as data:
            salt = salt_of(bytes(data[:SEGMENT_HEADER_BYTES]))
            for frame in frames_after(data, max(SEGMENT_HEADER_BYTES, stamp.position - file.base) - 1, file.base, salt):
                cursor, hlc = max(cursor, frame.end_cursor), max(hlc, frame.hlc)
        position = max(position, Position(file.base + size))
    return LogEnd(Position(position + 1), Cursor(cursor), Hlc(hlc))
