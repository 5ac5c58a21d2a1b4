"""A broker on a store in memory, and a store that settles commits only on request."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from tailrace.broker.broker import Broker
from tailrace.broker.commits import Change
from tailrace.broker.security.settings import DEFAULT_SECURITY_SETTINGS, SecuritySettings
from tailrace.broker.settings import BrokerSettings
from tailrace.model.clock import Clock, HybridClock
from tailrace.model.commit import Append, Changes, CommitReceipt, FetchedBatches, OffsetBounds
from tailrace.model.errors import OverloadedError, StorageFullError
from tailrace.model.ids import Cursor, Offset, PartitionId
from tailrace.model.limits import DEFAULT_LIMITS, Limits
from tailrace.model.record import Appended, RawBatch, Record
from tailrace.model.topic import TopicOptions
from tailrace.store.contract import OnDone, Store
from tailrace.store.memory import MemoryStore
from tailrace.store.sequencer import PendingCommit, Sequencer
from tailrace.wire.batch import read_header
from tailrace.wire.records import encode_batch
from tests.support.clocks import ManualClock

NEVER = BrokerSettings(
    retention_interval_seconds=10**6,
    dedup_interval_seconds=10**6,
    producer_interval_seconds=10**6,
    transaction_interval_seconds=10**6,
    payload_interval_seconds=10**6,
    compaction_interval_seconds=10**6,
)
"""Background jobs run only when a test calls them."""


@asynccontextmanager
async def running_broker(
    store: Store | None = None,
    clock: Clock | None = None,
    limits: Limits = DEFAULT_LIMITS,
    settings: BrokerSettings = NEVER,
    security: SecuritySettings = DEFAULT_SECURITY_SETTINGS,
) -> AsyncIterator[Broker]:
    clock = clock or ManualClock()
    broker = Broker(store or MemoryStore(clock, limits), clock, limits, settings, security)
    await broker.start()
    try:
        yield broker
    finally:
        if isinstance(store, GatedStore):
            store.open_gate()
        await broker.close()


class GatedStore(MemoryStore):
    """Sequences commits at once, and settles or fails them on request. Open until `close_gate`."""

    def __init__(self, clock: Clock | None = None, limits: Limits = DEFAULT_LIMITS) -> None:
        clock = clock or ManualClock()
        super().__init__(clock, limits)
        self._gated = Sequencer(HybridClock(clock), limits, {}, Cursor(0))
        self._is_open = True
        self.in_flight: list[PendingCommit] = []
        self.room = 1_000_000
        """The most commits that may be in flight."""
        self.cold = False
        """Whether nothing is in memory."""
        self.in_page_cache = False
        """Whether what is not in memory is read without waiting for the disk."""

    def submit(self, changes: Changes, done: OnDone) -> PendingCommit:
        if len(self.in_flight) >= self.room:
            raise OverloadedError("the gate is closed and the room is full")
        commit = self._gated.admit(changes, done)
        self.in_flight.append(commit)
        if self._is_open:
            self.settle()
        return commit

    def commit(self, changes: Changes) -> CommitReceipt:
        return self.submit(changes, lambda _: None).receipt

    def latest(self, key: bytes) -> bytes | None:
        known, value = self._gated.latest(key)
        return value if known else self.get(key)

    def next_offset(self, partition: PartitionId) -> Offset:
        return self._gated.next_offset(partition)

    def is_hot(self, partition: PartitionId, offset: Offset) -> bool:
        return not self.cold

    def fetch_cached(
        self, partition: PartitionId, offset: Offset, max_bytes: int, *, at_least_one: bool = True
    ) -> FetchedBatches | None:
        if not self.in_page_cache:
            return None
        fetched = self.fetch(partition, offset, max_bytes)
        is_too_large = not at_least_one and sum(map(len, fetched.batches)) > max_bytes
        return fetched._replace(batches=(), cursors=()) if is_too_large else fetched

    def close_gate(self) -> None:
        self._is_open = False

    def open_gate(self) -> None:
        self._is_open = True
        self.room = 1_000_000
        self.settle()

    def settle(self, count: int | None = None) -> None:
        """Make the oldest commits in flight durable."""
        settled, self.in_flight = self.in_flight[:count], self.in_flight[len(self.in_flight[:count]) :]
        for commit in settled:
            super().submit(commit.changes, lambda _: None)
            self._gated.settle((commit,))
        for commit in settled:
            commit.done(commit)

    def fail(self) -> None:
        """Fail everything in flight, as when the disk is full."""
        failed, self.in_flight = self.in_flight, []
        ends = {partition: self.bounds(partition).end for partition in self.partitions()}
        self._gated.reset(ends, self.end_cursor())
        for commit in failed:
            commit.error = StorageFullError("the disk is full")
            commit.done(commit)


class CountingStore(MemoryStore):
    """Counts fetches."""

    def __init__(self, clock: Clock | None = None) -> None:
        super().__init__(clock)
        self.fetches = 0

    def fetch(self, partition: PartitionId, offset: Offset, max_bytes: int) -> FetchedBatches:
        self.fetches += 1
        return super().fetch(partition, offset, max_bytes)


def raw(topic: str, partition: int, *values: bytes, timestamp: int | None = None, **producer: Any) -> RawBatch:
    """Return a batch of these values, with the fields of a producer if they are given."""
    at = ManualClock().now_ms() if timestamp is None else timestamp
    return RawBatch(topic, partition, encode_batch([Record(None, value, (), at) for value in values], **producer))


def placed(base_offset: int, cursor: int | None, *, append_time: int = -1, duplicates: int = 0, log_start: int = 0) -> Appended:
    """Return the answer for a batch that is stored at this offset and cursor."""
    at = None if cursor is None else Cursor(cursor)
    return Appended(Offset(base_offset), at, append_time, duplicates, Offset(log_start))


async def append_unchecked(broker: Broker, raw: RawBatch) -> None:
    """Store a batch as older versions did, without checking its records."""
    header = read_header(raw.batch)
    partition = broker.topics.get(raw.topic).partition(raw.partition)
    changes = Changes(appends=(Append(partition, raw.batch, header.records, header.max_timestamp),))
    await broker.committer.submit(Change(lambda: changes, lambda _: None))


async def append(broker: Broker, *batches: RawBatch) -> Appended:
    """Append the batches, raise if one is rejected, and return the answer for the first."""
    outcomes = await broker.appender.append(batches)
    for outcome in outcomes:
        if isinstance(outcome, Exception):
            raise outcome
    first = outcomes[0]
    assert isinstance(first, Appended)
    return first


async def values_in(broker: Broker, topic: str, partition: int = 0) -> list[bytes | None]:
    """Return all values of a partition."""
    store = broker.store
    start, end = bounds_of(broker, topic, partition)
    found: list[bytes | None] = []
    while start < end:
        read = await broker.committed_reader.read(topic, partition, start, max_records=1000)
        found += [record.value for record in read.records]
        start = read.next_offset
    assert store.bounds(broker.topics.get(topic).partition(partition)).end == end
    return found


def bounds_of(broker: Broker, topic: str, partition: int = 0) -> OffsetBounds:
    return broker.store.bounds(broker.topics.get(topic).partition(partition))


def options(**given: object) -> TopicOptions:
    return TopicOptions(**given)  # type: ignore[arg-type]
