"""Transactions: AddPartitionsToTxn, AddOffsetsToTxn, TxnOffsetCommit and EndTxn.

Clients that speak the newer protocol of transactions are told by the version of their request: they add partitions and groups
by writing to them, and get a new epoch with the end of each transaction.
"""

from collections.abc import Sequence

from tailrace.broker.broker import Broker
from tailrace.kafka.dispatch import Call, Route
from tailrace.kafka.handlers.groups import group_error_code
from tailrace.model.errors import ProducerFencedError, TailraceError, TransactionFencedError
from tailrace.model.group import MemberIdentity, OffsetCommit
from tailrace.model.ids import Offset, ProducerId
from tailrace.model.transaction import ProducerIdentity
from tailrace.wire.messages import add_offsets_to_txn, add_partitions_to_txn, end_txn, txn_offset_commit
from tailrace.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from tailrace.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from tailrace.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from tailrace.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

_OPERATION_NOT_ATTEMPTED = 55
_LAST_OF_CLIENTS = 3
"""Later versions of AddPartitionsToTxn are for brokers that ask each other."""
_FENCED_SINCE = {
    add_partitions_to_txn.API.key: 2,
    add_offsets_to_txn.API.key: 2,
    txn_offset_commit.API.key: 3,
    end_txn.API.key: 2,
}
"""The first versions whose clients know the error for a producer that was fenced."""
_GROUP_ADDED_SINCE = 5
_EPOCH_BUMPED_SINCE = 5


class TransactionHandlers:
    def __init__(self, broker: Broker) -> None:
        self._topics = broker.topics
        self._groups = broker.groups
        self._transactions = broker.transactions

    def routes(self) -> list[Route]:
        return [
            Route(add_partitions_to_txn.API, self.add_partitions, highest=_LAST_OF_CLIENTS),
            Route(add_offsets_to_txn.API, self.add_offsets),
            Route(txn_offset_commit.API, self.commit_offsets),
            Route(end_txn.API, self.end),
        ]

    async def add_partitions(self, call: Call, request: AddPartitionsToTxnRequest) -> AddPartitionsToTxnResponse:
        producer = _identity(request.v3_and_below_producer_id, request.v3_and_below_producer_epoch)
        topics = request.v3_and_below_topics
        partitions = [(topic.name, number) for topic in topics for number in topic.partitions]
        codes = [self._missing(name, number) for name, number in partitions]
        if any(codes):
            codes = [code or _OPERATION_NOT_ATTEMPTED for code in codes]
        else:
            try:
                await self._transactions.add_partitions(request.v3_and_below_transactional_id, producer, partitions)
            except TailraceError as error:
                codes = [_code(call, error)] * len(codes)
        told = iter(codes)
        return AddPartitionsToTxnResponse(
            results_by_topic_v3_and_below=tuple(
                AddPartitionsToTxnTopicResult(
                    name=topic.name,
                    results_by_partition=tuple(
                        AddPartitionsToTxnPartitionResult(partition_index=number, partition_error_code=next(told))
                        for number in topic.partitions
                    ),
                )
                for topic in topics
            )
        )

    async def add_offsets(self, call: Call, request: AddOffsetsToTxnRequest) -> AddOffsetsToTxnResponse:
        producer = _identity(request.producer_id, request.producer_epoch)
        try:
            await self._transactions.add_group(request.transactional_id, producer, request.group_id)
        except TailraceError as error:
            return AddOffsetsToTxnResponse(error_code=_code(call, error))
        return AddOffsetsToTxnResponse()

    async def commit_offsets(self, call: Call, request: TxnOffsetCommitRequest) -> TxnOffsetCommitResponse:
        speaker = MemberIdentity(request.member_id, request.generation_id, request.group_instance_id)
        commits = [
            OffsetCommit(
                topic.name,
                partition.partition_index,
                Offset(partition.committed_offset),
                partition.committed_leader_epoch,
                partition.committed_metadata or "",
            )
            for topic in request.topics
            for partition in topic.partitions
        ]
        outcomes: Sequence[TailraceError | None]
        try:
            outcomes = await self._transactions.commit_offsets(
                request.transactional_id,
                _identity(request.producer_id, request.producer_epoch),
                request.group_id,
                commits,
                lambda: self._groups.check_commit(request.group_id, speaker, in_transaction=True),
                adds_group=call.version >= _GROUP_ADDED_SINCE,
            )
        except TailraceError as error:
            outcomes = [error] * len(commits)
        told = iter(outcomes)
        return TxnOffsetCommitResponse(
            topics=tuple(
                TxnOffsetCommitResponseTopic(
                    name=topic.name,
                    partitions=tuple(
                        TxnOffsetCommitResponsePartition(
                            partition_index=partition.partition_index, error_code=_code(call, next(told))
                        )
                        for partition in topic.partitions
                    ),
                )
                for topic in request.topics
            )
        )

    async def end(self, call: Call, request: EndTxnRequest) -> EndTxnResponse:
        try:
            producer_id, epoch = await self._transactions.end(
                request.transactional_id,
                _identity(request.producer_id, request.producer_epoch),
                committed=request.committed,
                bumps_epoch=call.version >= _EPOCH_BUMPED_SINCE,
            )
        except TailraceError as error:
            return EndTxnResponse(error_code=_code(call, error))
        return EndTxnResponse(producer_id=producer_id, producer_epoch=epoch)

    def _missing(self, topic: str, partition: int) -> int:
        try:
            self._topics.get(topic).partition(partition)
        except TailraceError as error:
            return error.kafka_code
        return 0


def _identity(producer_id: int, epoch: int) -> ProducerIdentity:
    return ProducerIdentity(ProducerId(producer_id), epoch)


def _code(call: Call, error: TailraceError | None) -> int:
    if isinstance(error, TransactionFencedError) and call.version < _FENCED_SINCE[call.api.key]:
        return ProducerFencedError.kafka_code
    return group_error_code(error)
