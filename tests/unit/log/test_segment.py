"""Files of segments that are deleted: readers keep what they read, and disk blocks are given back piece by piece."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tailrace.log import segment as segment_module
from tailrace.log.segment import Segment, SegmentFolder, encode_segment_header
from tailrace.model.ids import Cursor, Position

SIZE = 10_000
PIECE = 4_096


@pytest.fixture
def sizes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes to which files are cut, in order."""
    found: list[int] = []
    cut: Callable[[int, int], None] = os.ftruncate

    def noted(fd: int, size: int) -> None:
        found.append(size)
        cut(fd, size)

    monkeypatch.setattr(segment_module, "_FREED_BYTES", PIECE)
    monkeypatch.setattr(os, "ftruncate", noted)
    return found


@pytest.fixture
def segments(tmp_path: Path) -> SegmentFolder:
    segments = SegmentFolder(tmp_path, 8)
    segment = Segment(segments.path(0, 0), Position(0), 0, Cursor(0))
    head = encode_segment_header(segment.base, 0, segment.first_cursor, 0)
    segment.path.write_bytes(head + bytes(SIZE - len(head)))
    segments.add(segment)
    return segments


def removed(segments: SegmentFolder) -> Segment:
    (segment,) = segments.segments
    segments.replace(segment, None)
    segments.delete(segment)
    assert not segment.path.exists()
    return segment


def test_blocks_of_a_deleted_segment_are_given_back_piece_by_piece(segments: SegmentFolder, sizes: list[int]) -> None:
    removed(segments)
    assert sizes == [SIZE - PIECE, SIZE - 2 * PIECE, 0]


def test_a_segment_that_was_read_before_is_given_back_too(segments: SegmentFolder, sizes: list[int]) -> None:
    assert len(segments.handle(0).read(0, SIZE)) == SIZE
    removed(segments)
    assert sizes[-1] == 0


def test_who_still_reads_a_deleted_segment_gets_all_of_it(segments: SegmentFolder, sizes: list[int]) -> None:
    handle = segments.handle(0)
    before = handle.read(0, SIZE)
    removed(segments)
    assert sizes == []
    assert handle.read(0, SIZE) == before
    assert len(before) == SIZE
