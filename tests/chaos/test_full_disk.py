"""The disk is full, then has free space again: writes are rejected, reads continue, and no restart is needed."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tailrace.log.fsck import run_fsck
from tailrace.log.options import LogOptions
from tailrace.model.commit import Changes
from tailrace.model.errors import StorageFullError
from tailrace.model.ids import Offset, PartitionId, TopicId
from tailrace.model.limits import KIB, MIB, Limits
from tailrace.store.embedded import EmbeddedStore
from tests.support.batches import append
from tests.support.child import ROOT, WriterProcess
from tests.support.history import Ack, History
from tests.support.inquest import hold_inquest
from tests.support.observed import fetch_all, observe
from tests.support.patience import PATIENCE_SECONDS
from tests.support.powercut import small_disk, why_no_mounts

needs_mounts = pytest.mark.skipif(why_no_mounts() is not None, reason=str(why_no_mounts()))

A0 = PartitionId(TopicId(1), 0)
OPTIONS = LogOptions(segment_bytes=256 * KIB, piece_bytes=4 * KIB, checkpoint_bytes=512 * KIB)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "disk", 8 * MIB) as disk:
        yield disk


def fill(disk: Path) -> Path:
    """Fill the disk to the last byte."""
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file:
        for size in (64 * KIB, 1):
            try:
                while file.write(bytes(size)) == size:
                    pass
            except OSError:
                continue
    return filler


@needs_mounts
def test_a_full_disk_rejects_writers_serves_readers_and_recovers_without_restart(disk: Path) -> None:
    store = EmbeddedStore.open(disk / "data", limits=Limits(min_free_bytes=0, tail_cache_bytes=64 * KIB), options=OPTIONS)
    store.commit(Changes(creates=[(A0.topic_id, 1)]))
    acked: list[bytes] = []

    def write(count: int) -> int:
        refused = 0
        for _ in range(count):
            value = b"%d" % len(acked) * 500
            try:
                store.commit(Changes(appends=[append(A0, value)], puts=[(b"last", b"%d" % len(acked))]))
            except StorageFullError as error:
                assert error.outcome == "failed"
                refused += 1
            else:
                acked.append(value)
        return refused

    assert write(200) == 0
    for _ in range(3):
        filler = fill(disk)
        assert write(400) > 0, "the disk is full"
        assert [record.value for record in fetch_all(store, A0)] == acked
        assert store.get(b"last") == b"%d" % (len(acked) - 1)
        filler.unlink()
        assert write(100) == 0, "there is room again"
    seen = observe(store)
    assert [record.value for record in seen.fetched[A0]] == acked
    store.close()
    store = EmbeddedStore.open(disk / "data", limits=Limits(min_free_bytes=0), options=OPTIONS)
    assert observe(store) == seen
    store.close()
    assert run_fsck(disk / "data").findings == []


@needs_mounts
def test_a_disk_that_is_full_at_an_idle_moment_does_not_end_the_store(disk: Path) -> None:
    """The store seals, saves and cleans by itself; a full disk must not make any of that fatal."""
    store = EmbeddedStore.open(disk / "data", limits=Limits(min_free_bytes=0), options=OPTIONS)
    store.commit(Changes(creates=[(A0.topic_id, 1)]))
    for number in range(100):
        store.commit(Changes(appends=[append(A0, b"%d" % number * 1000)]))
    store.commit(Changes(trims=[(A0, Offset(90))]))
    filler = fill(disk)
    for step in (store.checkpoint, store.clean, store.clean):
        try:
            step()
        except StorageFullError:
            continue
    filler.unlink()
    receipt = store.commit(Changes(appends=[append(A0, b"there is room again")]))
    assert list(receipt.offsets) == [100]
    store.clean()
    seen = observe(store)
    store.close()
    store = EmbeddedStore.open(disk / "data", limits=Limits(min_free_bytes=0), options=OPTIONS)
    assert observe(store) == seen
    store.close()
    assert run_fsck(disk / "data").findings == []


@needs_mounts
def test_the_last_room_is_kept_for_cleaning_up(disk: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    store = EmbeddedStore.open(disk / "data", limits=Limits(min_free_bytes=4 * MIB), options=OPTIONS)
    store.commit(Changes(creates=[(A0.topic_id, 1)]))
    for _ in range(15):
        store.commit(Changes(appends=[append(A0, b"x" * 200 * KIB)]))
    (disk / "filler").write_bytes(bytes(2 * MIB))
    with pytest.raises(StorageFullError, match="min_free_bytes"):
        _until_refused(store)
    assert store.is_full()
    assert store.stats().failed_commits == 1
    end = store.bounds(A0).end
    store.commit(Changes(trims=[(A0, end)], puts=[(b"trimmed", b"yes")]))
    store.clean()
    _until_taken(store)
    assert store.bounds(A0) == (end, end + 1)
    assert not store.is_full()
    assert [record.levelname for record in caplog.records if record.name == "tailrace.log.data_folder"] == ["WARNING", "INFO"]
    store.close()


@needs_mounts
def test_rejected_writers_do_not_fill_the_memory(disk: Path) -> None:
    store = EmbeddedStore.open(disk / "data", limits=Limits(min_free_bytes=0, tail_cache_bytes=MIB), options=OPTIONS)
    store.commit(Changes(creates=[(A0.topic_id, 1)]))
    fill(disk)
    large = append(A0, b"x" * 500 * KIB)
    refused = 0

    def refuse(count: int) -> None:
        nonlocal refused
        for _ in range(count):
            try:
                store.commit(Changes(appends=[large]))
            except StorageFullError:
                refused += 1

    refuse(50)
    before = psutil.Process().memory_info().rss
    refuse(400)
    assert refused == 450
    assert psutil.Process().memory_info().rss - before < 8 * MIB
    store.close()


@needs_mounts
def test_a_writer_killed_on_a_full_disk_has_lost_nothing(disk: Path) -> None:
    writer = WriterProcess(disk / "data")
    writer.wait_for_acks(50)
    filler = fill(disk)
    writer.wait_for_failures(20)
    filler.unlink()
    acks = writer.count(Ack)
    writer.wait_for_acks(acks + 50)
    fill(disk)
    writer.wait_for_failures(40)
    writer.kill()
    (disk / "filler").unlink()
    history = History()
    history.extend(writer.events)
    verdict = hold_inquest(disk / "data", history)
    assert not verdict.violations, str(verdict)


@needs_mounts
@pytest.mark.parametrize("left", [0, 1, 8, 16, 64, 256])
def test_a_start_on_a_full_disk_asks_for_room_and_loses_nothing(disk: Path, left: int) -> None:
    """With no space left and with a few KiB: it opens, or says what to do."""
    store = EmbeddedStore.open(disk / "data", limits=Limits(min_free_bytes=0), options=OPTIONS)
    store.commit(Changes(creates=[(A0.topic_id, 1)]))
    for number in range(100):
        store.commit(Changes(appends=[append(A0, b"%d" % number)]))
    seen = observe(store)
    store.close()
    filler = fill(disk)
    os.truncate(filler, filler.stat().st_size - left * KIB)
    for _ in range(2):
        try:
            EmbeddedStore.open(disk / "data", limits=Limits(min_free_bytes=0), options=OPTIONS).close()
        except StorageFullError as error:
            assert "Free some space" in str(error), error
            assert "copy" not in str(error)
        else:
            assert left
    filler.unlink()
    store = EmbeddedStore.open(disk / "data", limits=Limits(min_free_bytes=0), options=OPTIONS)
    assert observe(store) == seen
    store.close()
    assert run_fsck(disk / "data").findings == []


def test_a_file_that_may_not_grow_is_a_full_disk_too(tmp_path: Path) -> None:
    """Another error of the kernel, `EFBIG`, which needs no mount."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.chaos.small_files", str(tmp_path / "data")], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["refused"] > 0
    assert said["outcomes"] == ["failed"]
    assert said["acked_after"] > said["acked_before"] > 0
    store = EmbeddedStore.open(tmp_path / "data")
    values = [record.value.decode() for record in fetch_all(store, A0)]
    store.close()
    assert values == said["values"]
    assert run_fsck(tmp_path / "data").findings == []


def _until_refused(store: EmbeddedStore) -> None:
    """Free space is measured a few times a second, not for every commit."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        store.commit(Changes(appends=[append(A0, b"still taken")]))


def _until_taken(store: EmbeddedStore) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            store.commit(Changes(appends=[append(A0, b"taken")]))
        except StorageFullError:
            assert time.monotonic() < deadline, "no commit was taken after room was made"
        else:
            return
