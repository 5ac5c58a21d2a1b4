"""The log loses its end: the high mark shows it, and the start and `fsck` report it."""

import os
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tailrace.log.fsck import run_fsck
from tailrace.log.high_mark import BEHIND_BYTES, BEHIND_SECONDS, HIGH_MARK_FILE, HighMark, read_high_mark
from tailrace.log.options import DEFAULT_OPTIONS, LogOptions
from tailrace.model.commit import Changes, Durability
from tailrace.model.errors import CorruptionError, LostEndError, StorageFailedError, TailraceError
from tailrace.model.ids import Offset, PartitionId, Position, TopicId
from tailrace.model.limits import KIB, MIB
from tailrace.store.embedded import EmbeddedStore
from tests.support.batches import append
from tests.support.child import WriterProcess
from tests.support.eventually import eventually
from tests.support.folders import copy_as_killed, frames_of, segment_files, wait_until_sealed
from tests.support.observed import fetch_all, observe
from tests.support.patience import PATIENCE_SECONDS

A = TopicId(1)
A0 = PartitionId(A, 0)
SMALL = LogOptions(segment_bytes=4 * KIB, checkpoint_bytes=1 << 40)
SIZES = pytest.mark.parametrize("options", [DEFAULT_OPTIONS, SMALL], ids=["default sizes", "small segments"])


def end_of_log(folder: Path) -> int:
    last = segment_files(folder)[-1]
    return int(last.name.partition("-")[0]) + last.stat().st_size


def filled(folder: Path, count: int, options: LogOptions = DEFAULT_OPTIONS) -> EmbeddedStore:
    store = EmbeddedStore.open(folder, options=options)
    store.commit(Changes(creates=[(A, 1)]))
    for number in range(count):
        store.commit(Changes(appends=[append(A0, b"%d" % number)], puts=[(b"last", b"%d" % number)]))
    return store


def killed(home: Path, count: int = 200, options: LogOptions = DEFAULT_OPTIONS) -> Path:
    """Return the folder of a store that was killed after a second of idleness."""
    store = filled(home / "data", count, options)
    wait_until_marked(home / "data")
    copy_as_killed(home / "data", home / "killed")
    store.close()
    return home / "killed"


def wait_until_marked(folder: Path) -> None:
    """Wait until the mark covers every record. The seal that an idle store writes after them does not count."""
    records = wait_until_sealed(folder).position
    eventually(lambda: read_high_mark(folder).position >= records, "the mark has caught up", PATIENCE_SECONDS)


