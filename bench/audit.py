"""Checks that everything that was written is stored, once and in its place. Without that a figure does not count."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.batches import Ring, Stream
from tailrace.log.fsck import run_fsck
from tailrace.log.options import DEFAULT_OPTIONS, LogOptions
from tailrace.model.commit import Changes, Durability, OffsetBounds
from tailrace.model.ids import Offset, PartitionId, TopicId
from tailrace.model.limits import DEFAULT_LIMITS, Limits
from tailrace.store.contract import Store
from tailrace.store.embedded import EmbeddedStore
from tailrace.wire.batch import check_batch

_SAMPLE_BYTES = 32 << 20
_SAMPLE_BATCHES = 8_000
_FETCH_BYTES = 1 << 20


class AuditFailure(Exception):
    """A record is lost, duplicated or out of place, so the run does not count."""


def check_streams(store: Store, *streams: Stream) -> None:
    """Check that the store holds all batches of these streams and nothing else.

    The counts of all partitions are compared, and the content of the first and the last batches of each.
    """
    records = sum(stream.records for stream in streams)
    if store.end_cursor() != records:
        raise AuditFailure(f"the log ends at cursor {store.end_cursor()}, and {records} records were acknowledged")
    for stream in streams:
        sample = max(1, min(_SAMPLE_BATCHES, _SAMPLE_BYTES // stream.ring.batch_bytes) // len(stream.partitions))
        for nth, partition in enumerate(stream.partitions):
            batches = stream.batches_in(nth)
            bounds = store.bounds(partition)
            if bounds != OffsetBounds(Offset(0), stream.offset_of(batches)):
                raise AuditFailure(f"{partition} has {bounds}, and {batches * stream.ring.records} records were acknowledged")
            _check_places(store, stream, nth, 0, min(sample, batches))
            _check_places(store, stream, nth, max(0, batches - sample), batches)


def check_folder(folder: Path) -> None:
    """Check that `tailrace fsck` finds nothing wrong with a closed folder."""
    report = run_fsck(folder)
    if report.findings:
        first = report.findings[0]
        raise AuditFailure(f"fsck has {len(report.findings)} findings, the first: {first.where}: {first.what}")


def _check_places(store: Store, stream: Stream, nth: int, place: int, end: int) -> None:
    partition = stream.partitions[nth]
    while place < end:
        for batch in store.fetch(partition, stream.offset_of(place), _FETCH_BYTES).batches:
            found = (check_batch(batch).base_offset, stream.ring.number_of(batch))
            expected = (stream.offset_of(place), stream.number_at(nth, place))
            if found != expected:
                raise AuditFailure(f"{partition}: found (offset, batch) {found} where {expected} was acknowledged")
            place += 1


FSCK_AT_MOST_BYTES = 300 << 20
FSCK_AT_MOST_COMMITS = 50_000
"""Checking larger folders takes too long. Every benchmark warms up with less, so it has one folder that is checked."""


@contextmanager
def new_store(
    folder: Path, durability: Durability, limits: Limits = DEFAULT_LIMITS, options: LogOptions = DEFAULT_OPTIONS
) -> Iterator[EmbeddedStore]:
    """Open a store, close it at the end and, if it is not too large, check it completely."""
    store = EmbeddedStore.open(folder, durability=durability, limits=limits, options=options)
    try:
        yield store
        stats = store.stats()
    finally:
        store.close()
    if stats.log_bytes <= FSCK_AT_MOST_BYTES and stats.commits <= FSCK_AT_MOST_COMMITS:
        check_folder(folder)


def new_stream(store: EmbeddedStore, topic: int, partitions: int, ring: Ring) -> Stream:
    """Create a topic and return a stream of batches for it."""
    topic_id = TopicId(topic)
    store.commit(Changes(creates=[(topic_id, partitions)]))
    return Stream([PartitionId(topic_id, number) for number in range(partitions)], ring)
