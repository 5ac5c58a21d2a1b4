"""Appends of transactional batches: each batch must belong to an open transaction of its producer.

The offset of a transaction's first batch in a partition is stored with that batch, and holds the last stable offset there as
soon as the append is decided. Newer clients add a partition, and begin the transaction, by writing to it (KIP-890).
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
    """Makes a `TransactionalAppend` for each append, and refuses plain batches of transactional producers."""

    def __init__(
        self, store: Store, clock: Clock, limits: Limits, registry: TransactionRegistry, stable: StableOffsets
    ) -> None:
        self.store = store
        self.clock = clock
        self.limits = limits
        self.registry = registry
        self.stable = stable

    def new(self, *, adds_partitions: bool) -> "TransactionalAppend":
        return TransactionalAppend(self, adds_partitions)

    def check_plain(self, header: BatchHeader) -> None:
        """Raise if the producer of a batch outside of transactions has a transactional id."""
        owner = self.registry.owner_of(header.producer_id)
        if owner is not None:
            raise InvalidTransactionStateError(
                f"producer id {header.producer_id} belongs to transactional id {owner!r} and writes in transactions only"
            )


class TransactionalAppend:
    """What one append changes in open transactions: confirmed when it is durable, taken back if it fails."""

    __slots__ = ("_adds_partitions", "_appends", "_began", "_held", "_written")

    def __init__(self, appends: TransactionalAppends, adds_partitions: bool) -> None:
        self._appends = appends
        self._adds_partitions = adds_partitions
        self._held: list[tuple[PartitionId, Offset]] = []
        self._began: set[str] = set()
        self._written: dict[str, TransactionMetadata] = {}

    def join(self, draft: Draft, partition: PartitionId, header: BatchHeader, offset: Offset) -> None:
        """Add the batch, which will get this offset, to its producer's transaction. Raises if none is open."""
        key = keys.open_transaction_key(partition, header.producer_id)
        value = draft.latest(key)
        if value is None:
            self._add(draft, partition, header, offset)
            return
        epoch, first_offset = read_open(value)
        if header.producer_epoch != epoch:
            raise _wrong_epoch(header, epoch)
        if first_offset == NO_RECORDS:
            if not draft.holds(key) and self._appends.store.get(key) != value:
                # If the commit that added the partition failed now, no marker would ever end this batch's transaction.
                raise StillInFlight
            self._hold(draft, partition, header, offset)

    def settled(self) -> None:
        # Not only those that began here: the commit that began one may have failed after this append had built on it.
        for transactional_id, transaction in self._written.items():
            self._appends.registry.began(transactional_id, transaction)

    def failed(self) -> None:
        for transactional_id in self._began:
            self._appends.registry.cancel_transaction(transactional_id)
        for partition, offset in self._held:
            self._appends.stable.release(partition, offset)

    def _add(self, draft: Draft, partition: PartitionId, header: BatchHeader, offset: Offset) -> None:
        """Add the partition to the transaction, and begin the transaction if it is not open."""
        transactional_id = self._appends.registry.owner_of(header.producer_id)
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
                f"{self._appends.store.topic_names.of(partition)} is not in an open transaction of {transactional_id!r};"
                " add it first"
            )
        begins = not transaction.is_open
        if begins:
            if not draft.holds(key) and self._appends.store.get(key) != value:
                raise StillInFlight
            transaction = rules.begin(transaction, self._appends.clock.now_ms())
        if partition not in transaction.partitions:
            transaction = msgspec.structs.replace(transaction, partitions=(*transaction.partitions, partition))
            rules.check_size(transactional_id, transaction, self._appends.limits)
        if begins:
            self._appends.registry.reserve_transaction(transactional_id)
            self._began.add(transactional_id)
        put_transaction(draft, transactional_id, transaction)
        self._written[transactional_id] = transaction
        self._hold(draft, partition, header, offset)

    def _hold(self, draft: Draft, partition: PartitionId, header: BatchHeader, offset: Offset) -> None:
        put_open(draft, partition, ProducerIdentity(ProducerId(header.producer_id), header.producer_epoch), offset)
        self._appends.stable.hold(partition, offset)
        self._held.append((partition, offset))


def _wrong_epoch(header: BatchHeader, epoch: int) -> ProducerFencedError:
    return ProducerFencedError(
        f"producer {header.producer_id} sent a transactional batch in epoch {header.producer_epoch}, but its epoch is {epoch}"
    )
