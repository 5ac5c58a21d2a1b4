"""Every test here runs on every backend of `tests/support/stores.py`.

A test that asks for `revisit` runs twice on a durable backend: on the store as it is, and after opening it again.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

import pytest

from tailrace.model.clock import Clock
from tailrace.store.contract import Store
from tests.support.stores import BACKENDS, Home

_DURABLE = [name for name, backend in BACKENDS.items() if backend.durable]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "reopen" in metafunc.fixturenames:
        metafunc.parametrize("backend", _DURABLE)
    elif "revisit" in metafunc.fixturenames:
        visits = [(name, False) for name in BACKENDS] + [(name, True) for name in _DURABLE]
        ids = [f"{name}-reopened" if reopened else name for name, reopened in visits]
        metafunc.parametrize(("backend", "reopened"), visits, ids=ids)
    elif "home" in metafunc.fixturenames:
        metafunc.parametrize("backend", list(BACKENDS))


class Reopen(Protocol):
    def __call__(self, clock: Clock | None = None) -> Store: ...


class Stores:
    """Opens the home's store and keeps at most one open."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._open: Store | None = None

    def open(self, clock: Clock | None = None) -> Store:
        self.close()
        self._open = self._home.open(clock)
        return self._open

    def current(self) -> Store:
        return self._open or self.open()

    def close(self) -> None:
        if self._open is not None:
            self._open.close()
            self._open = None


@pytest.fixture
def home(backend: str, tmp_path: Path) -> Home:
    return BACKENDS[backend].make_home(tmp_path)


@pytest.fixture
def stores(home: Home) -> Iterator[Stores]:
    stores = Stores(home)
    yield stores
    stores.close()


@pytest.fixture
def store(stores: Stores) -> Store:
    return stores.current()


@pytest.fixture
def revisit(stores: Stores, reopened: bool) -> Callable[[], Store]:
    """Returns the store to look at: the same one or, on a durable backend, also the same opened again."""
    return stores.open if reopened else stores.current


@pytest.fixture
def reopen(stores: Stores) -> Reopen:
    """Close the store and open it again; the test runs on durable backends only."""
    return stores.open
