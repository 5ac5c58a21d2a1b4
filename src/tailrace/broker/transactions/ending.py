"""Ending a transaction in one commit: a marker in each of its partitions, the offsets of its groups, and its new state.

All of it is durable or nothing is, so that no reader ever sees a transaction half ended, not even after a crash.
"""

from collections.abc import Callable
from typing import NamedTuple

from tailrace.broker import keys
from tailrace.broker.commits import Draft
from tailrace.broker.groups.offsets import GroupOffsets
from tailrace.broker.groups.pending_offsets import PendingOffset, PendingOffsets, read_offsets
from tailrace.broker.groups.registry import GroupNames
from tailrace.broker.isolation import AbortedTransactions, StableOffsets
from tailrace.broker.topics.topics import Topics
from tailrace.broker.transactions.registry import TransactionRegistry
from tailrace.broker.transactions.state import NO_RECORDS, TransactionMetadata, read_open
from tailrace.model.clock import Clock
from tailrace.model.commit import Append
from tailrace.model.group import OffsetCommit
from tailrace.model.ids import Offset, PartitionId, TopicId
from tailrace.model.transaction import AbortedTransaction
from tailrace.store.contract import Store
from tailrace.wire.batch import read_header
from tailrace.wire.control import TransactionMarker, encode_marker

OnMarker = Callable[[PartitionId, int], None]
"""Called with a partition whose last stable offset has moved, and with the size of the marker that moved it."""


class TransactionEnd(NamedTuple):
    """What a draft changes to end a transaction; applied to the state in memory when it is durable."""

    transactional_id: str
    committed: bool
    markers: list[tuple[PartitionId, Offset, int]]
    """Partition, first offset of the transaction there, and size of the marker."""
    offsets: list[tuple[str, list[PendingOffset]]]


class TransactionEnder:
    def __init__(
        self,
        store: Store,
        topics: Topics,
        offsets: GroupOffsets,
        group_names: GroupNames,
        clock: Clock,
        registry: TransactionRegistry,
        pending: PendingOffsets,
        stable: StableOffsets,
        aborted: AbortedTransactions,
        on_marker: OnMarker,
    ) -> None:
        self._store = store
        self._topics = topics
        self._offsets = offsets
        self._group_names = group_names
        self._clock = clock
        self._registry = registry
        self._pending = pending
        self._stable = stable
        self._aborted = aborted
        self._on_marker = on_marker
        self.committed = 0
        self.aborted = 0

    def put_end(
        self, draft: Draft, transactional_id: str, transaction: TransactionMetadata, *, committed: bool, epoch: int
    ) -> TransactionEnd:
        """Put everything but the transaction's own new state into the draft. `epoch` is the epoch in the markers."""
        marker = encode_marker(
            TransactionMarker.COMMIT if committed else TransactionMarker.ABORT,
            transaction.producer_id,
            epoch,
            self._clock.now_ms(),
        )
        markers = []
        for topic_id, number in transaction.partitions:
            partition = PartitionId(TopicId(topic_id), number)
            first_offset = self._mark(draft, partition, transaction, bytes(marker), committed)
            if first_offset is not None:
                markers.append((partition, first_offset, len(marker)))
        offsets = []
        for group in transaction.groups:
            key = keys.pending_offsets_key(transactional_id, group)
            pending = read_offsets(draft.latest(key))
            draft.put(key, None)
            offsets.append((group, pending))
            if committed:
                self._commit_offsets(draft, group, pending)
        return TransactionEnd(transactional_id, committed, markers, offsets)

    def settled(self, end: TransactionEnd) -> None:
        """Show the end of the transaction to readers, now that the draft is durable."""
        transactional_id, committed, markers, offsets = end
        self._registry.ended(transactional_id)
        if committed:
            self.committed += 1
        else:
            self.aborted += 1
        for group, pending in offsets:
            self._pending.remove(group, transactional_id)
            if committed and pending:
                self._group_names.store(group)
        for partition, first_offset, _ in markers:
            self._stable.release(partition, first_offset)
        for partition, _, size in markers:
            self._on_marker(partition, size)

    def _mark(
        self, draft: Draft, partition: PartitionId, transaction: TransactionMetadata, marker: bytes, committed: bool
    ) -> Offset | None:
        """Append the marker. Return the transaction's first offset in the partition, or `None` if it wrote nothing there."""
        if self._topics.by_id(partition.topic_id) is None:
            return None
        offset = draft.next_offset(partition)
        key = keys.open_transaction_key(partition, transaction.producer_id)
        value = draft.latest(key)
        if value is None:
            return None
        draft.put(key, None)
        first_offset = read_open(value).first_offset
        if first_offset == NO_RECORDS:
            return None
        draft.append(Append(partition, marker, 1, self._clock.now_ms(), offset, read_header(marker).base_timestamp))
        if not committed:
            stable = self._stable.of(partition, self._store.bounds(partition))
            self._aborted.add(draft, partition, AbortedTransaction(transaction.producer_id, first_offset), offset, stable)
        return first_offset

    def _commit_offsets(self, draft: Draft, group: str, pending: list[PendingOffset]) -> None:
        for offset in pending:
            live = self._topics.readable_by_id(offset.topic_id)
            if live is not None:
                commit = OffsetCommit(live.topic.name, offset.partition, offset.offset, offset.leader_epoch, offset.metadata)
                self._offsets.write(draft, group, offset.target, commit)
