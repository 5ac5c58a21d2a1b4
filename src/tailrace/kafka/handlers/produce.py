"""Produce: appends record batches. Each partition of a request succeeds or fails on its own.

The most frequent kind of request takes a fast path (`fast_produce.py`).
"""

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from tailrace.broker.broker import Broker
from tailrace.kafka.access import Access
from tailrace.kafka.dispatch import ApiRoute, DeferredResponse, EncodedResponse, RequestContext
from tailrace.kafka.handlers.fast_produce import (
    PARTITIONS_ADDED_SINCE,
    FastProduce,
    producer_error_code,
    producer_error_message,
)
from tailrace.model.errors import InvalidRecordsError, InvalidRequestError, TailraceError
from tailrace.model.ids import Offset
from tailrace.model.record import Appended, RawBatch
from tailrace.wire.batch import HEADER_BYTES, LENGTH_FROM, batch_length, is_transactional, read_header
from tailrace.wire.fast_produce import ProducedPartition, ProducedTopic, write_produce_response
from tailrace.wire.messages.produce import PRODUCE_API, PartitionProduceData, ProduceRequest, TopicProduceData
from tailrace.wire.route_decisions import DECISIONS_TOPIC

_NO_ACKS = 0
_ACKS = (-1, _NO_ACKS, 1)
_INVALID_REQUIRED_ACKS = 21
_IDS_SINCE = 13
_NO_OFFSET = -1
_NO_TIME = -1

Outcomes = Sequence[Appended | TailraceError]


class ProduceHandlers:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._permissions = broker.permissions
        self._access = Access(broker)

    def routes(self) -> list[ApiRoute]:
        # librdkafka concludes from a missing version 0 that the broker does not support compression.
        fast = FastProduce(self._broker)
        return [ApiRoute(PRODUCE_API, self.produce, overlaps=True, claimed_lowest=0, fast_path=fast.produce)]

    def produce(self, context: RequestContext, request: ProduceRequest) -> EncodedResponse | DeferredResponse:
        if request.acks not in _ACKS:
            return _all_rejected(context, request, _INVALID_REQUIRED_ACKS, f"acks is {request.acks}; it must be -1, 0 or 1")
        refusal = self._transaction_refusal(request) if self._permissions.is_on else None
        if refusal is not None:
            if request.acks == _NO_ACKS:
                raise refusal
            return _all_rejected(context, request, refusal.kafka_code, str(refusal))
        by_id = context.version >= _IDS_SINCE
        names = [self._name_of(topic, by_id) for topic in request.topic_data]
        placed: list[int | TailraceError] = []
        batches: list[RawBatch] = []
        for topic, name in zip(request.topic_data, names, strict=True):
            for partition in topic.partition_data:
                checked = name if isinstance(name, TailraceError) else _batch_of(name, partition)
                if isinstance(checked, TailraceError):
                    placed.append(checked)
                else:
                    placed.append(len(batches))
                    batches.append(checked)
        call = _ProduceCall(request, placed)
        if request.acks == _NO_ACKS:
            return DeferredResponse(self._append(context, batches), lambda done: _check_unacknowledged(call, done))
        return DeferredResponse(self._append(context, batches), lambda done: _response(context, call, done))

    def _transaction_refusal(self, request: ProduceRequest) -> TailraceError | None:
        """Return why the request may not write in a transaction, if it does. Each batch needs the right to the transactional id
        that its producer has, whatever the request says."""
        batches = [partition.records for topic in request.topic_data for partition in topic.partition_data if partition.records]
        owners = {
            self._broker.transaction_services.appends.registry.owner_of(read_header(batch).producer_id)
            for batch in batches
            if len(batch) >= HEADER_BYTES and is_transactional(batch)
        }
        if not owners:
            return None
        names = {request.transactional_id or "", *(owner for owner in owners if owner is not None)}
        refusals = (self._access.refusal("publish", "transactional_id", name) for name in sorted(names))
        return next((refusal for refusal in refusals if refusal is not None), None)

    def _append(self, context: RequestContext, batches: Sequence[RawBatch]) -> "asyncio.Future[Outcomes]":
        if any(batch.topic == DECISIONS_TOPIC for batch in batches):
            return asyncio.ensure_future(self._take_decisions(batches))
        if batches:
            adds_partitions = context.version >= PARTITIONS_ADDED_SINCE
            return self._broker.appender.append(batches, adds_partitions=adds_partitions)  # type: ignore[return-value]
        nothing: asyncio.Future[Outcomes] = asyncio.get_running_loop().create_future()
        nothing.set_result(())
        return nothing

    async def _take_decisions(self, batches: Sequence[RawBatch]) -> Outcomes:
        """Give the decisions of the router's query to the intake. They are not stored, so they have no offsets."""
        if len(batches) > 1:
            raise InvalidRequestError(f"a request that writes to {DECISIONS_TOPIC!r} can't write to other partitions")
        await self._broker.intake.take_batch(batches[0].batch)
        return [Appended(Offset(0), None, _NO_TIME, 0, Offset(0))]

    def _name_of(self, topic: TopicProduceData, by_id: bool) -> str | TailraceError:
        if not by_id:
            return topic.name
        try:
            return self._broker.topics.by_uuid(topic.topic_id).topic.name
        except TailraceError as error:
            return error


