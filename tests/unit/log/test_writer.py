"""The writer of the log: pieces of a group, and room that is reserved for it."""

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tailrace.log.encoding import Piece
from tailrace.log.segment import SEGMENT_HEADER_BYTES, SegmentFolder
from tailrace.log.writer import LogWriter
from tailrace.model.errors import StorageFailedError, StorageFullError
from tailrace.model.ids import Cursor, Position
from tailrace.model.limits import MIB

BLOCK_BYTES = 512


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[LogWriter]:
    writer = LogWriter(tmp_path, SegmentFolder(tmp_path, 1), 64 * MIB, lambda _: None)
    writer.begin(Position(0), Cursor(0))
    yield writer
    writer.close()


def active_file(writer: LogWriter) -> Path:
    return writer.segments.segments[-1].path


def test_pieces_are_written_one_behind_the_other(writer: LogWriter) -> None:
    writer.append([Piece([b"one", b"two"], 6, False), Piece([b"three"], 5, True)])
    assert active_file(writer).read_bytes()[SEGMENT_HEADER_BYTES:] == b"onetwothree"
    assert writer.position == SEGMENT_HEADER_BYTES + 11


def test_a_piece_without_room_takes_the_pieces_before_it_along(writer: LogWriter) -> None:
    writer.append([Piece([b"before"], 6, True)])

    def pieces() -> Iterator[Piece]:
        yield Piece([b"first"], 5, False)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(StorageFullError):
        writer.append(pieces())
    assert active_file(writer).read_bytes()[SEGMENT_HEADER_BYTES:] == b"before"
    writer.append([Piece([b"after"], 5, True)])
    assert active_file(writer).read_bytes()[SEGMENT_HEADER_BYTES:] == b"beforeafter"


def test_room_is_reserved_behind_the_end_and_given_back(writer: LogWriter) -> None:
    if os.statvfs(active_file(writer)).f_bavail * os.statvfs(active_file(writer)).f_frsize < 1024 * MIB:
        pytest.skip("the disk has too little room to reserve any")
    writer.append([Piece([b"frame"], 5, True)])
    reserved = active_file(writer).stat()
    assert reserved.st_size == SEGMENT_HEADER_BYTES + 5
    if reserved.st_blocks * BLOCK_BYTES < MIB:
        pytest.skip("this file system reserves nothing")
    writer.give_back()
    given_back = active_file(writer).stat()
    assert given_back.st_size == SEGMENT_HEADER_BYTES + 5
    assert given_back.st_blocks * BLOCK_BYTES < MIB


def test_after_a_sync_that_failed_nothing_is_written_and_nothing_counts_as_synced(
    writer: LogWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer.append([Piece([b"lost?"], 5, True)])

    def fail(fd: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as disk, pytest.raises(OSError, match="Input/output error"):
        disk.setattr(os, "fdatasync", fail)
        writer.sync()

    for attempt in (writer.sync, lambda: writer.roll(Cursor(1)), lambda: writer.append([Piece([b"more"], 4, True)])):
        with pytest.raises(StorageFailedError, match="at an earlier sync"):
            attempt()
    assert writer.synced == 0
    assert len(writer.segments.segments) == 1
    assert active_file(writer).read_bytes()[SEGMENT_HEADER_BYTES:] == b"lost?"
