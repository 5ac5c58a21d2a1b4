"""The process dies at any moment: what was acknowledged is there, the rest is complete or absent."""

import random
import time
from pathlib import Path

import pytest

from tailrace.model.killpoint import EXIT_CODE, KILLPOINTS
from tests.support.child import WriterProcess
from tests.support.history import Ack, History
from tests.support.inquest import hold_inquest

ENOUGH_ROUNDS = "60"
CYCLES_PER_FOLDER = 50


@pytest.mark.parametrize("name", KILLPOINTS)
def test_acked_records_survive_a_kill_at(name: str, tmp_path: Path) -> None:
    history = History()
    for run, (passes, durability) in enumerate([(1, "fsync"), (4, "fsync"), (2, "relaxed")], start=1):
        options = ("--run", str(run), "--durability", durability, "--segment-bytes", "4096", "--rounds", ENOUGH_ROUNDS)
        writer = WriterProcess(tmp_path / "data", *options, environment={"TAILRACE_KILLPOINT": f"{name}:{passes}"})
        assert writer.wait() == EXIT_CODE, f"{name} was not passed {passes} times; {writer.errors}"
        history.extend(writer.events)
        verdict = hold_inquest(tmp_path / "data", history)
        assert not verdict.violations, f"after run {run}:\n{verdict}"


@pytest.mark.timeout(0)
def test_acked_records_survive_sigkill_again_and_again(tmp_path: Path, chaos_seed: int, kill_cycles: int) -> None:
    moments = random.Random(chaos_seed)
    history = History()
    acks = 0
    for cycle in range(kill_cycles):
        if cycle % CYCLES_PER_FOLDER == 0:
            history = History()
        folder = tmp_path / f"data-{cycle // CYCLES_PER_FOLDER}"
        durability = moments.choice(("fsync", "fsync", "relaxed"))
        writer = WriterProcess(folder, "--run", str(cycle), "--seed", str(chaos_seed), "--durability", durability)
        if cycle % 2:  # the others may die while they open the folder, or before
            writer.wait_for_acks(5)
        time.sleep(moments.uniform(0.1, 0.6))
        writer.kill()
        history.extend(writer.events)
        acks += writer.count(Ack)
        verdict = hold_inquest(folder, history)
        assert not verdict.violations, f"after kill {cycle + 1}, with {acks} acks:\n{verdict}"
    print(f"{kill_cycles} kills, {acks} commits acknowledged")
    assert acks > kill_cycles


def test_a_writer_that_ends_by_itself_leaves_everything_it_wrote(tmp_path: Path) -> None:
    writer = WriterProcess(tmp_path / "data", "--rounds", "3")
    assert writer.wait() == 0, writer.errors
    history = History()
    history.extend(writer.events)
    assert set(history.acks) == set(history.attempts)
    verdict = hold_inquest(tmp_path / "data", history)
    assert not verdict.violations, str(verdict)


def test_sigterm_finishes_what_is_in_flight(tmp_path: Path) -> None:
    writer = WriterProcess(tmp_path / "data")
    writer.wait_for_acks(100)
    assert writer.terminate() == 0, writer.errors
    history = History()
    history.extend(writer.events)
    assert set(history.acks) == set(history.attempts)
    assert not hold_inquest(tmp_path / "data", history).violations
