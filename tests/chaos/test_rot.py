"""Stored bytes change: the store reports it, and never serves or drops anything silently."""

import os
import random
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tailrace.log.fsck import run_fsck
from tailrace.log.options import LogOptions
from tailrace.log.segment import SEGMENT_HEADER_BYTES
from tailrace.model.commit import Changes
from tailrace.model.errors import CorruptionError, TailraceError
from tailrace.model.ids import Offset, PartitionId, TopicId
from tailrace.model.limits import KIB
from tailrace.store.embedded import EmbeddedStore
from tests.support.batches import append
from tests.support.folders import copy_as_killed, segment_files, wait_until_sealed
from tests.support.observed import Observed, observe

A, B = TopicId(1), TopicId(2)
CHUNK = 4 * KIB
OPTIONS = LogOptions(segment_bytes=12 * KIB, checkpoint_bytes=24 * KIB, index_chunk_batches=8, cursor_stride_bytes=KIB)
FLIPS = 150
HEADER_USED_BYTES = 52
"""The rest of a segment's header is unused."""


class SoundFolder:
    """Make a folder with several segments, some of them cleaned. Return it and its contents."""

    def __init__(self, home: Path) -> None:
        self.path = home / "sound"
        self._home = home
        self._copies = 0
        store = EmbeddedStore.open(self.path, options=OPTIONS)
        store.commit(Changes(creates=[(A, 2), (B, 1)]))
        for number in range(120):
            values = [b"%d/%d" % (number, copy) + bytes([number]) * 150 for copy in range(1 + number % 3)]
            partition = PartitionId(A, number % 2) if number % 3 else PartitionId(B, 0)
            store.commit(Changes(appends=[append(partition, *values)], puts=[(b"key/%d" % (number % 20), b"%d" % number)]))
        store.commit(Changes(trims=[(PartitionId(B, 0), Offset(38)), (PartitionId(A, 0), Offset(60))]))
        store.clean()
        assert store.stats().segments_rewritten
        self.truth = observe(store)
        store.close()
        assert len(segment_files(self.path)) >= 4
        assert run_fsck(self.path).findings == []

    def spoiled(self, spoil: Callable[[Path], None]) -> Path:
        self._copies += 1
        folder = self._home / f"copy-{self._copies}"
        shutil.copytree(self.path, folder)
        spoil(folder)
        return folder


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> SoundFolder:
    return SoundFolder(tmp_path_factory.mktemp("rot"))


def test_a_flipped_bit_anywhere_in_the_log_is_reported(sound: SoundFolder, chaos_seed: int) -> None:
    choice = random.Random(chaos_seed)
    segments = segment_files(sound.path)
    sizes = [path.stat().st_size for path in segments]
    for _ in range(FLIPS):
        (path,) = choice.choices(segments, sizes)
        at = choice.randrange(path.stat().st_size)
        bit = choice.randrange(8)
        folder = sound.spoiled(partial(_flip_in, path.relative_to(sound.path), at, bit))
        where = f"bit {bit} of byte {at} of {path.name}"
        error = _error_or_truth(folder, sound.truth, where)
        findings = run_fsck(folder).findings
        if at < SEGMENT_HEADER_BYTES:
            assert findings or at >= HEADER_USED_BYTES, f"{where}: fsck finds nothing"
            continue  # nothing is served from a header
        assert error is not None, f"{where}: every byte was read and no error was raised"
        assert any(path.name in finding.where + finding.what for finding in findings), f"{where}: {findings}"
        shutil.rmtree(folder)


def test_a_flipped_bit_in_the_state_is_reported_or_harmless(sound: SoundFolder, chaos_seed: int) -> None:
    choice = random.Random(chaos_seed)
    files = sorted(
        path for path in (sound.path / "state").iterdir() if path.suffix == ".sst" or path.name[:4] in ("MANI", "CURR")
    )
    for _ in range(FLIPS):
        path = choice.choice(files)
        at = choice.randrange(path.stat().st_size)
        bit = choice.randrange(8)
        folder = sound.spoiled(partial(_flip_in, path.relative_to(sound.path), at, bit))
        _error_or_truth(folder, sound.truth, f"bit {bit} of byte {at} of {path.name}")
        shutil.rmtree(folder)


