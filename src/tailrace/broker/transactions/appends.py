"""Transactional batches on their way in: each must belong to an open transaction of its producer.

The first batch of a transaction in a partition is stored together with its offset, and holds the last stable offset there from
the moment it is decided on. Newer clients add a partition, and begin the transaction, just by writing to it.
"""

import msgspec

from tailrace.broker import keys
from tailrace.broker.commits import Draft, StillInFlight
from tailrace.broker.isolation import StableOffsets
from tailrace.broker.transactions import rules
from tailrace.broker.transactions.registry import TransactionRegistry
from tailrace.broker.transactions.state import (
    NO_RECORDS,
    TransactionMetadata,
    put_open,
    put_transaction,
    read_open,
    read_transaction,
)
from tailrace.model.clock import Clock
from tailrace.model.errors import InvalidTransactionStateError, ProducerFencedError
from tailrace.model.ids import Offset, PartitionId, ProducerId
from tailrace.model.limits import Limits
from tailrace.model.transaction import ProducerIdentity
from tailrace.store.contract import Store
from tailrace.wire.batch import BatchHeader


class TransactionalAppends:
    """Makes a `TransactionalAppend` for each decision."""

    def __init__(
        self, store: Store, clock: Clock, limits: Limits, registry: TransactionRegistry, stable: StableOffsets
    ) -> None:
        self.store = store
        self.clock = clock
        self.limits = limits
        self.registry = registry
        self.stable = stable

    def joining(self, *, adds_partitions: bool) -> "TransactionalAppend":
        return TransactionalAppend(self, adds_partitions)

    def check_plain(self, header: BatchHeader) -> None:
        """A batch of an idempotent producer outside of any transaction."""
        owner = self.registry.owner_of(header.producer_id)
        if owner is not None:
            raise InvalidTransactionStateError(
                f"producer id {header.producer_id} belongs to transactional id {owner!r} and writes in transactions only"
            )


class TransactionalAppend:
    """What one decision does to open transactions. It is kept when the decision is durable, else taken back."""

    __slots__ = ("_adds_partitions", "_began", "_held", "_joiner", "_written")

    def __init__(self, joiner: TransactionalAppends, adds_partitions: bool) -> None:
        self._joiner = joiner
        self._adds_partitions = adds_partitions
        self._held: list[tuple[PartitionId, Offset]] = []
        self._began: set[str] = set()
        self._written: dict[str, TransactionMetadata] = {}

    def join(self, draft: Draft, partition: PartitionId, header: BatchHeader, offset: Offset) -> None:
        """Take the batch, which will be at this offset, into its producer's transaction. Raises if there is none."""
        key = keys.open_transaction_key(partition, header.producer_id)
        value = draft.latest(key)
        if value is None:
            self._add(draft, partition, header, offset)
            return
        epoch, first_offset = read_open(value)
        if header.producer_epoch != epoch:
            raise _wrong_epoch(header, epoch)
        if first_offset == NO_RECORDS:
            if not draft.holds(key) and self._joiner.store.get(key) != value:
                # Were the partition's announcement to fail now, the batch would lie in a transaction that nobody ends.
                raise StillInFlight
            self._hold(draft, partition, header, offset)

    def settled(self) -> None:
        # Not only those that began here: the commit that began one may have failed after it was built upon.
        for transactional_id, transaction in self._written.items():
            self._joiner.registry.began(transactional_id, transaction)

    def failed(self) -> None:
        for transactional_id in self._began:
            self._joiner.registry.give_up_transaction(transactional_id)
        for partition, offset in self._held:
            self._joiner.stable.release(partition, offset)

    def _add(self, draft: Draft, partition: PartitionId, header: BatchHeader, offset: Offset) -> None:
        """The transaction does not know the partition yet."""
        transactional_id = self._joiner.registry.owner_of(header.producer_id)
        key = keys.transaction_key(transactional_id or "")
        value = draft.latest(key)
        if transactional_id is None or value is None:
            raise InvalidTransactionStateError(
                f"producer id {header.producer_id} belongs to no transactional id and can't write in a transaction"
            )
        transaction = read_transaction(value)
        if transaction.identity != (header.producer_id, header.producer_epoch):
            raise _wrong_epoch(header, transaction.epoch)
        if not self._adds_partitions:
            raise InvalidTransactionStateError(
                f"{self._joiner.store.topic_names.of(partition)} is not in an open transaction of {transactional_id!r};"
                " add it first"
            )
        begins = not transaction.is_open
        if begins:
            if not draft.holds(key) and self._joiner.store.get(key) != value:
                raise StillInFlight
            transaction = rules.begin(transaction, self._joiner.clock.now_ms())
        if partition not in transaction.partitions:
            transaction = msgspec.structs.replace(transaction, partitions=(*transaction.partitions, partition))
            rules.check_size(transactional_id, transaction, self._joiner.limits)
        if begins:
            self._joiner.registry.reserve_transaction(transactional_id)
            self._began.add(transactional_id)
        put_transaction(draft, transactional_id, transaction)
        self._written[transactional_id] = transaction
        self._hold(draft, partition, header, offset)

    def _hold(self, draft: Draft, partition: PartitionId, header: BatchHeader, offset: Offset) -> None:
        put_open(draft, partition, ProducerIdentity(ProducerId(header.producer_id), header.producer_epoch), offset)
        self._joiner.stable.hold(partition, offset)
        self._held.append((partition, offset))


def _wrong_epoch(header: BatchHeader, epoch: int) -> ProducerFencedError:
    return ProducerFencedError(
        f"producer {header.producer_id} sent a transactional batch in epoch {header.producer_epoch}, and its epoch is {epoch}"
    )
