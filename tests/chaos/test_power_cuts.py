"""The power goes: what was acknowledged with `fsync` is there; with `relaxed` a prefix is, and nothing by halves."""

import random
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from tailrace.model.killpoint import EXIT_CODE, KILLPOINTS
from tests.support.child import WriterProcess
from tests.support.history import Event, History
from tests.support.inquest import hold_inquest
from tests.support.judge import Verdict
from tests.support.powercut import cut_power, make_image, mounted, why_no_mounts

pytestmark = pytest.mark.skipif(why_no_mounts() is not None, reason=str(why_no_mounts()))

CUTS = 8


class PowerCut(NamedTuple):
    image: Path
    events: Sequence[Event]
    """What the writer had said when the power went."""


def cut_while_writing(tmp_path: Path, moments: random.Random, *options: str) -> list[PowerCut]:
    """Freeze one writer several times and keep what its disk holds each time."""
    image = make_image(tmp_path / "disk.img")
    cuts = []
    with mounted(image, tmp_path / "disk") as disk:
        writer = WriterProcess(disk / "data", *options)
        try:
            writer.wait_for_acks(1)
            for number in range(CUTS):
                time.sleep(moments.uniform(0.02, 0.4))
                writer.stop()
                copy = cut_power(image, tmp_path / f"cut-{number}.img")
                writer.drain()
                cuts.append(PowerCut(copy, list(writer.events)))
                writer.go_on()
        finally:
            writer.kill()
    return cuts


def judge_cut(tmp_path: Path, cut: PowerCut, *, may_lose_tail: bool = False) -> Verdict:
    history = History()
    history.extend(cut.events)
    with mounted(cut.image, tmp_path / cut.image.stem) as disk:
        return hold_inquest(disk / "data", history, may_lose_tail=may_lose_tail)


def test_acked_records_survive_power_cuts(tmp_path: Path, chaos_seed: int) -> None:
    for cut in cut_while_writing(tmp_path, random.Random(chaos_seed)):
        verdict = judge_cut(tmp_path, cut)
        assert not verdict.violations, f"{cut.image.stem}:\n{verdict}"


@pytest.mark.parametrize("name", KILLPOINTS)
def test_acked_records_survive_a_power_cut_at(name: str, tmp_path: Path) -> None:
    """The process ends there, and what it had not synced goes with it."""
    image = make_image(tmp_path / "disk.img")
    with mounted(image, tmp_path / "disk") as disk:
        options = ("--segment-bytes", "4096", "--rounds", "60")
        writer = WriterProcess(disk / "data", *options, environment={"TAILRACE_KILLPOINT": f"{name}:6"})
        assert writer.wait() == EXIT_CODE, f"{name} was not passed; {writer.errors}"
        cut = PowerCut(cut_power(image, tmp_path / "cut.img"), writer.events)
    verdict = judge_cut(tmp_path, cut)
    assert not verdict.violations, str(verdict)


def test_relaxed_durability_loses_only_the_newest_commits_and_those_whole(tmp_path: Path, chaos_seed: int) -> None:
    options = ("--durability", "relaxed", "--segment-bytes", "65536")
    for cut in cut_while_writing(tmp_path, random.Random(chaos_seed), *options):
        verdict = judge_cut(tmp_path, cut, may_lose_tail=True)
        assert not verdict.violations, f"{cut.image.stem}:\n{verdict}"


def test_a_disk_survives_power_cut_after_power_cut(tmp_path: Path, chaos_seed: int) -> None:
    moments = random.Random(chaos_seed)
    history = History()
    image = make_image(tmp_path / "disk-0.img")
    for run in range(1, 4):
        with mounted(image, tmp_path / f"run-{run}") as disk:
            writer = WriterProcess(disk / "data", "--run", str(run))
            writer.wait_for_acks(1)
            time.sleep(moments.uniform(0.05, 0.5))
            writer.stop()
            image = cut_power(image, tmp_path / f"disk-{run}.img")
            writer.kill()
        history.extend(writer.events)
        with mounted(image, tmp_path / f"after-{run}") as disk:
            verdict = hold_inquest(disk / "data", history)
        assert not verdict.violations, f"after cut {run}:\n{verdict}"
