"""A reader far behind neither fills the memory nor holds up the writer."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tailrace.model.limits import MIB
from tests.contract.far_behind import LOG_BYTES, TAIL_CACHE_BYTES
from tests.support.child import ROOT
from tests.support.stores import BACKENDS

BULK = [name for name, backend in BACKENDS.items() if backend.durable and backend.takes_bulk]


@pytest.mark.parametrize("backend", BULK)
def test_reading_a_log_larger_than_memory_costs_little_of_it_and_no_writer_waits(backend: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.contract.far_behind", backend, str(tmp_path)], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["scanned"] == said["fetched"] == said["written"] > 0.99 * LOG_BYTES
    assert said["memory_growth"] < TAIL_CACHE_BYTES + 24 * MIB
    assert said["disturbed_commit_seconds"] < 10 * said["quiet_commit_seconds"] + 0.005
