"""Isolation: which records of transactions a reader of committed records may see.

A reader gets records below the last stable offset only, without those of aborted transactions and without markers.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from struct import Struct

from tailrace.broker import keys
from tailrace.broker.commits import Draft
from tailrace.model.commit import Buffer, OffsetBounds
from tailrace.model.compaction import EndedTransaction
from tailrace.model.ids import Offset, PartitionId, ProducerId
from tailrace.model.transaction import AbortedTransaction
from tailrace.store.contract import Store, scan_keys
from tailrace.wire.batch import read_header
from tailrace.wire.control import TransactionMarker, decode_marker

_ENTRY = Struct(">qqq")
_SCAN_KEYS = 100
_MAX_DELETED_KEYS = 10_000


class StableOffsets:
    """The last stable offset of each partition: below it, every transaction has ended.

    An open transaction holds the offset at its first record. The hold begins when the append is decided, before readers can
    see the record, and ends when the append fails or when the end of the transaction is durable. The offset therefore never
    falls and never shows a record too early.
    """

    def __init__(self) -> None:
        self._held: dict[PartitionId, list[Offset]] = {}
        """An offset may be held twice: by an append that has just failed, and by the one that replaces it."""

    def hold(self, partition: PartitionId, first_offset: Offset) -> None:
        self._held.setdefault(partition, []).append(first_offset)

    def release(self, partition: PartitionId, first_offset: Offset) -> None:
        held = self._held.get(partition)
        if held is not None and first_offset in held:
            held.remove(first_offset)
            if not held:
                del self._held[partition]

    def forget(self, partition: PartitionId) -> None:
        """Remove the holds of a deleted partition."""
        self._held.pop(partition, None)

    def is_held(self, partition: PartitionId) -> bool:
        return partition in self._held

    def held_partitions(self) -> list[PartitionId]:
        """Return the partitions with open transactions. May be called from any thread."""
        return list(self._held)

    def of(self, partition: PartitionId, bounds: OffsetBounds) -> Offset:
        """Return the last stable offset of a partition that has these settled bounds."""
        held = self._held.get(partition)
        if held is None:
            return bounds.end
        return max(bounds.start, min((bounds.end, *held)))


class AbortedTransactions:
    """The index of aborted transactions, which readers query by the offsets they have read.

    Entries are ordered by the offsets of their markers. Each one holds the last stable offset at the time of the abort: all
    transactions that end later begin there or after it, which tells a reader when to stop looking.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    def add(
        self,
        draft: Draft,
        partition: PartitionId,
        aborted: AbortedTransaction,
        last_offset: Offset,
        last_stable_offset: Offset,
    ) -> None:
        """Put an aborted transaction, whose marker is at `last_offset`, into the draft."""
        draft.put(keys.aborted_key(partition, last_offset), _ENTRY.pack(*aborted, last_stable_offset))

    def between(self, partition: PartitionId, start: Offset, end: Offset) -> list[AbortedTransaction]:
        """Return the aborted transactions with records from `start` up to, but not including, `end`."""
        found: list[AbortedTransaction] = []
        prefix = keys.aborted_of_partition(partition)
        bound = keys.aborted_bound(start)
        while True:
            entries = self._store.range(prefix, bound, _SCAN_KEYS)
            for _, value in entries:
                producer_id, first_offset, last_stable_offset = _ENTRY.unpack(value)
                if first_offset < end:
                    found.append(AbortedTransaction(ProducerId(producer_id), Offset(first_offset)))
                if last_stable_offset >= end:
                    return found
            if len(entries) < _SCAN_KEYS:
                return found
            bound = entries[-1][0][len(prefix) :] + b"\0"

    def ended(self, partition: PartitionId) -> Iterator[EndedTransaction]:
        """Yield the aborted transactions of a partition, in the order of their markers."""
        for key, value in scan_keys(self._store, keys.aborted_of_partition(partition)):
            producer_id, first_offset, _ = _ENTRY.unpack(value)
            yield EndedTransaction(ProducerId(producer_id), Offset(first_offset), keys.last_offset_of_aborted(key))

    def below(self, partition: PartitionId, start: Offset) -> list[bytes]:
        """Return the keys of transactions that ended below the offset, whose records retention has deleted."""
        oldest = self._store.range(keys.aborted_of_partition(partition), limit=_MAX_DELETED_KEYS)
        return [key for key, _ in oldest if keys.last_offset_of_aborted(key) < start]


def committed_batches(batches: Sequence[Buffer], aborted: Sequence[AbortedTransaction]) -> Iterator[Buffer]:
    """Yield the batches that are neither markers nor part of an aborted transaction."""
    upcoming = deque(sorted(aborted, key=lambda transaction: transaction.first_offset))
    skipped: set[int] = set()
    for batch in batches:
        header = read_header(batch)
        while upcoming and upcoming[0].first_offset <= header.base_offset:
            skipped.add(upcoming.popleft().producer_id)
        if header.is_control:
            if decode_marker(batch) is TransactionMarker.ABORT:
                skipped.discard(ProducerId(header.producer_id))
        elif not (header.is_transactional and header.producer_id in skipped):
            yield batch
