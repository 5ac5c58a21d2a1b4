"""The log of a folder that nobody has open: its state, and the batches of some partitions, read without changing anything.

State is what the last checkpoint saved and what the frames behind it changed. Batches are found by reading the heads of all
frames once, in those segments that hold some of the partitions; where each is takes 16 bytes of memory.
"""

from array import array
from bisect import bisect_right
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from tailrace.log.checkpoint import Checkpoints
from tailrace.log.folder import LOG_FOLDER, STATE_FOLDER, require_data_folder
from tailrace.log.frame import BadFrameError, Frame, read_effects, read_frame
from tailrace.log.index import SavedIndex
from tailrace.log.inventory import take_inventory
from tailrace.log.lock import FolderLock
from tailrace.log.recovery import SegmentFile, mapped
from tailrace.log.segment import HEADER_BYTES, SegmentFolder, salt_of
from tailrace.log.state import STATE, StateDb
from tailrace.model.changes import Bounds
from tailrace.model.ids import Offset, Partition
from tailrace.wire.batch import LENGTH_FROM, read_header


@contextmanager
def offline_log(folder: Path) -> "Iterator[OfflineLog]":
    """Raises `FolderInUseError` if a server has the folder open."""
    require_data_folder(folder)
    lock = FolderLock(folder)
    try:
        with TemporaryDirectory() as nothing:
            has_state = (folder / STATE_FOLDER / "CURRENT").exists()
            state = StateDb(folder / STATE_FOLDER, read_only=True) if has_state else StateDb(Path(nothing))
            try:
                yield OfflineLog(SegmentFolder(folder / LOG_FOLDER, 1), state)
            finally:
                state.close()
    finally:
        lock.release()


class _Places:
    """Where the batches of one partition are, in order."""

    def __init__(self) -> None:
        self.bases = array("Q")
        self.positions = array("Q")
        self.end = 0


class OfflineLog:
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
        self._places: dict[Partition, _Places] = {}
        self._replay()

    def get(self, key: bytes) -> bytes | None:
        return self._newer[key] if key in self._newer else self._state.get(STATE + key)

    def range(self, prefix: bytes) -> list[tuple[bytes, bytes]]:
        """Keys that start so, and their values, in order."""
        found: dict[bytes, bytes | None] = {key[1:]: value for key, value in self._state.items(STATE + prefix)}
        found.update((key, value) for key, value in self._newer.items() if key.startswith(prefix))
        return [(key, value) for key, value in sorted(found.items()) if value is not None]

    def find(self, partitions: Collection[Partition]) -> None:
        """Find the batches of these partitions, so that they can be read."""
        self._places = {partition: _Places() for partition in partitions}
        for file, usage in self._files:
            if usage is not None and usage.size and not any(partition in usage.spans for partition in partitions):
                continue
            for frame in self._frames(file, HEADER_BYTES):
                for entry in frame.entries:
                    places = self._places.get(entry.partition)
                    if places is not None and entry.base_offset + entry.records > places.end:
                        places.bases.append(entry.base_offset)
                        places.positions.append(entry.position)
                        places.end = entry.base_offset + entry.records

    def bounds(self, partition: Partition) -> Bounds:
        """The offsets that readers would see of a partition that was looked for."""
        start = self._starts.get(partition, 0)
        return Bounds(Offset(start), Offset(max(start, self._places[partition].end)))

    def read(self, partition: Partition, offset: Offset, max_bytes: int) -> list[bytes]:
        """Whole batches from the one that holds the offset on, up to so many bytes, but at least one; none at the end."""
        places = self._places[partition]
        batches: list[bytes] = []
        size = 0
        for position in places.positions[max(0, bisect_right(places.bases, offset) - 1) :]:
            batch = self._batch(position)
            if batches and size + len(batch) > max_bytes:
                break
            header = read_header(batch)
            if header.base_offset + header.records > offset:
                batches.append(batch)
                size += len(batch)
        return batches

    def _replay(self) -> None:
        """Learn what the frames behind the checkpoint change."""
        for file, usage in self._files:
            if usage is not None and usage.size:
                continue
            for frame in self._frames(file, max(HEADER_BYTES, self._stamp - file.base)):
                if not frame.effect_count:
                    continue
                changes = read_effects(frame.effects, frame.effect_count)
                for prefix in changes.drop_prefixes:
                    self._newer.update(dict.fromkeys(key for key, _ in self.range(prefix)))
                self._newer.update(changes.puts)
                for partition, start in changes.trims:
                    self._starts[partition] = max(start, self._starts.get(partition, 0))

    def _frames(self, file: SegmentFile, at: int) -> Iterator[Frame]:
        """Up to the first that is not whole: what follows was never acknowledged, or `fsck` names it."""
        with mapped(file.path) as data:
            salt = salt_of(bytes(data[:HEADER_BYTES]))
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
