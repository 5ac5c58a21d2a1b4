"""Finding the end of the log after a crash.

Frames are read and checked from the last checkpoint on. The first bad one ends the log. If the log is known to have been
durable beyond it, stored bytes have changed or are gone: that is corruption, which is reported, and nothing is changed.
Otherwise the bad frame and everything behind it were never acknowledged: a torn tail, which is cut off. `diagnose_end` decides
which of the two it is, for the start as for `fsck`: by later frames, which say how far the log was synced when they were
written, and by evidence outside the log, which is the checkpoint, the state and the high mark.
"""

import mmap
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from tailrace.log.frame import MAGIC_PREFIX, BadFrameError, Frame, read_frame
from tailrace.log.segment import (
    SEGMENT_HEADER_BYTES,
    Segment,
    SegmentFolder,
    SegmentUsage,
    read_at,
    read_segment_header,
    salt_of,
    sync_folder,
)
from tailrace.model.errors import CorruptionError, LostEndError
from tailrace.model.ids import Position
from tailrace.model.limits import MIB

_READ_BYTES = MIB


class SegmentFile(NamedTuple):
    """A segment as its file name describes it. Its content is not checked yet."""

    path: Path
    base: int
    generation: int


class SyncEvidence(NamedTuple):
    """Something outside the log that recorded up to where the log was synced."""

    source: str
    synced: Position


class LogTail(NamedTuple):
    """Where the log ends."""

    segments: Sequence[Segment]
    """The segments that were read."""
    end: Position
    torn_bytes: int


def diagnose_end(
    files: Sequence[SegmentFile], number: int, end: int, fault: str, evidence: Sequence[SyncEvidence]
) -> CorruptionError | None:
    """Return what was lost behind `end`, up to which the log can be read, or `None` if none of it was ever acknowledged.

    The log ends there because of a `fault` in file `number`, or because the last file ends.
    """
    fault = f"{fault}. " if fault else ""
    intact = {salt for file in files if (salt := _intact_salt(file)) is not None}
    for file in files[number:]:
        own = _intact_salt(file)
        with map_file(file.path) as data:
            # Behind a damaged header there are still frames of this log, with a salt that has to be guessed.
            salts = {salt_of(bytes(data[:SEGMENT_HEADER_BYTES])), 0, *intact} if own is None else {own}
            for salt in salts:
                for later in frames_after(data, max(0, end - file.base), file.base, salt):
                    if later.synced > end:
                        return CorruptionError(
                            f"{fault}The frame at {later.position} shows that the log was synced up to {later.synced},"
                            " so stored bytes have changed. The folder was left as it is; see `tailrace fsck`"
                        )
    for source, synced in evidence:
        if synced > end:
            return LostEndError(
                f"{fault}The log can be read up to position {end}, but was synced up to {synced} according to {source}:"
                " the log has lost its end. The folder was left as it is; restore it from a backup",
                end,
            )
    return None


class Recovery:
    """Reads frames from `start` on. Afterwards `tail` says where the log ends."""

    def __init__(self, files: Sequence[SegmentFile], start: int, evidence: Sequence[SyncEvidence]) -> None:
        self._files = files
        self._start = start
        self._evidence = evidence
        self.tail = LogTail([], Position(start), 0)
        self.segments: list[Segment] = []
        """The segments that have been reached so far."""
        self._stopped_at = 0
        """The number of the file with the fault; the number of files if there is none."""
        self._fault = ""

    def frames(self) -> Iterator[Frame]:
        """Yield every good frame in order, then cut off the torn tail, if there is one.

        Raises `CorruptionError` if acknowledged frames are damaged or lost.
        """
        yield from self.good_frames()
        end = self.tail.end
        loss = diagnose_end(self._files, self._stopped_at, end, self._fault, self._evidence)
        if loss is not None:
            raise loss
        if self._fault:
            self.tail = self._cut(self._stopped_at, end)

    def good_frames(self) -> Iterator[Frame]:
        """Yield every good frame in order, up to the first bad one. Nothing is changed on disk."""
        segments = self.segments
        end = self._start
        for number, file in enumerate(self._files):
            fault = (
                f"{file.path.name} does not begin at position {end}, where the log before it ends"
                if number and file.base != end
                else ""
            )
            with map_file(file.path, max(0, self._start - file.base)) as data:
                header = bytes(data[:SEGMENT_HEADER_BYTES])
                if not fault:
                    try:
                        segments.append(read_segment_header(file.path, header, file.base, file.generation))
                    except CorruptionError as error:
                        fault = str(error)
                        end = min(end, file.base)
                at = max(self._start, file.base + SEGMENT_HEADER_BYTES) - file.base
                if not fault:
                    end = file.base + min(at, len(data))
                salt = salt_of(header)
                while not fault and at < len(data):
                    try:
                        frame = read_frame(data, at, file.base + at, salt)
                    except BadFrameError as error:
                        fault = f"{file.path.name}, position {file.base + at}: {error}"
                        break
                    at += frame.size
                    end = file.base + at
                    yield frame
            self.tail = LogTail(segments, Position(end), 0)
            if fault:
                self._stopped_at, self._fault = number, fault
                return
        self._stopped_at = len(self._files)

    def _cut(self, number: int, end: int) -> LogTail:
        """Cut off everything behind `end`, from file `number` on."""
        segments = self.segments
        torn = 0
        for file in self._files[number:]:
            size = file.path.stat().st_size
            keep = end - file.base if segments and segments[-1].base == file.base else 0
            torn += max(0, size - keep)
            if keep > 0:
                os.truncate(file.path, max(keep, SEGMENT_HEADER_BYTES))
            else:
                file.path.unlink()
                sync_folder(file.path.parent)
        return LogTail(segments, Position(end), torn)


