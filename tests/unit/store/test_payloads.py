"""The payload folder: only complete files, damage is found, and a full disk is not a failed one."""

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest

from tailrace.model.errors import LostPayloadError, StorageFailedError, StorageFullError
from tailrace.model.record import reference_to
from tailrace.store.payloads import PayloadFolder

CONTENT = b"large" * 50_000
REFERENCE = reference_to(CONTENT)
OTHER = b"other" * 50_000


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the paths that were synced, in order."""
    paths: list[str] = []
    sync = os.fsync

    def watched(fd: int) -> None:
        paths.append(str(Path(f"/proc/self/fd/{fd}").readlink()))
        sync(fd)

    monkeypatch.setattr(os, "fsync", watched)
    return paths


def nothing_wrong(error: BaseException) -> NoReturn:
    raise AssertionError(f"the disk is said to have failed: {error}")


def folder_in(path: Path, check_room: Callable[[], None] = lambda: None) -> PayloadFolder:
    return PayloadFolder(path / "payloads", check_room, nothing_wrong)


def test_files_are_named_by_the_sha256_of_their_content(tmp_path: Path) -> None:
    folder_in(tmp_path).put({REFERENCE: CONTENT})
    (file,) = (tmp_path / "payloads").iterdir()
    assert file.name == "0b9c7332335052fe9216ec6dfe46f94f492f4cdf6c4a4ee130356db970f8c758"
    assert file.read_bytes() == CONTENT


def test_no_folder_is_created_before_the_first_payload(tmp_path: Path) -> None:
    payloads = folder_in(tmp_path)
    assert list(payloads.digests()) == []
    assert not (tmp_path / "payloads").exists()


def test_unfinished_files_are_not_payloads_and_are_removed_at_the_next_start(tmp_path: Path) -> None:
    folder_in(tmp_path).put({REFERENCE: CONTENT})
    unfinished = tmp_path / "payloads" / (reference_to(OTHER).digest.hex() + ".unfinished")
    unfinished.write_bytes(OTHER[:1000])
    again = folder_in(tmp_path)
    assert list(again.digests()) == [REFERENCE.digest]
    assert not unfinished.exists()


@pytest.mark.parametrize("damage", [CONTENT[:-1], CONTENT + b"x", CONTENT[:-1] + b"x", b""])
def test_a_damaged_file_is_not_returned_and_is_written_again(tmp_path: Path, damage: bytes) -> None:
    payloads = folder_in(tmp_path)
    payloads.put({REFERENCE: CONTENT})
    (tmp_path / "payloads" / REFERENCE.digest.hex()).write_bytes(damage)
    with pytest.raises(LostPayloadError, match="is damaged"):
        payloads.get(REFERENCE)
    assert list(payloads.put({REFERENCE: CONTENT})) == [REFERENCE]
    assert payloads.get(REFERENCE) == CONTENT


def test_a_file_that_is_there_already_is_not_written_again(tmp_path: Path) -> None:
    payloads = folder_in(tmp_path)
    payloads.put({REFERENCE: CONTENT})
    file = tmp_path / "payloads" / REFERENCE.digest.hex()
    before = file.stat().st_ino, file.stat().st_mtime_ns
    assert list(payloads.put({REFERENCE: CONTENT})) == []
    assert (file.stat().st_ino, file.stat().st_mtime_ns) == before


def test_a_payload_and_its_name_are_synced_before_put_returns(tmp_path: Path, synced: list[str]) -> None:
    folder = tmp_path / "payloads"
    folder_in(tmp_path).put({REFERENCE: CONTENT})
    assert synced == [str(tmp_path), str(folder / REFERENCE.digest.hex()), str(folder)]


def test_files_of_a_killed_process_are_synced_before_they_are_used(tmp_path: Path, synced: list[str]) -> None:
    folder_in(tmp_path).put({REFERENCE: CONTENT})
    again = folder_in(tmp_path)
    synced.clear()
    again.put({REFERENCE: CONTENT})
    again.put({REFERENCE: CONTENT})
    file = str(tmp_path / "payloads" / REFERENCE.digest.hex())
    assert synced == [str(tmp_path / "payloads"), file, file]


def test_a_full_disk_refuses_the_payload_and_leaves_nothing_of_it_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    payloads = folder_in(tmp_path)
    payloads.put({REFERENCE: CONTENT})
    with monkeypatch.context() as full:
        full.setattr(os, "fsync", _fails_with(errno.ENOSPC, OTHER))
        with pytest.raises(StorageFullError, match="too full for a payload"):
            payloads.put({REFERENCE: CONTENT, reference_to(OTHER): OTHER})
    assert [path.name for path in (tmp_path / "payloads").iterdir()] == [REFERENCE.digest.hex()]
    assert list(payloads.put({REFERENCE: CONTENT, reference_to(OTHER): OTHER})) == [reference_to(OTHER)]


def test_a_disk_below_min_free_bytes_refuses_payloads(tmp_path: Path) -> None:
    def no_room() -> None:
        raise StorageFullError("less than min_free_bytes are free")

    with pytest.raises(StorageFullError, match="min_free_bytes"):
        folder_in(tmp_path, no_room).put({REFERENCE: CONTENT})
    assert not (tmp_path / "payloads").exists()


def test_a_failed_sync_is_final(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[BaseException] = []
    payloads = PayloadFolder(tmp_path / "payloads", lambda: None, told.append)
    monkeypatch.setattr(os, "fsync", _fails_with(errno.EIO, CONTENT))
    with pytest.raises(StorageFailedError, match="the server stops"):
        payloads.put({REFERENCE: CONTENT})
    assert [error.errno for error in told if isinstance(error, OSError)] == [errno.EIO]


def _fails_with(number: int, content: bytes) -> Callable[[int], None]:
    """Make the sync of files with this content fail."""

    def fails(fd: int) -> None:
        path = Path(f"/proc/self/fd/{fd}").readlink()
        if path.is_file() and path.read_bytes() == content:
            raise OSError(number, os.strerror(number))

    return fails
