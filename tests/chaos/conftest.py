"""Options of the chaos tests: `pytest tests/chaos --kill-cycles 500 --chaos-seed 7`."""

import random

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--kill-cycles", type=int, default=20, help="how often the SIGKILL loop kills the writer")
    parser.addoption("--chaos-seed", type=int, default=None, help="repeat the random choices of an earlier run")


@pytest.fixture
def kill_cycles(request: pytest.FixtureRequest) -> int:
    return request.config.getoption("--kill-cycles", default=20)


@pytest.fixture
def chaos_seed(request: pytest.FixtureRequest) -> int:
    """Printed, so that a failed run can be repeated."""
    seed = request.config.getoption("--chaos-seed", default=None)
    seed = random.SystemRandom().randrange(1 << 32) if seed is None else seed
    print(f"--chaos-seed {seed}")
    return seed
