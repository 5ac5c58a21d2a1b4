"""`pytest tests/differential --whole` asks every case in every context."""

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--whole", action="store_true", help="ask PostgreSQL and Tailrace every case of SQL, in routes too")


@pytest.fixture
def whole(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--whole", default=False))
