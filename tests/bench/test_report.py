"""The pages show which bars are met, missed and failed, when and of which commit, and nothing about whose machine it was."""

import platform
import re
from html.parser import HTMLParser
from pathlib import Path

import msgspec
import pytest

from bench.figures import Bar, Curve, Figure, Point, Profile, Samples, Section, Share, slope
from bench.machine import facts
from bench.render import MARKDOWN, write_pages
from bench.report.charts import decades
from bench.report.markdown import markdown_page, summary
from bench.report.web import web_page
from bench.results import Circumstances, Result, ResultFolder
from bench.run import FULL_RESULTS

MACHINE = {"cores": "2"}
NOTES = "## Notes\n\nKept.\n"


def figure(value: float, bar: Bar | None, *, peer: float | None = None) -> Figure:
    peers = None if peer is None else Samples((peer,))
    return Figure(name="it", ours=Samples((value,)), unit="MB/s", peer="other", peers=peers, bar=bar)


def result(subject: str, *figures: Figure, machine: dict[str, str] | None = None, failure: str = "", **more: object) -> Result:
    circumstances = Circumstances(
        scale="full",
        began="2030-01-02 03:04 UTC",
        seconds=5.0,
        commit="abc1234567",
        load_before=0.1,
        load_after=1.9,
        machine=machine or MACHINE,
    )
    section = None if failure else Section(title=subject.title(), text="What was *done*.", figures=figures, **more)  # type: ignore[arg-type]
    return Result(subject=subject, circumstances=circumstances, section=section, failure=failure)


GOOD = result("good", figure(1500, Bar("at least", 1000)), remarks=["A remark."])
BAD = result("bad", figure(10, Bar("at least", 0.7), peer=100))


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


def test_the_page_has_the_count_of_the_bars_and_the_notes() -> None:
    page = markdown_page([GOOD, BAD], [], NOTES)

    assert "**1 of 2 bars met.**" in page
    assert page.endswith(NOTES)


def test_the_web_page_has_every_figure_with_its_verdict_and_remarks() -> None:
    page = web_page([GOOD, BAD], [], NOTES)

    assert "<td>it</td><td>1,500 (1,500-1,500) MB/s</td><td>other</td><td></td><td></td><td>≥ 1,000 MB/s</td>" in page
    assert "<td>100 (100-100) MB/s</td><td><strong>0.10 (0.10-0.10)</strong></td><td>≥ 0.70</td>" in page
    assert "<li>A remark.</li>" in page


def test_all_bars_stand_in_one_table_missed_ones_first() -> None:
    page = markdown_page([GOOD, BAD], [], "")

    table = page[page.index("## Bars") :]
    assert table.index("| Bad | it | 0.10 (0.10-0.10) of other | ≥ 0.70 | **missed** |") < table.index("| Good | it | 1,500")


def test_each_section_says_when_of_what_and_at_which_load_it_was_measured() -> None:
    page = web_page([GOOD, BAD], [], "")

    told = "Full run: 2030-01-02 03:04 UTC, commit abc1234567, load 0.1 before and 1.9 after, 5 s."
    assert page.count(told) == 2
    assert page.count("cores 2") == 1


def test_results_of_two_machines_are_kept_apart() -> None:
    other = result("other", figure(1, None), machine={"cores": "64"})

    page = web_page([GOOD, other], [], "")

    assert page.index("cores 2") > page.index("<h2>Good")
    assert page.index("cores 64") > page.index("<h2>Other")


def test_what_failed_or_was_not_measured_is_listed_at_the_top() -> None:
    failed = result("lossy", failure="one record was lost")

    for page in (markdown_page([failed], ["absent"], ""), web_page([failed], ["absent"], "")):
        assert "one record was lost" in page
        assert "Not measured: absent." in page
    assert summary([failed]) == "0 of 0 bars met. Failed: lossy."


def test_a_run_says_which_bars_it_missed() -> None:
    assert summary([GOOD, BAD]) == "1 of 2 bars met; missed: Bad: it."


def test_a_run_that_meets_all_bars_says_so() -> None:
    assert summary([result("good", figure(2, Bar("under", 3)), figure(2, None))]) == "1 of 1 bars met."


