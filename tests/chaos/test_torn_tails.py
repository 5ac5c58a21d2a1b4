"""The last write reached the disk in part: the log opens, holds everything before it, and nothing of it."""

import os
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tailrace.log.fsck import run_fsck
from tailrace.log.options import LogOptions
from tailrace.log.segment import SEGMENT_HEADER_BYTES
from tailrace.model.commit import Changes
from tailrace.model.errors import CorruptionError
from tailrace.model.ids import Offset, PartitionId, TopicId
from tailrace.store.embedded import EmbeddedStore
from tests.support.batches import append
from tests.support.folders import copy_as_killed, forget_the_mark, frames_of, segment_files
from tests.support.observed import Observed, observe

TOPIC = TopicId(1)
P0, P1 = PartitionId(TOPIC, 0), PartitionId(TOPIC, 1)


class TornFolder:
    """The folder of a killed store, the position of its last frame, and its contents before and after that frame."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._killed = home / "killed"
        store = EmbeddedStore.open(home / "data")
        store.commit(Changes(creates=[(TOPIC, 2)], puts=[(b"key", b"old")]))
        store.commit(Changes(appends=[append(P0, b"a", b"b"), append(P1, b"c")]))
        store.commit(Changes(trims=[(P0, Offset(1))], appends=[append(P1, b"d")]))
        self.before = observe(store)
        store.commit(Changes(appends=[append(P0, b"last"), append(P1, b"too")], puts=[(b"key", b"new"), (b"more", b"1")]))
        self.after = observe(store)
        copy_as_killed(home / "data", self._killed)
        forget_the_mark(self._killed)
        store.close()
        self.frame = [frame for frame in frames_of(segment_files(self._killed)[-1]) if not frame.is_seal][-1]
        self._copies = 0

    def spoiled(self, spoil: Callable[[Path], None]) -> Path:
        """Return a new copy with a damaged last segment."""
        self._copies += 1
        folder = self._home / f"copy-{self._copies}"
        shutil.copytree(self._killed, folder)
        spoil(segment_files(folder)[-1])
        return folder


@pytest.fixture
def torn(tmp_path: Path) -> TornFolder:
    return TornFolder(tmp_path)


def test_the_last_frame_cut_at_every_byte_leaves_all_before_it(torn: TornFolder) -> None:
    for size in range(torn.frame.position, torn.frame.position + torn.frame.size):
        folder = torn.spoiled(partial(os.truncate, length=size))
        assert _opened(folder) == torn.before, f"cut at byte {size - torn.frame.position}"
        shutil.rmtree(folder)


def test_a_whole_last_frame_is_kept(torn: TornFolder) -> None:
    end = torn.frame.position + torn.frame.size
    assert _opened(torn.spoiled(lambda path: os.truncate(path, end))) == torn.after


def test_the_last_frame_with_its_end_never_written_leaves_all_before_it(torn: TornFolder) -> None:
    """A file may have its new length and zeros in a part of it."""
    first, size = torn.frame.position, torn.frame.size
    for written in range(0, size - 8, 7):
        folder = torn.spoiled(partial(_overwrite, at=first + written, data=bytes(size - written), cut=True))
        assert _opened(folder) == torn.before, f"{written} of {size} bytes were written"
        shutil.rmtree(folder)


def test_the_last_frame_with_a_hole_leaves_all_before_it(torn: TornFolder) -> None:
    first, size = torn.frame.position, torn.frame.size
    for hole in range(0, size - 8, 11):
        folder = torn.spoiled(partial(_overwrite, at=first + hole, data=b"\xa5" * 8, cut=False, end=first + size))
        assert _opened(folder) == torn.before, f"hole at byte {hole}"
        shutil.rmtree(folder)


def test_a_torn_tail_is_a_note_for_fsck_and_not_a_finding(torn: TornFolder) -> None:
    folder = torn.spoiled(lambda path: os.truncate(path, torn.frame.position + 30))
    report = run_fsck(folder)
    assert report.findings == []
    assert any("never acknowledged" in note for note in report.notes), report.notes
    assert _opened(folder) == torn.before


def test_the_cut_is_final(torn: TornFolder) -> None:
    folder = torn.spoiled(lambda path: os.truncate(path, torn.frame.position + torn.frame.size - 1))
    store = EmbeddedStore.open(folder)
    assert store.stats().torn_bytes == torn.frame.size - 1
    receipt = store.commit(Changes(appends=[append(P0, b"instead")]))
    assert (receipt.cursor, list(receipt.offsets)) == (torn.before.end_cursor, [torn.before.partitions[P0].end])
    seen = observe(store)
    store.close()
    assert _opened(folder) == seen
    assert run_fsck(folder).findings == []


def test_a_log_cut_below_its_last_checkpoint_is_corrupt(tmp_path: Path) -> None:
    store = EmbeddedStore.open(tmp_path / "data")
    store.commit(Changes(creates=[(TOPIC, 2)], appends=[append(P0, b"kept")]))
    store.close()
    (segment,) = segment_files(tmp_path / "data")
    os.truncate(segment, segment.stat().st_size - 1)
    with pytest.raises(CorruptionError, match="lost its end"):
        EmbeddedStore.open(tmp_path / "data")
    assert run_fsck(tmp_path / "data").findings


def test_a_segment_whose_header_was_torn_is_begun_again(tmp_path: Path) -> None:
    store = EmbeddedStore.open(tmp_path / "data", options=LogOptions(segment_bytes=SEGMENT_HEADER_BYTES + 1))
    store.commit(Changes(creates=[(TOPIC, 2)], appends=[append(P0, b"kept")]))
    before = observe(store)
    store.commit(Changes(appends=[append(P0, b"first of a new segment")]))
    for size in (0, 1, SEGMENT_HEADER_BYTES - 1, SEGMENT_HEADER_BYTES, SEGMENT_HEADER_BYTES + 1):
        copy = tmp_path / f"cut-{size}"
        copy_as_killed(tmp_path / "data", copy)
        forget_the_mark(copy)
        begun = next(path for path in segment_files(copy) if b"first of a new" in path.read_bytes())
        for path in segment_files(copy):
            if path > begun:
                path.unlink()
        os.truncate(begun, size)
        assert _opened(copy) == before, f"{size} bytes of the new segment left"
    store.close()


def _opened(folder: Path) -> Observed:
    store = EmbeddedStore.open(folder)
    try:
        return observe(store)
    finally:
        store.close()


def _overwrite(path: Path, at: int, data: bytes, *, cut: bool, end: int | None = None) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data)
        if cut or end is not None:
            file.truncate(at + len(data) if cut else end)
