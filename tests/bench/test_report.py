"""The page says what was met and what was missed, and nothing about whose machine it was."""

import platform
from pathlib import Path

import pytest

from bench.figures import Bar, Figure, Section
from bench.machine import facts
from bench.measure import Samples
from bench.report import render, summary


def figure(value: float, bar: Bar | None, *, peer: float | None = None) -> Figure:
    peers = None if peer is None else Samples((peer,))
    return Figure(name="it", ours=Samples((value,)), unit="MB/s", peer="other", peers=peers, bar=bar)


@pytest.mark.parametrize(
    ("judged", "verdict"),
    [
        (figure(70, Bar("at least", 0.7), peer=100), True),
        (figure(69, Bar("at least", 0.7), peer=100), False),
        (figure(125, Bar("at most", 1.25), peer=100), True),
        (figure(126, Bar("at most", 1.25), peer=100), False),
        (figure(4.9, Bar("under", 5)), True),
        (figure(5, Bar("under", 5)), False),
        (figure(5, None), None),
    ],
)
def test_a_bar_is_held_against_the_ratio_or_else_the_figure(judged: Figure, verdict: bool | None) -> None:
    assert judged.is_met is verdict


def test_the_page_has_every_figure_with_its_verdict_and_the_notes() -> None:
    met = Section(title="Good", text="Well done.", figures=[figure(1500, Bar("at least", 1000))], remarks=["A remark."])
    missed = Section(title="Bad", text="", figures=[figure(10, Bar("at least", 0.7), peer=100)])

    page = render([met, missed], {"cores": "2"}, is_full=True, notes="## Notes\n\nKept.\n")

    assert "| it | 1,500 (1,500-1,500) MB/s | other |  |  | ≥ 1,000 MB/s | met |" in page
    assert "| it | 10 (10-10) MB/s | other | 100 (100-100) MB/s | **0.10 (0.10-0.10)** | ≥ 0.70 | **missed** |" in page
    assert "1 of 2 bars met; missed: Bad: it." in page
    assert "- A remark." in page
    assert page.endswith("## Notes\n\nKept.\n")


def test_a_run_that_meets_all_bars_says_so() -> None:
    assert (
        summary([Section(title="Good", text="", figures=[figure(2, Bar("under", 3)), figure(2, None)])]) == "1 of 1 bars met."
    )


def test_a_run_with_little_data_is_called_a_hint() -> None:
    assert "a hint" in render([], {}, is_full=False, notes="")
    assert "a hint" not in render([], {}, is_full=True, notes="")


def test_the_machine_is_described_without_its_name_and_paths(tmp_path: Path) -> None:
    described = facts(tmp_path)
    assert {"cores", "memory", "kernel", "Python", "file system"} <= described.keys()
    text = " ".join(described.values())
    assert platform.node() not in text
    assert "/" not in text
