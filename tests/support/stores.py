"""The stores that the contract suite runs on.

A home is the place of one store: a folder, a database, or nothing but memory. A new backend joins the suite by one more entry
in `BACKENDS`.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple, Protocol

import msgspec

from tailrace.log.options import DEFAULT_OPTIONS, LogOptions
from tailrace.model.clock import Clock
from tailrace.model.commit import Durability
from tailrace.model.limits import DEFAULT_LIMITS, KIB, Limits
from tailrace.store.contract import Store
from tailrace.store.embedded import EmbeddedStore
from tailrace.store.memory import MemoryStore

SMALL_PIECES = LogOptions(
    segment_bytes=4 * KIB,
    piece_bytes=200,
    checkpoint_bytes=8 * KIB,
    checkpoint_batches=20,
    index_chunk_batches=5,
    cursor_stride_bytes=500,
    span_bytes=2 * KIB,
    gap_bytes=200,
    clean_dead_ratio=0.1,
    cache_seconds=0.05,
)
"""A few commits fill a segment, a few segments bring a checkpoint, and every lookup crosses several pieces of the index."""


class Home(Protocol):
    def open(self, clock: Clock | None = None, limits: Limits = DEFAULT_LIMITS) -> Store:
        """Open the store that lives here, which no one else has open."""


class Backend(NamedTuple):
    make_home: Callable[[Path], Home]
    """Make a new, empty home; the folder is free for it to use."""
    durable: bool
    """Whether a store that is opened again holds what was committed before."""
    takes_bulk: bool = True
    """Whether it is set up for hundreds of megabytes."""


class MemoryHome:
    def open(self, clock: Clock | None = None, limits: Limits = DEFAULT_LIMITS) -> Store:
        return MemoryStore(clock, limits)


class EmbeddedHome:
    def __init__(self, folder: Path, durability: Durability, options: LogOptions, tail_cache_bytes: int | None) -> None:
        self._folder = folder
        self._durability = durability
        self._options = options
        self._tail_cache_bytes = tail_cache_bytes

    def open(self, clock: Clock | None = None, limits: Limits = DEFAULT_LIMITS) -> Store:
        if self._tail_cache_bytes is not None:
            limits = msgspec.structs.replace(limits, tail_cache_bytes=self._tail_cache_bytes)
        return EmbeddedStore.open(self._folder, durability=self._durability, clock=clock, limits=limits, options=self._options)


def embedded(durability: Durability, options: LogOptions = DEFAULT_OPTIONS, tail_cache_bytes: int | None = None) -> Backend:
    def make_home(folder: Path) -> Home:
        return EmbeddedHome(folder / "data", durability, options, tail_cache_bytes)

    return Backend(make_home, durable=True, takes_bulk=options is DEFAULT_OPTIONS)


BACKENDS: Mapping[str, Backend] = {
    "memory": Backend(lambda _: MemoryHome(), durable=False),
    "embedded": embedded("fsync"),
    "embedded-relaxed": embedded("relaxed"),
    "embedded-small-pieces": embedded("fsync", SMALL_PIECES, tail_cache_bytes=4 * KIB),
    "embedded-relaxed-small-pieces": embedded("relaxed", SMALL_PIECES, tail_cache_bytes=4 * KIB),
}