def frames_after(data: memoryview, at: int, base: int, salt: int) -> Iterator[Frame]:
    """Yield frames with a good head after the one at `at`, whether that one is good or bad.

    A frame with a good head says where the next one begins. Where a head is damaged, the next one is found by its first bytes,
    and from there on every position is tried: bytes that look like a frame must not hide the frames behind them.
    """
    mapping = data.obj
    if not isinstance(mapping, mmap.mmap):
        return
    first = at
    is_chain = True
    while 0 <= at < len(data):
        try:
            frame = read_frame(data, at, base + at, salt, check_batches=False)
        except BadFrameError:
            is_chain = False
        else:
            if at != first:
                yield frame
            if is_chain:
                at += frame.size
                continue
        at = mapping.find(MAGIC_PREFIX, at + 1)


@contextmanager
def map_file(path: Path, start: int = 0) -> Iterator[memoryview]:
    """Map a whole file into memory. The mapping ends with the last view of it.

    The bytes from `start` on are read once before: bytes that the disk can't read raise an error there, while in the mapping
    they would kill the process.
    """
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        for at in range(start, size, _READ_BYTES):
            read_at(file.fileno(), path, at, _READ_BYTES)
        if size:
            yield memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        else:
            yield memoryview(b"")


def _intact_salt(file: SegmentFile) -> int | None:
    with file.path.open("rb") as opened:
        header = opened.read(SEGMENT_HEADER_BYTES)
    with suppress(CorruptionError):
        read_segment_header(file.path, header, file.base, file.generation)
        return salt_of(header)
    return None


class SegmentInventory(NamedTuple):
    """The segment files of a folder, compared with the segments that the checkpoint knows."""

    files: list[tuple[SegmentFile, SegmentUsage | None]]
    """Files that belong to the log, in order, each with what the checkpoint knows of it."""
    leftovers: list[Path]
    """Files that the cleaner had replaced, or was about to replace others with, when the server stopped."""
    faults: list[tuple[str, str]]
    """The name of a file, and what is wrong with it."""


def take_inventory(segments: SegmentFolder, usages: Mapping[Position, SegmentUsage]) -> SegmentInventory:
    """Compare names and sizes only. Nothing is changed."""
    found = SegmentInventory([], [], [])
    active = max((base for base, usage in usages.items() if not usage.size), default=Position(0))
    for path, base, generation in segments.list_files():
        usage = usages.get(Position(base))
        if (usage is not None and usage.generation != generation) or (usage is None and base < active):
            found.leftovers.append(path)
            continue
        # Without a checkpoint the cleaner does nothing, so all generations are 0 and the log begins at 0.
        if usage is None and (generation or (not usages and base and not found.files)):
            found.faults.append((path.name, "the state that describes it is missing"))
        if usage is not None and usage.size and path.stat().st_size != usage.size:
            found.faults.append((path.name, f"it has {path.stat().st_size} bytes and had {usage.size} when it was closed"))
        found.files.append((SegmentFile(path, base, generation), usage))
    present = {file.base for file, _ in found.files}
    for base, usage in usages.items():
        if base not in present:
            found.faults.append((segments.path(base, usage.generation).name, "it is missing"))
    return found
