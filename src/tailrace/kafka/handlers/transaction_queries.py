"""What an operator asks about transactions: DescribeProducers, DescribeTransactions and ListTransactions."""

from itertools import groupby

from tailrace.broker.broker import Broker
from tailrace.kafka.dispatch import Call, Route
from tailrace.model.errors import TailraceError
from tailrace.wire.messages import describe_producers, describe_transactions, list_transactions
from tailrace.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from tailrace.wire.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)
from tailrace.wire.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from tailrace.wire.messages.list_transactions import TransactionState as ListedTransaction

_LAST_WITHOUT_PATTERNS = 1
"""Later versions of ListTransactions take regular expressions from clients, which can be made to run for ever."""
_STATES = frozenset(
    ("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Dead", "PrepareEpochFence")
)
"""All that Kafka's transactions can be in. Ours are never in between."""


class TransactionQueryHandlers:
    def __init__(self, broker: Broker) -> None:
        self._queries = broker.transaction_queries

    def routes(self) -> list[Route]:
        return [
            Route(describe_producers.API, self.producers),
            Route(describe_transactions.API, self.describe),
            Route(list_transactions.API, self.find, highest=_LAST_WITHOUT_PATTERNS),
        ]

    def producers(self, call: Call, request: DescribeProducersRequest) -> DescribeProducersResponse:
        return DescribeProducersResponse(
            topics=tuple(
                TopicResponse(
                    name=topic.name,
                    partitions=tuple(self._producers_of(topic.name, number) for number in topic.partition_indexes),
                )
                for topic in request.topics
            )
        )

    def describe(self, call: Call, request: DescribeTransactionsRequest) -> DescribeTransactionsResponse:
        return DescribeTransactionsResponse(transaction_states=tuple(map(self._described, request.transactional_ids)))

    def find(self, call: Call, request: ListTransactionsRequest) -> ListTransactionsResponse:
        unknown = tuple(state for state in request.state_filters if state not in _STATES)
        found = self._queries.find(
            states=request.state_filters, producer_ids=request.producer_id_filters, lasting_ms=request.duration_filter
        )
        return ListTransactionsResponse(
            unknown_state_filters=unknown,
            transaction_states=tuple(
                ListedTransaction(
                    transactional_id=listing.transactional_id,
                    producer_id=listing.producer_id,
                    transaction_state=listing.state,
                )
                for listing in found
            ),
        )

    def _producers_of(self, topic: str, partition: int) -> PartitionResponse:
        try:
            found = self._queries.producers(topic, partition)
        except TailraceError as error:
            return PartitionResponse(partition_index=partition, error_code=error.kafka_code, error_message=str(error))
        return PartitionResponse(
            partition_index=partition,
            active_producers=tuple(
                ProducerState(
                    producer_id=each.producer.producer_id,
                    producer_epoch=each.producer.epoch,
                    last_sequence=each.last_sequence,
                    last_timestamp=each.last_timestamp,
                    current_txn_start_offset=each.transaction_start,
                )
                for each in found
            ),
        )

    def _described(self, transactional_id: str) -> TransactionState:
        try:
            found = self._queries.describe(transactional_id)
        except TailraceError as error:
            return TransactionState(error_code=error.kafka_code, transactional_id=transactional_id)
        return TransactionState(
            transactional_id=transactional_id,
            transaction_state=found.state,
            transaction_timeout_ms=found.timeout_ms,
            transaction_start_time_ms=found.started_ms,
            producer_id=found.producer.producer_id,
            producer_epoch=found.producer.epoch,
            topics=tuple(
                TopicData(topic=topic, partitions=tuple(number for _, number in numbers))
                for topic, numbers in groupby(sorted(found.partitions), lambda pair: pair[0])
            ),
        )
