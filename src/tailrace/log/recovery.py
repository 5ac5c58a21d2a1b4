"""What to make of the end of the log after a crash.

Frames are read and checked from the last checkpoint on. The first bad one ends the log. If it is known that the log was durable
beyond it, bytes that were safe have changed or are gone: that is corruption, it is reported and nothing is touched. Otherwise
the bad frame and all behind it were never acknowledged: a torn tail, cut off. `judge` decides which of the two it is, for the
start as for `fsck`: by later frames, which say how far the log was synced when they were written, and by evidence
outside the log, which are the checkpoint, the state and the high mark.
"""

import mmap
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from tailrace.log.frame import MAGIC, BadFrameError, Frame, read_frame
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
    """A segment as its name describes it; its content is not checked yet."""

    path: Path
    base: int
    generation: int


class SyncEvidence(NamedTuple):
    """Something beside the log that knows up to where the log was synced."""

    name: str
    synced: Position


class LogTail(NamedTuple):
    """Where the log really ends."""

    segments: Sequence[Segment]
    """The segments that were read, whole or cut."""
    end: Position
    torn_bytes: int


def diagnose_end(
    files: Sequence[SegmentFile], number: int, end: int, fault: str, evidence: Sequence[SyncEvidence]
) -> CorruptionError | None:
    """The log can be read up to `end`, where file `number` is at fault, or the last one ends: say what was lost there.

    `None` if what stands behind it was never acknowledged.
    """
    fault = f"{fault}. " if fault else ""
    sound = {salt for file in files if (salt := _sound_salt(file)) is not None}
    for file in files[number:]:
        own = _sound_salt(file)
        with map_file(file.path) as data:
            # Behind a damaged header the frames are still those of this log.
            salts = {salt_of(bytes(data[:SEGMENT_HEADER_BYTES])), 0, *sound} if own is None else {own}
            for salt in salts:
                for later in frames_after(data, max(0, end - file.base), file.base, salt):
                    if later.synced > end:
                        return CorruptionError(
                            f"{fault}The frame at {later.position} shows that the log was whole up to {later.synced},"
                            " so stored bytes have changed. Nothing was touched; see `tailrace fsck`"
                        )
    for name, synced in evidence:
        if synced > end:
            return LostEndError(
                f"{fault}The log can be read up to position {end}, and was synced up to {synced}, as {name} knows:"
                " the log has lost its end. Nothing was touched; restore the folder from a copy",
                end,
            )
    return None


class Recovery:
    """Reads frames from `start` on; afterwards `tail` says where the log ends."""

    def __init__(self, files: Sequence[SegmentFile], start: int, evidence: Sequence[SyncEvidence]) -> None:
        self._files = files
        self._start = start
        self._evidence = evidence
        self.tail = LogTail([], Position(start), 0)
        self.segments: list[Segment] = []
        """The segments that have been reached."""
        self._stopped_at = 0
        """The number of the file that is at fault; how many there are if none is."""
        self._fault = ""

    def frames(self) -> Iterator[Frame]:
        """Every good frame in order. The torn tail, if there is one, is cut off when the last has been taken."""
        yield from self.good_frames()
        end = self.tail.end
        verdict = diagnose_end(self._files, self._stopped_at, end, self._fault, self._evidence)
        if verdict is not None:
            raise verdict
        if self._fault:
            self.tail = self._cut(self._stopped_at, end)

    def good_frames(self) -> Iterator[Frame]:
        """The same, and nothing is judged or cut."""
        segments = self.segments
        end = self._start
        for number, file in enumerate(self._files):
            fault = f"{file.path.name} does not follow on position {end}" if number and file.base != end else ""
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
        """What stands behind `end`, in file `number`, was never safe."""
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
    """Good frame heads after the one at `at`, good or bad.

    From a frame whose head is whole it is known where the next one begins. Where a head is damaged, the next one is found by
    its first bytes, and from there on every place is tried: nothing that looks like a frame may hide those behind it.
    """
    whole = data.obj
    if not isinstance(whole, mmap.mmap):
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
        at = whole.find(MAGIC, at + 1)


@contextmanager
def map_file(path: Path, start: int = 0) -> Iterator[memoryview]:
    """The bytes of a whole file, without keeping them in memory. The mapping ends with the last view of it.

    Those from `start` on are read once before: what the disk can't read is an error there, and in the mapping the end of the
    process.
    """
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        for at in range(start, size, _READ_BYTES):
            read_at(file.fileno(), path, at, _READ_BYTES)
        if size:
            yield memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        else:
            yield memoryview(b"")


def _sound_salt(file: SegmentFile) -> int | None:
    with file.path.open("rb") as opened:
        header = opened.read(SEGMENT_HEADER_BYTES)
    with suppress(CorruptionError):
        read_segment_header(file.path, header, file.base, file.generation)
        return salt_of(header)
    return None


class SegmentInventory(NamedTuple):
    files: list[tuple[SegmentFile, SegmentUsage | None]]
    """Those of the log, in order, each with what the checkpoint knows of it."""
    leftovers: list[Path]
    """Files that the cleaner has replaced, or was about to put in another's place, when the server stopped."""
    faults: list[tuple[str, str]]
    """The name of a file, and what is wrong with it."""


def take_inventory(segments: SegmentFolder, usages: Mapping[Position, SegmentUsage]) -> SegmentInventory:
    found = SegmentInventory([], [], [])
    active = max((base for base, usage in usages.items() if not usage.size), default=Position(0))
    for path, base, generation in segments.list_files():
        usage = usages.get(Position(base))
        if (usage is not None and usage.generation != generation) or (usage is None and base < active):
            found.leftovers.append(path)
            continue
        # Without a checkpoint the cleaner does nothing: no later generations, and no log that does not begin at 0.
        if usage is None and (generation or (not usages and base and not found.files)):
            found.faults.append((path.name, "the state that belongs to it is missing"))
        if usage is not None and usage.size and path.stat().st_size != usage.size:
            found.faults.append((path.name, f"it has {path.stat().st_size} bytes and had {usage.size} when it was closed"))
        found.files.append((SegmentFile(path, base, generation), usage))
    there = {file.base for file, _ in found.files}
    for base, usage in usages.items():
        if base not in there:
            found.faults.append((segments.path(base, usage.generation).name, "it is missing"))
    return found
