"""A transactional producer that calls the broker as a client does, and readers in both isolation levels."""

import pytest

from tailrace.broker.broker import Broker
from tailrace.broker.isolation import committed_batches
from tailrace.model.commit import OffsetBounds
from tailrace.model.fetch import Isolation, PartitionBatches, PartitionFetch
from tailrace.model.group import OffsetCommit
from tailrace.model.ids import Offset
from tailrace.model.record import Appended, RawBatch, Record
from tailrace.model.transaction import ProducerIdentity
from tailrace.wire.records import encode_batch
from tests.support.batches import TIMESTAMP, values_of

TIMEOUT_MS = 60_000
TOPIC = "t"
EITHER = pytest.mark.parametrize("newer", [False, True], ids=["classic", "newer"])
"""Parametrizes tests for both kinds of clients."""


class Producer:
    """One client. With `newer` it adds partitions by writing to them and gets an epoch for each transaction."""

    def __init__(self, broker: Broker, name: str, identity: ProducerIdentity, *, newer: bool = False) -> None:
        self.broker = broker
        self.name = name
        self.identity = identity
        self.newer = newer
        self._sequences: dict[int, int] = {}

    async def add(self, *partitions: int) -> None:
        await self.broker.transactions.add_partitions(self.name, self.identity, [(TOPIC, number) for number in partitions])

    def batch(self, partition: int, *values: bytes) -> RawBatch:
        """Return the next batch in sequence for the partition."""
        sequence = self._sequences.get(partition, 0)
        self._sequences[partition] = sequence + len(values)
        encoded = encode_batch(
            [Record(None, value, (), TIMESTAMP) for value in values],
            producer_id=self.identity.producer_id,
            producer_epoch=self.identity.epoch,
            base_sequence=sequence,
            transactional=True,
        )
        return RawBatch(TOPIC, partition, encoded)

    async def send(self, partition: int, *values: bytes) -> Offset:
        (outcome,) = await self.broker.appender.append([self.batch(partition, *values)], adds_partitions=self.newer)
        if isinstance(outcome, Exception):
            raise outcome
        assert isinstance(outcome, Appended)
        return outcome.base_offset

    async def write(self, partition: int, *values: bytes) -> Offset:
        """Send a batch; older clients add its partition first."""
        if not self.newer:
            await self.add(partition)
        return await self.send(partition, *values)

    async def commit_offset(self, group: str, partition: int, offset: int) -> None:
        if not self.newer:
            await self.broker.transactions.add_group(self.name, self.identity, group)
        outcomes = await self.broker.transactions.commit_offsets(
            self.name,
            self.identity,
            group,
            [OffsetCommit(TOPIC, partition, Offset(offset))],
            lambda: None,
            adds_group=self.newer,
        )
        assert outcomes == [None]

    async def end(self, *, committed: bool) -> None:
        before = self.identity
        self.identity = await self.broker.transactions.end(
            self.name, self.identity, committed=committed, bumps_epoch=self.newer
        )
        if self.identity != before:
            self._sequences.clear()

    async def commit(self) -> None:
        await self.end(committed=True)

    async def abort(self) -> None:
        await self.end(committed=False)


async def started(broker: Broker, name: str = "tx", *, newer: bool = False, timeout_ms: int = TIMEOUT_MS) -> Producer:
    return Producer(broker, name, await broker.transactions.init_producer(name, timeout_ms), newer=newer)


async def fetched(
    broker: Broker, partition: int = 0, offset: int = 0, isolation: Isolation = Isolation.READ_COMMITTED, wait_ms: int = 0
) -> PartitionBatches:
    wanted = PartitionFetch(TOPIC, partition, Offset(offset), 1 << 20)
    (answer,) = await broker.fetcher.fetch([wanted], isolation=isolation, max_wait_ms=wait_ms)
    if answer.error is not None:
        raise answer.error
    return answer


async def committed_values(broker: Broker, partition: int = 0, offset: int = 0) -> list[bytes]:
    """Return the records that a client of committed reads shows after its own filtering."""
    answer = await fetched(broker, partition, offset)
    return values_of(list(committed_batches(answer.batches, answer.aborted)))


async def stable_offset(broker: Broker, partition: int = 0) -> int:
    answer = await fetched(broker, partition, bounds(broker, partition).end)
    return answer.last_stable_offset


def bounds(broker: Broker, partition: int = 0) -> OffsetBounds:
    return broker.positions.bounds(TOPIC, partition)
