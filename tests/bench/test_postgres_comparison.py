"""The benchmark beside PostgreSQL measures every bar, and its answers are those of PostgreSQL."""

from pathlib import Path

from bench.postgres import comparison
from bench.workspace import Workspace
from tests.bench.scale import TINY


def test_every_bar_has_a_figure(tmp_path: Path) -> None:
    section = comparison.run(Workspace(tmp_path, TINY, lambda _: None))
    assert [figure.bar is not None for figure in section.figures] == [True] * 6
    assert all(figure.ours.lowest > 0 for figure in section.figures)
    assert section.figures[0].peer.startswith("PostgreSQL 18")
