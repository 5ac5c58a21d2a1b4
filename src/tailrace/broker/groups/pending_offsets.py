"""Offsets that wait for the end of a transaction: of which group, where, and in whose transaction.

They keep their group from being forgotten, and whoever deletes a group or its offsets deletes them with it, as in Kafka. The
offsets themselves are in the store; here is where to find them.
"""

from collections import Counter
from collections.abc import Collection, Iterable

import msgspec

from tailrace.broker import keys
from tailrace.broker.commits import Draft
from tailrace.model.ids import Offset, PartitionId, TopicId
from tailrace.store.contract import Store


class PendingOffset(msgspec.Struct, frozen=True, array_like=True):
    """An offset that is committed if the transaction is."""

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
        self._waiting: dict[str, dict[str, set[PartitionId]]] = {}
        """By group and transactional id, as of the last durable commit."""
        self._coming: Counter[tuple[str, str]] = Counter()
        """Group and transactional id of those that are not durable yet."""

    def come(self, group: str, transactional_id: str) -> None:
        """Some are on their way to the log, until they have `arrived` or are given up."""
        self._coming[group, transactional_id] += 1

    def give_up(self, group: str, transactional_id: str) -> None:
        self._coming[group, transactional_id] -= 1
        if not self._coming[group, transactional_id]:
            del self._coming[group, transactional_id]

    def arrived(self, group: str, transactional_id: str, offsets: Iterable[PendingOffset]) -> None:
        if places := {offset.target for offset in offsets}:
            self._waiting.setdefault(group, {}).setdefault(transactional_id, set()).update(places)

    def decided(self, group: str, transactional_id: str) -> None:
        """The transaction has ended, one way or the other."""
        by_id = self._waiting.get(group, {})
        by_id.pop(transactional_id, None)
        if not by_id:
            self._waiting.pop(group, None)

    def has(self, group: str, partition: PartitionId) -> bool:
        return any(partition in places for places in self._waiting.get(group, {}).values())

    def has_any(self, group: str) -> bool:
        return group in self._waiting or any(coming == group for coming, _ in self._coming)

    def deletions(self, group: str, partitions: Collection[PartitionId] | None = None) -> list[tuple[bytes, bytes | None]]:
        """What to put into the store so that the offsets in these partitions, or in all, come to nothing."""
        puts: list[tuple[bytes, bytes | None]] = []
        for transactional_id in self._transactional_ids(group):
            key = keys.pending_offsets_key(transactional_id, group)
            before = read_offsets(self._store.latest(key))
            left = [] if partitions is None else [offset for offset in before if offset.target not in partitions]
            if len(left) < len(before):
                puts.append((key, encode_offsets(left) if left else None))
        return puts

    def deleted(self, group: str, partitions: Collection[PartitionId] | None = None) -> None:
        """These deletions are durable."""
        by_id = self._waiting.get(group, {})
        for transactional_id, places in tuple(by_id.items()):
            places.difference_update(tuple(places) if partitions is None else partitions)
            if not places:
                self.decided(group, transactional_id)

    def _transactional_ids(self, group: str) -> set[str]:
        return {*self._waiting.get(group, ()), *(each for coming, each in self._coming if coming == group)}


_decode_offsets = msgspec.msgpack.Decoder(list[PendingOffset]).decode


def read_offsets(value: bytes | None) -> list[PendingOffset]:
    return [] if value is None else _decode_offsets(value)


def encode_offsets(offsets: list[PendingOffset]) -> bytes:
    return msgspec.msgpack.encode(offsets)


def put_offsets(draft: Draft, transactional_id: str, group: str, offsets: list[PendingOffset]) -> None:
    draft.put(keys.pending_offsets_key(transactional_id, group), encode_offsets(offsets))
