"""The machine code that scans records is compiled once, loaded from then on, and equal to the plain scan."""

import sys
from pathlib import Path

import pytest

from tailrace.wire.fast_record_check import CODE, compile_scan, load_scan
from tailrace.wire.record_check import RecordFault, plain_scan
from tests.support.broken_batches import record

RECORDS = b"".join(map(record, range(300)))


@pytest.fixture
def kept_in(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Give an empty user's cache, and a folder beside the source that can't be written to."""
    nowhere = tmp_path / "a file, no folder"
    nowhere.touch()
    monkeypatch.setattr(sys, "pycache_prefix", str(nowhere))
    monkeypatch.setenv("PYTHONPYCACHEPREFIX", str(nowhere))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "tailrace"


def test_it_is_compiled_once_and_found_from_then_on(kept_in: Path) -> None:
    assert load_scan() is None
    made = compile_scan()
    (kept,) = kept_in.iterdir()
    assert 0 < kept.stat().st_size < 8_192
    found = load_scan()
    assert found is not None
    for scan in (made, found):
        assert scan(RECORDS, 0, 300, 5) == plain_scan(RECORDS, 0, 300, 5) == (0, 299, 5, 5)
        assert scan(memoryview(RECORDS), 0, 299, 5)[0] == plain_scan(RECORDS, 0, 299, 5)[0] == RecordFault.TRAILING
        assert scan(bytearray(RECORDS), 0, 301, 5)[0] == plain_scan(RECORDS, 0, 301, 5)[0] == RecordFault.NUMBER


@pytest.mark.parametrize("size", [0, 2_600, 1_000_000])
def test_a_file_that_can_not_be_the_code_is_not_run(kept_in: Path, size: int) -> None:
    kept_in.mkdir()
    (kept_in / CODE.file_name).write_bytes(bytes(size))
    assert load_scan() is None
