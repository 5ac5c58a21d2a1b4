"""The plugin that decides which tools are tried in which runs, and collects their results for the page.

Each folder of tests with tools has a section of the page, which a run of everything in the folder writes.
"""

from collections.abc import Generator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.compat.grid import Cell
from tests.compat.page import SECURITY_HEADING, TOOLS_HEADING, write_section
from tests.compat.tools.grid import Row, render

_HERE = Path(__file__).resolve().parent


class _Section(NamedTuple):
    heading: str
    intro: str


_SECTIONS = {
    _HERE: _Section(
        TOOLS_HEADING,
        "Programs of Kafka's ecosystem. Each row is a test of `tests/compat/tools/`, which looks at the data that went\n"
        "through. `make compat` plays all of them, `make smoke` a few.",
    ),
    _HERE.parent / "security": _Section(
        SECURITY_HEADING,
        "Clients and tools at a server with TLS that demands authentication. Each row is a test of `tests/compat/security/`.\n"
        "`make compat` plays all of them, `make smoke` and `make test` some.",
    ),
}
"""By the folder of the tests."""

MARKER = "tool"
_rows = pytest.StashKey[dict[Path, dict[str, Row]]]()
_collected = pytest.StashKey[set[Path]]()
_is_part = pytest.StashKey[bool]()


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "tool(of, does, short, always): a row of the grid of tools")
    rows: dict[Path, dict[str, Row]] = {folder: {} for folder in _SECTIONS}
    config.stash[_rows] = rows
    config.stash[_collected] = set()
    config.stash[_is_part] = False


def pytest_itemcollected(item: pytest.Item) -> None:
    item.config.stash[_collected].add(item.path)


def pytest_deselected(items: list[pytest.Item]) -> None:
    if items:
        items[0].config.stash[_is_part] = True


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip before any server is started."""
    reason = _why_not(item)
    if reason is not None:
        item.user_properties.append(("not tried", reason))
        pytest.skip(reason)


def _why_not(item: pytest.Item) -> str | None:
    marker = item.get_closest_marker(MARKER)
    if marker is None:
        return None
    tool, _, short, always = marker.args
    if not always and not item.config.getoption("--everything") and not (short and item.config.getoption("--others")):
        return "only in `make smoke` and `make compat`" if short else "only in `make compat`"
    return tool.missing()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    marker = item.get_closest_marker(MARKER)
    if marker is not None and (report.when == "call" or report.outcome != "passed"):
        tool, does, *_ = marker.args
        item.config.stash[_rows][item.path.parent][item.nodeid] = Row(tool, does, _cell(report))
    return report


def _cell(report: pytest.TestReport) -> Cell:
    properties = dict(report.user_properties)
    if "not tried" in properties:
        return Cell("not run", str(properties["not tried"]))
    if report.outcome == "passed":
        return Cell("works")
    return Cell("fails", str(properties.get("known", "found by this run")))


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write the sections after a run of everything, but none of which only some tests were run."""
    config = session.config
    if not config.getoption("--everything") or config.stash[_is_part]:
        return
    for folder, section in _SECTIONS.items():
        rows = config.stash[_rows][folder]
        ran = sum(item.path.parent == folder and item.get_closest_marker(MARKER) is not None for item in session.items)
        if set(folder.glob("test_*.py")) <= config.stash[_collected] and len(rows) == ran:
            write_section(section.heading, render(section.intro, list(rows.values())))
