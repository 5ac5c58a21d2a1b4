"""Every benchmark runs and is checked; a run stores its results, and a failure affects no other subject."""

from collections.abc import Mapping
from pathlib import Path

import psutil
import pytest

from bench import audit, run, subject_process
from bench.figures import Section
from bench.peers.kafka import NotObtainable
from bench.results import Result, ResultFolder
from bench.subject_process import SubjectProcess, measure
from bench.subjects import SUBJECTS, Subject
from bench.workspace import Workspace
from tailrace.model.commit import Changes
from tailrace.store.contract import OnDone
from tailrace.store.embedded import EmbeddedStore
from tailrace.store.sequencer import PendingCommit
from tests.bench.scale import TINY

JAVA = {name for name in SUBJECTS if name.startswith(("kafka", "pipeline", "growth-routes"))} | {
    "capture",
    "capture-snapshot",
    "capture-routed",
    "shadow",
}
"""What needs Spark, or what Maven fetches. For Kafka, captures and shadows, tests put Tailrace in the place of the peer."""
ELSEWHERE = {"nats-synced", "profiles", "profiles-pipeline", "security-checks", "security-logins"}
"""What `nats` runs too, but for a setting of the servers; what is sampled; and what has tests of its own."""


@pytest.mark.long
@pytest.mark.parametrize("name", [name for name in SUBJECTS if name not in JAVA | ELSEWHERE])
def test_every_benchmark_gives_figures_and_leaves_nothing_behind(name: str, tmp_path: Path) -> None:
    said: list[str] = []

    section = SUBJECTS[name].run(Workspace(tmp_path, TINY, said.append), tmp_path)

    assert said
    assert section.figures
    for figure in section.figures:
        assert len(figure.ours.values) == TINY.rounds
    for curve in section.curves:
        assert len(curve.slopes.values) == TINY.rounds
    assert list(tmp_path.iterdir()) == []


def test_a_lost_record_fails_the_subject(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit, "EmbeddedStore", _Forgetful)

    result = measure("append", SUBJECTS["append"], Workspace(tmp_path, TINY, lambda _: None), tmp_path, "quick")

    assert "records were acknowledged" in result.failure
    assert result.section is None


def test_what_can_not_be_had_is_left_out_and_no_failure(tmp_path: Path) -> None:
    def lack(workspace: Workspace, cache: Path) -> Section:
        raise NotObtainable("java is not installed")

    result = measure("kafka", Subject(lack, 1, 1), Workspace(tmp_path, TINY, lambda _: None), tmp_path, "quick")

    assert (result.left_out, result.failure, result.section) == ("java is not installed", "", None)


def test_a_subject_that_hangs_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    data, noted = tmp_path / "data", tmp_path / "pid"
    data.mkdir()
    hanging = ["sh", "-c", f"sleep 1000 & echo $! > {noted}; wait"]

    result = SubjectProcess(data, "quick", hanging).measure("append", most_seconds=1)

    assert result.failure == "it was not done after 1 s"
    assert _is_gone(int(noted.read_text()))
    assert list(data.iterdir()) == []


def test_a_subject_that_crashes_is_reported_with_its_exit_code(tmp_path: Path) -> None:
    result = SubjectProcess(tmp_path, "quick", ["sh", "-c", "exit 139"]).measure("append", most_seconds=60)

    assert result.failure == "its process ended with code 139"


def _is_gone(pid: int) -> bool:
    """Nobody may have asked for its exit code yet."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """The names of subjects, as they are measured; one of them fails."""
    names: list[str] = []

    def pretend(_: SubjectProcess, name: str, most_seconds: float) -> Result:
        names.append(name)
        watch = subject_process.Watch("quick", tmp_path)
        if name == "fetch":
            return Result(subject=name, circumstances=watch.circumstances(), failure="lost")
        section = Section(title=f"About {name}", text="", figures=[])
        return Result(subject=name, circumstances=watch.circumstances(), section=section)

    monkeypatch.setattr(SubjectProcess, "measure", pretend)
    return names


def options(tmp_path: Path, *more: str) -> list[str]:
    folders: Mapping[str, Path] = {"--dir": tmp_path / "data", "--results": tmp_path / "results", "--out": tmp_path / "pages"}
    return ["--quick", *(str(each) for pair in folders.items() for each in pair), *more]


def test_a_failure_sets_the_exit_code_and_the_others_are_kept(measured: list[str], tmp_path: Path) -> None:
    assert run.main(options(tmp_path, "--only", "append", "--only", "fetch", "--only", "opening")) == 1

    assert measured == ["append", "fetch", "opening"]
    kept = ResultFolder(tmp_path / "results").all(SUBJECTS)
    assert [(result.subject, result.failure) for result in kept] == [("append", ""), ("fetch", "lost"), ("opening", "")]
    assert "**fetch failed**: lost" in (tmp_path / "pages" / "benchmarks.md").read_text()


def test_a_run_that_is_resumed_measures_what_is_missing_or_failed(measured: list[str], tmp_path: Path) -> None:
    run.main(options(tmp_path, "--only", "append", "--only", "fetch"))
    measured.clear()

    run.main(options(tmp_path, "--resume", "--only", "append", "--only", "fetch", "--only", "opening"))

    assert measured == ["fetch", "opening"]


def test_a_run_that_is_broken_off_keeps_what_it_has(
    measured: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend = SubjectProcess.measure

    def until_fetch(process: SubjectProcess, name: str, most_seconds: float) -> Result:
        if name == "fetch":
            raise KeyboardInterrupt
        return pretend(process, name, most_seconds)

    monkeypatch.setattr(SubjectProcess, "measure", until_fetch)

    assert run.main(options(tmp_path, "--only", "append", "--only", "fetch", "--only", "opening")) == 130

    assert [result.subject for result in ResultFolder(tmp_path / "results").all(SUBJECTS)] == ["append"]


def test_a_run_begins_nothing_that_does_not_fit_its_time(measured: list[str], tmp_path: Path) -> None:
    assert run.main(options(tmp_path, "--minutes", "0.1", "--only", "append")) == 0

    assert measured == []
    assert "Not measured: append" in (tmp_path / "pages" / "benchmarks.md").read_text()


class _Forgetful(EmbeddedStore):
    """Acknowledges its tenth commit without having written it."""

    submitted = 0

    def submit(self, changes: Changes, done: OnDone) -> PendingCommit:
        self.submitted += 1
        if self.submitted != 10:
            return super().submit(changes, done)
        return super().submit(Changes(puts=[(b"nothing", b"")]), done)
