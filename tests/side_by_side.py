"""How the tests are shared out when they run side by side (`pytest -n 5`, as `make test` does).

Five, also on two cores: half of the time of most tests is waiting, for a timeout, a disk or another process.

A file stays on one worker, for its module's fixtures. Folders whose fixtures are dearer than their tests (a Spark, a process of
each Kafka client) stay on one worker whole, but for files that start a Spark of their own. What takes longest comes first, so
that no worker is left alone with it.
"""

import pytest
from xdist.scheduler import LoadScopeScheduling

WHOLE_FOLDERS = ("tests/integration/pipeline", "tests/compat/security", "tests/compat")
OWN_SPARK = (
    "tests/integration/pipeline/test_captured_snapshots.py",
    "tests/integration/pipeline/test_orphans.py",
    "tests/integration/pipeline/test_up.py",
    "tests/integration/pipeline/test_own_sessions.py",
    "tests/integration/pipeline/test_failed_starts.py",
)
FIRST = (
    *WHOLE_FOLDERS,
    "tests/docs/test_tour.py",
    "tests/property",
    "tests/chaos",
    "tests/differential",
)


def unit_of(nodeid: str) -> str:
    """The unit of work to which a test belongs."""
    file = nodeid.partition("::")[0]
    if file in OWN_SPARK:
        return file
    return next((folder for folder in WHOLE_FOLDERS if file.startswith(f"{folder}/")), file)


def turn_of(nodeid: str) -> int:
    """When a test's unit begins: the lower, the earlier."""
    return next((turn for turn, path in enumerate(FIRST) if nodeid.startswith(path)), len(FIRST))


class Units(LoadScopeScheduling):
    def _split_scope(self, nodeid: str) -> str:
        return unit_of(nodeid)


class SideBySide:
    """The plugin. It is registered only when there are workers."""

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items.sort(key=lambda item: turn_of(item.nodeid))

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_make_scheduler(self, config: pytest.Config, log: object) -> LoadScopeScheduling | None:
        config.option.loadscopereorder = False
        return Units(config, log)
