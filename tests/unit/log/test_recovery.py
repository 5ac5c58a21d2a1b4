"""Torn write or corruption: the start and `fsck` decide alike, and the content of records can't deceive them."""

import errno
import os
from pathlib import Path
from struct import Struct

import pytest
from crc32c import crc32c

from tailrace.log.frame import BatchEntry, encode_effects, encode_head, encode_kept_entries
from tailrace.log.fsck import run_fsck
from tailrace.log.options import LogOptions
from tailrace.log.segment import FORMAT_VERSION, SEGMENT_HEADER_BYTES, encode_segment_header
from tailrace.model.commit import UNKNOWN_TIMESTAMP, Changes, OffsetBounds
from tailrace.model.errors import CorruptionError
from tailrace.model.ids import Cursor, Offset, PartitionId, Position, TopicId
from tailrace.store.embedded import EmbeddedStore
from tests.support.batches import append
from tests.support.folders import frames_of, segment_files

TOPIC = TopicId(1)
PARTITION = PartitionId(TOPIC, 0)
SALT = 0x5EED5A17
HEADER = Struct(">8sHHIQQ")


class HandMadeLog:
    """A folder with one segment, written frame by frame and group by group."""

    def __init__(self, folder: Path, salt: int = SALT, version: int = FORMAT_VERSION) -> None:
        """Without a salt it has format 1."""
        self.folder = folder
        self._salt = salt
        self._version = version if salt else 1
        header = encode_segment_header(0, 0, 0, salt)
        if self._version < FORMAT_VERSION:
            packed = HEADER.pack(b"TAILRACE", self._version, 0, 0, 0, 0)
            salts = header[HEADER.size + 4 :] if salt else b""
            header = (packed + crc32c(packed).to_bytes(4, "big") + salts).ljust(SEGMENT_HEADER_BYTES, b"\0")
        self.data = bytearray(header)
        self._records = 0
        self.positions: list[int] = []
        """Of all frames."""
        self.group(Changes(creates=[(TOPIC, 1)]))

    def group(self, *commits: Changes) -> None:
        """Write frames with one sync: all of them say that the log is durable up to the first one."""
        synced = len(self.data)
        for commit in commits:
            self.frame(commit, synced)

    def frame(self, changes: Changes, synced: int) -> None:
        effects, count = encode_effects(changes)
        entries, bodies = [], []
        cursor = self._records
        for appended in changes.appends:
            batch = self._records.to_bytes(8, "big") + bytes(appended.batch)[8:12] + bytes(4) + bytes(appended.batch)[16:]
            oldest = appended.oldest_timestamp if self._version == FORMAT_VERSION else UNKNOWN_TIMESTAMP
            entries.append(
                BatchEntry(
                    PARTITION,
                    Offset(self._records),
                    Cursor(self._records),
                    appended.records,
                    len(batch),
                    int.from_bytes(batch[17:21], "big"),
                    appended.max_timestamp,
                    oldest,
                    Position(0),
                )
            )
            bodies.append(batch)
            self._records += appended.records
        self.positions.append(len(self.data))
        size = sum(map(len, bodies))
        head = encode_head(len(self.data), synced, cursor, 1, encode_kept_entries(entries), effects, count, size, self._salt)
        if self._version < FORMAT_VERSION and not entries:
            head = b"TRf1" + crc32c(head[8:], self._salt).to_bytes(4, "big") + head[8:]
        self.data += head + b"".join(bodies)

    def save(self, data: bytes | None = None) -> Path:
        (self.folder / "log").mkdir(parents=True, exist_ok=True)
        (self.folder / "log" / f"{0:020d}-{0:06d}.seg").write_bytes(self.data if data is None else data)
        return self.folder

    def without_frame(self, number: int) -> bytes:
        at = self.positions[number]
        return bytes(self.data[:at] + b"\xa5" * 16 + self.data[at + 16 :])


def record(value: bytes) -> Changes:
    return Changes(appends=[append(PARTITION, value)])


def three_groups(folder: Path, salt: int = SALT, version: int = FORMAT_VERSION) -> HandMadeLog:
    log = HandMadeLog(folder, salt, version)
    log.group(record(b"a"), record(b"b"), record(b"c"))
    log.group(record(b"d"), record(b"e"))
    return log


def values(folder: Path) -> list[bytes]:
    store = EmbeddedStore.open(folder)
    try:
        count = store.bounds(PARTITION).end
        fetched = store.fetch(PARTITION, store.bounds(PARTITION).start, 1 << 20) if count else None
        return [] if fetched is None else [bytes(batch[-2:-1]) for batch in fetched.batches]
    finally:
        store.close()


def refuses(folder: Path) -> bool:
    try:
        EmbeddedStore.open(folder).close()
    except CorruptionError:
        return True
    return False


def test_a_log_made_by_hand_can_be_read(tmp_path: Path) -> None:
    folder = three_groups(tmp_path).save()
    assert run_fsck(folder).findings == []
    assert values(folder) == [b"a", b"b", b"c", b"d", b"e"]


@pytest.mark.parametrize("salt", [SALT, 0], ids=["salted", "of format 1"])
@pytest.mark.parametrize("number", range(6))
def test_fsck_and_the_start_agree_on_every_damaged_frame(tmp_path: Path, number: int, salt: int) -> None:
    """Frames of the first group are known to be durable by those of the second; nothing says so of the second."""
    log = three_groups(tmp_path, salt)
    folder = log.save(log.without_frame(number))
    findings = run_fsck(folder).findings
    assert bool(findings) == (number < 4), findings
    assert refuses(folder) == (number < 4)


