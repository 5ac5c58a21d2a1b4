"""Up to where every record's fate is known: the last stable offset of each partition.

An open transaction holds it at its first record. The hold is taken when the append is decided on, before readers can see the
record, and given up when the append fails or when the end of the transaction is durable. So the offset never falls, and never
shows a record too early.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from struct import Struct

from tailrace.broker import keys
from tailrace.broker.commits import Draft
from tailrace.model.commit import Buffer, OffsetBounds
from tailrace.model.ids import Offset, PartitionId, ProducerId
from tailrace.model.transaction import AbortedTransaction
from tailrace.store.contract import Store
from tailrace.wire.batch import read_header
from tailrace.wire.control import TransactionMarker, decode_marker


class StableOffsets:
    def __init__(self) -> None:
        self._held: dict[PartitionId, list[Offset]] = {}
        """The same offset may be held twice: by an append that failed a moment ago and by the one that took its place."""

    def hold(self, partition: PartitionId, first_offset: Offset) -> None:
        self._held.setdefault(partition, []).append(first_offset)

    def release(self, partition: PartitionId, first_offset: Offset) -> None:
        held = self._held.get(partition)
        if held is not None and first_offset in held:
            held.remove(first_offset)
            if not held:
                del self._held[partition]

    def forget(self, partition: PartitionId) -> None:
        """The partition is gone."""
        self._held.pop(partition, None)

    def is_held(self, partition: PartitionId) -> bool:
        return partition in self._held

    def of(self, partition: PartitionId, bounds: OffsetBounds) -> Offset:
        """For a partition with these settled bounds."""
        held = self._held.get(partition)
        if held is None:
            return bounds.end
        return max(bounds.start, min(bounds.end, *held))


_ENTRY = Struct(">qqq")
_SCAN_KEYS = 100
_FORGOTTEN_AT_ONCE = 10_000


class AbortedTransactions:
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
        """A transaction whose marker is at `last_offset`, aborted when the last stable offset was at least so high."""
        draft.put(keys.aborted_key(partition, last_offset), _ENTRY.pack(*aborted, last_stable_offset))

    def between(self, partition: PartitionId, start: Offset, end: Offset) -> list[AbortedTransaction]:
        """Those that have records from `start` up to but without `end`."""
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

    def below(self, partition: PartitionId, start: Offset) -> list[bytes]:
        """Keys of those that ended below the offset, which nobody can read any more."""
        oldest = self._store.range(keys.aborted_of_partition(partition), limit=_FORGOTTEN_AT_ONCE)
        return [key for key, _ in oldest if keys.last_offset_of_aborted(key) < start]


def committed_batches(batches: Sequence[Buffer], aborted: Sequence[AbortedTransaction]) -> Iterator[Buffer]:
    """The batches without markers and without those of aborted transactions."""
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
