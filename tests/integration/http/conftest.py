"""One server for the tests of a file, and a client for it."""

from collections.abc import Iterator

import httpx
import pytest

from tests.support.patience import PATIENCE_SECONDS
from tests.support.server import ServerProcess


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with ServerProcess(tmp_path_factory.mktemp("server") / "data") as server:
        yield server.url


@pytest.fixture
def client(url: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=url, timeout=PATIENCE_SECONDS) as open_client:
        yield open_client
