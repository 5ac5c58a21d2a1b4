"""What holds for all tests."""

import os
import signal

import pytest
from hypothesis import settings

from tests.side_by_side import SideBySide

# How long one example takes says more about the machine than about the code.
settings.register_profile("tailrace", deadline=None)
settings.load_profile("tailrace")

# Whoever runs the tests in the background or under nohup has signals ignored, and so would every process that a test starts.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

# A Spark of a test lives for seconds: compiling its code thoroughly takes longer than running it as it is.
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--long", action="store_true", help="play the longest tests, and no others")


def pytest_configure(config: pytest.Config) -> None:
    if hasattr(config, "workerinput") or config.getoption("numprocesses", default=None):
        config.pluginmanager.register(SideBySide())


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave the longest tests out, or all others; but play whatever was asked for by its file or name, or with everything."""
    is_named = config.option.keyword or any("::" in argument or argument.endswith(".py") for argument in config.args)
    if not config.option.long and (is_named or config.getoption("--everything", default=False)):
        return
    left_out = [item for item in items if (item.get_closest_marker("long") is None) == config.option.long]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        gone = set(left_out)
        items[:] = [item for item in items if item not in gone]
