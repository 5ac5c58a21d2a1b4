"""The process dies at any step of a compaction: the last record of each key is there, and the next compaction completes it."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from tailrace.log import compactor, index_compaction, segment, segment_rewriter
from tailrace.log.fsck import run_fsck
from tailrace.model.commit import Changes
from tailrace.model.compaction import CompactionRule
from tailrace.model.ids import Offset, PartitionId, TopicId
from tailrace.model.killpoint import COMPACTION_KILLPOINTS
from tailrace.model.limits import KIB, Limits
from tailrace.store.embedded import EmbeddedStore
from tests.support.batches import append
from tests.support.compaction import Kept, compacted, fetched, keyed
from tests.support.folders import copy_as_killed
from tests.support.stores import SMALL_PIECES

TOPIC = TopicId(1)
HERE, OTHER = PartitionId(TOPIC, 0), PartitionId(TOPIC, 1)
LIMITS = Limits(tail_cache_bytes=4 * KIB, min_free_bytes=0)
CLEANER_STEPS = ("clean.before", "clean.written", "clean.switched", "clean.after")


def open_store(folder: Path) -> EmbeddedStore:
    return EmbeddedStore.open(folder, limits=LIMITS, options=SMALL_PIECES)


def fill(store: EmbeddedStore, batches: int) -> list[Kept]:
    store.commit(Changes(creates=[(TOPIC, 2)]))
    for number in range(batches):
        records = [(b"key %d" % (at * at % 13), b"%d" % at * 30) for at in range(5 * number, 5 * number + 5)]
        store.commit(Changes(appends=[keyed(HERE, *records), append(OTHER, b"between" * 10)]))
    return fetched(store, HERE)


def compact(store: EmbeddedStore, clean_end: int = 0, stop: int = 1 << 40, expired_end: int = 0) -> int:
    (result,) = store.compact([CompactionRule(HERE, Offset(clean_end), Offset(stop), Offset(expired_end), rolls=True)])
    return result.clean_end


def judge(folder: Path, written: Sequence[Kept], clean_end: int, others: int) -> None:
    """Check a folder as a kill left it, and compact it to the end."""
    assert not run_fsck(folder).findings
    store = open_store(folder)
    try:
        found = fetched(store, HERE)
        assert set(found) <= set(written)
        assert set(compacted(written, 1 << 40)) <= set(found)
        assert store.size(HERE) >= sum(map(len, store.fetch(HERE, Offset(0), 1 << 20).batches))
        end = compact(store, clean_end)
        assert fetched(store, HERE) == compacted(written, end)
        assert store.size(HERE) == sum(map(len, store.fetch(HERE, Offset(0), 1 << 20).batches))
        store.clean()
        assert fetched(store, HERE) == compacted(written, end)
        assert len(fetched(store, OTHER)) == others
    finally:
        store.close()
    assert not run_fsck(folder).findings


def test_a_kill_at_any_step_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copies: list[tuple[str, Path]] = []
    folder = tmp_path / "data"

    def copying(name: str) -> None:
        target = tmp_path / f"{name}-{len(copies)}"
        copy_as_killed(folder, target)
        copies.append((name, target))

    store = open_store(folder)
    written = fill(store, 60)
    clean_end = compact(store, stop=100)
    for module in (segment, segment_rewriter, index_compaction, compactor):
        monkeypatch.setattr(module, "killpoint", copying)
    compact(store, clean_end)
    monkeypatch.undo()
    store.close()
    assert {name for name, _ in copies} == {*CLEANER_STEPS, *COMPACTION_KILLPOINTS}
    for _, copy in copies:
        judge(copy, written, clean_end, 60)


def test_a_trim_after_a_kill_takes_no_segment_with_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bytes of the partition are counted anew at the time of the kill."""
    copies: list[Path] = []
    folder = tmp_path / "data"

    def copying(name: str) -> None:
        if name.startswith("compact."):
            copies.append(tmp_path / f"copy-{len(copies)}")
            copy_as_killed(folder, copies[-1])

    store = open_store(folder)
    written = fill(store, 60)
    for module in (segment, segment_rewriter, index_compaction, compactor):
        monkeypatch.setattr(module, "killpoint", copying)
    end = compact(store)
    monkeypatch.undo()
    store.close()
    for copy in copies:
        store = open_store(copy)
        for start in (30, 100, 200, 290):
            store.commit(Changes(trims=[(HERE, Offset(start))]))
            store.clean()
            left = {record for record in compacted(written, end) if record.offset >= start}
            assert left <= set(fetched(store, HERE))
        store.close()
        assert not run_fsck(copy).findings


def test_a_round_that_was_broken_off_removes_no_tombstone_too_early(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "data"
    copies: list[Path] = []

    def copying(name: str) -> None:
        if name == "clean.switched":
            copies.append(tmp_path / f"copy-{len(copies)}")
            copy_as_killed(folder, copies[-1])

    store = open_store(folder)
    fill(store, 30)
    store.commit(Changes(appends=[keyed(HERE, (b"key 1", None)), append(OTHER, b"x")]))
    for _ in range(100):
        store.commit(Changes(appends=[keyed(HERE, (b"later", b"x" * 50))]))
    monkeypatch.setattr(segment_rewriter, "killpoint", copying)
    compact(store)
    monkeypatch.undo()
    store.close()
    for copy in copies:
        store = open_store(copy)
        end = compact(store)
        assert next(record for record in reversed(fetched(store, HERE)) if record.key == b"key 1").value is None
        compact(store, end, expired_end=end)
        assert not any(record.key == b"key 1" for record in fetched(store, HERE))
        store.close()
