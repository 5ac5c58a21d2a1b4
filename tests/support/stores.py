"""The stores that the contract suite runs on.

A home is the place of one store: a folder, a database, or nothing but memory. A new backend joins the suite by one more entry
in `BACKENDS`.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple, Protocol

from tailrace.model.clock import Clock
from tailrace.model.limits import DEFAULT_LIMITS, Limits
from tailrace.store.contract import Store
from tailrace.store.memory import MemoryStore


class Home(Protocol):
    def open(self, clock: Clock | None = None, limits: Limits = DEFAULT_LIMITS) -> Store:
        """Open the store that lives here, which no one else has open."""


class Backend(NamedTuple):
    make_home: Callable[[Path], Home]
    """Make a new, empty home; the folder is free for it to use."""
    durable: bool
    """Whether a store that is opened again holds what was committed before."""


class MemoryHome:
    def open(self, clock: Clock | None = None, limits: Limits = DEFAULT_LIMITS) -> Store:
        return MemoryStore(clock, limits)


BACKENDS: Mapping[str, Backend] = {
    "memory": Backend(lambda _: MemoryHome(), durable=False),
}