def cut_to_half(folder: Path) -> None:
    for segment in segment_files(folder)[1:]:
        segment.unlink()
    (segment,) = segment_files(folder)
    os.truncate(segment, segment.stat().st_size // 2)


@SIZES
def test_a_log_cut_to_half_is_rejected_and_named_by_fsck(tmp_path: Path, options: LogOptions) -> None:
    folder = killed(tmp_path, options=options)
    assert run_fsck(folder).findings == []
    cut_to_half(folder)
    before = {path: path.read_bytes() for path in segment_files(folder)}
    (finding, *_) = run_fsck(folder).findings
    assert "lost its end" in finding.what
    for _ in range(2):
        with pytest.raises(LostEndError, match=r"lost its end.*--accept-loss-after \d+"):
            EmbeddedStore.open(folder, options=options)
    assert {path: path.read_bytes() for path in segment_files(folder)} == before, "nothing was touched"


def test_a_log_cut_between_two_frames_is_rejected(tmp_path: Path) -> None:
    folder = killed(tmp_path)
    (segment,) = segment_files(folder)
    os.truncate(segment, frames_of(segment)[100].position)
    assert run_fsck(folder).findings
    with pytest.raises(LostEndError):
        EmbeddedStore.open(folder)


def test_a_loss_is_accepted_by_its_position_alone_and_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = killed(tmp_path)
    cut_to_half(folder)
    with pytest.raises(LostEndError) as refused:
        EmbeddedStore.open(folder)
    end = refused.value.end
    for wrong in (0, end - 1, end + 1):
        with pytest.raises(LostEndError):
            EmbeddedStore.open(folder, accept_loss_after=wrong)
    store = EmbeddedStore.open(folder, accept_loss_after=end)
    kept = len(fetch_all(store, A0))
    assert 0 < kept < 200
    assert store.get(b"last") == b"%d" % (kept - 1), "the state is that of the records that are left"
    assert list(store.commit(Changes(appends=[append(A0, b"new")])).offsets) == [kept]
    seen = observe(store)
    store.close()
    assert run_fsck(folder).findings == []
    store = EmbeddedStore.open(folder)
    assert observe(store) == seen
    store.close()
    with caplog.at_level("WARNING"):
        EmbeddedStore.open(folder, accept_loss_after=end).close()
    assert f"--accept-loss-after {end} was not needed" in caplog.text


def test_a_loss_below_the_checkpoint_is_accepted_where_the_state_can_be_made_again(tmp_path: Path) -> None:
    store = filled(tmp_path / "data", 50)
    store.close()
    cut_to_half(tmp_path / "data")
    with pytest.raises(LostEndError) as refused:
        EmbeddedStore.open(tmp_path / "data")
    store = EmbeddedStore.open(tmp_path / "data", accept_loss_after=refused.value.end)
    kept = len(fetch_all(store, A0))
    assert 0 < kept < 50
    assert store.get(b"last") == b"%d" % (kept - 1)
    store.close()
    assert run_fsck(tmp_path / "data").findings == []


def test_a_loss_that_the_state_can_not_forget_is_not_accepted(tmp_path: Path) -> None:
    """Segments have been cleaned, so the state can't be rebuilt from them."""
    store = filled(tmp_path / "data", 300, SMALL)
    store.commit(Changes(trims=[(A0, Offset(150))]))
    store.clean()
    assert store.stats().segments_deleted
    store.close()
    last = segment_files(tmp_path / "data")[-1]
    os.truncate(last, last.stat().st_size - 100)
    with pytest.raises(CorruptionError) as refused:
        EmbeddedStore.open(tmp_path / "data", options=SMALL)
    assert "--accept-loss-after" not in str(refused.value)
    assert isinstance(refused.value, LostEndError)
    with pytest.raises(LostEndError):
        EmbeddedStore.open(tmp_path / "data", options=SMALL, accept_loss_after=refused.value.end)


def test_a_state_that_knows_more_than_the_log_is_a_witness_however_often_it_is_asked(tmp_path: Path) -> None:
    """RocksDB holds what came after the checkpoint. Without a mark nothing else shows it, and replays must keep it."""
    store = filled(tmp_path / "data", 300, SMALL)
    store.commit(Changes(trims=[(A0, Offset(150))]))
    store.clean()
    store.checkpoint()
    for number in range(300, 1400):
        store.commit(Changes(appends=[append(A0, b"%d" % number)], puts=[(b"last", b"%d" % number)]))
    store._log.state.flush()  # as RocksDB does by itself when its memory is full
    copy_as_killed(tmp_path / "data", tmp_path / "killed")
    store.close()
    folder = tmp_path / "killed"
    (folder / HIGH_MARK_FILE).unlink()
    lost = next(frame for frame in frames_of(segment_files(folder)[-1]) if not frame.is_seal)
    os.truncate(segment_files(folder)[-1], lost.position - int(segment_files(folder)[-1].name.partition("-")[0]))
    assert any("according to the state" in finding.what for finding in run_fsck(folder).findings)
    for _ in range(3):
        with pytest.raises(LostEndError, match="according to the state") as refused:
            EmbeddedStore.open(folder, options=SMALL)
        assert not refused.value.can_be_accepted, "the cleaner has taken what the state could be made from"


def test_a_cleaned_log_whose_end_is_lost_behind_the_checkpoint_can_go_on(tmp_path: Path) -> None:
    store = filled(tmp_path / "data", 300, SMALL)
    store.commit(Changes(trims=[(A0, Offset(150))]))
    store.clean()
    store.checkpoint()
    for number in range(300, 310):
        store.commit(Changes(appends=[append(A0, b"%d" % number)]))
    wait_until_marked(tmp_path / "data")
    copy_as_killed(tmp_path / "data", tmp_path / "killed")
    store.close()
    folder = tmp_path / "killed"
    last = segment_files(folder)[-1]
    lost = [frame for frame in frames_of(last) if not frame.is_seal][-3]
    os.truncate(last, lost.position - int(last.name.partition("-")[0]))
    with pytest.raises(LostEndError) as refused:
        EmbeddedStore.open(folder, options=SMALL)
    assert refused.value.end == lost.position
    store = EmbeddedStore.open(folder, options=SMALL, accept_loss_after=lost.position)
    assert store.bounds(A0) == (150, 307)
    assert store.get(b"last") == b"299"
    store.close()
    assert run_fsck(folder).findings == []


@pytest.mark.parametrize("left", ["state", "tables.db", "payloads", HIGH_MARK_FILE])
def test_a_missing_log_is_rejected_where_anything_shows_that_there_was_one(tmp_path: Path, left: str) -> None:
    folder = killed(tmp_path, 10)
    (folder / "tables.db").write_bytes(b"rows")
    (folder / "payloads").mkdir(exist_ok=True)
    (folder / "payloads" / ("0" * 64)).write_bytes(b"large")
    shutil.rmtree(folder / "log")
    for path in folder.iterdir():
        if path.name != left:
            (shutil.rmtree if path.is_dir() else Path.unlink)(path)
    for _ in range(2):
        with pytest.raises(LostEndError, match="accept-loss-after 0"):
            EmbeddedStore.open(folder)
    store = EmbeddedStore.open(folder, accept_loss_after=0)
    store.commit(Changes(creates=[(A, 1)]))
    store.close()
    EmbeddedStore.open(folder).close()
    if left != HIGH_MARK_FILE:
        assert (folder / f"{left}.before-loss-1").exists(), "what is left of the old log is kept"


def test_fsck_names_a_missing_log(tmp_path: Path) -> None:
    folder = killed(tmp_path, 10)
    shutil.rmtree(folder / "log")
    assert any("no log" in finding.what for finding in run_fsck(folder).findings)


def test_a_start_that_was_killed_before_its_first_segment_is_no_loss(tmp_path: Path) -> None:
    (tmp_path / "data" / "log").mkdir(parents=True)
    (tmp_path / "data" / "state").mkdir()
    EmbeddedStore.open(tmp_path / "data").close()


def test_a_folder_without_a_mark_opens_and_gets_one(tmp_path: Path) -> None:
    folder = killed(tmp_path, 10)
    (folder / HIGH_MARK_FILE).unlink()
    assert run_fsck(folder).findings == []
    EmbeddedStore.open(folder).close()
    assert read_high_mark(folder).position > 0


SPOILED: dict[str, Callable[[bytes], bytes]] = {
    "one slot torn": lambda data: data[:4106] + b"\xff" * 20 + data[4126:],
    "cut short": lambda data: data[:5000],
    "emptied": lambda data: b"",
    "zeroed": lambda data: bytes(len(data)),
    "garbage": lambda data: b"\xa5" * len(data),
}


@pytest.mark.parametrize("spoil", SPOILED.values(), ids=SPOILED)
def test_a_damaged_mark_keeps_nobody_from_a_good_log(tmp_path: Path, spoil: Callable[[bytes], bytes]) -> None:
    folder = killed(tmp_path, 10)
    for _ in range(3):  # both slots have been written
        EmbeddedStore.open(folder).close()
    mark = folder / HIGH_MARK_FILE
    mark.write_bytes(spoil(mark.read_bytes()))
    EmbeddedStore.open(folder).close()
    assert read_high_mark(folder).position == end_of_log(folder)
    cut_to_half(folder)
    with pytest.raises(LostEndError):
        EmbeddedStore.open(folder)


def test_a_mark_that_rots_is_a_finding(tmp_path: Path) -> None:
    folder = killed(tmp_path, 10)
    mark = folder / HIGH_MARK_FILE
    mark.write_bytes(b"\xa5" * 8192)
    assert [finding.where for finding in run_fsck(folder).findings] == [HIGH_MARK_FILE]


def test_each_bit_of_a_mark_is_checked(tmp_path: Path) -> None:
    mark = HighMark(tmp_path, lambda _: None)
    mark.write(Position(1000))
    mark.write(Position(2000))
    mark.close()
    data = (tmp_path / HIGH_MARK_FILE).read_bytes()
    for bit in range(28 * 8):
        spoiled = bytearray(data)
        spoiled[bit // 8] ^= 1 << bit % 8
        (tmp_path / HIGH_MARK_FILE).write_bytes(spoiled)
        assert read_high_mark(tmp_path).position == 1000, f"bit {bit}"
        assert read_high_mark(tmp_path).fault


@pytest.mark.parametrize("durability", ["fsync", "relaxed"])
def test_the_mark_is_never_ahead_and_at_most_a_second_or_64_mib_behind_under_load(
    tmp_path: Path, durability: Durability
) -> None:
    """Compare both from outside, again and again. The log's own end is the most that can be synced."""
    store = EmbeddedStore.open(tmp_path / "data", durability=durability)
    store.commit(Changes(creates=[(A, 1)]))
    ends: list[tuple[float, int]] = []
    ahead: list[str] = []
    late: list[str] = []
    is_over = threading.Event()
    batch = append(A0, b"x" * 900 * KIB)

    def write() -> None:
        while not is_over.is_set():
            store.commit(Changes(appends=[batch]))

    writers = [threading.Thread(target=write) for _ in range(4)]
    for writer in writers:
        writer.start()
    deadline = time.monotonic() + 4
    while time.monotonic() < deadline:
        began = time.monotonic()
        mark = read_high_mark(tmp_path / "data").position
        end = store._log.writer.synced
        if mark > store._log.writer.synced:
            ahead.append(f"{mark} with {end} synced")
        ends.append((began, end))
        known = max((at for at, position in ends if position <= mark), default=ends[0][0])
        unknown = min((at for at, position in ends if position > mark), default=began)
        if began - unknown > BEHIND_SECONDS and end - mark > BEHIND_BYTES:
            late.append(f"{began - known:.2f} s and {end - mark} bytes behind")
        time.sleep(0.01)
    is_over.set()
    for writer in writers:
        writer.join()
    written = store._log.writer.position
    store.close()
    assert not ahead
    assert not late
    assert written > 2 * MIB


def test_an_idle_store_has_its_mark_within_a_second(tmp_path: Path) -> None:
    store = filled(tmp_path / "data", 3)
    synced = store._log.writer.synced
    began = time.monotonic()
    eventually(lambda: read_high_mark(tmp_path / "data").position >= synced, "the mark has caught up", PATIENCE_SECONDS)
    assert time.monotonic() - began < BEHIND_SECONDS + 0.5
    store.close()


@pytest.mark.parametrize("durability", ["fsync", "relaxed"])
def test_a_killed_writer_leaves_a_mark_between_what_was_there_a_second_before_and_its_end(
    tmp_path: Path, durability: str
) -> None:
    writer = WriterProcess(tmp_path / "data", "--durability", durability)
    writer.wait_for_acks(100)
    end = end_of_log(tmp_path / "data")
    time.sleep(2 * BEHIND_SECONDS)
    writer.kill()
    mark = read_high_mark(tmp_path / "data").position
    assert end <= mark <= end_of_log(tmp_path / "data")
    assert run_fsck(tmp_path / "data").findings == []


def test_writers_wait_for_a_mark_that_can_not_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk accepts the log but not the mark: the bound holds, and writers continue when the mark is written."""
    store = filled(tmp_path / "data", 1)
    may_write = threading.Event()
    write = HighMark.write

    def slow(self: HighMark, synced: Position) -> None:
        may_write.wait()
        write(self, synced)

    monkeypatch.setattr(HighMark, "write", slow)
    deadline = time.monotonic() + BEHIND_SECONDS * 3
    acked = threading.Semaphore(0)

    def commit() -> None:
        while time.monotonic() < deadline:
            store.commit(Changes(appends=[append(A0, b"x")]))
            acked.release()

    writer = threading.Thread(target=commit)
    writer.start()
    time.sleep(BEHIND_SECONDS * 2)
    while acked.acquire(blocking=False):
        pass
    assert not acked.acquire(timeout=0.3), "nothing is acknowledged while the mark is too far behind"
    may_write.set()
    assert acked.acquire(timeout=PATIENCE_SECONDS)
    writer.join()
    store.close()


def test_a_mark_that_the_disk_fails_to_write_stops_the_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failures: list[TailraceError] = []
    store = EmbeddedStore.open(tmp_path / "data", on_failure=failures.append)

    def broken(self: HighMark, synced: Position) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(HighMark, "write", broken)
    store.commit(Changes(creates=[(A, 1)]))
    eventually(lambda: bool(failures), "the store has failed", PATIENCE_SECONDS)
    assert isinstance(failures[0], StorageFailedError)
    store.close()
