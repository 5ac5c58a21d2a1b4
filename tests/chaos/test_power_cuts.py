"""Power cuts: what was acknowledged with `fsync` is there; with `relaxed` a prefix is, and no partial commit."""

import random
import time
from pathlib import Path

import pytest

from tailrace.model.killpoint import EXIT_CODE, KILLPOINTS
from tests.support.child import WriterProcess
from tests.support.frozen_writers import PowerCut, cut_while_writing
from tests.support.history import History
from tests.support.inquest import hold_inquest
from tests.support.judge import Verdict
from tests.support.powercut import cut_power, make_image, mounted, why_no_mounts

pytestmark = pytest.mark.skipif(why_no_mounts() is not None, reason=str(why_no_mounts()))

CUTS = 8


def cuts_of(tmp_path: Path, seed: int, *options: str) -> list[PowerCut]:
    moments = random.Random(seed)
    return cut_while_writing(
        tmp_path,
        lambda folder: WriterProcess(folder, *options),
        lambda writer: writer.wait_for_acks(1),
        [moments.uniform(0.02, 0.4) for _ in range(CUTS)],
    )


def judge_cut(tmp_path: Path, cut: PowerCut, *, may_lose_tail: bool = False) -> Verdict:
    history = History()
    history.extend(cut.events)
    with mounted(cut.image, tmp_path / cut.image.stem) as disk:
        return hold_inquest(disk / "data", history, may_lose_tail=may_lose_tail)


def test_acked_records_survive_power_cuts(tmp_path: Path, chaos_seed: int) -> None:
    for cut in cuts_of(tmp_path, chaos_seed):
        verdict = judge_cut(tmp_path, cut)
        assert not verdict.violations, f"{cut.image.stem}:\n{verdict}"


@pytest.mark.parametrize("name", KILLPOINTS)
def test_acked_records_survive_a_power_cut_at(name: str, tmp_path: Path) -> None:
    """The process ends at a kill point, and what it had not synced is lost."""
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
    for cut in cuts_of(tmp_path, chaos_seed, *options):
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
