"""The staging folder: bounded, and empty after a restart."""

import os
from pathlib import Path

import msgspec
import pytest

from tailrace.model.errors import InvalidRequestError, LimitExceededError
from tailrace.model.limits import DEFAULT_LIMITS
from tailrace.store.staging import StagingFolder

SMALL = msgspec.structs.replace(DEFAULT_LIMITS, staged_bytes=100)


def test_bytes_over_the_limit_are_refused_until_there_is_room(tmp_path: Path) -> None:
    staging = StagingFolder(tmp_path / "staging", SMALL)
    staging.write("a", 0, bytes(60))
    with pytest.raises(LimitExceededError, match="staged_bytes"):
        staging.write("b", 0, bytes(41))
    staging.write("a", 0, bytes(50))
    staging.write("b", 0, bytes(50))
    staging.remove("a")
    assert staging.size == 50
    staging.write("c", 0, bytes(50))


def test_a_restart_empties_the_folder(tmp_path: Path) -> None:
    StagingFolder(tmp_path / "staging", SMALL).write("a", 0, b"left over")
    again = StagingFolder(tmp_path / "staging", SMALL)
    assert again.size == 0
    with pytest.raises(InvalidRequestError):
        again.read("a", 0)


def test_only_old_stages_are_forgotten(tmp_path: Path) -> None:
    staging = StagingFolder(tmp_path / "staging", SMALL)
    staging.write("old", 0, b"1")
    staging.write("new", 0, b"2")
    os.utime(tmp_path / "staging" / "old", (0, 0))
    assert staging.remove_older_than(3600) == 1
    assert staging.read("new", 0) == b"2"
    assert staging.size == 1


@pytest.mark.parametrize("name", ["", "..", "a/b", "a" * 101, "a\x00"])
def test_names_that_could_leave_the_folder_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidRequestError):
        StagingFolder(tmp_path / "staging", SMALL).write(name, 0, b"")