def test_fsck_and_the_start_agree_on_a_damaged_header(tmp_path: Path) -> None:
    for at in range(52):
        log = three_groups(tmp_path / str(at))
        log.data[at] ^= 0xFF
        folder = log.save()
        if log.data[8:10] != FORMAT_VERSION.to_bytes(2, "big"):
            continue  # another format, which is reported as such
        assert run_fsck(folder).findings, f"byte {at}"
        assert refuses(folder), f"byte {at}"


def forged(position: int, salt: int) -> bytes:
    """Forge a frame for this position that says that everything was durable."""
    return encode_head(position, 1 << 40, 0, 1, (), b"", 0, 0, salt)


def log_with_forged_value(folder: Path, salt: int) -> tuple[HandMadeLog, int]:
    """Write a last group: a frame whose value holds a forged frame, and one after it. Return the forged position."""
    log = three_groups(folder, salt)
    before = len(log.data)
    plain = record(b"\xee" * len(forged(0, 0)))
    probe = HandMadeLog(folder, salt)
    probe.data, probe._records = bytearray(log.data), log._records
    probe.group(plain)
    at = probe.data.index(b"\xee" * 8, before)
    log.group(record(forged(at, 0)), record(b"z"))
    return log, at


def test_a_forged_frame_in_a_value_does_not_make_a_torn_write_corruption(tmp_path: Path) -> None:
    log, at = log_with_forged_value(tmp_path, SALT)
    assert bytes(log.data).find(forged(at, 0)) == at
    for size in range(at, log.positions[-1]):
        folder = log.save(bytes(log.data[:size]))
        assert run_fsck(folder).findings == [], f"cut at {size}"
    assert values(folder) == [b"a", b"b", b"c", b"d", b"e"]


def test_a_forged_frame_in_a_torn_batch_of_format_1_is_passed_over_with_its_batch(tmp_path: Path) -> None:
    log, at = log_with_forged_value(tmp_path, 0)
    log.data[at - 1] ^= 1
    folder = log.save()
    assert run_fsck(folder).findings == []
    assert values(folder) == [b"a", b"b", b"c", b"d", b"e"]


def test_a_forged_frame_is_no_frame_even_where_the_head_of_its_record_is_gone(tmp_path: Path) -> None:
    log, _ = log_with_forged_value(tmp_path, SALT)
    folder = log.save(log.without_frame(-2))
    assert run_fsck(folder).findings == []
    assert values(folder) == [b"a", b"b", b"c", b"d", b"e"]


def test_a_forged_frame_does_not_hide_the_frames_behind_it(tmp_path: Path) -> None:
    """A forged frame that claims the rest of the file hides nothing from a search byte by byte."""
    log, at = log_with_forged_value(tmp_path, 0)
    log.group(record(b"after"))
    damaged = bytearray(log.without_frame(-3))
    swallowing = encode_head(at, 0, 0, 1, (), b"", 0, len(damaged) - at - 56, 0)
    damaged[at : at + len(swallowing)] = swallowing
    folder = log.save(bytes(damaged))
    assert run_fsck(folder).findings
    assert refuses(folder)


def test_new_segments_are_salted_each_with_the_same_number_of_bytes_as_before(tmp_path: Path) -> None:
    store = EmbeddedStore.open(tmp_path)
    store.commit(Changes(creates=[(TOPIC, 1)]))
    store.close()
    (segment,) = segment_files(tmp_path)
    version, salt = segment.read_bytes()[8:10], segment.read_bytes()[36:40]
    assert (version, any(salt)) == (FORMAT_VERSION.to_bytes(2, "big"), True)
    assert len(frames_of(segment)) >= 1


@pytest.mark.parametrize("salt_and_version", [(0, 1), (SALT, 2)], ids=["format 1", "format 2"])
def test_a_folder_of_an_old_format_can_be_continued(tmp_path: Path, salt_and_version: tuple[int, int]) -> None:
    folder = three_groups(tmp_path, *salt_and_version).save()
    store = EmbeddedStore.open(folder, options=LogOptions(gap_bytes=0))
    store.commit(record(b"f"))
    # Nothing says how old the records of the old segment are, so they may have any timestamp.
    assert store.batches_not_after(PARTITION, 0, OffsetBounds(Offset(1), Offset(6))) == [(1, 5)]
    store.close()
    assert values(folder) == [b"a", b"b", b"c", b"d", b"e", b"f"]
    assert run_fsck(folder).findings == []
    formats = [segment.read_bytes()[8:10] for segment in segment_files(folder)]
    assert formats == [salt_and_version[1].to_bytes(2, "big"), FORMAT_VERSION.to_bytes(2, "big")]


def test_a_segment_of_an_old_format_does_not_grow_when_it_is_cleaned(tmp_path: Path) -> None:
    log = HandMadeLog(tmp_path, version=2)
    log.group(*(record(b"%d" % (number % 10)) for number in range(100)))
    folder = log.save()
    options = LogOptions(clean_dead_ratio=0.0, gap_bytes=0)
    store = EmbeddedStore.open(folder, options=options)
    store.commit(record(b"x"))
    store.checkpoint()
    store.clean()
    store.close()
    old, *_ = sorted(segment_files(folder))
    assert old.name.endswith("-000001.seg")
    assert old.stat().st_size <= len(log.data)
    assert values(folder) == [b"%d" % (number % 10) for number in range(100)] + [b"x"]
    assert run_fsck(folder).findings == []
    store = EmbeddedStore.open(folder, options=options)
    assert store.batches_not_after(PARTITION, 0, OffsetBounds(Offset(0), Offset(101))) == [(0, 100)]
    store.close()


def test_fsck_names_a_segment_that_the_disk_can_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = three_groups(tmp_path).save()

    def broken(*_: object) -> bytes:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "pread", broken)
    (finding,) = run_fsck(folder).findings
    assert f"{segment_files(folder)[0]} can't be read at byte 0 (Input/output error)" in finding.what
