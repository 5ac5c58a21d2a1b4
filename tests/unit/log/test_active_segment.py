"""The active segment: runs of frames, reserved blocks, and syncs that fail."""

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tailrace.log.active_segment import ActiveSegment, EncodedFrames
from tailrace.log.segment import SEGMENT_HEADER_BYTES, SegmentFolder
from tailrace.model.errors import StorageFailedError, StorageFullError
from tailrace.model.ids import Cursor, Position
from tailrace.model.limits import MIB

BLOCK_BYTES = 512


@pytest.fixture
def segment(tmp_path: Path) -> Iterator[ActiveSegment]:
    segment = ActiveSegment(tmp_path, SegmentFolder(tmp_path, 1), 64 * MIB, lambda _: None)
    segment.begin(Position(0), Cursor(0))
    yield segment
    segment.close()


def active_file(segment: ActiveSegment) -> Path:
    return segment.segments.segments[-1].path


def test_runs_of_frames_are_written_in_order(segment: ActiveSegment) -> None:
    segment.append([EncodedFrames([b"one", b"two"], 6, False), EncodedFrames([b"three"], 5, True)])
    assert active_file(segment).read_bytes()[SEGMENT_HEADER_BYTES:] == b"onetwothree"
    assert segment.position == SEGMENT_HEADER_BYTES + 11


def test_a_run_that_finds_the_disk_full_undoes_the_runs_before_it(segment: ActiveSegment) -> None:
    segment.append([EncodedFrames([b"before"], 6, True)])

    def runs() -> Iterator[EncodedFrames]:
        yield EncodedFrames([b"first"], 5, False)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(StorageFullError):
        segment.append(runs())
    assert active_file(segment).read_bytes()[SEGMENT_HEADER_BYTES:] == b"before"
    segment.append([EncodedFrames([b"after"], 5, True)])
    assert active_file(segment).read_bytes()[SEGMENT_HEADER_BYTES:] == b"beforeafter"


def test_blocks_are_reserved_behind_the_end_and_given_back(segment: ActiveSegment) -> None:
    if os.statvfs(active_file(segment)).f_bavail * os.statvfs(active_file(segment)).f_frsize < 1024 * MIB:
        pytest.skip("the disk has too little room to reserve any")
    segment.append([EncodedFrames([b"frame"], 5, True)])
    reserved = active_file(segment).stat()
    assert reserved.st_size == SEGMENT_HEADER_BYTES + 5
    if reserved.st_blocks * BLOCK_BYTES < MIB:
        pytest.skip("this file system reserves nothing")
    segment.release_reserved()
    given_back = active_file(segment).stat()
    assert given_back.st_size == SEGMENT_HEADER_BYTES + 5
    assert given_back.st_blocks * BLOCK_BYTES < MIB


def test_after_a_sync_that_failed_nothing_is_written_and_nothing_counts_as_synced(
    segment: ActiveSegment, monkeypatch: pytest.MonkeyPatch
) -> None:
    segment.append([EncodedFrames([b"lost?"], 5, True)])

    def fail(fd: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as disk, pytest.raises(OSError, match="Input/output error"):
        disk.setattr(os, "fdatasync", fail)
        segment.sync()

    for attempt in (segment.sync, lambda: segment.roll(Cursor(1)), lambda: segment.append([EncodedFrames([b"more"], 4, True)])):
        with pytest.raises(StorageFailedError, match="an earlier sync"):
            attempt()
    assert segment.synced == 0
    assert len(segment.segments.segments) == 1
    assert active_file(segment).read_bytes()[SEGMENT_HEADER_BYTES:] == b"lost?"
