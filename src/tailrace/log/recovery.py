"""What to make of the end of the log after a crash.

Frames are read and checked from the last checkpoint on. The first bad one ends the log. If any good frame behind it was
written in the knowledge that the bad one was durable, bytes that were safe have changed: that is corruption, it is
reported and nothing is touched. Otherwise the bad frame and all behind it were never acknowledged: a torn tail, cut off.
"""

import mmap
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tailrace.log.frame import MAGIC, BadFrameError, Frame, read_frame
from tailrace.log.segment import HEADER_BYTES, Segment, read_header, sync_folder
from tailrace.model.errors import CorruptionError
from tailrace.model.ids import Position


class SegmentFile(NamedTuple):
    """A segment as its name describes it; its content is not checked yet."""

    path: Path
    base: int
    generation: int


class Tail(NamedTuple):
    """Where the log really ends."""

    segments: Sequence[Segment]
    """The segments that were read, whole or cut."""
    end: Position
    torn_bytes: int


class Recovery:
    """Reads frames from `start` on; afterwards `tail` says where the log ends."""

    def __init__(self, files: Sequence[SegmentFile], start: int) -> None:
        self._files = files
        self._start = start
        self.tail = Tail([], Position(start), 0)
        self.segments: list[Segment] = []
        """The segments that have been reached."""

    def frames(self) -> Iterator[Frame]:
        """Every good frame in order. The torn tail, if there is one, is cut off when the last has been taken."""
        segments = self.segments
        end = self._start
        for number, file in enumerate(self._files):
            fault = f"{file.path.name} does not follow on position {end}" if number and file.base != end else ""
            with mapped(file.path) as data:
                if not fault:
                    try:
                        segments.append(read_header(file.path, bytes(data[:HEADER_BYTES]), file.base, file.generation))
                    except CorruptionError as error:
                        fault = str(error)
                at = max(self._start, file.base + HEADER_BYTES) - file.base
                if number == 0 and at > HEADER_BYTES and (fault or at > len(data)):
                    raise CorruptionError(
                        f"{file.path.name} ends at {file.base + len(data)}, the last checkpoint was at {self._start}:"
                        f" the log has lost its end. {fault or 'Restore the folder from a copy'}"
                    )
                if not fault:
                    end = file.base + at
                while not fault and at < len(data):
                    try:
                        frame = read_frame(data, at, file.base + at)
                    except BadFrameError as error:
                        fault = f"{file.path.name}, position {file.base + at}: {error}"
                        break
                    at += frame.size
                    end = file.base + at
                    yield frame
            if fault:
                self.tail = self._cut(number, segments, end, fault)
                return
        self.tail = Tail(segments, Position(end), 0)

    def _cut(self, number: int, segments: list[Segment], end: int, fault: str) -> Tail:
        """The frame at `end`, in file `number`, is bad: find out why, and cut there if it was never safe."""
        for file in self._files[number:]:
            with mapped(file.path) as data:
                for later in frames_behind(data, max(0, end - file.base), file.base):
                    if later.synced > end:
                        raise CorruptionError(
                            f"{fault}. The frame at {later.position} shows that the log was whole up to {later.synced},"
                            " so stored bytes have changed. Nothing was touched; see `tailrace fsck`"
                        )
        torn = 0
        for file in self._files[number:]:
            size = file.path.stat().st_size
            keep = end - file.base if segments and segments[-1].base == file.base else 0
            torn += max(0, size - keep)
            if keep > 0:
                os.truncate(file.path, max(keep, HEADER_BYTES))
            else:
                file.path.unlink()
                sync_folder(file.path.parent)
        return Tail(segments, Position(end), torn)


def frames_behind(data: memoryview, at: int, base: int) -> Iterator[Frame]:
    """Good frame heads anywhere after `at`, found by their first bytes."""
    whole = data.obj
    if not isinstance(whole, mmap.mmap):
        return
    while (at := whole.find(MAGIC, at + 1)) >= 0:
        try:
            yield read_frame(data, at, base + at, check_batches=False)
        except BadFrameError:
            continue


@contextmanager
def mapped(path: Path) -> Iterator[memoryview]:
    """The bytes of a whole file, without reading them into memory first. The mapping ends with the last view of it."""
    with path.open("rb") as file:
        if os.fstat(file.fileno()).st_size:
            yield memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        else:
            yield memoryview(b"")
