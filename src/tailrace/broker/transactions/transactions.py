"""The services of transactions, wired together and loaded from the store at the start."""

from collections.abc import Callable

from tailrace.broker import keys
from tailrace.broker.commits import Committer
from tailrace.broker.groups.offsets import GroupOffsets
from tailrace.broker.groups.pending_offsets import PendingOffsets, read_offsets
from tailrace.broker.groups.registry import GroupNames
from tailrace.broker.isolation import AbortedTransactions, StableOffsets
from tailrace.broker.producers.producers import Producers
from tailrace.broker.topics.topics import Topics
from tailrace.broker.transactions.appends import TransactionalAppends
from tailrace.broker.transactions.coordinator import TransactionCoordinator
from tailrace.broker.transactions.ending import OnMarker, TransactionEnder
from tailrace.broker.transactions.queries import TransactionQueries
from tailrace.broker.transactions.registry import TransactionalIdExpiry, TransactionRegistry
from tailrace.broker.transactions.state import NO_RECORDS, read_open, read_transaction
from tailrace.model.clock import Clock
from tailrace.model.ids import PartitionId
from tailrace.model.limits import Limits
from tailrace.store.contract import Store


class Transactions:
    def __init__(
        self,
        store: Store,
        committer: Committer,
        topics: Topics,
        producers: Producers,
        offsets: GroupOffsets,
        group_names: GroupNames,
        pending: PendingOffsets,
        stable: StableOffsets,
        aborted: AbortedTransactions,
        clock: Clock,
        limits: Limits,
        on_marker: OnMarker,
        hold: Callable[[], Callable[[], None]],
    ) -> None:
        self._store = store
        self._stable = stable
        self._pending = pending
        self._registry = TransactionRegistry(limits, hold)
        self._ender = TransactionEnder(
            store, topics, offsets, group_names, clock, self._registry, pending, stable, aborted, on_marker
        )
        self.appends = TransactionalAppends(store, clock, limits, self._registry, stable)
        self.coordinator = TransactionCoordinator(
            store, committer, topics, producers, offsets, group_names, clock, limits, self._registry, pending, self._ender
        )
        self.id_expiry = TransactionalIdExpiry(store, committer, clock, limits, self._registry)
        self.queries = TransactionQueries(store, topics, clock, pending)

    def load(self) -> None:
        """Load all transactions. An open one stays open: its producer may continue it, or it times out."""
        registry = self._registry
        for key, value in self._store.range(keys.TRANSACTIONS):
            transactional_id = keys.transactional_id_of(key)
            transaction = read_transaction(value)
            registry.enter(transactional_id, transaction.producer_id)
            if transaction.is_open:
                registry.began(transactional_id, transaction)
                for group in transaction.groups:
                    pending = self._store.get(keys.pending_offsets_key(transactional_id, group))
                    self._pending.add(group, transactional_id, read_offsets(pending))
        for key, value in self._store.range(keys.OPEN_TRANSACTIONS):
            first_offset = read_open(value).first_offset
            if first_offset != NO_RECORDS:
                self._stable.hold(keys.read_open_transaction_key(key)[0], first_offset)

    def forget_partition(self, partition: PartitionId) -> None:
        self._stable.forget(partition)

    @property
    def ids(self) -> int:
        return self._registry.ids

    @property
    def open(self) -> int:
        return self._registry.open

    @property
    def committed(self) -> int:
        return self._ender.committed

    @property
    def aborted(self) -> int:
        return self._ender.aborted

    @property
    def timed_out(self) -> int:
        return self.coordinator.timed_out
