"""The disk fails with `EIO`: the process stops with one clear line, and after a restart every acknowledged record is there.

After a failed sync the kernel may mark pages clean that never reached the disk, so a second try would succeed wrongly. The
calls after the failed one succeed here: a store that tried again would continue.
"""

from pathlib import Path

import pytest

from tests.chaos.writer import FAILED_EXIT
from tests.support.child import WriterProcess
from tests.support.faults import Fault, failing_call, traced_call, why_no_shim, why_no_tracing
from tests.support.history import History
from tests.support.inquest import hold_inquest

needs_shim = pytest.mark.skipif(why_no_shim() is not None, reason=str(why_no_shim()))
needs_tracing = pytest.mark.skipif(why_no_tracing() is not None, reason=str(why_no_tracing()))


def fail_and_restart(folder: Path, fault: Fault, *options: str) -> None:
    """Runs twice: on a new folder and on one after such a failure."""
    history = History()
    for run in (1, 2):
        writer = WriterProcess(folder, "--run", str(run), *options, environment=fault.environment, wrapper=fault.wrapper)
        assert writer.wait() == FAILED_EXIT, writer.errors
        assert len(writer.errors.splitlines()) == 1, writer.errors
        assert writer.errors.startswith("tailrace: ")
        assert "Input/output error" in writer.errors
        history.extend(writer.events)
        verdict = hold_inquest(folder, history)
        assert not verdict.violations, f"run {run}:\n{verdict}"


@needs_shim
@pytest.mark.parametrize("at", [1, 2, 3, 10, 40])
def test_a_failed_sync_of_the_log_stops_the_process_and_loses_nothing(tmp_path: Path, at: int) -> None:
    fail_and_restart(tmp_path / "data", failing_call("fdatasync", "log", at))


@needs_tracing
@pytest.mark.parametrize("at", [4, 25])
def test_a_sync_that_fails_in_the_kernel_stops_the_process_and_loses_nothing(tmp_path: Path, at: int) -> None:
    fail_and_restart(tmp_path / "data", traced_call("fdatasync", at))


@needs_shim
@pytest.mark.parametrize("at", [2, 30])
def test_a_failed_sync_with_relaxed_durability_stops_the_process_too(tmp_path: Path, at: int) -> None:
    fail_and_restart(tmp_path / "data", failing_call("fdatasync", "log", at), "--durability", "relaxed")


@needs_shim
@pytest.mark.parametrize("at", [1, 5, 60])
def test_a_failed_write_stops_the_process_and_loses_nothing(tmp_path: Path, at: int) -> None:
    fail_and_restart(tmp_path / "data", failing_call("writev", "log", at))


@needs_shim
@pytest.mark.parametrize("at", [2, 5, 9, 20])
def test_a_failed_sync_of_the_state_stops_the_process_and_loses_nothing(tmp_path: Path, at: int) -> None:
    fail_and_restart(tmp_path / "data", failing_call("fdatasync", "state", at))


@needs_shim
@pytest.mark.parametrize("at", [1, 4])
def test_a_failed_sync_of_the_folder_stops_the_process_and_loses_nothing(tmp_path: Path, at: int) -> None:
    fail_and_restart(tmp_path / "data", failing_call("fsync", "data", at), "--segment-bytes", "4096")
