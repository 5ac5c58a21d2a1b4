"""Queries of operators about transactions and their producers. They see durable state only."""

from collections.abc import Collection

from tailrace.broker import keys
from tailrace.broker.groups.pending_offsets import PendingOffsets
from tailrace.broker.producers.producers import describe_producer
from tailrace.broker.topics.topics import Topics
from tailrace.broker.transactions.state import NO_RECORDS, read_open, read_transaction
from tailrace.model.clock import Clock
from tailrace.model.errors import UnknownTransactionalIdError, UnstableOffsetsError
from tailrace.model.ids import TopicId
from tailrace.model.transaction import ProducerDescription, TransactionDescription, TransactionListing, TransactionState
from tailrace.store.contract import Store


class TransactionQueries:
    def __init__(self, store: Store, topics: Topics, clock: Clock, pending: PendingOffsets) -> None:
        self._store = store
        self._topics = topics
        self._permissions = topics.permissions
        self._clock = clock
        self._pending = pending

    def find(
        self, *, states: Collection[str] = (), producer_ids: Collection[int] = (), lasting_ms: int = -1
    ) -> list[TransactionListing]:
        """List transactions that the principal may describe, filtered by state and producer if any are given, and by how long
        they have been open.
        """
        now_ms = self._clock.now_ms()
        found = []
        for key, value in self._store.range(keys.TRANSACTIONS):
            transaction = read_transaction(value)
            if states and transaction.state not in states:
                continue
            if producer_ids and transaction.producer_id not in producer_ids:
                continue
            if lasting_ms >= 0 and not (transaction.is_open and now_ms - transaction.started_ms > lasting_ms):
                continue
            transactional_id = keys.transactional_id_of(key)
            if self._permissions.may("describe", "transactional_id", transactional_id):
                found.append(TransactionListing(transactional_id, transaction.producer_id, transaction.state))
        return found

    def describe(self, transactional_id: str) -> TransactionDescription:
        """Return the transaction, with those of its partitions whose topics the principal of the request may describe."""
        self._permissions.require("describe", "transactional_id", transactional_id)
        value = self._store.get(keys.transaction_key(transactional_id))
        if value is None:
            raise UnknownTransactionalIdError(f"there is no transactional id {transactional_id!r}")
        transaction = read_transaction(value)
        partitions = []
        for topic_id, number in transaction.partitions:
            live = self._topics.by_id(TopicId(topic_id))
            if live is not None and self._topics.may("describe", live.topic.name):
                partitions.append((live.topic.name, number))
        return TransactionDescription(
            transactional_id,
            transaction.identity,
            TransactionState(transaction.state),
            transaction.timeout_ms,
            transaction.started_ms,
            partitions,
        )

    def producers(self, topic: str, partition: int) -> list[ProducerDescription]:
        """Return the producers whose state the partition holds. Needs `consume` on the topic, as in Kafka."""
        self._topics.require("consume", topic)
        target = self._topics.get(topic).partition(partition)
        open_here = {
            keys.read_open_transaction_key(key)[1]: read_open(value)
            for key, value in self._store.range(keys.open_transactions_of_partition(target))
        }
        found = []
        for key, value in self._store.range(keys.producers_of_partition(target)):
            _, producer_id = keys.read_producer_key(key)
            transaction = open_here.get(producer_id)
            start = NO_RECORDS if transaction is None else transaction.first_offset
            found.append(describe_producer(producer_id, value, start))
        return found

    def check_offset_stable(self, group: str, topic: str, partition: int) -> None:
        """Raise if an open transaction holds a pending offset of the group for the partition."""
        target = self._topics.readable(topic).partition(partition)
        if self._pending.has(group, target):
            raise UnstableOffsetsError(
                f"an open transaction holds an offset of group {group!r} for partition {partition} of {topic!r};"
                " ask again when it has ended"
            )
