"""Reading a data folder without a server: its state, the batches of some partitions, or all frames for a person to read.

Nothing is changed. `OfflineLog` reads a folder that no server has open. State is what the last checkpoint saved and what the
frames after it changed. Batches are found by reading the heads of all frames once, in those segments that hold some of the
partitions; each location takes 16 bytes of memory. `dump_frames` works beside a running server, too.
"""

from array import array
from bisect import bisect_right
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from tailrace.log.checkpoint import Checkpoints
from tailrace.log.data_folder import LOG_FOLDER, STATE_FOLDER, FolderLock, require_data_folder
from tailrace.log.frame import BadFrameError, Frame, read_effects, read_frame
from tailrace.log.index import SavedIndex
from tailrace.log.recovery import SegmentFile, frames_after, map_file, take_inventory
from tailrace.log.segment import SEGMENT_HEADER_BYTES, SegmentFolder, read_segment_header, salt_of
from tailrace.log.state import STATE, StateDb, saved_topics
from tailrace.model.commit import Changes, OffsetBounds
from tailrace.model.errors import CorruptionError, TailraceError
from tailrace.model.ids import Offset, PartitionId, TopicId
from tailrace.wire.batch import LENGTH_FROM, read_header


@contextmanager
def offline_log(folder: Path) -> "Iterator[OfflineLog]":
    """Open the log of a folder for reading. Raises `FolderInUseError` if a server has the folder open."""
    require_data_folder(folder)
    lock = FolderLock(folder)
    try:
        with TemporaryDirectory() as empty:
            has_state = (folder / STATE_FOLDER / "CURRENT").exists()
            state = StateDb(folder / STATE_FOLDER, read_only=True) if has_state else StateDb(Path(empty))
            try:
                yield OfflineLog(SegmentFolder(folder / LOG_FOLDER, 1), state)
            finally:
                state.close()
    finally:
        lock.release()


class _Locations:
    """The locations of the batches of one partition, in order."""

    def __init__(self) -> None:
        self.bases = array("Q")
        self.positions = array("Q")
        self.end = 0


class OfflineLog:
    """The state and the batches of a folder. `find` comes before `bounds` and `read`."""

    def __init__(self, segments: SegmentFolder, state: StateDb) -> None:
        self._state = state
        saved = SavedIndex(state, 1)
        checkpoints = Checkpoints(state, saved)
        stamp = checkpoints.stamp()
        self._stamp = stamp.position if stamp else 0
        self._files = take_inventory(segments, {usage.base: usage for usage in checkpoints.usages()}).files
        self._bases = [file.base for file, _ in self._files]
        self._starts = {partition: index.start for partition, index in saved.load().items()}
        self._newer: dict[bytes, bytes | None] = {}
        self._locations: dict[PartitionId, _Locations] = {}
        self._replay()

    def get(self, key: bytes) -> bytes | None:
        return self._newer[key] if key in self._newer else self._state.get(STATE + key)

    def range(self, prefix: bytes) -> list[tuple[bytes, bytes]]:
        """Return the keys with this prefix and their values, in order."""
        found: dict[bytes, bytes | None] = {key[1:]: value for key, value in self._state.items(STATE + prefix)}
        found.update((key, value) for key, value in self._newer.items() if key.startswith(prefix))
        return [(key, value) for key, value in sorted(found.items()) if value is not None]

    def find(self, partitions: Collection[PartitionId]) -> None:
        """Find the batches of these partitions, so that they can be read."""
        self._locations = {partition: _Locations() for partition in partitions}
        for file, usage in self._files:
            if usage is not None and usage.size and not any(partition in usage.spans for partition in partitions):
                continue
            for frame in self._frames(file, SEGMENT_HEADER_BYTES):
                for entry in frame.entries:
                    locations = self._locations.get(entry.partition)
                    if locations is not None and entry.base_offset + entry.records > locations.end:
                        locations.bases.append(entry.base_offset)
                        locations.positions.append(entry.position)
                        locations.end = entry.base_offset + entry.records

    def bounds(self, partition: PartitionId) -> OffsetBounds:
        """Return the offsets that readers would see of a partition that was passed to `find`."""
        start = self._starts.get(partition, 0)
        return OffsetBounds(Offset(start), Offset(max(start, self._locations[partition].end)))

    def read(self, partition: PartitionId, offset: Offset, max_bytes: int) -> list[bytes]:
        """Return whole batches from the one that holds the offset on: up to `max_bytes`, but at least one; none at the end."""
        locations = self._locations[partition]
        batches: list[bytes] = []
        size = 0
        for position in locations.positions[max(0, bisect_right(locations.bases, offset) - 1) :]:
            batch = self._batch(position)
            if batches and size + len(batch) > max_bytes:
                break
            if read_header(batch).end_offset > offset:
                batches.append(batch)
                size += len(batch)
        return batches

    def _replay(self) -> None:
        """Apply the changes of the frames after the checkpoint."""
        for file, usage in self._files:
            if usage is not None and usage.size:
                continue
            for frame in self._frames(file, max(SEGMENT_HEADER_BYTES, self._stamp - file.base)):
                if not frame.effect_count:
                    continue
                changes = read_effects(frame.effects, frame.effect_count)
                for prefix in changes.drop_prefixes:
                    self._newer.update(dict.fromkeys(key for key, _ in self.range(prefix)))
                self._newer.update(changes.puts)
                for partition, start in changes.trims:
                    self._starts[partition] = max(start, self._starts.get(partition, 0))

    def _frames(self, file: SegmentFile, at: int) -> Iterator[Frame]:
        """Yield frames up to the first bad one. What follows was never acknowledged, or `fsck` reports it."""
        with map_file(file.path) as data:
            salt = salt_of(bytes(data[:SEGMENT_HEADER_BYTES]))
            while at < len(data):
                try:
                    frame = read_frame(data, at, file.base + at, salt, check_batches=False)
                except BadFrameError:
                    return
                yield frame
                at += frame.size

    def _batch(self, position: int) -> bytes:
        file, _ = self._files[bisect_right(self._bases, position) - 1]
        with file.path.open("rb") as opened:
            opened.seek(position - file.base)
            head = opened.read(LENGTH_FROM)
            return head + opened.read(int.from_bytes(head[8:LENGTH_FROM]))


