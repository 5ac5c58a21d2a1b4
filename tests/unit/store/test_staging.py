"""The staging folder: bounded, and empty after a restart except for what will be published."""

import os
from pathlib import Path

import msgspec
import pytest

from tailrace.model.errors import InvalidRequestError, LimitExceededError
from tailrace.model.limits import DEFAULT_LIMITS
from tailrace.store.staging import StagingFolder

SMALL = msgspec.structs.replace(DEFAULT_LIMITS, staged_bytes=100)


def test_bytes_over_the_limit_are_refused_until_some_are_removed(tmp_path: Path) -> None:
    staging = StagingFolder(tmp_path / "staging", SMALL)
    staging.write("a", 0, bytes(60))
    with pytest.raises(LimitExceededError, match="staged_bytes"):
        staging.write("b", 0, bytes(41))
    staging.write("a", 0, bytes(50))
    staging.write("b", 0, bytes(50))
    staging.remove("a")
    assert (staging.size("a"), staging.size("b")) == (0, 50)
    staging.write("c", 0, bytes(50))


def test_after_a_restart_only_what_will_be_published_is_left(tmp_path: Path) -> None:
    staging = StagingFolder(tmp_path / "staging", SMALL)
    staging.write("left", 0, b"left over")
    staging.write("decided", 3, b"kept")
    staging.sync(["decided"])
    again = StagingFolder(tmp_path / "staging", SMALL)
    again.retain(["decided"])
    assert (again.size("left"), again.size("decided")) == (0, len(b"kept"))
    assert again.read("decided", 3) == b"kept"
    with pytest.raises(InvalidRequestError):
        again.read("left", 0)


def test_only_old_stages_that_nobody_will_publish_are_removed(tmp_path: Path) -> None:
    staging = StagingFolder(tmp_path / "staging", SMALL)
    for name in ("old", "decided", "new"):
        staging.write(name, 0, name.encode())
    for name in ("old", "decided"):
        os.utime(tmp_path / "staging" / name, (0, 0))
    assert staging.remove_older_than(3600, spared=["decided"]) == 1
    assert (staging.read("decided", 0), staging.read("new", 0)) == (b"decided", b"new")
    assert [staging.size(name) for name in ("old", "decided", "new")] == [0, len(b"decided"), len(b"new")]


@pytest.mark.parametrize("name", ["", "..", "a/b", "a" * 101, "a\x00"])
def test_names_that_could_leave_the_folder_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidRequestError):
        StagingFolder(tmp_path / "staging", SMALL).write(name, 0, b"")
