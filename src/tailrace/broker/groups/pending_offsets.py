"""Pending offsets: offsets of groups that are committed when a transaction commits.

A group with pending offsets does not expire. Deleting a group, or its offsets, deletes its pending ones too, as in Kafka. The
offsets themselves are in the store; `PendingOffsets` knows which groups, partitions and transactions have some.
"""

from collections import Counter
from collections.abc import Collection, Iterable

import msgspec

from tailrace.broker import keys
from tailrace.broker.commits import Draft
from tailrace.model.ids import Offset, PartitionId, TopicId
from tailrace.store.contract import Store


class PendingOffset(msgspec.Struct, frozen=True, array_like=True):
    """An offset that is committed when its transaction commits."""

    topic_id: TopicId
    partition: int
    offset: Offset
    leader_epoch: int
    metadata: str

    @property
    def target(self) -> PartitionId:
        return PartitionId(self.topic_id, self.partition)


class PendingOffsets:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._durable: dict[str, dict[str, set[PartitionId]]] = {}
        """The partitions by group and transactional id. Only what is durable."""
        self._in_flight: Counter[tuple[str, str]] = Counter()
        """How many writes of each group and transactional id are not durable yet."""

    def reserve(self, group: str, transactional_id: str) -> None:
        """Count a write of pending offsets that is in flight, until `release` is called."""
        self._in_flight[group, transactional_id] += 1

    def release(self, group: str, transactional_id: str) -> None:
        self._in_flight[group, transactional_id] -= 1
        if not self._in_flight[group, transactional_id]:
            del self._in_flight[group, transactional_id]

    def add(self, group: str, transactional_id: str, offsets: Iterable[PendingOffset]) -> None:
        """Add pending offsets that are durable."""
        if targets := {offset.target for offset in offsets}:
            self._durable.setdefault(group, {}).setdefault(transactional_id, set()).update(targets)

    def remove(self, group: str, transactional_id: str) -> None:
        """Remove the pending offsets of a transaction that has ended."""
        by_id = self._durable.get(group, {})
        by_id.pop(transactional_id, None)
        if not by_id:
            self._durable.pop(group, None)

    def has(self, group: str, partition: PartitionId) -> bool:
        return any(partition in pending for pending in self._durable.get(group, {}).values())

    def has_topic(self, topic_id: TopicId) -> bool:
        return any(
            partition.topic_id == topic_id
            for by_id in self._durable.values()
            for partitions in by_id.values()
            for partition in partitions
        )

    def has_any(self, group: str) -> bool:
        return group in self._durable or any(name == group for name, _ in self._in_flight)

    def deletions(self, group: str, partitions: Collection[PartitionId] | None = None) -> list[tuple[bytes, bytes | None]]:
        """Return the puts that delete the pending offsets of a group, in these partitions or in all."""
        puts: list[tuple[bytes, bytes | None]] = []
        for transactional_id in self._transactional_ids(group):
            key = keys.pending_offsets_key(transactional_id, group)
            before = read_offsets(self._store.latest(key))
            left = [] if partitions is None else [offset for offset in before if offset.target not in partitions]
            if len(left) < len(before):
                puts.append((key, encode_offsets(left) if left else None))
        return puts

    def deleted(self, group: str, partitions: Collection[PartitionId] | None = None) -> None:
        """Remove pending offsets whose deletion is durable."""
        by_id = self._durable.get(group, {})
        for transactional_id, pending in tuple(by_id.items()):
            pending.difference_update(tuple(pending) if partitions is None else partitions)
            if not pending:
                self.remove(group, transactional_id)

    def _transactional_ids(self, group: str) -> set[str]:
        return {*self._durable.get(group, ()), *(each for name, each in self._in_flight if name == group)}


_decode_offsets = msgspec.msgpack.Decoder(list[PendingOffset]).decode


def read_offsets(value: bytes | None) -> list[PendingOffset]:
    return [] if value is None else _decode_offsets(value)


def encode_offsets(offsets: list[PendingOffset]) -> bytes:
    return msgspec.msgpack.encode(offsets)


def put_offsets(draft: Draft, transactional_id: str, group: str, offsets: list[PendingOffset]) -> None:
    draft.put(keys.pending_offsets_key(transactional_id, group), encode_offsets(offsets))