class _ProduceCall(NamedTuple):
    request: ProduceRequest
    placed: Sequence[int | TailraceError]
    """For each partition in order: the index of its batch, or why it was rejected."""

    def outcomes(self, done: "asyncio.Future[Outcomes]") -> list[Appended | TailraceError]:
        error = done.exception()
        if error is not None and not isinstance(error, TailraceError):
            raise error
        appended = () if error is not None else done.result()
        return [
            place if isinstance(place, TailraceError) else error if error is not None else appended[place]
            for place in self.placed
        ]


def _batch_of(name: str, partition: PartitionProduceData) -> RawBatch | TailraceError:
    """Return the batch of a partition, or why it is rejected: a request holds exactly one batch for each partition."""
    records = partition.records
    if not records:
        return InvalidRecordsError("the partition has no record batch; send exactly one")
    if len(records) >= LENGTH_FROM and LENGTH_FROM < batch_length(records) + LENGTH_FROM < len(records):
        return InvalidRecordsError("the partition has more than one record batch; send exactly one")
    return RawBatch(name, partition.index, records)


def _response(context: RequestContext, call: _ProduceCall, done: "asyncio.Future[Outcomes]") -> EncodedResponse:
    outcomes = iter(call.outcomes(done))
    topics = [
        ProducedTopic(
            topic.name,
            topic.topic_id,
            [_produced(topic, partition.index, next(outcomes)) for partition in topic.partition_data],
        )
        for topic in call.request.topic_data
    ]
    return EncodedResponse((write_produce_response(context.version, topics),))


def _check_unacknowledged(call: _ProduceCall, done: "asyncio.Future[Outcomes]") -> None:
    """Close the connection of a client that wants no response if its produce failed, as Kafka does."""
    for outcome in call.outcomes(done):
        if isinstance(outcome, TailraceError):
            raise InvalidRequestError(f"a produce with acks=0 failed: {outcome}")


def _all_rejected(context: RequestContext, request: ProduceRequest, code: int, message: str) -> EncodedResponse:
    topics = [
        ProducedTopic(
            topic.name, topic.topic_id, [_rejected(partition.index, code, message) for partition in topic.partition_data]
        )
        for topic in request.topic_data
    ]
    return EncodedResponse((write_produce_response(context.version, topics),))


def _produced(topic: TopicProduceData, number: int, outcome: Appended | TailraceError) -> ProducedPartition:
    if isinstance(outcome, TailraceError):
        message = producer_error_message(outcome, is_named=bool(topic.name))
        return _rejected(number, producer_error_code(outcome), message)
    return ProducedPartition(number, 0, outcome.base_offset, outcome.append_time, outcome.log_start)


def _rejected(number: int, code: int, message: str) -> ProducedPartition:
    return ProducedPartition(number, code, _NO_OFFSET, _NO_TIME, _NO_OFFSET, message)
