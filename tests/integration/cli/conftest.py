"""One server for the tests of a file, and the commands that talk to it."""

from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from tests.integration.cli.commands import Commands
from tests.integration.cli.terminal import Terminal
from tests.support.patience import PATIENCE_SECONDS
from tests.support.server import ServerProcess


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path_factory.mktemp("server") / "data") as running:
        yield running


@pytest.fixture
def tailrace(server: ServerProcess) -> Iterator[Commands]:
    with Commands(server.url) as commands:
        yield commands


@pytest.fixture
def client(server: ServerProcess) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, timeout=PATIENCE_SECONDS) as open_client:
        yield open_client


@pytest.fixture
def at_terminal(tailrace: Commands, tmp_path: Path) -> Iterator[Callable[..., Terminal]]:
    """Runs a command with somebody in front of it, whose state folder is empty at first."""
    opened: list[Terminal] = []
    environment = {**tailrace.environment, "XDG_STATE_HOME": str(tmp_path / "state")}

    def run(*words: str) -> Terminal:
        opened.append(Terminal(tailrace.command(*words), environment))
        return opened[-1]

    yield run
    for terminal in opened:
        terminal.__exit__()