class DumpedBatch(msgspec.Struct, frozen=True):
    topic_id: TopicId
    partition: int
    base_offset: int
    cursor: int
    records: int
    max_timestamp: int
    bytes: bytes


class DumpedFrame(msgspec.Struct, frozen=True):
    """One frame, or a position where one should be; then `fault` says why there is none."""

    segment: str
    position: int
    size: int = 0
    synced: int = 0
    cursor: int = 0
    hlc: int = 0
    batches: list[DumpedBatch] = []
    changes: Changes = Changes()
    fault: str = ""


def dump_frames(folder: Path, from_cursor: int = 0) -> Iterator[DumpedFrame]:
    """Yield every frame in order, beginning with the one that holds `from_cursor`."""
    require_data_folder(folder)
    has_begun = not from_cursor
    for path, base, generation in SegmentFolder(folder / LOG_FOLDER, 1).list_files():
        with map_file(path) as data:
            try:
                header = bytes(data[:SEGMENT_HEADER_BYTES])
                read_segment_header(path, header, base, generation)
            except CorruptionError as error:
                yield DumpedFrame(path.name, base, fault=str(error))
                continue
            salt = salt_of(header)
            at = SEGMENT_HEADER_BYTES
            while at < len(data):
                try:
                    frame = read_frame(data, at, base + at, salt)
                except BadFrameError as error:
                    yield DumpedFrame(path.name, base + at, fault=str(error))
                    later = next(frames_after(data, at, base, salt), None)
                    at = later.position - base if later else len(data)
                    continue
                has_begun = has_begun or frame.end_cursor > from_cursor
                if has_begun:
                    yield _dumped(path.name, frame, data, base)
                at += frame.size


def saved_topics_in(folder: Path) -> Iterator[tuple[bytes, bytes]]:
    """Yield keys and values of the topics as of the last checkpoint, because the frames that created them may be gone.

    Beside a running server they may be unreadable for a moment. Then there are none.
    """
    if not (folder / STATE_FOLDER / "CURRENT").exists():
        return
    with suppress(TailraceError):
        state = StateDb(folder / STATE_FOLDER, read_only=True)
        try:
            yield from list(saved_topics(state))
        finally:
            state.close()


def _dumped(segment: str, frame: Frame, data: memoryview, base: int) -> DumpedFrame:
    batches = [
        DumpedBatch(
            entry.partition.topic_id,
            entry.partition.number,
            entry.base_offset,
            entry.cursor,
            entry.records,
            entry.max_timestamp,
            bytes(data[entry.position - base : entry.position - base + entry.length]),
        )
        for entry in frame.entries
    ]
    changes = read_effects(frame.effects, frame.effect_count)
    return DumpedFrame(segment, frame.position, frame.size, frame.synced, frame.cursor, frame.hlc, batches, changes)
