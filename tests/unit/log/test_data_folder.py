"""Only its owner may read a data folder."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tailrace.model.commit import Changes
from tailrace.model.ids import TopicId
from tailrace.model.limits import Limits
from tailrace.model.record import reference_to
from tailrace.store.embedded import EmbeddedStore

LIMITS = Limits(min_free_bytes=0)


@pytest.fixture(autouse=True)
def generous_umask() -> Iterator[None]:
    """Set a umask by which files can be read by everyone unless they are created otherwise."""
    before = os.umask(0)
    yield
    os.umask(before)


def open_to_others(folder: Path) -> list[str]:
    """Return all files except RocksDB's own, which follow the umask that a server sets."""
    paths = [folder, *folder.rglob("*")]
    return [str(path) for path in paths if path.stat().st_mode & 0o077 and path.parent != folder / "state"]


def test_files_can_be_read_by_their_owner_only(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "data"
    store = EmbeddedStore.open(folder, limits=LIMITS)
    store.commit(Changes(creates=[(TopicId(1), 1)]))
    store.staging.write("some", 0, b"a part")
    store.payloads.put({reference_to(b"large"): b"large"})
    assert {path.name for path in folder.iterdir()} == {"LOCK", "high_mark", "log", "payloads", "staging", "state"}
    assert open_to_others(folder) == []
    store.close()


def test_opening_makes_a_folder_private(tmp_path: Path) -> None:
    EmbeddedStore.open(tmp_path, limits=LIMITS).close()
    (tmp_path / "tables.db").touch()
    for path in (tmp_path, *tmp_path.rglob("*")):
        path.chmod(0o777 if path.is_dir() else 0o666)
    (tmp_path / "elsewhere").symlink_to(tmp_path.parent)
    parent = tmp_path.parent.stat().st_mode
    store = EmbeddedStore.open(tmp_path, limits=LIMITS)
    assert [path for path in tmp_path.iterdir() if not path.is_symlink() and path.stat().st_mode & 0o077] == []
    assert (tmp_path / "tables.db").stat().st_mode & 0o777 == 0o600
    assert tmp_path.parent.stat().st_mode == parent
    store.close()