def test_a_profile_stands_beside_the_figures_that_it_explains() -> None:
    profile = Profile(
        name="it", beside="bad", looks=20, samples=10, rooms=[Share("wire", 0.6)], functions=[Share("decode", 0.5)]
    )
    sampled = result("profiles", profiles=[profile])

    page = web_page([GOOD, BAD, sampled], [], "")

    assert page.index("<td><code>wire</code></td><td>60.0%</td>") > page.index("<h2>Bad")
    assert "<td><code>decode</code></td><td>50.0%</td>" in page
    assert "<h2>Profiles" not in page


CURVE = Curve(
    name="append",
    grows="topics",
    unit="µs",
    points=[Point(0, Samples((9.0,))), *(Point(n, Samples((2.0 * n,))) for n in (1, 10))],
)


def test_the_slope_of_a_cost_that_grows_in_proportion_is_one() -> None:
    assert slope([1, 10, 100], [3, 30, 300]) == pytest.approx(1)
    assert slope([1, 10, 100], [3, 3, 3]) == pytest.approx(0)
    assert CURVE.slopes.median == pytest.approx(1)


def test_a_curve_is_shown_with_its_slope() -> None:
    grown = result("grown", figure(1, None), curves=[CURVE])

    assert "slope 1.00" in web_page([grown], [], "")


@pytest.mark.parametrize(("lowest", "highest", "ticks"), [(3, 8, [2, 5, 10]), (1, 1, [1, 2]), (0.4, 1, [0.2, 0.5, 1])])
def test_an_axis_has_round_numbers_around_what_it_shows(lowest: float, highest: float, ticks: list[float]) -> None:
    assert decades(lowest, highest) == pytest.approx(ticks)


class _Page(HTMLParser):
    """Keeps what is open, to find what is never closed."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.addresses += [value or "" for name, value in attributes if name in ("src", "href")]
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_web_page_is_whole_and_loads_nothing() -> None:
    odd = result("odd", figure(3, Bar("at least", 1), peer=2), curves=[CURVE], remarks=["a < b"])
    text = web_page([GOOD, BAD, odd], [], "## Notes\n\n<script>alert(1)</script>\n")
    page = _Page()

    page.feed(text)

    assert page.open == []
    assert page.addresses == ["#good", "#bad", "#odd"]
    assert "a &lt; b" in text
    assert not re.search(r"url\(|@import|<script", text)
    assert text.count("<svg") == text.count('role="img" aria-label="')


def test_results_are_kept_whole_and_found_in_order(tmp_path: Path) -> None:
    folder = ResultFolder(tmp_path / "results")
    folder.keep(BAD)
    folder.keep(result("good", curves=[CURVE]))
    folder.keep(GOOD)

    assert folder.all(["good", "missing", "bad"]) == msgspec.json.decode(msgspec.json.encode([GOOD, BAD]), type=list[Result])
    assert {path.name for path in (tmp_path / "results").iterdir()} == {"bad.json", "good.json"}


def test_the_machine_is_described_without_its_name_and_paths(tmp_path: Path) -> None:
    described = facts(tmp_path)
    assert {"cores", "memory", "kernel", "Python", "file system"} <= described.keys()
    text = " ".join(described.values())
    assert platform.node() not in text
    assert "/" not in text


@pytest.mark.parametrize(("alone", "said"), [(200, ", which is short of the bar"), (600, "")])
def test_the_client_alone_is_shown_with_what_it_says_about_the_bar(alone: float, said: str) -> None:
    under = msgspec.structs.replace(figure(150, Bar("at least", 5), peer=100), alone=Samples((alone,)))
    page = markdown_page([result("near", under)], [], NOTES)
    details = web_page([result("near", under)], [], NOTES)
    times, share = f"{alone / 100:.0f} ({alone / 100:.0f}-{alone / 100:.0f})", f"{150 / alone:.2f}"

    assert f"it: the client alone {alone} ({alone}-{alone}) MB/s, {times} of other{said}; Tailrace reaches {share}" in details
    assert f"1.50 (1.50-1.50) of other; the client alone {times} |" in page


DOCS = Path(__file__).resolve().parents[2] / "docs"


@pytest.mark.skipif(not FULL_RESULTS.exists(), reason="no full run is kept yet")
def test_the_published_page_is_written_from_the_results(tmp_path: Path) -> None:
    write_pages(ResultFolder(FULL_RESULTS), tmp_path)

    assert (DOCS / MARKDOWN).read_text() == (tmp_path / MARKDOWN).read_text(), "run: python -m bench.render"
