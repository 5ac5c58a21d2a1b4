"""Producers and transactions: InitProducerId, AddPartitionsToTxn, AddOffsetsToTxn, TxnOffsetCommit and EndTxn. For operators:
DescribeProducers, DescribeTransactions and ListTransactions.

The version of a request tells which transaction protocol its client speaks. Clients of the newer one (KIP-890) add partitions
and groups by writing to them, and get a new epoch at the end of each transaction.
"""

from collections.abc import Sequence
from itertools import groupby
from uuid import UUID

from tailrace.broker.broker import Broker
from tailrace.kafka.access import Access
from tailrace.kafka.dispatch import ApiRoute, RequestContext
from tailrace.kafka.handlers.groups import group_error_code
from tailrace.model.errors import (
    IllegalGenerationError,
    ProducerFencedError,
    StaleMemberEpochError,
    TailraceError,
    TransactionFencedError,
    UnknownTopicError,
)
from tailrace.model.group import MemberIdentity, OffsetCommit
from tailrace.model.ids import Offset, ProducerId
from tailrace.model.transaction import ProducerIdentity
from tailrace.wire.messages.transactions import (
    ADD_OFFSETS_TO_TXN_API,
    ADD_PARTITIONS_TO_TXN_API,
    DESCRIBE_PRODUCERS_API,
    DESCRIBE_TRANSACTIONS_API,
    END_TXN_API,
    INIT_PRODUCER_ID_API,
    LIST_TRANSACTIONS_API,
    TXN_OFFSET_COMMIT_API,
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
    DescribedProducer,
    DescribedTransaction,
    DescribedTransactionTopic,
    DescribeProducersPartitionResponse,
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeProducersTopicResponse,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    ListedTransaction,
    ListTransactionsRequest,
    ListTransactionsResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

_OPERATION_NOT_ATTEMPTED = 55
_LAST_OF_CLIENTS = 3
"""Later versions of AddPartitionsToTxn are for requests between brokers."""
_FENCED_SINCE = {
    ADD_PARTITIONS_TO_TXN_API.key: 2,
    ADD_OFFSETS_TO_TXN_API.key: 2,
    TXN_OFFSET_COMMIT_API.key: 3,
    END_TXN_API.key: 2,
}
"""The first versions whose clients know PRODUCER_FENCED."""
_GROUP_ADDED_SINCE = 5
_BY_TOPIC_ID = 6
"""The first version of TxnOffsetCommit that names topics by id."""
_UNKNOWN_TOPIC_ID = 100
_EPOCH_BUMPED_SINCE = 5
_LAST_WITHOUT_PREPARING = 5
"""Later versions of InitProducerId are for two-phase commits with an external coordinator."""
_INIT_FENCED_SINCE = 4
_NO_PRODUCER = -1
_STATES = frozenset(
    ("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Dead", "PrepareEpochFence")
)
"""All states of Kafka's transactions. Ours are never in one of the Prepare states."""


class TransactionHandlers:
    def __init__(self, broker: Broker) -> None:
        self._topics = broker.topics
        self._groups = broker.groups
        self._transactions = broker.transactions
        self._access = Access(broker)

    def routes(self) -> list[ApiRoute]:
        return [
            ApiRoute(ADD_PARTITIONS_TO_TXN_API, self.add_partitions, highest=_LAST_OF_CLIENTS),
            ApiRoute(ADD_OFFSETS_TO_TXN_API, self.add_offsets),
            ApiRoute(TXN_OFFSET_COMMIT_API, self.commit_offsets),
            ApiRoute(END_TXN_API, self.end),
        ]

    async def add_partitions(self, context: RequestContext, request: AddPartitionsToTxnRequest) -> AddPartitionsToTxnResponse:
        producer = _identity(request.v3_and_below_producer_id, request.v3_and_below_producer_epoch)
        topics = request.v3_and_below_topics
        partitions = [(topic.name, number) for topic in topics for number in topic.partitions]
        codes = [self._missing(name, number) for name, number in partitions]
        refusal = self._access.refusal("publish", "transactional_id", request.v3_and_below_transactional_id)
        if refusal is not None:
            codes = [refusal.kafka_code] * len(codes)
        elif any(codes):
            codes = [code or _OPERATION_NOT_ATTEMPTED for code in codes]
        else:
            try:
                await self._transactions.add_partitions(request.v3_and_below_transactional_id, producer, partitions)
            except TailraceError as error:
                codes = [_code(context, error)] * len(codes)
        code_of_each = iter(codes)
        return AddPartitionsToTxnResponse(
            results_by_topic_v3_and_below=tuple(
                AddPartitionsToTxnTopicResult(
                    name=topic.name,
                    results_by_partition=tuple(
                        AddPartitionsToTxnPartitionResult(partition_index=number, partition_error_code=next(code_of_each))
                        for number in topic.partitions
                    ),
                )
                for topic in topics
            )
        )

    async def add_offsets(self, context: RequestContext, request: AddOffsetsToTxnRequest) -> AddOffsetsToTxnResponse:
        producer = _identity(request.producer_id, request.producer_epoch)
        try:
            await self._transactions.add_group(request.transactional_id, producer, request.group_id)
        except TailraceError as error:
            return AddOffsetsToTxnResponse(error_code=_code(context, error))
        return AddOffsetsToTxnResponse()

    async def commit_offsets(self, context: RequestContext, request: TxnOffsetCommitRequest) -> TxnOffsetCommitResponse:
        member = MemberIdentity(request.member_id, request.generation_id, request.group_instance_id)
        by_id = context.version >= _BY_TOPIC_ID
        names = [self._name_by_id(topic.topic_id) if by_id else topic.name for topic in request.topics]
        commits = [
            OffsetCommit(
                name,
                partition.partition_index,
                Offset(partition.committed_offset),
                partition.committed_leader_epoch,
                partition.committed_metadata or "",
            )
            for name, topic in zip(names, request.topics, strict=True)
            if name is not None
            for partition in topic.partitions
        ]
        outcomes: Sequence[TailraceError | None]
        try:
            outcomes = await self._transactions.commit_offsets(
                request.transactional_id,
                _identity(request.producer_id, request.producer_epoch),
                request.group_id,
                commits,
                lambda: self._groups.check_commit(request.group_id, member, in_transaction=True),
                adds_group=context.version >= _GROUP_ADDED_SINCE,
            )
        except StaleMemberEpochError:
            # The clients of this request know generations only.
            outcomes = [IllegalGenerationError("the epoch of the member is not its current one")] * len(commits)
        except TailraceError as error:
            outcomes = [error] * len(commits)
        outcome_of_each = iter(outcomes)
        return TxnOffsetCommitResponse(
            topics=tuple(
                TxnOffsetCommitResponseTopic(
                    name=topic.name,
                    topic_id=topic.topic_id,
                    partitions=tuple(
                        TxnOffsetCommitResponsePartition(
                            partition_index=partition.partition_index,
                            error_code=_UNKNOWN_TOPIC_ID if name is None else _code(context, next(outcome_of_each)),
                        )
                        for partition in topic.partitions
                    ),
                )
                for name, topic in zip(names, request.topics, strict=True)
            )
        )

    async def end(self, context: RequestContext, request: EndTxnRequest) -> EndTxnResponse:
        try:
            producer_id, epoch = await self._transactions.end(
                request.transactional_id,
                _identity(request.producer_id, request.producer_epoch),
                committed=request.committed,
                bumps_epoch=context.version >= _EPOCH_BUMPED_SINCE,
            )
        except TailraceError as error:
            return EndTxnResponse(error_code=_code(context, error))
        return EndTxnResponse(producer_id=producer_id, producer_epoch=epoch)

    def _name_by_id(self, topic_id: UUID) -> str | None:
        try:
            return self._topics.readable_by_uuid(topic_id).topic.name
        except UnknownTopicError:
            return None

    def _missing(self, topic: str, partition: int) -> int:
        try:
            self._topics.require("publish", topic)
            self._topics.get(topic).partition(partition)
        except TailraceError as error:
            return error.kafka_code
        return 0


def _identity(producer_id: int, epoch: int) -> ProducerIdentity:
    return ProducerIdentity(ProducerId(producer_id), epoch)


def _code(context: RequestContext, error: TailraceError | None) -> int:
    if isinstance(error, TransactionFencedError) and context.version < _FENCED_SINCE[context.api.key]:
        return ProducerFencedError.kafka_code
    return group_error_code(error)


class ProducerHandlers:
    def __init__(self, broker: Broker) -> None:
        self._producers = broker.producers
        self._transactions = broker.transactions

    def routes(self) -> list[ApiRoute]:
        return [ApiRoute(INIT_PRODUCER_ID_API, self.init, highest=_LAST_WITHOUT_PREPARING)]

    async def init(self, context: RequestContext, request: InitProducerIdRequest) -> InitProducerIdResponse:
        if request.transactional_id is None:
            return InitProducerIdResponse(producer_id=await self._producers.allocate())
        expected = None
        if request.producer_id != _NO_PRODUCER:
            expected = ProducerIdentity(ProducerId(request.producer_id), request.producer_epoch)
        try:
            producer_id, epoch = await self._transactions.init_producer(
                request.transactional_id, request.transaction_timeout_ms, expected
            )
        except TransactionFencedError as error:
            code = error.kafka_code if context.version >= _INIT_FENCED_SINCE else ProducerFencedError.kafka_code
            return InitProducerIdResponse(error_code=code)
        except TailraceError as error:
            return InitProducerIdResponse(error_code=group_error_code(error))
        return InitProducerIdResponse(producer_id=producer_id, producer_epoch=epoch)


class TransactionQueryHandlers:
    def __init__(self, broker: Broker) -> None:
        self._queries = broker.transaction_queries
        self._expressions = broker.regular_expressions

    def routes(self) -> list[ApiRoute]:
        return [
            ApiRoute(DESCRIBE_PRODUCERS_API, self.producers),
            ApiRoute(DESCRIBE_TRANSACTIONS_API, self.describe),
            ApiRoute(LIST_TRANSACTIONS_API, self.find),
        ]

    def producers(self, context: RequestContext, request: DescribeProducersRequest) -> DescribeProducersResponse:
        return DescribeProducersResponse(
            topics=tuple(
                DescribeProducersTopicResponse(
                    name=topic.name,
                    partitions=tuple(self._producers_of(topic.name, number) for number in topic.partition_indexes),
                )
                for topic in request.topics
            )
        )

    def describe(self, context: RequestContext, request: DescribeTransactionsRequest) -> DescribeTransactionsResponse:
        return DescribeTransactionsResponse(transaction_states=tuple(map(self._described, request.transactional_ids)))

    async def find(self, context: RequestContext, request: ListTransactionsRequest) -> ListTransactionsResponse:
        unknown = tuple(state for state in request.state_filters if state not in _STATES)
        found = self._queries.find(
            states=request.state_filters, producer_ids=request.producer_id_filters, lasting_ms=request.duration_filter
        )
        pattern = request.transactional_id_pattern
        if pattern:
            matching = (await self._expressions.match([pattern], [listing.transactional_id for listing in found]))[pattern]
            found = [listing for listing in found if listing.transactional_id in matching]
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

    def _producers_of(self, topic: str, partition: int) -> DescribeProducersPartitionResponse:
        try:
            found = self._queries.producers(topic, partition)
        except TailraceError as error:
            return DescribeProducersPartitionResponse(
                partition_index=partition, error_code=error.kafka_code, error_message=str(error)
            )
        return DescribeProducersPartitionResponse(
            partition_index=partition,
            active_producers=tuple(
                DescribedProducer(
                    producer_id=each.producer.producer_id,
                    producer_epoch=each.producer.epoch,
                    last_sequence=each.last_sequence,
                    last_timestamp=each.last_timestamp,
                    current_txn_start_offset=each.transaction_start,
                )
                for each in found
            ),
        )

    def _described(self, transactional_id: str) -> DescribedTransaction:
        try:
            found = self._queries.describe(transactional_id)
        except TailraceError as error:
            return DescribedTransaction(error_code=error.kafka_code, transactional_id=transactional_id)
        return DescribedTransaction(
            transactional_id=transactional_id,
            transaction_state=found.state,
            transaction_timeout_ms=found.timeout_ms,
            transaction_start_time_ms=found.started_ms,
            producer_id=found.producer.producer_id,
            producer_epoch=found.producer.epoch,
            topics=tuple(
                DescribedTransactionTopic(topic=topic, partitions=tuple(number for _, number in numbers))
                for topic, numbers in groupby(sorted(found.partitions), lambda pair: pair[0])
            ),
        )
