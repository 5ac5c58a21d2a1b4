"""Every benchmark runs, is audited, and ends up in the page."""

from pathlib import Path

import pytest

from bench import run, stores
from bench.figures import Section
from tailrace.model.changes import Changes
from tailrace.store.embedded import EmbeddedStore
from tailrace.store.sequencer import Done, PendingCommit
from tests.bench.scale import TINY


@pytest.mark.parametrize("name", run.SUBJECTS)
def test_every_benchmark_gives_figures_and_leaves_nothing_behind(name: str, tmp_path: Path) -> None:
    said: list[str] = []

    (section,) = run.measure(tmp_path, TINY, [name], said.append)

    assert isinstance(section, Section)
    assert said
    assert any(figure.bar for figure in section.figures)
    for figure in section.figures:
        assert len(figure.ours.values) == TINY.rounds
        assert min(figure.ours.values) >= 0
    assert list(tmp_path.iterdir()) == []


def test_a_run_writes_its_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "QUICK", TINY)
    page = tmp_path / "page.md"

    assert run.main(["--quick", "--only", "partitions", "--dir", str(tmp_path / "data"), "--out", str(page)]) == 0

    text = page.read_text()
    assert "## Many partitions" in text
    assert "## Append" not in text
    assert "2 of 2 bars met." in text
    assert run.NOTES.read_text().strip() in text


def test_a_lost_record_fails_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(run, "QUICK", TINY)
    monkeypatch.setattr(stores, "EmbeddedStore", _Forgetful)
    page = tmp_path / "page.md"

    assert run.main(["--quick", "--only", "append", "--dir", str(tmp_path), "--out", str(page)]) == 1

    assert "records were acknowledged" in capsys.readouterr().err
    assert not page.exists()


class _Forgetful(EmbeddedStore):
    """Acknowledges its tenth commit without having written it."""

    submitted = 0

    def submit(self, changes: Changes, done: Done) -> PendingCommit:
        self.submitted += 1
        if self.submitted != 10:
            return super().submit(changes, done)
        return super().submit(Changes(puts=[(b"nothing", b"")]), done)
