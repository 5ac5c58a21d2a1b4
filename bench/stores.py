"""Stores to measure: opened on a new folder with their topics made, and checked when they are left."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.audit import check_folder
from bench.batches import Ring
from bench.stream import Stream
from tailrace.log.options import DEFAULT_OPTIONS, LogOptions
from tailrace.model.commit import Changes, Durability
from tailrace.model.ids import PartitionId, TopicId
from tailrace.model.limits import DEFAULT_LIMITS, Limits
from tailrace.store.embedded import EmbeddedStore

FSCK_AT_MOST_BYTES = 300 << 20
FSCK_AT_MOST_COMMITS = 50_000
"""What is larger takes too long. Every benchmark warms up with less than this, so each has a folder that is checked whole."""


@contextmanager
def new_store(
    folder: Path, durability: Durability, limits: Limits = DEFAULT_LIMITS, options: LogOptions = DEFAULT_OPTIONS
) -> Iterator[EmbeddedStore]:
    """Closed at the end and, if it is not too large, checked from end to end."""
    store = EmbeddedStore.open(folder, durability=durability, limits=limits, options=options)
    try:
        yield store
        stats = store.stats()
    finally:
        store.close()
    if stats.log_bytes <= FSCK_AT_MOST_BYTES and stats.commits <= FSCK_AT_MOST_COMMITS:
        check_folder(folder)


def new_stream(store: EmbeddedStore, topic: int, partitions: int, ring: Ring) -> Stream:
    """A topic of its own for a stream."""
    topic_id = TopicId(topic)
    store.commit(Changes(creates=[(topic_id, partitions)]))
    return Stream([PartitionId(topic_id, number) for number in range(partitions)], ring)
