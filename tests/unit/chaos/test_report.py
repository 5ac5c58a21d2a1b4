"""The report says what the histories say, and nothing else."""

from pathlib import Path

import msgspec
import pytest

from chaos.history import Fault, ResourceSample, write_lines
from chaos.report import main
from chaos.run_record import HISTORY_FILE, Mutant, RunRecord, write_record
from tests.unit.chaos.histories import FAILED, UNKNOWN, Story

RECORD = RunRecord(
    seed=77,
    profile="long",
    workloads=("queue",),
    minutes=20,
    faults=("kill",),
    began="2026-01-31T12:00:00Z",
    commit="abc123",
    versions={"python": "3.11.9", "aiokafka": "0.14"},
    machine="2 cores, 8 GiB",
)
MUTANT = Mutant("ack-before-sync", "answers before the sync", ("lost-write", "unseen"))


def run_folder(folder: Path, story: Story, **fields: object) -> Path:
    folder.mkdir()
    (folder / HISTORY_FILE).write_bytes(write_lines(story.lines))
    write_record(folder, msgspec.structs.replace(RECORD, **fields))
    return folder


def sound_story() -> Story:
    """Write a run: two sends that succeed, one rejected, one unknown; a kill, and an answer 1.6 s after the restart."""
    story = Story()
    story.send("a", at=0)
    story.send("b", outcome=FAILED)
    story.send("c", outcome=UNKNOWN)
    story.write(Fault(1.0, "kill", until=4.0, ready=4.0, started=3.0, down=True))
    story.write(Fault(1.5, "slow syncs", until=2.0))
    story.tick(4.5 - story.now - 0.1)
    story.send("d", at=1)
    story.write(ResourceSample(story.tick(), 300 << 20, 50, 20, 0))
    story.write(ResourceSample(story.tick(), 200 << 20, 50, 20, 0))
    story.phase("final")
    story.final("a@0 d@1")
    return story


def losing_story() -> Story:
    story = Story()
    story.send("a", at=0)
    story.send("b", at=1)
    story.final("b@1")
    return story


def page_of(tmp_path: Path, *runs: Path) -> tuple[int, str]:
    out = tmp_path / "reliability.md"
    code = main([*map(str, runs), "--out", str(out)])
    return code, out.read_text()


def test_figures_come_from_the_history(tmp_path: Path) -> None:
    code, page = page_of(tmp_path, run_folder(tmp_path / "run", sound_story()))
    assert code == 0
    assert "**5 calls** and **2 faults** in 20 minutes, **0 violations**" in page
    assert "| 77 | long | 20 | 5 | 3 | 1 | 1 | 2 | 300 MiB | **pass** | 2026-01-31T12:00:00Z | `abc123` |" in page
    assert "| send | kafka | 2 | 1 | 1 |" in page
    assert "| poll | kafka | 1 | 0 | 0 |" in page
    assert "| kill | 1 | 1.60 s | 1.60 s |" in page
    assert "| slow syncs | 1 |  |  |" in page
    assert "2 cores, 8 GiB; durability `fsync`; python 3.11.9, aiokafka 0.14" in page
    assert "## What was not tested" in page
    assert "| `duplicate` | I4 | an idempotent producer's record is stored once | 4 | 0 |" in page
    assert "| `redelivered` | queue | an acked record does not come back | 0 |  |" in page


def test_the_longest_time_without_an_answer_is_reported(tmp_path: Path) -> None:
    _, page = page_of(tmp_path, run_folder(tmp_path / "run", sound_story()))
    # The first send is answered at 0.2 s; the last call under load begins at 4.5 s.
    assert "Longest time without an answer: 4.3 s, at 0 s of the run with seed 77, during kill and slow syncs;" in page


def test_a_violation_is_reported_and_fails_the_report(tmp_path: Path) -> None:
    code, page = page_of(tmp_path, run_folder(tmp_path / "run", losing_story()))
    assert code == 1
    assert "**1 violations**" in page
    assert "First violation, seed 77: lost-write: 'a' was at t/0 offset 0" in page
    assert "| `lost-write` | I1 | an acked record, and one that was read, stays | 2 | 1 |" in page


def test_a_doubtful_run_fails_the_report(tmp_path: Path) -> None:
    story = Story()
    story.send("a", at=0)
    code, page = page_of(tmp_path, run_folder(tmp_path / "run", story))
    assert code == 1
    assert "In doubt, seed 77: records were sent, but there are no final reads" in page


def test_a_mutant_that_is_found_out_is_named_with_its_rule(tmp_path: Path) -> None:
    sound = run_folder(tmp_path / "sound", sound_story())
    broken = run_folder(tmp_path / "broken", losing_story(), mutant=MUTANT, seed=5)
    code, page = page_of(tmp_path, sound, broken)
    assert code == 0
    assert "**1 of 1** servers that were broken on purpose were found out" in page
    assert "| `ack-before-sync` | answers before the sync | `lost-write` | 5 |" in page
    assert "**0 violations**" in page


def test_a_mutant_that_is_found_out_by_another_rule_alone_does_not_count(tmp_path: Path) -> None:
    sound = run_folder(tmp_path / "sound", sound_story())
    other = msgspec.structs.replace(MUTANT, shows_as=("duplicate",))
    code, page = page_of(tmp_path, sound, run_folder(tmp_path / "broken", losing_story(), mutant=other))
    assert code == 1
    assert "**not noticed**" in page


def test_mutants_alone_make_no_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = run_folder(tmp_path / "broken", losing_story(), mutant=MUTANT)
    with pytest.raises(SystemExit):
        page_of(tmp_path, folder)
    assert "give at least one of the server as it is" in capsys.readouterr().err
