"""Options of the tests of captures: `pytest tests/integration/capture --capture-faults 100 --capture-seed 7`."""

import random
from collections.abc import Iterator

import pytest

from tests.support.postgres_server import PostgresServer


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--capture-faults", type=int, default=8, help="how many faults the random transactions go through")
    parser.addoption("--capture-seed", type=int, default=None, help="repeat the random choices of an earlier run")


@pytest.fixture
def capture_faults(request: pytest.FixtureRequest) -> int:
    return request.config.getoption("--capture-faults", default=8)


@pytest.fixture
def capture_seed(request: pytest.FixtureRequest) -> int:
    """Printed, so that a failed run can be repeated."""
    seed = request.config.getoption("--capture-seed", default=None)
    seed = random.SystemRandom().randrange(1 << 32) if seed is None else seed
    print(f"--capture-seed {seed}")
    return seed


@pytest.fixture(scope="module")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PostgresServer]:
    """A PostgreSQL that the tests of a module share. What is killed or set up otherwise is one of the test's own."""
    with PostgresServer(tmp_path_factory.mktemp("postgres") / "main") as running:
        yield running
