"""What one append to a store costs, its share of the next checkpoint included."""

import time

from bench.ground import settle_disk
from bench.measure import Side
from bench.pipeline import Pipeline
from bench.stream import Stream
from tailrace.store.embedded import EmbeddedStore

DISTINCT = 65_536
"""Batches of a ring: more than stay in the processor's caches."""


def cost_in(store: EmbeddedStore, stream: Stream) -> Side:
    """Microseconds for one append."""

    def measure(appends: int) -> float:
        work = stream.take(appends)
        settle_disk()
        began = time.perf_counter()
        Pipeline(store).send(work)
        store.checkpoint()
        return (time.perf_counter() - began) / appends * 1e6

    return measure
