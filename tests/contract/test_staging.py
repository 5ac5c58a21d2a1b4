"""Staging: parts are kept until they are removed, replaced when sent again, and kept over a restart only if retained."""

import pytest

from tailrace.model.errors import InvalidRequestError
from tailrace.store.contract import Store
from tests.contract.conftest import Reopen


def test_parts_come_back_as_they_were(store: Store) -> None:
    store.staging.write("task-1", 0, b"first")
    store.staging.write("task-1", 1, b"second")
    store.staging.write("task-2", 0, b"other")
    assert [store.staging.read("task-1", part) for part in (0, 1)] == [b"first", b"second"]
    assert store.staging.read("task-2", 0) == b"other"


def test_a_part_that_is_sent_again_replaces_the_one_before(store: Store) -> None:
    store.staging.write("task", 0, b"first attempt")
    store.staging.write("task", 0, b"second")
    assert store.staging.read("task", 0) == b"second"


def test_the_size_of_a_stage_is_that_of_its_parts(store: Store) -> None:
    store.staging.write("task", 0, b"first attempt")
    store.staging.write("task", 0, b"first")
    store.staging.write("task", 1, b"second")
    store.staging.write("other", 0, b"not of this stage")
    assert store.staging.size("task") == len(b"first") + len(b"second")
    store.staging.remove("task")
    assert store.staging.size("task") == 0


def test_what_was_removed_is_gone(store: Store) -> None:
    store.staging.write("task", 0, b"first")
    store.staging.remove("task")
    store.staging.remove("never-there")
    with pytest.raises(InvalidRequestError, match="part 0 of stage 'task' does not exist"):
        store.staging.read("task", 0)


def test_only_what_is_retained_is_there_after_a_restart(store: Store, reopen: Reopen) -> None:
    for stage in ("wanted", "other"):
        store.staging.write(stage, 0, stage.encode())
        store.staging.write(stage, 1, b"more")
    store.staging.sync(["wanted"])
    again = reopen().staging
    again.retain(["wanted"])
    assert [again.read("wanted", part) for part in (0, 1)] == [b"wanted", b"more"]
    with pytest.raises(InvalidRequestError, match="part 0 of stage 'other' does not exist"):
        again.read("other", 0)


def test_what_is_spared_does_not_age(store: Store) -> None:
    for stage in ("wanted", "other"):
        store.staging.write(stage, 0, b"old")
    store.staging.remove_older_than(-1, ["wanted"])
    assert store.staging.read("wanted", 0) == b"old"
