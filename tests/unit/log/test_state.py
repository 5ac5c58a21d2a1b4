"""State must not be durable before the frame that sets it is."""

from pathlib import Path

import pytest

from tailrace.log.manifest import check_manifest
from tailrace.log.state import STATE, SettledState, StateDb
from tailrace.model.commit import Changes
from tailrace.model.ids import Position


@pytest.fixture
def db(tmp_path: Path) -> StateDb:
    return StateDb(tmp_path)


def test_what_is_held_is_seen_and_not_stored(db: StateDb) -> None:
    settled = SettledState(db)
    settled.hold([Changes(puts=[(b"a", b"1"), (b"b", b"2")])])
    assert settled.get(b"a") == b"1"
    assert settled.range(b"", b"", None) == [(b"a", b"1"), (b"b", b"2")]
    assert db.get(STATE + b"a") is None


def test_a_sync_stores_what_was_held_when_it_began_and_no_more(db: StateDb) -> None:
    settled = SettledState(db)
    settled.hold([Changes(puts=[(b"a", b"1")])])
    with settled.releasing(lambda: Position(0)):
        settled.hold([Changes(puts=[(b"a", b"2"), (b"b", b"2")])])
    assert db.get(STATE + b"a") == b"1"
    assert db.get(STATE + b"b") is None
    assert settled.get(b"a") == b"2"


def test_a_failed_sync_stores_nothing_and_forgets_nothing(db: StateDb) -> None:
    settled = SettledState(db)
    settled.hold([Changes(puts=[(b"a", b"1")])])
    with pytest.raises(OSError, match="broken"), settled.releasing(lambda: Position(0)):
        raise OSError("broken")
    assert db.get(STATE + b"a") is None
    assert settled.get(b"a") == b"1"


def test_a_held_deletion_hides_what_is_stored(db: StateDb) -> None:
    settled = SettledState(db)
    settled.apply([Changes(puts=[(b"a", b"1"), (b"b", b"1")])], Position(0))
    settled.hold([Changes(puts=[(b"a", None)])])
    assert settled.get(b"a") is None
    assert settled.range(b"", b"", None) == [(b"b", b"1")]


def test_later_changes_go_behind_what_is_held(db: StateDb) -> None:
    settled = SettledState(db)
    settled.hold([Changes(puts=[(b"a", b"1")])])
    settled.apply([Changes(puts=[(b"a", b"2")])], Position(0))
    assert settled.get(b"a") == db.get(STATE + b"a") == b"2"


def test_a_dropped_prefix_can_be_held_too(db: StateDb) -> None:
    settled = SettledState(db)
    settled.apply([Changes(puts=[(b"a/1", b"1"), (b"b", b"1")])], Position(0))
    settled.hold([Changes(puts=[(b"a/2", b"2")])])
    settled.hold([Changes(drop_prefixes=[b"a/"], puts=[(b"a/3", b"3")])])
    assert settled.range(b"", b"", None) == [(b"a/3", b"3"), (b"b", b"1")]
    with settled.releasing(lambda: Position(0)):
        pass
    assert [key for key, _ in db.items(STATE)] == [STATE + b"a/3", STATE + b"b"]


def test_a_manifest_with_a_flipped_bit_is_refused_before_rocksdb_reads_it_for_ever(tmp_path: Path) -> None:
    db = StateDb(tmp_path)
    batch = db.batch()
    batch.put(b"key", b"value")
    db.write(batch)
    db.close()
    check_manifest(tmp_path)
    manifest = tmp_path / (tmp_path / "CURRENT").read_text().strip()
    sound = manifest.read_bytes()
    # A length that leads behind the end of the file looks like an end that was cut off, which RocksDB recognizes itself.
    lengths = _length_bytes(sound)
    for place in set(range(len(sound))) - lengths:
        manifest.write_bytes(bytes(byte ^ (0x80 if at == place else 0) for at, byte in enumerate(sound)))
        with pytest.raises(ValueError, match="checksum mismatch"):
            check_manifest(tmp_path)


def _length_bytes(manifest: bytes) -> set[int]:
    """Return the places of the two bytes of each record's length: a record is checksum (4), length (2), type (1) and data."""
    places: set[int] = set()
    at = 0
    while at < len(manifest):
        places |= {at + 4, at + 5}
        at += 7 + int.from_bytes(manifest[at + 4 : at + 6], "little")
    return places
