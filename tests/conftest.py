"""What every test can ask for."""

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--slow", action="store_true", help="more cycles, more examples, more minutes: the long version of each test"
    )


@pytest.fixture(scope="session")
def slow(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--slow"))
