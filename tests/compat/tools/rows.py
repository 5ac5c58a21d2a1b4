"""The plugin that decides which tools are tried in which runs, and collects their results for the page."""

from collections.abc import Generator
from pathlib import Path

import pytest

from tests.compat.grid import Cell
from tests.compat.page import TOOLS_HEADING, write_section
from tests.compat.tools.grid import Row, render

_HERE = Path(__file__).resolve().parent
FOLDERS = (_HERE, _HERE.parent / "security")
MARKER = "tool"
_rows = pytest.StashKey[dict[str, Row]]()
_collected = pytest.StashKey[set[Path]]()
_is_part = pytest.StashKey[bool]()


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "tool(of, does, short, always): a row of the grid of tools")
    config.stash[_rows] = {}
    config.stash[_collected] = set()
    config.stash[_is_part] = False


def pytest_itemcollected(item: pytest.Item) -> None:
    item.config.stash[_collected].add(item.path)


def pytest_deselected(items: list[pytest.Item]) -> None:
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
        item.config.stash[_rows][item.nodeid] = Row(tool, does, _cell(report))
    return report


def _cell(report: pytest.TestReport) -> Cell:
    properties = dict(report.user_properties)
    if "not tried" in properties:
        return Cell("not run", str(properties["not tried"]))
    if report.outcome == "passed":
        return Cell("works")
    return Cell("fails", str(properties.get("known", "found by this run")))


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write the section after a run of everything, unless it was a run of some tests."""
    config = session.config
    rows = config.stash[_rows]
    ran = sum(item.get_closest_marker(MARKER) is not None for item in session.items)
    files = {file for folder in FOLDERS for file in folder.glob("test_*.py")}
    is_whole = files <= config.stash[_collected] and not config.stash[_is_part]
    if config.getoption("--everything") and is_whole and len(rows) == ran:
        write_section(TOOLS_HEADING, render(list(rows.values())))