def test_a_flipped_bit_in_a_killed_folder_is_never_taken_for_a_torn_write(tmp_path: Path, chaos_seed: int) -> None:
    """Without a checkpoint, only later frames show that a frame was durable."""
    choice = random.Random(chaos_seed)
    store = EmbeddedStore.open(tmp_path / "data")
    store.commit(Changes(creates=[(A, 1)]))
    for number in range(40):
        store.commit(Changes(appends=[append(PartitionId(A, 0), b"%d" % number * 20)]))
    truth = observe(store)
    seal = wait_until_sealed(tmp_path / "data")
    copy_as_killed(tmp_path / "data", tmp_path / "killed")
    store.close()
    (segment,) = segment_files(tmp_path / "killed")
    for _ in range(FLIPS):
        at = choice.randrange(SEGMENT_HEADER_BYTES, seal.position)
        bit = choice.randrange(8)
        _flip(segment, at, bit)
        with pytest.raises(CorruptionError):
            EmbeddedStore.open(tmp_path / "killed")
        _flip(segment, at, bit)
    assert _error_or_truth(tmp_path / "killed", truth, "nothing") is None


def _largest(folder: Path) -> Path:
    path = max(segment_files(folder), key=lambda path: path.stat().st_size)
    assert path.stat().st_size > 3 * CHUNK
    return path


def _zero_a_chunk(folder: Path) -> None:
    _replace_chunk(_largest(folder), CHUNK, bytes(CHUNK))


def _swap_two_chunks(folder: Path) -> None:
    path = _largest(folder)
    data = path.read_bytes()
    path.write_bytes(data[:CHUNK] + data[2 * CHUNK : 3 * CHUNK] + data[CHUNK : 2 * CHUNK] + data[3 * CHUNK :])


def _copy_a_chunk_over_another(folder: Path) -> None:
    path = _largest(folder)
    _replace_chunk(path, 0, path.read_bytes()[CHUNK : 2 * CHUNK])


def _delete_the_first_segment(folder: Path) -> None:
    segment_files(folder)[0].unlink()


def _delete_a_segment_in_the_middle(folder: Path) -> None:
    segment_files(folder)[2].unlink()


def _delete_the_last_segment(folder: Path) -> None:
    segment_files(folder)[-1].unlink()


def _cut_a_closed_segment(folder: Path) -> None:
    path = segment_files(folder)[1]
    os.truncate(path, path.stat().st_size - 1)


def _lengthen_a_closed_segment(folder: Path) -> None:
    with segment_files(folder)[1].open("ab") as file:
        file.write(b"\0")


def _cut_the_last_segment(folder: Path) -> None:
    path = segment_files(folder)[-1]
    os.truncate(path, path.stat().st_size - 1)


def _swap_two_segments(folder: Path) -> None:
    first, second = segment_files(folder)[1:3]
    first.rename(folder / "aside")
    second.rename(first)
    (folder / "aside").rename(second)


def _put_one_segment_in_place_of_another(folder: Path) -> None:
    first, second = segment_files(folder)[1:3]
    shutil.copy(second, first)


def _delete_the_state(folder: Path) -> None:
    shutil.rmtree(folder / "state")


def _delete_a_state_file(folder: Path) -> None:
    sorted((folder / "state").glob("*.sst"))[0].unlink()


DAMAGES = (
    _zero_a_chunk,
    _swap_two_chunks,
    _copy_a_chunk_over_another,
    _delete_the_first_segment,
    _delete_a_segment_in_the_middle,
    _delete_the_last_segment,
    _cut_a_closed_segment,
    _lengthen_a_closed_segment,
    _cut_the_last_segment,
    _swap_two_segments,
    _put_one_segment_in_place_of_another,
    _delete_the_state,
    _delete_a_state_file,
)


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__.strip("_"))
def test_damage_is_reported_by_the_store_and_named_by_fsck(sound: SoundFolder, damage: Callable[[Path], None]) -> None:
    folder = sound.spoiled(damage)
    files = {path: path.read_bytes() for path in segment_files(folder)}
    findings = run_fsck(folder).findings
    assert findings
    assert {path: path.read_bytes() for path in segment_files(folder)} == files, "fsck changes nothing"
    error = _error_or_truth(folder, sound.truth, damage.__name__)
    assert isinstance(error, CorruptionError)
    assert {path: path.read_bytes() for path in segment_files(folder)} == files, "what was found damaged was not touched"


def _error_or_truth(folder: Path, truth: Observed, where: str) -> TailraceError | None:
    """Open and read everything. Anything but an error of ours, or all data as it was, is silent loss or corruption."""
    try:
        store = EmbeddedStore.open(folder, options=OPTIONS)
        try:
            seen = observe(store)
        finally:
            store.close()
    except TailraceError as error:
        return error
    assert seen == truth, f"{where}: other records than were written, and no error"
    return None


def _flip_in(path: Path, at: int, bit: int, folder: Path) -> None:
    _flip(folder / path, at, bit)


def _flip(path: Path, at: int, bit: int) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        (byte,) = file.read(1)
        file.seek(at)
        file.write(bytes([byte ^ (1 << bit)]))


def _replace_chunk(path: Path, at: int, chunk: bytes) -> None:
    data = path.read_bytes()
    path.write_bytes(data[:at] + chunk + data[at + len(chunk) :])
