"""Servers for the tools, and Kafka's command line at one of them."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.compat.tools.commands import CommandLine
from tests.support.server import ServerProcess


@pytest.fixture(scope="module")
def tool_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path_factory.mktemp("tools") / "data") as running:
        yield running


@pytest.fixture(scope="module")
def kafka(tool_server: ServerProcess) -> CommandLine:
    return CommandLine(tool_server.kafka)


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[ServerProcess]:
    """A server of one test, which compacts all the time, and comes back at the same addresses when it is killed."""
    config = tmp_path / "tailrace.toml"
    config.write_text("[broker]\ncompaction_interval_seconds = 1\ncompaction_roll_seconds = 1\n")
    with ServerProcess(tmp_path / "data", "--config", str(config)) as server:
        server.flags = (*server.flags, "--kafka", server.kafka, "--http", server.url.removeprefix("http://"))
        yield server
