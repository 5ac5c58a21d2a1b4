"""Deliberately broken stores: each is caught, by the rule that it breaks."""

import os
from pathlib import Path

import pytest

from tailrace.model.killpoint import EXIT_CODE
from tests.chaos.mutants import MUTANTS
from tests.chaos.test_power_cuts import cuts_of, judge_cut
from tests.support import judge as rules
from tests.support.child import WriterProcess
from tests.support.folders import frames_of, segment_files
from tests.support.history import History
from tests.support.inquest import DAMAGED, REFUSED, hold_inquest
from tests.support.judge import Verdict
from tests.support.powercut import why_no_mounts

CAUGHT_BY = {
    "ack-before-sync": {rules.LOST_COMMIT, REFUSED},
    "ack-before-write": {rules.LOST_COMMIT},
    "state-ahead-of-log": {rules.LOST_RECORD, rules.WRONG_STATE},
    "index-ahead-of-log": {REFUSED, DAMAGED},
    "reused-offset": {rules.OFFSET_REUSED},
    "reused-cursor": {rules.CURSOR_REUSED},
    "torn-commit-accepted": {REFUSED, DAMAGED},
    "recovery-cuts-too-much": {rules.LOST_COMMIT},
    "state-not-replayed": {rules.LOST_COMMIT, rules.WRONG_STATE},
    "corruption-cut-off": {rules.LOST_COMMIT},
}


def assert_caught(mutant: str, verdict: Verdict) -> None:
    assert verdict.rules & CAUGHT_BY[mutant], f"{mutant} goes unnoticed:\n{verdict}"


def test_every_mutant_has_a_rule_that_catches_it() -> None:
    assert set(CAUGHT_BY) == set(MUTANTS)


@pytest.mark.skipif(why_no_mounts() is not None, reason=str(why_no_mounts()))
def test_an_ack_before_the_sync_is_caught_by_power_cuts(tmp_path: Path, chaos_seed: int) -> None:
    cuts = cuts_of(tmp_path, chaos_seed, "--mutant", "ack-before-sync", "--no-housekeeping")
    broken = {rule for cut in cuts for rule in judge_cut(tmp_path, cut).rules}
    assert broken & CAUGHT_BY["ack-before-sync"], broken


@pytest.mark.parametrize(
    ("mutant", "killpoint"),
    [
        ("ack-before-write", "write.before:5"),
        ("state-ahead-of-log", "write.before:5"),
        ("index-ahead-of-log", "checkpoint.after:2"),
        ("reused-offset", "write.before:60"),
        ("reused-cursor", "write.before:60"),
    ],
)
def test_a_broken_writer_is_caught_at_a_kill_point(tmp_path: Path, mutant: str, killpoint: str) -> None:
    """Whether a kill shows the fault depends on which thread was quicker; one of three kills does."""
    for attempt in range(3):
        folder = tmp_path / f"data-{attempt}"
        writer = WriterProcess(folder, "--mutant", mutant, environment={"TAILRACE_KILLPOINT": killpoint})
        assert writer.wait() == EXIT_CODE, writer.errors
        history = History()
        history.extend(writer.events)
        verdict = hold_inquest(folder, history)
        if verdict.rules & CAUGHT_BY[mutant]:
            return
    assert_caught(mutant, verdict)


@pytest.mark.parametrize(
    "mutant", ["torn-commit-accepted", "recovery-cuts-too-much", "state-not-replayed", "corruption-cut-off"]
)
def test_a_broken_recovery_is_caught_after_the_next_start(tmp_path: Path, mutant: str) -> None:
    folder = tmp_path / "data"
    history = History()
    options = ("--no-housekeeping", "--segment-bytes", "1000000", "--checkpoint-batches", "100000")
    killed = WriterProcess(folder, *options, environment={"TAILRACE_KILLPOINT": "write.half:90"})
    assert killed.wait() == EXIT_CODE, killed.errors
    history.extend(killed.events)
    if mutant == "corruption-cut-off":
        _rot_an_early_frame(folder)
    if mutant == "torn-commit-accepted":
        _tear_the_last_records(folder)
    next_start = WriterProcess(folder, *options, "--run", "2", "--rounds", "1", "--mutant", mutant)
    next_start.wait()
    history.extend(next_start.events)
    assert_caught(mutant, hold_inquest(folder, history))


def _rot_an_early_frame(folder: Path) -> None:
    (segment,) = segment_files(folder)
    data = bytearray(segment.read_bytes())
    data[len(data) // 2] ^= 1
    segment.write_bytes(data)


def _tear_the_last_records(folder: Path) -> None:
    """Cut the log one byte before the end of its last batch."""
    (segment,) = segment_files(folder)
    last = [frame for frame in frames_of(segment) if frame.entries][-1]
    os.truncate(segment, last.position + last.size - 1)
