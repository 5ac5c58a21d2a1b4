"""No file can be opened for a while: what needs one is told so, nothing is lost, and the store goes on."""

import errno
import os
from pathlib import Path

import pytest

from tailrace.log.options import LogOptions
from tailrace.model.commit import Changes
from tailrace.model.errors import OverloadedError, StorageFullError, TailraceError
from tailrace.model.ids import PartitionId, TopicId
from tailrace.model.limits import KIB, Limits
from tailrace.store.embedded import EmbeddedStore
from tests.support.batches import append
from tests.support.observed import fetch_all

A0 = PartitionId(TopicId(1), 0)
OPTIONS = LogOptions(segment_bytes=2 * KIB, checkpoint_bytes=1 << 30)


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE])
def test_too_many_open_files_are_no_failed_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
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
