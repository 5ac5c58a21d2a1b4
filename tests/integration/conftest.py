"""A server and a client for it."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.support.patience import PATIENCE_SECONDS
from tests.support.server import ServerProcess


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path / "data") as running:
        yield running


@pytest.fixture
def client(server: ServerProcess) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, timeout=PATIENCE_SECONDS) as open_client:
        yield open_client
