"""What the embedded store does beyond the contract."""

import errno
import os
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tailrace.log.options import LogOptions
from tailrace.model.commit import Changes
from tailrace.model.errors import OverloadedError, StorageFullError, TailraceError
from tailrace.model.ids import Offset, PartitionId, TopicId
from tailrace.model.limits import KIB, Limits
from tailrace.store.embedded import EmbeddedStore
from tests.support.batches import append, values_of
from tests.support.folders import segment_files, wait_until_sealed
from tests.support.observed import fetch_all
from tests.support.patience import PATIENCE_SECONDS

A0 = PartitionId(TopicId(1), 0)
TRIES = 1_000


@pytest.fixture
def relaxed(tmp_path: Path) -> Iterator[EmbeddedStore]:
    store = EmbeddedStore.open(tmp_path / "data", durability="relaxed")
    store.commit(Changes(creates=[(A0.topic_id, 1)]))
    yield store
    store.close()


def is_written_by_its_caller(store: EmbeddedStore, changes: Changes) -> bool:
    """Return whether one of many lone commits is written by its caller. The writer thread may still be busy with others."""
    return any(answering_thread(store, changes) is threading.current_thread() for _ in range(TRIES))


def answering_thread(store: EmbeddedStore, changes: Changes) -> threading.Thread:
    answered: list[threading.Thread] = []
    done = threading.Event()

    def answer(_: object) -> None:
        answered.append(threading.current_thread())
        done.set()

    time.sleep(0.001)  # so that it comes alone
    store.submit(changes, answer)
    assert done.wait(PATIENCE_SECONDS)
    return answered[0]


def test_with_relaxed_a_small_commit_that_comes_alone_is_written_by_its_caller(relaxed: EmbeddedStore) -> None:
    assert is_written_by_its_caller(relaxed, Changes(appends=[append(A0, b"small")]))
    assert is_written_by_its_caller(relaxed, Changes(puts=[(b"key", b"value")]))
    assert relaxed.get(b"key") == b"value"


def test_what_may_wait_for_the_disk_is_left_to_the_writer_thread(relaxed: EmbeddedStore, tmp_path: Path) -> None:
    large = Changes(appends=[append(A0, b"x" * 100_000)])
    assert answering_thread(relaxed, large) is not threading.current_thread()
    assert answering_thread(relaxed, Changes(creates=[(TopicId(2), 1)])) is not threading.current_thread()
    with_sync = EmbeddedStore.open(tmp_path / "other")
    assert answering_thread(with_sync, Changes(puts=[(b"key", b"value")])) is not threading.current_thread()
    with_sync.close()


def test_with_relaxed_the_log_is_sealed_soon_although_the_writer_thread_slept(relaxed: EmbeddedStore, tmp_path: Path) -> None:
    before = wait_until_sealed(tmp_path / "data")
    answering_thread(relaxed, Changes(appends=[append(A0, b"small")]))
    assert wait_until_sealed(tmp_path / "data").position > before.position


def test_a_checkpoint_names_nothing_that_is_not_durable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor does it name the seal after the last commit: a power cut takes what was not synced."""
    durable: dict[Path, int] = {}
    sync = os.fdatasync

    def noting(fd: int) -> None:
        sync(fd)
        durable[Path(f"/proc/self/fd/{fd}").readlink()] = os.fstat(fd).st_size

    monkeypatch.setattr(os, "fdatasync", noting)
    store = EmbeddedStore.open(tmp_path / "data")
    store.commit(Changes(creates=[(A0.topic_id, 1)], appends=[append(A0, b"kept")]))
    wait_until_sealed(tmp_path / "data")
    store.checkpoint()
    (segment,) = segment_files(tmp_path / "data")
    left = shutil.copytree(tmp_path / "data", tmp_path / "left")
    os.truncate(left / segment.relative_to(tmp_path / "data"), durable[segment])
    store.close()

    with closing(EmbeddedStore.open(left)) as again:
        assert values_of(again.fetch(A0, Offset(0), 1_000).batches) == [b"kept"]


OPTIONS = LogOptions(segment_bytes=2 * KIB, checkpoint_bytes=1 << 30)


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE])
def test_too_many_open_files_do_not_count_as_a_failed_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    failures: list[TailraceError] = []
    store = EmbeddedStore.open(
        tmp_path / "data", options=OPTIONS, limits=Limits(tail_cache_bytes=1), on_failure=failures.append
    )
    store.commit(Changes(creates=[(A0.topic_id, 1)]))
    acked = 0

    def write(count: int) -> int:
        nonlocal acked
        refused = 0
        for _ in range(count):
            try:
                store.commit(Changes(appends=[append(A0, b"%d" % acked + b"x" * 300)]))
                acked += 1
            except StorageFullError as error:
                assert "too many files are open" in str(error)
                assert (error.retriable, error.outcome) == (True, "failed")
                refused += 1
        return refused

    assert write(20) == 0
    with monkeypatch.context() as patched:

        def no_file(*_: object, **__: object) -> int:
            raise OSError(number, os.strerror(number))

        patched.setattr(os, "open", no_file)
        assert write(20) > 0, "the next segment can't be begun"
        with pytest.raises(OverloadedError, match="too many files are open"):
            fetch_all(store, A0)
    assert write(20) == 0
    assert [record.value.rstrip(b"x") for record in fetch_all(store, A0)] == [b"%d" % number for number in range(acked)]
    assert not failures
    store.close()
    store = EmbeddedStore.open(tmp_path / "data", options=OPTIONS)
    assert len(fetch_all(store, A0)) == acked
    store.close()
