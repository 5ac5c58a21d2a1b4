"""One server for all tests of the client, each with topics of its own; and a proxy before it."""

from collections.abc import Iterator
from uuid import uuid4

import pytest

from tests.support.api import Api
from tests.support.proxy import FaultyProxy
from tests.support.server import ServerProcess


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--soak-minutes", type=float, default=0.0, help="run the soak of the client for so long")
    parser.addoption("--soak-seed", type=int, default=None, help="repeat the random choices of an earlier soak")


@pytest.fixture(scope="module")
def shared_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    folder = tmp_path_factory.mktemp("client")
    config = folder / "tailrace.toml"
    # Members that are lost, or were never there, hold up their group until their session ends.
    config.write_text("[broker]\ngroup_min_session_ms = 500\n")
    with ServerProcess(folder / "data", "--config", str(config)) as running:
        yield running


@pytest.fixture
def url(shared_server: ServerProcess) -> str:
    return shared_server.url


@pytest.fixture
def api(url: str) -> Api:
    return Api(url)


@pytest.fixture
def topic(api: Api) -> str:
    """A topic of one partition, for this test only."""
    name = f"t{uuid4().hex[:8]}"
    api.create_topic(name)
    return name


@pytest.fixture
def proxy(url: str) -> Iterator[FaultyProxy]:
    with FaultyProxy(url) as running:
        yield running
